"""The plan of a convolution or matrix product: every candidate cut at once, as NumPy arrays, cheapest first.

Follows PopLibs' planner in what it weighs (poplin ConvPlan: exchange of inputs, weights and partials, the partial
convolutions, the reduction, temporaries against a share of the tile's memory), not in how it searches: the distinct ceiling
divisions of each axis are few enough to try all (`reference` figures: 0.3-10 ms a shape).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from xdsl.dialects.builtin import f32
from xdsl.ir import Attribute

from populus.dialects.element_types import is_float, size_in_bytes
from populus.dialects.poplar.partition import Split
from populus.dialects.poplar.target import Target
from populus.runtime.cycles import contraction, reduce_cycles

MEMORY_SHARE = 0.6  # of a tile, for temporaries. Source: poplin's availableMemoryProportion
CANDIDATES = 60_000  # above this, spatial axes beyond the first are not cut

Counts = NDArray[np.int64]


@dataclass(frozen=True)
class Contraction:
    """`y[g, b, oc, o..] = sum over ic, k.. of x[g, b, ic, o stride + k dilation ..] w[g, oc, ic, k..]`.

    A matrix product [g, m, k] x [g, k, n] is groups g, oc = n, ic = k, one spatial axis of m and kernel 1.
    """

    groups: int
    batch: int
    out_channels: int
    in_channels: int
    windows: tuple[int, ...]
    kernel: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def macs(self) -> int:
        return self.groups * self.batch * self.out_channels * self.in_channels * math.prod(self.windows) * math.prod(self.kernel)


@dataclass(frozen=True)
class Plan:
    """The parts of each axis, with what they are predicted to cost on the fullest tile."""

    groups: int
    batch: int
    out_channels: int
    in_channels: int
    windows: tuple[int, ...]
    kernel: int  # parts of the first kernel axis; the others stay whole
    channel_grain: int
    cycles: int
    temporary_bytes: int
    candidates: int

    @property
    def partials(self) -> int:
        """Partial results of each output element, to be reduced."""
        return self.in_channels * self.kernel


def accumulator(element: Attribute) -> Attribute:
    """The element type of partial results: halves are summed as floats."""
    return f32 if is_float(element) and size_in_bytes(element) < 4 else element


def stages(depth: Any, outputs: int, target: Target) -> Any:
    """In how many stages `depth` partials of each of `outputs` elements are reduced. `depth`: a number or an array.

    One where the outputs alone occupy the tiles: a further stage would then only move data twice. With fewer outputs, stages
    let more tiles help: 2 from 16 partials on, 3 from 125 (Source: poplin's multi-stage reduction).
    """
    if 2 * outputs >= target.tiles:
        return np.ones_like(depth)
    return 1 + (np.asarray(depth) >= 16) + (np.asarray(depth) >= 125)


def part_counts(grains: int) -> Counts:
    """Part counts that differ in their largest part, fewest parts for each: about 2 sqrt(grains) of them."""
    k = np.arange(1, grains + 1)
    return np.unique(-(-grains // -(-grains // k)))


@lru_cache(None)
def plan(shape: Contraction, element: Attribute, target: Target) -> Plan:
    """Fewest cycles with temporaries within the memory share; where nothing fits, least temporaries.

    Ties go to fewer bytes, then fewer tiles, then fewer parts in a fixed order of axes: the same plan every time.
    """
    grain = target.channel_grain(element)
    axes = [
        shape.groups,
        shape.batch,
        -(-shape.out_channels // grain),
        -(-shape.in_channels // grain),
        *shape.windows,
        shape.kernel[0],
    ]
    parts = _candidates([max(n, 1) for n in axes], target.tiles)
    used = np.prod(parts, axis=0)
    groups, batch, out_channels, in_channels, *windows, kernel = parts

    def share(n: int, cut: Counts) -> Counts:
        return -(-n // cut)

    g, b = share(shape.groups, groups), share(shape.batch, batch)
    oc = np.minimum(share(axes[2], out_channels) * grain, shape.out_channels)
    ic = np.minimum(share(axes[3], in_channels) * grain, shape.in_channels)
    outs = [share(n, p) for n, p in zip(shape.windows, windows)]
    taps = [share(shape.kernel[0], kernel), *(np.full_like(kernel, k) for k in shape.kernel[1:])]
    size = size_in_bytes(element)
    reach = [(o - 1) * s + k for o, s, k in zip(outs, shape.strides, taps)]
    x_bytes = g * b * ic * np.prod(reach, axis=0) * size
    w_bytes = g * oc * ic * np.prod(taps, axis=0) * size
    outputs = g * b * oc * np.prod(outs, axis=0)
    partial_bytes = outputs * max(size, 4)

    depth = in_channels * kernel
    # Input halves arrive on a bus that two neighbouring tiles share where both want them (poplin's exchange estimate).
    x_rate = np.where(out_channels % 2 == 0, 2.0, 1.0) * target.exchange_bytes
    exchange = x_bytes * (1 - 1 / out_channels) / x_rate + w_bytes * (1 - 1 / (np.prod(windows, axis=0) * batch)) / target.exchange_bytes
    rows, cols = b * outs[0], np.prod(np.asarray(outs[1:]), axis=0) if len(outs) > 1 else np.ones_like(b)
    compute = contraction(g, rows, cols, oc, ic, np.prod(taps, axis=0), element, target)
    all_outputs = shape.groups * shape.batch * shape.out_channels * math.prod(shape.windows)
    per_tile = -(-all_outputs // target.tiles)
    reduction = per_tile * depth * max(size, 4) / target.exchange_bytes + reduce_cycles(per_tile, depth, accumulator(element), target)
    steps = 1 + np.where(depth > 1, stages(depth, all_outputs, target), 0)
    overhead = steps * (2 * target.sync_cycles + target.exchange_setup_cycles)
    cycles = exchange + compute + np.where(depth > 1, reduction, 0) + overhead
    temporary = x_bytes + w_bytes + partial_bytes
    key = cast("Counts", np.where(temporary <= MEMORY_SHARE * target.tile_bytes, cycles, 1e15 + temporary))
    best = int(np.lexsort((*parts, used, temporary, key))[0])
    chosen = [int(p[best]) for p in parts]
    return Plan(
        groups=chosen[0],
        batch=chosen[1],
        out_channels=chosen[2],
        in_channels=chosen[3],
        windows=tuple(chosen[4:-1]),
        kernel=chosen[-1],
        channel_grain=grain,
        cycles=int(cycles[best]),
        temporary_bytes=int(temporary[best]),
        candidates=len(used),
    )


def _candidates(axes: Sequence[int], tiles: int) -> list[Counts]:
    """All combinations of part counts whose product is at most the tiles, one array per axis.

    Built axis by axis, dropping what already exceeds the tiles, so memory is bounded by what survives.
    """
    parts: list[Counts] = []
    used = np.ones(1, np.int64)
    for n in axes:
        counts = part_counts(n)
        counts = counts[counts <= tiles]
        if len(used) * len(counts) > 4 * CANDIDATES:  # keep powers of two and the extremes
            counts = counts[(counts & (counts - 1) == 0) | (counts == counts[-1])]
        product = used[:, None] * counts[None, :]
        rows, columns = np.nonzero(product <= tiles)
        parts = [p[rows] for p in parts] + [counts[columns]]
        used = product[rows, columns]
    return parts


def splits_of(n: int, parts: int, grain: int = 1) -> Split:
    """A split of `n` into as many parts as asked, or fewer where `n` has fewer grains."""
    return Split(n, min(parts, max(-(-n // grain), 1)), grain)
