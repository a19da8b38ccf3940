"""Cycles of convolution and matrix product vertices, on a tile's matrix unit (AMP) or its vector unit.

Every count may be an int or an integer array. Arrays broadcast, so a planner weighs all its candidates at once.
Source: poplin `PerformanceEstimation.hpp`, getConvPartial1x1..., getConvPartialnx1..., getConvPartialSlic....
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from xdsl.ir import Attribute

from populus.dialects.poplar.target import Target, sum_type
from populus.dialects.support.element_types import is_byte, size_in_bytes
from populus.runtime.cycles.counts import Count, ceil_div
from populus.runtime.cycles.products import Products


@dataclass(frozen=True)
class Amp:
    """A call of the matrix unit: `units` out-channels of halves or floats, summed as halves or floats.

    `rows`: kernel rows that one call takes together, where in-channels leave room for them (1, 2 or 4).
    """

    half: bool
    units: int = 16
    half_sums: bool = False
    rows: int = 1
    workers: int = 6
    load_bytes: int = 8  # of weights in a cycle; twice as many from interleaved memory
    unit_bytes: int = 32  # of weights in one unit

    @staticmethod
    def of(target: Target, half: bool, units: int, half_sums: bool, rows: int = 1) -> Amp:
        """Builds the calls of a machine."""
        return Amp(half, units, half_sums, rows, target.workers, target.load_bytes, target.unit_bytes)

    def bytes(self, groups: Count) -> Any:
        """Computes the bytes of weights that so many calls load."""
        return groups * self.unit_bytes * self.units

    def load(self, weights: Count = 1, interleaved: int = 0) -> Any:
        """Computes the cycles in which the supervisor loads the weights of all units.

        `weights`: bytes of the vertex. They are loaded at twice the rate if they fit the machine's `interleaved` bytes,
        but where four kernel rows share a call.
        """
        slow = self.unit_bytes * self.units // self.load_bytes
        return slow if self.rows == 4 or not interleaved else np.where(np.less_equal(weights, interleaved), slow // 2, slow)

    @property
    def shared_path(self) -> bool:
        """Halves on 16 units, or any elements that are summed as floats: one code in PopLibs."""
        return not self.half_sums or (self.half and self.units >= 16)

    @property
    def kept(self) -> int:
        """The worker cycles that state kept in registers saves from call to call."""
        return 7 if self.half and self.shared_path else 0

    def worker(self, n: Count, clears: bool) -> Any:
        """Estimates a worker of ConvPartial1x1Out over n positions: 4 cycles each for halves, 8 for floats."""
        if self.half and self.shared_path:
            return _of_few(n, (20, 31, 40, 36), 4) + (1 if clears else 2) - self.kept
        cycles = _of_few(n, (24, 39, 40, 41), 4) if self.half else _of_few(n, (24, 47, 46, 46), 8)
        each = 8 if not self.half and self.units >= 16 else 2 if self.half_sums else 4
        return cycles + np.where(n, 2 + each * n, 0) if clears else cycles

    def row(self, n: Count) -> Any:
        """Estimates n positions of one row in a worker of ConvPartialnx1."""
        if not self.half:
            return 3 - 9 + _of_few(n, (17, 33, 44, 45), 8)
        return 3 - 9 + _of_few(n, (17, 29, 34 if self.units == (16 if self.half_sums else 8) else 33, 34), 4)

    def call(self, positions: Count, clears: bool) -> Any:
        """Estimates the workers of ConvPartial1x1Out, which share the positions. The last to start waits 14 cycles."""
        most, least = self.worker(ceil_div(positions, self.workers), clears), self.worker(positions // self.workers, clears)
        last = np.where(np.less(positions, self.workers), 0, self.workers * np.minimum(most, least))
        return np.maximum(self.workers * np.maximum(most, least), last + 14)


def _of_few(n: Count, cycles: tuple[int, int, int, int], further: int) -> Any:
    """Gives the cycles of 0, 1, 2 and 3 positions, and of more with `further` for each."""
    return np.take(np.array(cycles), np.minimum(n, 3)) + further * np.maximum(np.asarray(n) - 3, 0)


def amp_1x1(positions: Count, in_groups: Count, out_groups: Count, amp: Amp, groups: Count = 1, interleaved: int = 0) -> Any:
    """Estimates a product of [positions, in channels] with [in channels, out channels] (ConvPartial1x1Out).

    Channels come in groups of the unit's. For each pair of groups the vertex loads the weights, and the workers
    stream the positions. The first in-group clears the partials instead of reading them. `groups`: products.
    """
    shared, kept = int(amp.shared_path), amp.kept and 3
    load = amp.load(amp.bytes(groups * in_groups * out_groups), interleaved)
    further = (in_groups - 1) * (16 - shared + out_groups * (25 + load + amp.call(positions, False)))
    first = out_groups * (26 - shared + load + amp.call(positions, True))
    return 50 + amp.workers * (amp.kept + kept * (in_groups * groups - 1)) + groups * (12 + shared + further + 11 + first)


def amp_nx1(
    rows: Count,
    cols: Count,
    in_groups: Count,
    out_groups: Count,
    taps: Count,
    amp: Amp,
    kernel_rows: Count = 1,
    groups: Count = 1,
    interleaved: int = 0,
) -> Any:
    """Estimates a convolution with `taps` kernel elements over rows x cols output positions (ConvPartialnx1).

    Each pair of channel groups and each tap takes a weight load and a pass of the workers; `amp.rows` rows of the
    kernel share a tap. Workers share the rows, and the columns too if there are fewer rows than workers. The partials
    are cleared first.
    """
    outer = ceil_div(kernel_rows, amp.rows)
    calls = outer * (taps // kernel_rows)
    worker_rows = np.maximum(1, ceil_div(rows, amp.workers))
    n = ceil_div(ceil_div(rows * cols, amp.workers), worker_rows)
    pass_of_all = amp.workers * (17 + amp.half_sums + worker_rows * amp.row(n))
    shuffle = {1: 15, 2: 46, 4: 60}[amp.rows]
    load = amp.load(amp.bytes(groups * in_groups * out_groups * calls), interleaved)
    inner = 14 * outer + calls * (12 + load + shuffle + 3 + pass_of_all)
    vector = 4 if amp.half_sums else 2
    clear = out_groups * amp.workers * (ceil_div(ceil_div(rows * cols * amp.units, vector), amp.workers) + 5)
    cycles = out_groups * 23 + 10 + clear + in_groups * (14 + out_groups * (14 + inner))
    return 111 + amp.workers * (18 + amp.half_sums) + groups * cycles


def slic(rows: Count, cols: Count, groups: Count, taps: Count, kernel_rows: Count, channels: int, stride: int, half_sums: bool) -> Any:
    """Estimates a convolution of `groups` groups of 1, 2 or 4 channels in and out, in halves (ConvPartial1xNSLIC).

    One call takes 4 groups of one channel, 2 of two or 1 of four, and 4 kernel elements of a row. A position takes
    a cycle in each pass; sums as floats take two passes. The innermost stride is 1 or 2.
    """
    workers, together = 6, 4 // channels
    bundles, blocks = ceil_div(groups, together), kernel_rows * ceil_div(taps // kernel_rows, 4)
    load = 34 if channels == 4 else 37 + workers * (12 if channels == 2 else 10)
    worker_rows = np.maximum(1, ceil_div(rows, workers))
    n = ceil_div(ceil_div(rows * cols, workers), worker_rows)
    row: NDArray[Any] = np.asarray(10 + n + 3 * np.less(n, 5) if stride == 1 else 15 + 2 * np.maximum(n - 3, 0))
    once = 17 + worker_rows * (10 + (row if half_sums else 3 + 2 * (row - 1)))
    body = (load + 20) * blocks + 6 * (blocks - 1) + 1
    return 28 + 15 * bundles + 6 * (bundles - 1) + 1 + bundles * (body + workers * (blocks * once + worker_rows))


def vector_macs(outputs: Count, depth: Count, element: Attribute, target: Target) -> Any:
    """Estimates `outputs` sums of `depth` products on the vector unit, with adjacent outputs in a vector.

    Contractions with few channels per group take this form (depthwise convolutions, ConvPartialVerticalMac): 2
    cycles per vector and product, and 3 to begin a row of them.
    """
    vectors = ceil_div(ceil_div(outputs, target.vector_width(element)), target.workers)
    return 58 + target.workers * (16 + vectors * (3 + 2 * depth))


def contraction(v: Products) -> Any:
    """Estimates a contraction vertex by its cheapest form."""
    groups, rows, cols, taps = v.groups, v.rows, v.cols, v.taps
    out_channels, in_channels, element, target = v.out_channels, v.in_channels, v.element, v.target
    outputs, depth = groups * rows * cols * out_channels, in_channels * taps
    sums = sum_type(element, v.partials)
    if target.call_cycles:  # a CPU core: its rate, and the cost of a kernel call
        return target.call_cycles + ceil_div(outputs * depth, target.macs_per_cycle(element))
    if is_byte(element):
        products = vector_macs(outputs, depth, element, target)
        return np.minimum(products, 200 + ceil_div(outputs * depth, target.byte_macs)) if target.byte_macs else products
    half, half_sums, inputs = size_in_bytes(element) == 2, size_in_bytes(sums) == 2, target.in_channels(element)
    fast = min(target.interleaved_bytes, target.tile_bytes)
    if v.swapped:
        rows, cols, out_channels = out_channels, 1, rows * cols
    cheapest: Any = vector_macs(outputs, depth, element, target)
    all_units = target.out_channels(element, sums)
    for units in (all_units, 8) if all_units > 8 and np.any(np.less_equal(out_channels, 8)) else (all_units,):
        o = ceil_div(out_channels, units)
        amp = Amp.of(target, half, units, half_sums)
        i = ceil_div(in_channels, inputs)
        product: NDArray[Any] = np.asarray(amp_1x1(rows * cols, i, o, amp, groups, fast))
        if np.any(np.greater(taps, 1)):
            product = np.where(np.equal(taps, 1), product, amp_nx1(rows, cols, i, o, taps, amp, v.kernel_rows, groups, fast))
        cheapest = np.minimum(cheapest, product)
        for together in (2, 4) if np.any(np.less_equal(in_channels, inputs // 2)) and np.any(np.greater(v.kernel_rows, 1)) else ():
            folded, i = Amp.of(target, half, units, half_sums, together), ceil_div(in_channels, max(1, inputs // together))
            cheapest = np.minimum(cheapest, amp_nx1(rows, cols, i, o, taps, folded, v.kernel_rows, groups, fast))
    if half and target.slic_taps and v.stride <= 2:
        widest: NDArray[Any] = np.asarray(np.maximum(in_channels, out_channels))
        for channels in (1, 2, 4) if np.min(widest) <= 4 else ():
            grouped: NDArray[Any] = np.asarray(slic(rows, cols, groups, taps, v.kernel_rows, channels, v.stride, half_sums), float)
            cheapest = np.minimum(cheapest, grouped + np.where(widest <= channels, 0.0, np.inf))
    if half and not half_sums:
        cheapest = cheapest + np.where(v.rounds, target.workers * (26 + ceil_div(ceil_div(outputs, target.workers), 2)), 0)
    return cheapest
