"""A machine of tiles, byte for byte: what a program does where it keeps no rule.

Each tile has bytes. A variable's elements lie at its address on the tiles that own them, and two variables at one address are one memory.
The machine checks nothing. It draws what the rules of a program leave open: the first content of memory, the order of tiles,
and when a tile sees what another writes in the same superstep.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from xdsl.ir import Operation, SSAValue

from populus.dialects.poplar.compute import CopyOp, ExecuteOp, FamilyOp
from populus.dialects.poplar.memory import ConstOp, ParamOp, StorageOp, storage_of, view_of
from populus.dialects.poplar.partition import Box, Grid
from populus.dialects.poplar.program import CallOp, GraphOp
from populus.dialects.poplar.types import Field
from populus.dialects.support.element_types import dtype_of
from populus.runtime.codelets import IMPLEMENTATIONS
from populus.runtime.codelets.task import Piece, Task, Workspace
from populus.runtime.engine.program import BlockNode, LoadedProgram, Node, Observer, StepNode
from populus.runtime.views import params_of, slices_of, view_array

Array: TypeAlias = NDArray[Any]
Places: TypeAlias = NDArray[np.int64]

UNSEEN = np.zeros(0)  # stands for the written views of a step, which nobody observes here


class OutsideMemory(Exception):
    """A byte that no tile has."""


@dataclass
class Tenancy:
    """Where a variable's elements are: byte offsets [elements]. A constant has as many rows as copies; others have one."""

    places: Places
    dtype: np.dtype[Any]


@dataclass
class _Connection:
    """A field of a vertex: the places of its elements, and how its codelet sees them."""

    field: Field
    places: Places
    dtype: np.dtype[Any]
    pads: tuple[tuple[int, int], ...]
    constant: bool
    whole: tuple[int, ...]


@dataclass
class _Vertex:
    """A vertex of a family, on its tile."""

    family: FamilyOp
    box: Box
    connections: list[_Connection]


