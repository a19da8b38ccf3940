"""Tile memory: the tenants of each tile with their live ranges, and the fullest tile's bytes at each step.

Variables, constants, the elements that a compute set fetches from other tiles, and scratch vectors are counted. Vertex code, exchange
code, vertex state and stacks are not; the target's `reserved_bytes` stand for them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from typing import Any, TypeAlias
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray
from xdsl.ir import Operation, SSAValue

from populus.dialects.poplar import ConstOp, ExecuteOp, FamilyOp, Field, GraphOp, StorageOp
from populus.dialects.poplar.memory import storage_of, view_of
from populus.dialects.poplar.partition import Grid
from populus.dialects.poplar.target import Target
from populus.dialects.poplar.tile_ranges import scratch_shapes
from populus.dialects.support.diagnostics import PopulusError, where
from populus.dialects.support.element_types import size_in_bytes
from populus.runtime.exchange import Moved, field_exchange, owned_elements
from populus.runtime.liveness import Span, liveness
from populus.runtime.views import params_of

Bytes: TypeAlias = NDArray[np.int64]

PEAK = "peak_tile_bytes"  # on an allocated graph: the bytes of a tile up to the highest address
ALIGNMENT = 8  # bytes, of addresses and sizes: the width of the data path


@dataclass(frozen=True, eq=False)
class Tenant:
    """An occupant of tile memory with its live ranges.

    `bytes`: for tile `start` and the following tiles, cyclically. `op`: the variable or constant; for temporaries,
    the execute that needs them. `spans`: the live ranges, as (first, last) steps in order.
    """

    label: str
    op: Operation
    bytes: Bytes
    start: int
    spans: tuple[Span, ...]

    @property
    def first(self) -> int:
        """The first step at which it is live."""
        return self.spans[0][0]

    @property
    def last(self) -> int:
        """The last step at which it is live."""
        return self.spans[-1][1]

    def at(self, step: int) -> bool:
        """Tells if it is live at a step."""
        return any(first <= step <= last for first, last in self.spans)

    @property
    def is_constant(self) -> bool:
        """True for a constant."""
        return isinstance(self.op, ConstOp)

    @property
    def largest(self) -> int:
        """The largest number of bytes that it takes on one tile."""
        return int(self.bytes.max(initial=0))

    def on(self, tile: int, tiles: int) -> int:
        """Gives the bytes that it takes on one of `tiles` tiles."""
        i = (tile - self.start) % tiles
        return int(self.bytes[i]) if i < len(self.bytes) else 0

    def add_to(self, total: Bytes, sign: int = 1) -> None:
        """Adds its bytes, times `sign`, to the bytes of each tile: [tiles]."""
        begin, n = self.start % len(total), len(self.bytes)
        head = min(n, len(total) - begin)
        total[begin : begin + head] += sign * self.bytes[:head]
        total[: n - head] += sign * self.bytes[head:]


@dataclass(frozen=True)
class Usage:
    """The peak memory use: the fullest tile at the fullest step.

    `peak_bytes`: bytes live at once on that tile, a lower bound for any allocation. `label`: the step's name.
    """

    peak_bytes: int
    tile: int
    step: int
    label: str
    largest: tuple[tuple[str, int], ...]
    """(label, bytes) of each tenant on that tile at that step, largest first."""
    bytes_by_step: tuple[int, ...]
    """Bytes on the fullest tile at each step of the program (calls expanded, loops once)."""


def layout(op: StorageOp) -> Grid:
    """Gives the grid of a variable or constant. Raises PopulusError if it has no layout yet."""
    if op.layout is None:
        raise PopulusError(f"{where(op)}: '{op.label.data}' is on no tile; poplar-map gives every variable a layout")
    return op.layout


def bytes_of(op: StorageOp) -> Bytes:
    """Gives the bytes in each cell of a variable's grid, rounded up to ALIGNMENT: [cells]."""
    return aligned(whole(owned_elements(layout(op)) * op.type.element_bytes))


def whole(bytes: Any) -> Any:
    """Rounds bytes up to integers: those of block formats may be fractions."""
    return bytes if bytes.dtype.kind == "i" else np.ceil(bytes).astype(np.int64)


