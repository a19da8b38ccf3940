"""Plan of a convolution or matrix product: evaluates all candidate cuts at once, as NumPy arrays.

The costs follow PopLibs' planner (poplin ConvPlan): exchange of inputs, weights and partials, partial
convolutions, reduction, and temporaries within a share of the tile's memory. The search does not: the distinct
ceiling divisions of each axis are few enough to try all (`reference` figures: 0.3-10 ms a shape).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from xdsl.dialects.builtin import UnrealizedConversionCastOp, f16, i32
from xdsl.ir import Attribute, SSAValue

from populus.dialects.base.tensor_op import ints
from populus.dialects.poplar.partition import Split
from populus.dialects.poplar.target import Target, sum_type
from populus.dialects.poplar.types import TensorType
from populus.dialects.poplin import ConvolutionOp, MatMulOp
from populus.dialects.popops import DimShuffleOp, ReshapeOp, SliceOp
from populus.dialects.support.block_floats import bytes_an_element
from populus.dialects.support.element_types import element_type_of, is_byte, shape_of, size_in_bytes
from populus.dialects.support.shapes import reach
from populus.lowering.poplar.plan.kept import KeptPlans
from populus.runtime.cycles import Products, contraction, family, reduce_cycles

MEMORY_SHARE = 0.6  # share of a tile for temporaries. Source: poplin's availableMemoryProportion
PROBES = 64  # candidates to cost first; they bound the cost of the cheapest
CANDIDATES = 60_000  # above this, only the first spatial axis is cut

Counts = NDArray[np.int64]


@dataclass(frozen=True)
class Contraction:
    """Contraction `y[g, b, oc, o..] = sum over ic, k.. of x[g, b, ic, o stride + k dilation ..] w[g, oc, ic, k..]`.

    A matrix product [g, m, k] x [g, k, n] has groups g, oc = n, ic = k, one spatial axis of m and kernel 1.
    """

    groups: int
    batch: int
    out_channels: int
    in_channels: int
    windows: tuple[int, ...]
    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    partials: str = ""  # the type that halves are summed in: f16, or f32 by default
    block: str = ""  # the block format of the weights

    @property
    def macs(self) -> int:
        """Multiply-accumulate operations."""
        return self.groups * self.batch * self.out_channels * self.in_channels * math.prod(self.windows) * math.prod(self.kernel)


def shape_of_contraction(op: MatMulOp | ConvolutionOp, partials: str = "") -> Contraction:
    """Returns what determines a plan; for a convolution, before unread elements are left out.

    `partials`: f16 is for halves alone.
    """
    partials = partials if element_type_of(op.operands[0].type) == f16 else ""
    if isinstance(op, MatMulOp):
        (g, m, k), n = shape_of(op.a.type), shape_of(op.b.type)[2]
        return Contraction(g, 1, n, k, (m,), (1,), (1,), partials, block_of(op.b))
    batch, _, *windows = shape_of(op.y.type)
    out_all, ic, *kernel = shape_of(op.w.type)
    groups = op.groups
    block = block_of(op.w)
    return Contraction(groups, batch, out_all // groups, ic, tuple(windows), tuple(kernel), tuple(ints(op.strides)), partials, block)


def block_of(operand: SSAValue) -> str:
    """Returns the block format of a constant or parameter that an operand shows; "" if it has none."""
    while isinstance(owner := operand.owner, DimShuffleOp | ReshapeOp | SliceOp):
        operand = owner.x
    if isinstance(owner, UnrealizedConversionCastOp) and isinstance(type := owner.inputs[0].type, TensorType):
        return type.block
    return ""


@dataclass(frozen=True)
class Plan:
    """Number of parts of each axis."""

    groups: int
    batch: int
    out_channels: int
    in_channels: int
    windows: tuple[int, ...]
    kernel: int  # parts of the first kernel axis; the others stay whole
    out_grain: int
    in_grain: int
    swapped: bool = False  # a product whose input is loaded into the matrix units, and whose weights stream


def partials_of(element: Attribute, partials: str = "") -> Attribute:
    """Returns the element type of a product's partial results: i32 for 8-bit integers."""
    return i32 if is_byte(element) else sum_type(element, partials)


