"""Choice of Winograd's algorithm for a convolution: F(2x2, 3x3) or F(4x4, 3x3) instead of sums of 9 products."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from xdsl.dialects.builtin import f32
from xdsl.ir import Attribute

from populus.dialects.base.tensor_op import ints
from populus.dialects.poplar.target import Target
from populus.dialects.poplin import ConvolutionOp
from populus.dialects.support.element_types import element_type_of, size_in_bytes
from populus.lowering.poplar.plan.contraction import Contraction, Plan, cheapest, options, shape_of_contraction
from populus.lowering.poplar.plan.weights import Arguments, constants_of
from populus.runtime.cycles import Products, contraction, winograd_cycles, winograd_transform_cycles

CHANNELS = 16  # input and output channels from which the transforms are a small part of the work
SIDE = 9  # rows and columns from which the transformed weights, 16/9 or 4 times as many, are not most of the memory read
SIDE_OF_4 = 20  # and from which tiles of 4 by 4 waste little at the border
PLACES = 16  # of a dilated convolution at most: each is a step of its own
COPIED = 64  # channels from which copies of every d-th column are a small part of the work
GAIN = 0.9  # of the cycles of direct sums: three steps merge less with those around them than one


def winograd_tile(shape: Contraction, dilations: tuple[int, ...], element: Attribute, target: Target, largest: int) -> int:
    """Returns the outputs of a tile's side: 2 or 4, or 0 for the sums of a direct convolution.

    Only for CPUs, as measured on them. `largest`: the largest tile allowed. A dilated convolution is one of every d-th element for each
    place modulo d; if columns are dilated, they are copied to be adjacent.
    """
    if not target.call_cycles or len(shape.windows) != 2:
        return 0
    direct = int(
        contraction(
            Products(1, shape.batch * shape.windows[0], shape.windows[1], shape.out_channels, shape.in_channels, 9, element, target)
        )
    )
    places = math.prod(dilations)
    shape = replace(shape, batch=shape.batch * places, windows=tuple(-(-n // d) for n, d in zip(shape.windows, dilations)))
    batch, oc, ic, (rows, cols) = shape.batch, shape.out_channels, shape.in_channels, shape.windows
    if not _is_possible(shape, (1, 1), element) or places > PLACES or (dilations[1] > 1 and min(oc, ic) < COPIED):
        return 0
    costs = {0: direct}
    for tile in (2, 4):
        if tile <= largest and (tile == 2 or min(shape.windows) >= SIDE_OF_4):
            costs[tile] = int(winograd_cycles(tile, batch, oc, ic, rows, cols, element, target))
    return min(costs, key=lambda tile: costs[tile])


def _is_possible(shape: Contraction, dilations: tuple[int, ...], element: Attribute) -> bool:
    """Tells whether a convolution is one that tiles may compute, and large enough for them."""
    three = shape.kernel == (3, 3) and set(shape.strides) == {1} == set(dilations) and shape.groups == 1
    large = min(shape.in_channels, shape.out_channels) >= CHANNELS and min(shape.windows) >= SIDE
    return three and large and element == f32


@dataclass(frozen=True)
class Tiles:
    """Choice of convolutions that a machine of many tiles computes in tiles of 2 by 2 outputs, as transforms and 16 products.

    `traffic`: as of `poplin-to-poplar`; `share`: of a tile, for temporaries; `price`: the cycles that a byte of resident weights costs.
    """

    target: Target
    traffic: float
    share: float
    price: float

    def products(self, op: ConvolutionOp, arguments: Arguments) -> Contraction | None:
        """Returns the products of a convolution by a constant of one call, where they and the transforms cost less than direct
        sums; else None.
        """
        if (products := products_in_tiles(op, arguments)) is None:
            return None
        target, shape, element = self.target, shape_of_contraction(op), element_type_of(op.x.type)
        oc, ic, (tiles,) = products.out_channels, products.in_channels, products.windows
        cycles = self._cost(products, element)
        for channels in (ic, oc):
            each = -(-channels * tiles // target.tiles)  # tiles of outputs on a tile of the machine, which receives their 16 elements
            received = 16 * size_in_bytes(element) * each
            cycles += int(winograd_transform_cycles(channels == ic, each, element, target)) + received * self.traffic
            cycles += received / target.exchange_bytes + 2 * target.sync_cycles + target.exchange_setup_cycles
        return products if cycles < GAIN * self._cost(shape, element) else None

    def _cost(self, shape: Contraction, element: Attribute) -> float:
        """Computes the cycles of the cheapest plan, with the price of its resident weights; infinite if none fits."""
        found = options(shape, element, self.target, None, self.traffic, self.share)
        best = cheapest(found, self.price)
        return best.cycles + self.price * best.resident_bytes if found[0].fits else math.inf


def products_in_tiles(op: ConvolutionOp, arguments: Arguments) -> Contraction | None:
    """Returns the products of a convolution by a constant of one call in tiles of 2 by 2 outputs; None if tiles cannot compute it."""
    shape, element = shape_of_contraction(op), element_type_of(op.x.type)
    if len(constants_of(op.w, arguments)) != 1 or element != element_type_of(op.y.type):
        return None
    if not _is_possible(shape, tuple(ints(op.dilations)), element):
        return None
    tiles = shape.batch * math.prod(-(-n // 2) for n in shape.windows)
    return Contraction(16, 1, shape.out_channels, shape.in_channels, (tiles,), (1,), (1,))


def whole_sums(shape: Contraction, plan: Plan, target: Target) -> Plan:
    """Replaces cuts of the sums, which Winograd's algorithm does not allow, by cuts of output channels and rows."""
    if plan.in_channels == plan.kernel == 1:
        return plan
    channels = min(target.tiles, -(-shape.out_channels // plan.out_grain))
    rows = min(target.tiles // channels, shape.windows[0])
    parts = (rows, *(1 for _ in shape.windows[1:]))
    return replace(plan, batch=1, out_channels=channels, in_channels=1, windows=parts, kernel=1)