def aligned(bytes: Any) -> Any:
    """Rounds bytes up to ALIGNMENT."""
    return -(-bytes // ALIGNMENT) * ALIGNMENT


def moved_by(family: FamilyOp, field: Field, value: SSAValue, tiles: int) -> Moved:
    """Counts the elements that a field of a family moves between tiles. Raises PopulusError if its variable has no
    layout.
    """
    return field_exchange(family.space, field.access, view_of(value), layout(storage_of(value)), tiles)


def temporary_bytes(execute: ExecuteOp, tiles: int) -> Bytes:
    """Gives the bytes on each tile for other tiles' elements that the vertices of a compute set access, and for their scratch: [tiles]."""
    total = np.zeros(tiles, np.int64)
    for family in execute.families():
        total += _needed_bytes(family, tiles)
    return total


_NEEDED: WeakKeyDictionary[FamilyOp, tuple[tuple[object, ...], Bytes]] = WeakKeyDictionary()


def _needed_bytes(family: FamilyOp, tiles: int) -> Bytes:
    """Gives what a family adds to `temporary_bytes`: [tiles], not to be written to.

    Three passes ask, so it is counted once while the family, its views, and the types and layouts of their variables stay as they are.
    """
    storages = [storage_of(value) for value in family.views]
    seen = (tiles, *family.properties.values(), *((view_of(v), s.type, layout(s)) for v, s in zip(family.views, storages)))
    kept = _NEEDED.get(family)
    if kept is not None and kept[0] == seen:
        return kept[1]
    total = np.zeros(tiles, np.int64)
    if scratch := scratch_bytes(family):
        vertices = prod(split.parts for _, split in family.space.axes)
        total[(family.space.start + np.arange(min(vertices, tiles))) % tiles] += aligned(scratch)
    for (field, value), storage in zip(family.connections(), storages):
        total += aligned(whole(moved_by(family, field, value, tiles).away * storage.type.element_bytes))
    _NEEDED[family] = seen, total
    return total


def scratch_bytes(family: FamilyOp) -> int:
    """Gives the bytes of the scratch vectors of a family's largest vertex; only codelets in Python have some."""
    code = family.declaration.code
    kinds = {} if code is None else {s.vector: s.kind for s in code.scratch()}
    if code is None or not kinds:
        return 0
    sizes = {axis: max(b - a for a, b in pairwise(split.bounds())) for axis, split in family.space.axes}
    scalars = {n: v for n, v in params_of(family.params).items() if isinstance(v, int | float)}
    shapes = scratch_shapes(code, {v: tuple(sizes[a] for a in axes) for v, axes in code.axes.items()}, scalars)
    wide = any(size_in_bytes(storage_of(v).type.element) == 8 and code.kinds[f.name] == "float" for f, v in family.connections())
    bytes = {"float": 8 if wide else 4, "int": 8, "bool": 1}
    return sum(aligned(bytes[kinds[v]] * prod(shape)) for v, shape in shapes.items())


def tenants(graph: GraphOp) -> tuple[list[Tenant], list[Operation]]:
    """Lists the tenants of tile memory, and the program's steps in order. Raises PopulusError for a variable without
    layout.
    """
    tiles = graph.machine.tiles
    alive = liveness(graph)
    on_tiles = ((op, spans) for op, spans in alive.spans.items() if op.outside is None)
    occupants = [Tenant(op.label.data, op, bytes_of(op), layout(op).start % tiles, spans) for op, spans in on_tiles]
    executes: dict[ExecuteOp, list[Span]] = {}
    for i, step in enumerate(alive.steps):
        if isinstance(step, ExecuteOp):
            executes.setdefault(step, []).append((i, i))
    for step, spans in executes.items():
        temporary = temporary_bytes(step, tiles)
        if temporary.any():
            occupants.append(Tenant(f"{step.label.data} (exchanged)", step, temporary, 0, tuple(spans)))
    return occupants, alive.steps


def summary(graph: GraphOp) -> Usage:
    """Computes the peak memory use of a graph. Raises PopulusError for a variable without layout."""
    return usage(*tenants(graph), graph.machine)


def usage(occupants: Sequence[Tenant], steps: Sequence[Operation], target: Target) -> Usage:
    """Computes the peak memory use of tenants, by a running sum over their live ranges. O(tenants x tiles)."""
    coming: list[list[Tenant]] = [[] for _ in range(len(steps) + 1)]
    going: list[list[Tenant]] = [[] for _ in range(len(steps) + 1)]
    for tenant in occupants:
        for first, last in tenant.spans:
            coming[first].append(tenant)
            going[min(last + 1, len(steps))].append(tenant)
    now = np.zeros(target.tiles, np.int64)
    peaks: list[int] = []
    peak, tile, step = 0, 0, 0
    for i in range(max(len(steps), 1)):
        for tenant in going[i]:
            tenant.add_to(now, -1)
        for tenant in coming[i]:
            tenant.add_to(now)
        fullest = int(now.argmax())
        peaks.append(int(now[fullest]))
        if peaks[-1] > peak:
            peak, tile, step = peaks[-1], fullest, i
    there = [(t.label, t.on(tile, target.tiles)) for t in occupants if t.at(step)]
    largest = sorted((pair for pair in there if pair[1]), key=lambda pair: -pair[1])
    return Usage(peak, tile, step, label_of(steps[step]) if steps else "", tuple(largest), tuple(peaks))


def label_of(step: Operation) -> str:
    """Names a step in reports: its label, stream or function, else the op's name."""
    label = next((step.properties[key] for key in ("label", "stream", "function", "callee") if key in step.properties), None)
    return str(getattr(label, "data", None) or step.name.removeprefix("poplar."))