def stages(depth: Any, outputs: int, target: Target) -> Any:
    """Computes the number of stages that reduce `depth` partials of each of `outputs` elements.

    `depth`: a number or an array. One stage if the outputs alone occupy the tiles, because another would only
    move data twice. With fewer outputs, stages use more tiles: 2 from 16 partials on, 3 from 125 (Source:
    poplin's multi-stage reduction).
    """
    if 2 * outputs >= target.tiles:
        return np.ones_like(depth)
    return 1 + (np.asarray(depth) >= 16) + (np.asarray(depth) >= 125)


@lru_cache(1024)
def part_counts(grains: int) -> Counts:
    """Lists part counts with distinct largest parts, the fewest parts for each: about 2 sqrt(grains) of them.

    The result is cached, and cannot be written to.
    """
    k = np.arange(1, grains + 1)
    parts = -(-grains // -(-grains // k))
    found = parts[np.diff(parts, prepend=0) > 0]
    found.setflags(write=False)
    return found


@dataclass(frozen=True)
class Option:
    """A plan with its cycles, and the bytes of resident weights on each tile (0: they are not resident).

    `working_bytes`: what a tile holds while the contraction runs, besides resident weights.
    """

    cycles: float
    resident_bytes: int
    plan: Plan
    working_bytes: int = 0
    fits: bool = True  # temporaries fit the memory share


Near: TypeAlias = "tuple[int, ...] | None"
"""The parts of batch and windows in which the input already lies, one to a tile, channels whole; None: in some other way."""


class Candidates:
    """Candidate cuts of a contraction, as arrays with one element for each candidate."""

    def __init__(self, shape: Contraction, element: Attribute, target: Target, near: Near, traffic: float, parts: Sequence[Counts]):
        self.shape, self.element, self.target, self.parts = shape, element, target, list(parts)
        self.near, self.traffic = near, traffic
        groups, batch, out_channels, in_channels, *windows, kernel = parts
        self.sums, self.size = partials_of(element, shape.partials), size_in_bytes(element)
        self.sum_size = size_in_bytes(self.sums)
        self.weight_size = bytes_an_element(shape.block) if shape.block else self.size
        self.grains = outs, ins = grains_of(shape, element, target)
        self.groups, self.batch = _share(shape.groups, groups), _share(shape.batch, batch)
        self.images = self.groups * self.batch
        self.out_channels = np.minimum(_share(_grains(shape.out_channels, outs), out_channels) * outs, shape.out_channels)
        # Resident weights that stream through the units need no whole calls: vectors do. Others are moved by their reader's layout.
        self.swaps, self.vector = math.prod(shape.kernel) == 1 and target.has_calls, min(target.grain(element), outs)
        vectors = _share(_grains(shape.out_channels, self.vector), out_channels) * self.vector
        self.streamed = np.minimum(vectors, self.out_channels) if self.swaps else self.out_channels
        self.in_channels = np.minimum(_share(_grains(shape.in_channels, ins), in_channels) * ins, shape.in_channels)
        self.windows = [_share(n, p) for n, p in zip(shape.windows, windows)]
        self.taps = [_share(shape.kernel[0], kernel), *(np.full_like(kernel, k) for k in shape.kernel[1:])]
        self.depth = in_channels * kernel
        self.swapped: NDArray[np.bool_] = np.zeros_like(self.depth, bool)
        self.outputs = shape.groups * shape.batch * shape.out_channels * math.prod(shape.windows)

    def where(self, selection: NDArray[Any]) -> Candidates:
        """Selects candidates by a mask or by indices."""
        parts = [p[selection] for p in self.parts]
        return Candidates(self.shape, self.element, self.target, self.near, self.traffic, parts)

    def bytes(self) -> tuple[Counts, Counts, Counts]:
        """Computes the bytes of a tile for the input, the weights and the partial results."""
        extents = [reach(o, s, k, 1) for o, s, k in zip(self.windows, self.shape.strides, self.taps)]
        x = self.images * self.in_channels * _product(extents)
        w = self.groups * self.out_channels * self.in_channels * _product(self.taps)
        y = self.images * self.out_channels * _product(self.windows)
        weights = np.ceil(w * self.weight_size).astype(np.int64) if self.shape.block else w * self.size
        return x * self.size, weights, y * self.sum_size

    def temporary_bytes(self) -> Counts:
        """Computes the bytes of a tile for all temporaries."""
        return sum(self.bytes(), np.zeros_like(self.depth))

    def working_bytes(self, resident: bool) -> Counts:
        """Computes the bytes of a tile while the products run, or their partial results are summed, whichever is more.

        The whole input and the result are spread over the tiles, besides what a tile receives. `resident`: without the weights.
        """
        x, w, y = self.bytes()
        shape, tiles, own = self.shape, self.target.tiles, -(-self.outputs // self.target.tiles)
        read = shape.groups * shape.batch * shape.in_channels * math.prod(n * s for n, s in zip(shape.windows, shape.strides))
        products = x + y + -(-read // tiles) * self.size + (0 if resident else w)
        return np.maximum(products, np.where(self.depth > 1, y + self.gathered() + own * self.size, 0))

    def gathered(self) -> Counts:
        """Computes the bytes of partial results that a tile receives to sum them."""
        return np.where(self.depth > 1, -(-self.outputs // self.target.tiles) * self.depth * self.sum_size, 0)

    def products(self) -> NDArray[np.float64]:
        """Computes the cycles of the products if the matrix units shared them evenly."""
        return self.shape.macs / (_product(self.parts) * self.target.macs_per_cycle(self.element, self.sums))

    def bound(self, resident: bool) -> NDArray[np.float64]:
        """Computes a lower bound of the cycles: the products at the matrix units' rate, and all other costs."""
        channels = self.streamed if resident else self.out_channels
        products = self.images * channels * _product(self.windows) * self.in_channels * _product(self.taps)
        return self._with_exchange(products / self.target.macs_per_cycle(self.element, self.sums), resident)

    def cycles(self, resident: bool) -> NDArray[np.float64]:
        """Computes the cycles of exchange, compute and reduction on the fullest tile, and of the steps' syncs."""
        rows, cols = self.batch * self.windows[0], _product([np.ones_like(self.depth), *self.windows[1:]])
        taps = _product(self.taps)
        vertex = Products(
            self.groups, rows, cols, self.out_channels, self.in_channels, taps, self.element, self.target, self.shape.partials,
            rounds=self.depth == 1, kernel_rows=self.taps[0] if len(self.taps) > 1 else 1, stride=self.shape.strides[-1],
            block=self.shape.block,
        )  # fmt: skip
        compute = contraction(vertex)
        if self.swaps:
            turned = contraction(replace(vertex, out_channels=self.streamed if resident else self.out_channels, swapped=True))
            self.swapped, compute = turned < compute, np.minimum(turned, compute)
        per_tile = -(-self.outputs // self.target.tiles)
        add = reduce_cycles(per_tile, self.depth, self.sums, self.target) + family(self.target).start(False, self.target)
        return self._with_exchange(compute, resident) + np.where(self.depth > 1, add, 0)

    def _with_exchange(self, compute: Any, resident: bool) -> NDArray[np.float64]:
        """Adds to the cycles of products those of exchange and launches, without the exchange that they hide."""
        exchange, launches = self.around(resident)
        blocks = -(-self.in_channels * _product(self.taps) // self.grains[1])
        return compute + (exchange + launches) - family(self.target).hidden(compute, exchange, blocks, self.target)

    def around(self, resident: bool) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Computes the cycles of exchange, and of launches. `resident`: the weights are on the tiles that read them."""
        target = self.target
        groups, batch, out_channels, in_channels, *windows, kernel = self.parts
        x, w, _ = self.bytes()
        # Data for both tiles of a bus arrives once: inputs, if output channels are cut (poplin's estimate).
        rate = np.where(out_channels % target.bus_tiles == 0, float(target.bus_tiles), 1.0) * target.exchange_bytes
        if self.near is not None:  # but the overlap of windows with the neighbours' part
            there = (groups == 1) & (out_channels == 1) & (in_channels == 1) & (kernel == 1)
            for parts, lies in zip((batch, *windows), self.near):
                there &= parts == lies
            own = self.images * self.in_channels * _product([o * s for o, s in zip(self.windows, self.shape.strides)]) * self.size
            x, rate = np.where(there, np.maximum(x - own, 0), x), np.where(there, target.exchange_bytes, rate)
        readers = _product(windows) * batch  # of a weight; each owns a part of what it reads, if in-channels are enough
        owned = np.where((kernel == 1) & (in_channels * readers <= self.shape.in_channels), w / readers, 0)
        w = 0 if resident else np.where(readers > 1, w - owned, 0)
        gathered = self.gathered()
        moved = (x + w) * np.minimum(_product(self.parts) / target.tiles, 1) + gathered  # of a tile, on the mean
        steps = 1 + np.where(self.depth > 1, stages(self.depth, self.outputs, target), 0)
        if target.tiles == 1:  # all of it is there
            return np.zeros(len(self.depth)), steps * float(family(target).launch(1, target))
        exchange = x / rate + (w + gathered) / target.exchange_bytes + self.traffic * moved
        return exchange, steps * (family(target).launch(1, target) + target.exchange_setup_cycles)

    def plan(self, i: int, resident: bool) -> Plan:
        """Returns the plan of candidate `i`. `resident`: as of `cycles`, which has chosen the operand to load."""
        groups, batch, out_channels, in_channels, *windows, kernel = (int(p[i]) for p in self.parts)
        swapped, (outs, ins) = bool(self.swapped[i]), self.grains
        grains = (self.vector if swapped and resident else outs), ins
        return Plan(groups, batch, out_channels, in_channels, tuple(windows), kernel, *grains, swapped)


def grains_of(shape: Contraction, element: Attribute, target: Target) -> tuple[int, int]:
    """Returns the channels out and in that a call of the matrix unit takes: parts are multiples of them."""
    return target.out_channels(element, sum_type(element, shape.partials)), target.in_channels(element)


# Fields of a machine that no plan depends on, each with a number that stands for all: explorations vary them, and keep their plans.
UNREAD: dict[str, Any] = {
    "name": "", "clock_hz": 1.0, "outside_bytes": 1, "chips": 1, "link_bytes": 1, "link_cycles": 0, "lacks": (), "joins": False,
    "judged": "", "tile_bytes": 1 << 40, "reserved_bytes": 0,
}  # fmt: skip


@lru_cache(1024)
def as_planned(target: Target) -> Target:
    """Returns the machine as plans see it: without the fields that none depends on. Bytes of a tile are a limit beside it."""
    return replace(target, **UNREAD, interleaved_bytes=min(target.interleaved_bytes, target.tile_bytes))


def options(
    shape: Contraction, element: Attribute, target: Target, near: Near = None, traffic: float = 0.0, share: float = MEMORY_SHARE
) -> tuple[Option, ...]:
    """Finds the plan of fewest cycles, then the Pareto-optimal plans with resident weights that are faster.

    `near`: the part counts in which the input lies already. `traffic`: cycles that a received byte costs in
    addition, so that of nearly equal plans the one with less traffic wins. Temporaries stay within `share` of a tile's
    memory; if no plan does, the first has the fewest. Ties go to fewer bytes, then fewer tiles, then fewer parts
    in a fixed order of axes, so that results are deterministic.
    """
    machine, limit = as_planned(target), share * target.room
    key = (shape, element, machine, near, traffic)
    if (there := PLANS.find(key, limit)) is not None:
        return there
    found, needed = _options(shape, element, machine, near, traffic, limit)
    # Beyond what its own plans need, a limit leaves out worse ones alone; without a plan that fits, none below the least need does either.
    least, most = (needed, limit) if found[0].fits else (-math.inf, math.nextafter(needed, 0))
    PLANS.add(key, least, most, found)
    return found


PLANS = KeptPlans[tuple[Option, ...]](8192)  # of this process


def _options(
    shape: Contraction, element: Attribute, machine: Target, near: Near, traffic: float, limit: float
) -> tuple[tuple[Option, ...], int]:
    """Finds the plans of `options` on a machine as plans see it, and the most bytes of temporaries that one of them needs.

    `limit`: the most bytes of temporaries.
    """
    everything = _within(_all(shape, element, machine, near, traffic), limit)
    fits = bool(everything.temporary_bytes()[0] <= limit)
    some = promising(everything, False) if fits else everything
    cycles, temporary = some.cycles(False), some.temporary_bytes()
    best = int(np.lexsort((*some.parts, _product(some.parts), temporary, cycles if fits else temporary))[0])
    spread = float(cycles[best])
    first = Option(spread, 0, some.plan(best, False), int(some.working_bytes(False)[best]), fits)
    needed = int(temporary[best])
    if not fits:
        return (first,), needed
    some = everything.where(everything.products() < spread)
    some = some.where(some.bound(True) < spread)
    cycles, weights, working = some.cycles(True), some.bytes()[1], some.working_bytes(True)
    (faster,) = np.nonzero(cycles < spread)
    order = faster[np.lexsort((*(p[faster] for p in some.parts), weights[faster], cycles[faster]))]
    front: list[int] = order[:1].tolist()  # the Pareto front: from the fastest on, each with less memory than the ones before
    for i in order[1:].tolist():
        if weights[i] < weights[front[-1]]:
            front.append(i)
    resident = tuple(Option(float(cycles[i]), int(weights[i]), some.plan(i, True), int(working[i])) for i in front)
    return (first, *resident), max([needed, *some.temporary_bytes()[front].tolist()])


def candidates_of(shape: Contraction, element: Attribute, target: Target, parts: Sequence[Counts]) -> Candidates:
    """Makes candidates of given part counts, an array for each axis: groups, batch, channels out and in, windows, kernel."""
    return Candidates(shape, element, target, None, 0.0, parts)


def cheapest(candidates: Sequence[Option], price: float, left: float = math.inf) -> Option:
    """Returns the option of fewest cycles, with `price` cycles for each resident byte, and at most `left` resident
    bytes.
    """
    affordable = (o for o in candidates if o.resident_bytes <= left)
    return min(affordable, key=lambda o: (o.cycles + price * o.resident_bytes, o.resident_bytes))


def fitting(
    shape: Contraction, element: Attribute, target: Target, near: Near = None, traffic: float = 0.0, share: float = MEMORY_SHARE
) -> Candidates:
    """Lists the candidates whose temporaries stay within `share` of a tile's memory; all of them if none does."""
    return _within(_all(shape, element, target, near, traffic), share * target.room)


def _within(everything: Candidates, limit: float) -> Candidates:
    fits = everything.temporary_bytes() <= limit
    return everything.where(fits) if fits.any() and not fits.all() else everything


def _all(shape: Contraction, element: Attribute, target: Target, near: Near, traffic: float) -> Candidates:
    outs, ins = grains_of(shape, element, target)
    channels = _grains(shape.out_channels, outs), _grains(shape.in_channels, ins)
    axes = [shape.groups, shape.batch, *channels, *shape.windows, shape.kernel[0]]
    parts = _candidates([max(n, 1) for n in axes], target.tiles, range(5, 4 + len(shape.windows)), near)
    return Candidates(shape, element, target, near, traffic, parts)


def promising(everything: Candidates, resident: bool) -> Candidates:
    """Drops candidates whose lower bound exceeds the cost of another; keeps all of them if they are few. `resident`: as of `cycles`."""
    used = _product(everything.parts)
    wide = np.nonzero(used >= 0.9 * used.max())[0]
    if len(used) <= 4 * PROBES or len(wide) <= PROBES:
        return everything
    probes = everything.where(wide)
    probes = probes.where(np.argpartition(probes.bound(resident), PROBES)[:PROBES])
    limit = probes.cycles(resident).min()
    some = everything.where(everything.products() <= limit)
    return some.where(some.bound(resident) <= limit)


def _spaced(counts: Counts) -> list[int]:
    """Selects counts, each at least 1.5 times the one before."""
    selected = [int(counts[0])]
    for count in counts[1:]:
        if count >= 1.5 * selected[-1]:
            selected.append(int(count))
    return selected


def _share(n: int, parts: Counts) -> Counts:
    return -(-n // parts)


def _grains(n: int, grain: int) -> int:
    return -(-n // grain)


def _product(factors: Sequence[Counts]) -> Counts:
    result = factors[0]
    for factor in factors[1:]:
        result = result * factor
    return result


def _candidates(axes: Sequence[int], tiles: int, coarse: Sequence[int], near: Near = None) -> list[Counts]:
    """Lists the combinations of part counts whose product is at most `tiles`, one array per axis.

    `coarse`: axes of which only part counts a factor of 1.5 apart are tried, and those of `near`. These are the
    inner spatial axes, because rows are cut first. The list is built axis by axis without combinations that
    already exceed the tiles, which bounds the memory.
    """
    parts: list[Counts] = []
    used = np.ones(1, np.int64)
    for i, n in enumerate(axes):
        counts = part_counts(n)
        counts = counts[counts <= tiles]
        if i in coarse:
            counts = np.array(sorted({*_spaced(counts), min(near[i - 3], n) if near is not None else 1}))
        if len(used) * len(counts) > 4 * CANDIDATES:  # keep powers of two and the extremes
            counts = counts[(counts & (counts - 1) == 0) | (counts == counts[-1])]
        product = used[:, None] * counts[None, :]
        rows, columns = np.nonzero(product <= tiles)
        parts = [p[rows] for p in parts] + [counts[columns]]
        used = product[rows, columns]
    return parts


def splits_of(n: int, parts: int, grain: int = 1) -> Split:
    """Splits `n` into `parts` parts, or fewer if `n` has fewer grains."""
    return Split(n, min(parts, max(-(-n // grain), 1)), grain)