class TileMachine(LoadedProgram):
    """A graph with addresses, loaded into the memory of tiles.

    `seed` draws the first content of memory and the order of tiles. `shared`: a tile sees at once what others write; otherwise only
    what they wrote before the superstep. Raises OutsideMemory for an address beyond a tile.
    """

    name = "machine"
    checks_addresses = False  # it shows what variables that overlap do

    def __init__(self, graph: GraphOp, seed: int, shared: bool):
        super().__init__(graph)
        self.shared, self.seed = shared, seed
        self.tiles, self.tile_bytes = graph.machine.tiles, graph.machine.tile_bytes
        self.workspace = Workspace()
        self._extra = self._top(graph) * self.tiles
        self._tenancies: dict[StorageOp, Tenancy] = {}
        self._constants: list[tuple[Tenancy, Array]] = []
        for op in graph.walk():
            if isinstance(op, StorageOp):
                self._place(op)
        self.memory = np.zeros(self._extra, np.uint8)
        self.load()

    def run(self, inputs: Mapping[str, Array], observe: Observer | None = None, commit: bool = True) -> dict[str, Array]:
        rng = np.random.default_rng(self.seed)
        self.rng = random.Random(self.seed)
        self.memory[:] = rng.integers(0, 256, self.memory.size, np.uint8)
        for tenancy, array in self._constants:
            for row in tenancy.places:
                self.put(row, tenancy.dtype, array)
        return super().run(inputs, observe, commit)

    # -- memory

    def _top(self, graph: GraphOp) -> int:
        """Computes the bytes of each tile up to the highest address."""
        ends = [0]
        for op in graph.walk():
            if isinstance(op, StorageOp) and op.layout is not None and op.address is not None:
                cell = math.prod(s.largest for s in op.layout.splits) * dtype_of(op.type.element).itemsize
                ends.append(op.address.value.data + cell)
        if max(ends) > self.tile_bytes or min(ends) < 0:
            raise OutsideMemory(f"address {max(ends)} of {self.tile_bytes}")
        return -(-max(ends) // 8) * 8

    def _place(self, op: StorageOp) -> None:
        dtype, grid = dtype_of(op.type.element), op.layout
        if grid is None or op.address is None:  # outside the tiles
            count = math.prod(op.type.shape)
            places = self._extra + np.arange(count, dtype=np.int64)[None] * dtype.itemsize
            self._extra += -(-count * dtype.itemsize // 8) * 8
        else:
            tiles, ranks = located(grid)
            top = self._top(self.graph)
            places = (tiles % self.tiles) * top + op.address.value.data + ranks * dtype.itemsize
        self._tenancies[op] = Tenancy(places, dtype)
        if isinstance(op, ConstOp):
            self._constants.append((self._tenancies[op], np.ascontiguousarray(op.array()).reshape(-1)))

    def get(self, places: Places, dtype: np.dtype[Any]) -> Array:
        """Reads the elements at some places, as a new array of their shape."""
        bytes = self.memory[places[..., None] + np.arange(dtype.itemsize)]
        return np.asarray(bytes[..., 0] != 0) if dtype.kind == "b" else np.ascontiguousarray(bytes).view(dtype).reshape(places.shape)

    def put(self, places: Places, dtype: np.dtype[Any], array: Array) -> None:
        """Writes elements to some places."""
        content = np.ascontiguousarray(array, dtype).reshape(places.shape)
        self.memory[places[..., None] + np.arange(dtype.itemsize)] = content[..., None].view(np.uint8)

    def places(self, value: SSAValue) -> Places:
        """Gives the places of a view's elements, in its shape."""
        return view_array(self._tenancies[storage_of(value)].places[0], view_of(value))

    # -- steps

    def bind(self, parameter: ParamOp, value: SSAValue) -> None:
        raise AssertionError("arguments are copied")

    def array(self, value: SSAValue) -> Array:
        return UNSEEN

    def read(self, op: Operation, value: SSAValue) -> Callable[[], Array]:
        places, dtype = self.places(value), self._tenancies[storage_of(value)].dtype
        return lambda: self.get(places, dtype)

    def write(self, op: Operation, value: SSAValue) -> Callable[[Array], None]:
        places, dtype = self.places(value), self._tenancies[storage_of(value)].dtype
        return lambda source: self.put(places, dtype, source)

    def copy(self, op: CopyOp) -> StepNode:
        return StepNode(op, [self._move(self.read(op, op.src), self.write(op, op.dst))])

    def _call(self, op: CallOp) -> Node:
        """Copies arguments to the function's parameters, and what it writes back."""
        name = op.callee.data
        if name not in self._functions:
            self._functions[name] = self._block(op.target().body.block)
        before = [self._move(self.read(op, v), self.write(op, p.result)) for p, v in op.bindings() if p.read]
        after = [self._move(self.read(op, p.result), self.write(op, v)) for p, v in op.bindings() if p.written]
        return BlockNode([StepNode(op, before), self._functions[name], StepNode(op, after)])

    @staticmethod
    def _move(read: Callable[[], Array], write: Callable[[Array], None]) -> Callable[[], None]:
        return lambda: write(read())

    def execute(self, op: ExecuteOp) -> StepNode:
        by_tile: dict[int, list[_Vertex]] = {}
        for family in op.families():
            for box in family.space.boxes():
                by_tile.setdefault(family.space.tile(box, self.tiles), []).append(self._vertex(family, box))
        return StepNode(op, [lambda: self._superstep(by_tile)])

    def _vertex(self, family: FamilyOp, box: Box) -> _Vertex:
        connections: list[_Connection] = []
        for field, value in family.connections():
            storage, shape = storage_of(value), view_of(value).shape
            slices, pads = slices_of(family, field, shape, box)
            places = self.places(value)[(*slices, ...)]
            connections.append(_Connection(field, places, self._tenancies[storage].dtype, pads, isinstance(storage, ConstOp), shape))
        return _Vertex(family, box, connections)

    def _superstep(self, by_tile: Mapping[int, Sequence[_Vertex]]) -> None:
        written: list[tuple[_Connection, Array]] = []
        for tile in self.rng.sample(sorted(by_tile), len(by_tile)):
            before: list[tuple[_Connection, Array]] = []
            for vertex in by_tile[tile]:
                for connection, array in self._results(vertex):
                    before.append((connection, self.get(connection.places, connection.dtype)))
                    self.put(connection.places, connection.dtype, array)
                    written.append((connection, array))
            if not self.shared:  # what this tile wrote is not there yet for the others
                for connection, array in reversed(before):
                    self.put(connection.places, connection.dtype, array)
        for connection, array in () if self.shared else written:
            self.put(connection.places, connection.dtype, array)

    def _results(self, vertex: _Vertex) -> list[tuple[_Connection, Array]]:
        """Runs a vertex on copies, and gives what it leaves in the fields that it writes."""
        pieces: dict[str, Piece] = {}
        results: list[tuple[_Connection, Array]] = []
        for c in vertex.connections:
            array = self.get(c.places, c.dtype)
            array.flags.writeable = c.field.kind != "in"
            if c.field.kind != "in":
                results.append((c, array))
            pieces[c.field.name] = Piece(array, c.field.access, c.pads, c.constant, c.whole)
        implementation = IMPLEMENTATIONS[vertex.family.codelet.data]
        implementation.kernel(Task(params_of(vertex.family.params), vertex.box, pieces, self.workspace))()
        return results


def located(grid: Grid) -> tuple[Places, Places]:
    """Gives the tile of each element, and its number among those of its cell: [copies, elements] each, row-major."""
    shape = tuple(s.n for s in grid.splits)
    part, own, length = np.zeros((3, len(shape), *shape), np.int64)
    for d, split in enumerate(grid.splits):
        bounds = np.asarray(split.bounds())
        along = [split.n if e == d else 1 for e in range(len(shape))]
        at = np.arange(split.n)
        number = np.searchsorted(bounds, at, "right") - 1
        part[d], own[d] = number.reshape(along), (at - bounds[number]).reshape(along)
        length[d] = (bounds[number + 1] - bounds[number]).reshape(along)
    rank = np.zeros(shape, np.int64)
    for d in range(len(shape)):
        rank = rank * length[d] + own[d]
    rows: list[Places] = []
    for copy in itertools.product(*(range(-d) for d in grid.order if d < 0)):
        digits, tile = iter(copy), np.zeros(shape, np.int64)
        for d in grid.order:
            tile = tile * -d + next(digits) if d < 0 else tile * grid.splits[d].parts + part[d]
        rows.append((grid.start + tile).reshape(-1))
    return np.stack(rows), np.broadcast_to(rank.reshape(-1), (len(rows), rank.size))
