"""Choice of Winograd's algorithm for a convolution: F(2x2, 3x3) or F(4x4, 3x3) instead of sums of 9 products."""

from __future__ import annotations

from dataclasses import replace

from xdsl.dialects.builtin import f32
from xdsl.ir import Attribute

from populus.dialects.poplar.target import Target
from populus.lowering.poplar.plan.contraction import Contraction, Plan
from populus.runtime.cycles import contraction, winograd_cycles

CHANNELS = 16  # input and output channels from which the transforms are a small part of the work
SIDE = 9  # rows and columns from which the transformed weights, 16/9 or 4 times as many, are not most of the memory read
SIDE_OF_4 = 20  # and from which tiles of 4 by 4 waste little at the border


def winograd_tile(shape: Contraction, dilations: tuple[int, ...], element: Attribute, target: Target, largest: int) -> int:
    """Returns the outputs of a tile's side: 2 or 4, or 0 for the sums of a direct convolution.

    Only for CPUs, as measured on them. `largest`: the largest tile allowed.
    """
    three = shape.kernel == (3, 3) and set(shape.strides) == {1} == set(dilations) and shape.groups == 1
    if not three or element != f32 or target.workers > 1:
        return 0
    if min(shape.in_channels, shape.out_channels) < CHANNELS or min(shape.windows) < SIDE:
        return 0
    batch, oc, ic, (rows, cols) = shape.batch, shape.out_channels, shape.in_channels, shape.windows
    costs = {0: int(contraction(1, batch * rows, cols, oc, ic, 9, element, target))}
    for tile in (2, 4):
        if tile <= largest and (tile == 2 or min(shape.windows) >= SIDE_OF_4):
            costs[tile] = int(winograd_cycles(tile, batch, oc, ic, rows, cols, element, target))
    return min(costs, key=lambda tile: costs[tile])


def whole_sums(shape: Contraction, plan: Plan, target: Target) -> Plan:
    """Replaces cuts of the sums, which Winograd's algorithm does not allow, by cuts of output channels and rows."""
    if plan.in_channels == plan.kernel == 1:
        return plan
    channels = min(target.tiles, -(-shape.out_channels // plan.out_grain))
    rows = min(target.tiles // channels, shape.windows[0])
    parts = (rows, *(1 for _ in shape.windows[1:]))
    return replace(plan, batch=1, out_channels=channels, in_channels=1, windows=parts, kernel=1)
