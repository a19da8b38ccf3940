"""Cycles of convolution and matrix product vertices, on a tile's matrix unit (AMP) or its vector unit.

Every count may be an int or an integer array. Arrays broadcast, so a planner weighs all its candidates at once.
Source: poplin `PerformanceEstimation.hpp`, getConvPartial1x1..., getConvPartialnx1....
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from xdsl.ir import Attribute

from populus.dialects.poplar.target import Target
from populus.dialects.support.element_types import is_byte, size_in_bytes

Count: TypeAlias = "int | NDArray[Any]"
"""One number, or an array with one for each candidate or box."""

WORKERS = 6
WEIGHT_LOADS = 4  # cycles to load one unit's weights: 4 deep, one data path wide, over one data path


def ceil_div(a: Count, b: Count) -> Any:
    """Divides and rounds up."""
    return -(-a // b)


def _units(half: bool, units: int | None) -> int:
    return units if units is not None else 16 if half else 8


def amp_1x1(positions: Count, in_groups: Count, out_groups: Count, half: bool, units: int | None = None) -> Any:
    """Estimates a product of [positions, in channels] with [in channels, out channels] (ConvPartial1x1Out).

    Channels come in groups of `units` (default: a GC200's). For each pair of groups the vertex loads the weights.
    Six workers then stream the positions: n = ceil(positions / 6) each, at 4 cycles in half and 8 in float, plus a
    pipeline fill. The first in-group clears the partials instead of reading them.
    """
    loads = WEIGHT_LOADS * _units(half, units)
    n = ceil_div(positions, WORKERS)
    few = np.where(n == 2, 41, np.where(n == 1, 32, 21))
    if half:  # less 7: state stays in registers between calls
        adding, clearing = np.where(n >= 3, 38 + 4 * (n - 3), few) - 7, np.where(n >= 3, 37 + 4 * (n - 3), few) - 7
    else:
        adding = np.where(n >= 3, 46 + 8 * (n - 3), few)
        clearing = adding + 4 * n
    further = (in_groups - 1) * (15 + out_groups * (25 + loads + WORKERS * adding))
    first = out_groups * (25 + loads + WORKERS * clearing)
    return 50 + WORKERS * (7 + 3 * (in_groups - 1)) + 13 + further + 11 + first


def amp_nx1(rows: Count, cols: Count, in_groups: Count, out_groups: Count, taps: Count, half: bool, units: int | None = None) -> Any:
    """Estimates a convolution with `taps` kernel elements over rows x cols output positions (ConvPartialnx1).

    Each pair of channel groups and each tap takes a weight load and a pass of the workers. Workers share the rows,
    and the columns too if there are fewer rows than workers. The partials are cleared first.
    """
    width = _units(half, units)
    loads = WEIGHT_LOADS * width
    worker_rows = np.maximum(1, ceil_div(rows, WORKERS))
    n = np.maximum(3, ceil_div(ceil_div(rows * cols, WORKERS), worker_rows))
    worker = 17 + worker_rows * ((28 + 4 * (n - 3)) if half else (48 + 8 * (n - 3)))
    inner = 14 + taps * (30 + loads + WORKERS * worker)
    clear = WORKERS * (ceil_div(ceil_div(rows * cols * out_groups * width, 4 if half else 2), WORKERS) + 5)
    return 109 + WORKERS * 18 + out_groups * 23 + 16 + in_groups * (14 + out_groups * (14 + inner)) + clear


def vector_macs(outputs: Count, depth: Count, element: Attribute, target: Target) -> Any:
    """Estimates `outputs` sums of `depth` products on the vector unit, with adjacent outputs in a vector.

    Contractions with few channels per group take this form (depthwise convolutions, ConvPartialVerticalMac): 2
    cycles per vector and product, and 3 to begin a row of them.
    """
    vectors = ceil_div(ceil_div(outputs, target.vector_width(element)), target.workers)
    return 58 + target.workers * (16 + vectors * (3 + 2 * depth))


def contraction(
    groups: Count, rows: Count, cols: Count, out_channels: Count, in_channels: Count, taps: Count, element: Attribute, target: Target
) -> Any:
    """Estimates a contraction vertex by its cheapest form.

    y[group, row, col, out] = sum over in and tap. A matrix product [m, k] x [k, n] has m rows, 1 column, n out
    channels, k in channels and one tap. Products in a batch are groups; images in a batch are rows.
    """
    outputs, depth = groups * rows * cols * out_channels, in_channels * taps
    if target.workers == 1:  # a CPU core: its rate, and the cost of a kernel call
        return 200 + ceil_div(outputs * depth, target.macs_per_cycle(element))
    if is_byte(element):
        sums = vector_macs(outputs, depth, element, target)
        return np.minimum(sums, 200 + ceil_div(outputs * depth, target.byte_macs)) if target.byte_macs else sums
    half = size_in_bytes(element) == 2
    units = target.channel_grain(element)
    i, o = ceil_div(in_channels, units), ceil_div(out_channels, units)
    product: NDArray[Any] = np.asarray(amp_1x1(rows * cols, i, o, half, units))
    convolution: NDArray[Any] = np.asarray(amp_nx1(rows, cols, i, o, taps, half, units))
    matrix: NDArray[Any] = np.where(np.equal(taps, 1), product, convolution)
    return np.minimum(groups * matrix, vector_macs(outputs, depth, element, target))
