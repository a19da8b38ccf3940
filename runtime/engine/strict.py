"""The `strict` engine: vertex by vertex on isolated copies, in shuffled order, with every rule of the machine checked.

Each vertex sees immutable copies of what it reads, as it was before the execute, and writes into poisoned memory of its own;
all is committed at the end. Elements know whether anything has written them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from xdsl.ir import Operation, SSAValue

from populus.dialects.poplar.compute import CopyOp, ExecuteOp, FamilyOp
from populus.dialects.poplar.memory import ConstOp, ParamOp, StorageOp, storage_of, view_of
from populus.dialects.poplar.partition import Box, bounds_problem
from populus.dialects.poplar.program import CallOp, GraphOp
from populus.dialects.poplar.types import Field
from populus.dialects.poplar.view import View
from populus.dialects.support.diagnostics import PopulusError, where
from populus.dialects.support.element_types import dtype_of
from populus.runtime.addresses import check_addresses
from populus.runtime.codelets import KERNELS
from populus.runtime.codelets.task import Piece, Task, Workspace
from populus.runtime.engine.program import BlockNode, Node, Observer, Program, StepNode
from populus.runtime.engine.views import PlacedError, params_of, slices_of, view_array
from populus.runtime.memory import summary

Array: TypeAlias = NDArray[Any]
Slices: TypeAlias = "tuple[slice, ...]"

# NaNs with a payload, compared as bits: honest NaNs are not accused. The second tells apart what a kernel wrote by chance.
POISON = ({1: 0xA5, 2: 0x7FA5, 4: 0x7FE5A5A5, 8: 0x7FFA5A5A5A5A5A5A}, {1: 0x5A, 2: 0x7FDA, 4: 0x7FDA5A5A, 8: 0x7FF5A5A5A5A5A5A5})


@dataclass(slots=True)
class Store:
    """A variable, constant or argument: its elements in row-major order, and which of them something has written."""

    op: StorageOp
    memory: Array
    defined: NDArray[np.bool_]
    complete: bool
    whole: Store | None = None  # what an argument is a part of

    def forget(self) -> None:
        """Nothing has written anything. A constant stays."""
        if self.defined.flags.writeable:
            self.defined[:] = False
            store: Store | None = self
            while store is not None:
                store.complete = store.defined.size == 0
                store = store.whole

    def define(self, view: View, part: Slices | None = None) -> None:
        if not self.complete:
            marks = view_array(self.defined, view)
            marks[... if part is None else (*part, ...)] = True

    def settle(self) -> None:
        """Notes whether all elements are defined now."""
        if not self.complete:
            self.complete = bool(self.defined.all())


@dataclass(slots=True)
class Connection:
    """A field of a family with what it is connected to."""

    field: Field
    value: SSAValue
    view: View
    store: Store
    array: Array

    @property
    def variable(self) -> str:
        return f"'{self.store.op.label.data}'"


class StrictProgram(Program):
    """A graph that runs vertex by vertex. `seed`: of the order of vertices.

    Raises PopulusError, when loaded or run, naming execute, family, vertices and variable: for vertices that write one
    element, or read what another writes; for reads of what nothing wrote; for outputs that a kernel leaves unwritten, inputs
    that it writes; for a vertex whose own fields overlap; for accesses out of bounds; for tiles whose memory is too small.
    """

    name = "strict"

    def __init__(self, graph: GraphOp, seed: int = 0):
        super().__init__(graph)
        self.rng = np.random.default_rng(seed)
        self.workspace = Workspace()
        self.tiles = graph.machine.tiles
        check_tile_memory(graph)
        check_addresses(graph)
        self._stores: dict[StorageOp, Store] = {}
        self._arguments: list[Store] = []  # of all calls
        self.load()

    def run(self, inputs: Mapping[str, Array], observe: Observer | None = None) -> dict[str, Array]:
        for store in (*self._stores.values(), *self._arguments):
            store.forget()
        return super().run(inputs, observe)

    # -- memory

    def store(self, value: SSAValue) -> Store:
        """The memory of the variable or constant that a view shows."""
        op = storage_of(value)
        if op not in self._stores:
            if isinstance(op, ConstOp):
                array = op.array().reshape(-1)
                self._stores[op] = Store(op, array, np.broadcast_to(np.True_, array.size), True)
            else:
                memory = np.zeros(int(np.prod(op.type.shape)), dtype_of(op.type.element))
                self._stores[op] = Store(op, memory, np.zeros(memory.size, np.bool_), memory.size == 0)
        return self._stores[op]

    def bind(self, parameter: ParamOp, value: SSAValue) -> None:
        store, begin = self.store(value), view_of(value).offset
        part = slice(begin, begin + int(np.prod(parameter.type.shape)))
        self._stores[parameter] = Store(parameter, store.memory[part], store.defined[part], store.complete, store)
        self._arguments.append(self._stores[parameter])

    def array(self, value: SSAValue) -> Array:
        return view_array(self.store(value).memory, view_of(value))

    # -- steps

    def _call(self, op: CallOp) -> Node:
        """What is out of a function is unwritten when it begins."""
        body = super()._call(op)
        outputs = [self._stores[parameter] for parameter, _ in op.bindings() if not parameter.read]
        return BlockNode([StepNode(op, [store.forget for store in outputs]), body])

    def read(self, op: Operation, value: SSAValue) -> Callable[[], Array]:
        store, view, array = self.store(value), view_of(value), self.array(value)

        def read() -> Array:
            if not store.complete and not (marks := view_array(store.defined, view)).all():
                missing = _elements(int(marks.size - marks.sum()))
                raise PopulusError(f"{op.name} reads {missing} of '{store.op.label.data}' that nothing wrote")
            return array

        return read

    def write(self, op: Operation, value: SSAValue) -> Callable[[Array], None]:
        store, view, array = self.store(value), view_of(value), self.array(value)

        def write(source: Array) -> None:
            np.copyto(array, source.reshape(array.shape))
            store.define(view)
            store.settle()

        return write

    def copy(self, op: CopyOp) -> StepNode:
        read, write = self.read(op, op.src), self.write(op, op.dst)
        return StepNode(op, [lambda: write(read().copy())], [(op.dst, self.array(op.dst))])

    def execute(self, op: ExecuteOp) -> StepNode:
        stages = [[self.vertices(family) for family in families] for families in op.stages()]

        def run() -> None:
            earlier = dict[StorageOp, NDArray[np.int32]]()
            for families in stages:
                Superstep(self, families, earlier).run()

        return StepNode(op, [run], [(v, self.array(v)) for f in op.families() for _, v in f.written()])

    def vertices(self, family: FamilyOp) -> Vertices:
        """The vertices of a family."""
        connections = [Connection(f, v, view_of(v), self.store(v), self.array(v)) for f, v in family.connections()]
        return Vertices(family, connections, self.workspace, self.tiles)


class Vertices:
    """The vertices of one family: numbered in row-major order over the parts of the axes as declared."""

    def __init__(self, family: FamilyOp, connections: Sequence[Connection], workspace: Workspace, tiles: int):
        self.family, self.connections, self.workspace, self.tiles = family, connections, workspace, tiles
        self.kernel, self.params = KERNELS[family.codelet.data], params_of(family.params)
        axes = family.space.axes
        self.axes = [a for a, _ in axes]
        self.shape = tuple(s.parts for _, s in axes)
        self.count = int(np.prod(self.shape))
        self._parts = [[(b[i], b[i + 1], i) for i in range(s.parts)] for _, s in axes for b in (s.bounds(),)]
        # A field's piece depends on the cut axes that its access names.
        self._named = [
            [i for i, (axis, split) in enumerate(axes) if split.parts > 1 and any(axis == a for x in c.field.access for a, _ in x.terms)]
            for c in connections
        ]
        self._slices: list[dict[tuple[int, ...], tuple[Slices, tuple[tuple[int, int], ...]]]] = [{} for _ in connections]
        self._check_bounds()

    def tile(self, vertex: int) -> int:
        return self.family.space.tile(self.box(vertex), self.tiles)

    def name(self, vertex: int) -> str:
        """`vertex 4 (tile 12)`."""
        return f"vertex {vertex} (tile {self.tile(vertex)})"

    def box(self, vertex: int) -> Box:
        index = np.unravel_index(vertex, self.shape) if self.shape else ()
        return {a: parts[int(i)] for a, parts, i in zip(self.axes, self._parts, index)}

    def index(self, vertex: int) -> tuple[int, ...]:
        """The part number of each axis."""
        index: list[int] = []
        for n in reversed(self.shape):
            vertex, i = divmod(vertex, n)
            index.append(i)
        return tuple(reversed(index))

    def part(self, number: int, index: tuple[int, ...]) -> tuple[tuple[int, ...], Slices, tuple[tuple[int, int], ...]]:
        """(key, slices, pads) of field `number`; vertices of equal key touch the same."""
        key = tuple(index[i] for i in self._named[number])
        found = self._slices[number].get(key)
        if found is None:
            connection = self.connections[number]
            box = {a: parts[i] for a, parts, i in zip(self.axes, self._parts, index)}
            found = self._slices[number][key] = slices_of(self.family, connection.field, connection.view.shape, box)
        return key, *found

    def _check_bounds(self) -> None:
        for number, c in enumerate(self.connections):
            if self.family.declaration.padded and c.field.kind == "in":
                continue
            if why := bounds_problem(self.family.space, c.field.access, c.view.shape):
                first = next(v for v in range(self.count) if self._leaves(number, v))
                raise PlacedError(f"{place(self.family)}: {self.name(first)}: {c.field.name}: {why}, in {c.variable}")

    def _leaves(self, number: int, vertex: int) -> bool:
        box = self.box(vertex)
        c = self.connections[number]
        return any(
            before or behind or (a.part and box[a.terms[0][0]][2] >= n)
            for a, n in zip(c.field.access, c.view.shape)
            for _, _, before, behind in (a.interval(n, box),)
        )

    def task(self, index: tuple[int, ...], pieces: dict[str, Piece]) -> Task:
        box = {a: parts[i] for a, parts, i in zip(self.axes, self._parts, index)}
        return Task(self.params, box, pieces, self.workspace)


def check_tile_memory(graph: GraphOp) -> None:
    """Raises PopulusError, naming the step and the fullest tile, if variables have layouts and do not fit.

    Counted are the variables and constants that a tile holds at a step, and what its vertices bring from other tiles.
    """
    if any(isinstance(op, StorageOp) and op.layout is None and op.outside is None for op in graph.walk()):
        return
    machine, used = graph.machine, summary(graph)
    room = machine.tile_bytes - machine.reserved_bytes
    if used.peak_bytes > room:
        largest = ", ".join(f"'{label}' {bytes}" for label, bytes in used.largest[:3])
        raise PopulusError(
            f"{where(graph)}: at '{used.label}', tile {used.tile} holds {used.peak_bytes} bytes ({largest}); {machine.name} has {room} "
            f"a tile (tile_bytes - reserved_bytes); more tiles would help"
        )


def place(family: FamilyOp) -> str:
    """`'conv1': execute 'conv1/partials', @conv`."""
    parent = family.parent_op()
    label = f"execute '{parent.label.data}', " if isinstance(parent, ExecuteOp) else ""
    return f"{where(family)}: {label}@{family.codelet.data}"


def _elements(n: int) -> str:
    return f"{n} element{'' if n == 1 else 's'}"


@dataclass(slots=True)
class Result:
    """What a vertex wrote to one field."""

    vertices: Vertices
    vertex: int
    connection: Connection
    part: Slices
    array: Array


class Superstep:
    """One run of families that do not meet: all vertices on what was there before, then the commit.

    `earlier`: for each element that families before these wrote in the same execute, the tile that did, else -1.
    """

    def __init__(self, program: StrictProgram, families: Sequence[Vertices], earlier: dict[StorageOp, NDArray[np.int32]]):
        self.families, self.rng, self.earlier, self.tiles = families, program.rng, earlier, program.tiles
        self.first: list[int] = []  # number of each family's first vertex among those of the execute
        total = 0
        for family in families:
            self.first.append(total)
            total += family.count
        self.total = total
        self._writers: dict[StorageOp, NDArray[np.int32]] = {}
        self._copies: dict[tuple[int, int, tuple[int, ...]], Array] = {}

    def run(self) -> None:
        results: list[Result] = []
        for family in self.families:
            for c in family.connections:
                if c.field.kind != "in":
                    self._writers.setdefault(c.store.op, np.full(c.store.memory.size, -1, np.int32))
        for number in self.rng.permutation(self.total):
            f, vertex = self._of(int(number))
            results += self._vertex(f, vertex)
        self._check_reads()
        for r in results:
            r.connection.array[(*r.part, ...)] = r.array
            r.connection.store.define(r.connection.view, r.part)
            owner = self.earlier.setdefault(r.connection.store.op, np.full(r.connection.store.memory.size, -1, np.int32))
            view_array(owner, r.connection.view)[(*r.part, ...)] = r.vertices.tile(r.vertex)
        for op in self._writers:
            next(c.store for f in self.families for c in f.connections if c.store.op is op).settle()

    def _on_own_tile(self, family: Vertices, number: int, slices: Slices, vertex: int) -> None:
        """Raises PopulusError if a vertex touches what one on another tile wrote earlier in the execute."""
        c = family.connections[number]
        owner = self.earlier.get(c.store.op)
        if owner is None:
            return
        part, tile = view_array(owner, c.view)[(*slices, ...)], family.tile(vertex)
        others = part[(part >= 0) & (part != tile)]
        if others.size:
            raise PlacedError(
                f"{place(family.family)}: {family.name(vertex)} touches {_elements(int(others.size))} of {c.variable} ({c.field.name}) "
                f"that tile {int(others[0])} wrote earlier in the execute"
            )

    def _of(self, number: int) -> tuple[int, int]:
        f = bisect_right(self.first, number) - 1
        return f, number - self.first[f]

    def _vertex(self, f: int, vertex: int) -> Iterator[Result]:
        family = self.families[f]
        results = execute_vertex(family, vertex, lambda i, key, slices: self._input(f, i, key, slices, vertex))
        for result in results:
            self._claim(f, vertex, result)
            yield result

    def _input(self, f: int, number: int, key: tuple[int, ...], slices: Slices, vertex: int) -> Array:
        self._on_own_tile(self.families[f], number, slices, vertex)
        copy = self._copies.get((f, number, key))
        if copy is None:
            family = self.families[f]
            check_defined(family, number, slices, vertex)
            c = family.connections[number]
            copy = immutable(c.array[(*slices, ...)])
            # Vertices that share a piece share its copy; a piece of its own is not needed again.
            if len(key) < sum(n > 1 for n in family.shape):
                self._copies[f, number, key] = copy
        return copy

    def _claim(self, f: int, vertex: int, result: Result) -> None:
        c, me = result.connection, self.first[f] + vertex
        self._on_own_tile(self.families[f], self.families[f].connections.index(c), result.part, vertex)
        writers = view_array(self._writers[c.store.op], c.view)[(*result.part, ...)]
        if writers.size and writers.max() >= 0:
            other = int(writers.max())
            g, theirs = self._of(other)
            count = int((writers == other).sum())
            family = self.families[f]
            raise PlacedError(
                f"{place(family.family)}: {self._both(f, vertex, g, theirs)} both write {_elements(count)} of {c.variable} ({c.field.name})"
            )
        writers[...] = me

    def _both(self, f: int, vertex: int, g: int, other: int) -> str:
        mine, theirs = self.families[f].name(vertex), self.families[g].name(other)
        if f == g:
            return f"{theirs} and {mine}" if other < vertex else f"{mine} and {theirs}"
        return f"{mine} and {theirs} of family {g}, @{self.families[g].family.codelet.data},"

    def _check_reads(self) -> None:
        """No vertex may read what another writes in the same execute, nor what it writes itself unless it says so."""
        for f, family in enumerate(self.families):
            for number, c in enumerate(family.connections):
                writers = self._writers.get(c.store.op)
                if writers is None or c.field.kind == "out":
                    continue
                seen = view_array(writers, c.view)
                same = any(o.field.kind == "inout" and o.view == c.view and o.field.access == c.field.access for o in family.connections)
                for vertex in range(family.count):
                    _, slices, _ = family.part(number, family.index(vertex))
                    part = seen[(*slices, ...)]
                    if part.size == 0 or part.max() < 0:
                        continue
                    me = self.first[f] + vertex
                    others = part[(part >= 0) & (part != me)]
                    where_ = f"{place(family.family)}: {family.name(vertex)}"
                    if others.size:
                        g, theirs = self._of(int(others[0]))
                        by = self.families[g]
                        of = "" if f == g else f" of family {g}, @{by.family.codelet.data},"
                        raise PlacedError(
                            f"{where_} reads {_elements(int(others.size))} of {c.variable} ({c.field.name}) "
                            f"that {by.name(theirs)}{of} writes in the same execute"
                        )
                    if not same and (part == me).any():
                        raise PlacedError(
                            f"{where_} reads {_elements(int((part == me).sum()))} of {c.variable} ({c.field.name}) that it writes itself; "
                            f"a field that is both is inout"
                        )


def execute_vertex(family: Vertices, vertex: int, read: Callable[[int, tuple[int, ...], Slices], Array]) -> list[Result]:
    """What one vertex writes, given immutable copies of what it reads. Raises PopulusError if its kernel breaks its word."""
    index = family.index(vertex)
    parts = [family.part(number, index) for number in range(len(family.connections))]
    inputs: dict[int, Array] = {}
    for number, (c, (key, slices, _)) in enumerate(zip(family.connections, parts)):
        if c.field.kind != "out":
            inputs[number] = read(number, key, slices)
    for attempt in (0, 1):
        pieces: dict[str, Piece] = {}
        results: list[Result] = []
        for number, (c, (_, slices, pads)) in enumerate(zip(family.connections, parts)):
            if c.field.kind == "in":
                array = inputs[number]
            else:
                array = poisoned(c.array[(*slices, ...)], attempt) if c.field.kind == "out" else inputs[number].copy()
                results.append(Result(family, vertex, c, slices, array))
            pieces[c.field.name] = Piece(array, c.field.access, pads, isinstance(c.store.op, ConstOp))
        _run(family, vertex, index, pieces)
        unwritten = [(r, marks) for r in results if r.connection.field.kind == "out" and (marks := poison(r.array, attempt)).any()]
        if not unwritten:
            return results
        if attempt:
            r, marks = unwritten[0]
            raise PlacedError(
                f"{place(family.family)}: {family.name(vertex)} leaves {_elements(int(marks.sum()))} of {r.connection.field.name} "
                f"unwritten, in {r.connection.variable}"
            )
    raise AssertionError(vertex)


def _run(family: Vertices, vertex: int, index: tuple[int, ...], pieces: dict[str, Piece]) -> None:
    try:
        family.kernel(family.task(index, pieces))()
    except PopulusError as error:
        raise PlacedError(f"{place(family.family)}: {family.name(vertex)}: {error}") from error
    except ValueError as error:
        if "read-only" not in str(error) and "not writeable" not in str(error):
            raise
        raise PlacedError(f"{place(family.family)}: {family.name(vertex)} writes one of its inputs, which are read-only") from error


def check_defined(family: Vertices, number: int, slices: Slices, vertex: int) -> None:
    """Raises PopulusError if a vertex reads elements that nothing wrote. Gaps between the windows of a stride are not read."""
    c = family.connections[number]
    if c.store.complete:
        return
    marks = view_array(c.store.defined, c.view)
    part = marks[(*slices, ...)]
    if not part.all() and family.family.declaration.padded:
        box = family.box(vertex)
        rows: list[NDArray[np.int64]] = []
        for access, s, n in zip(c.field.access, slices, c.view.shape):
            touched: NDArray[np.int64] = np.array([access.offset])
            for axis, coefficient in access.terms:
                first, end, _ = box[axis]
                touched = np.asarray(np.add.outer(touched, coefficient * np.arange(first, end)), np.int64).ravel()
            if access.part or access.whole:
                rows.append(np.arange(int(s.start), int(s.stop)))
            else:
                rows.append(_once(touched, n))
        part = marks[np.ix_(*rows)]
    if not part.all():
        missing = int(part.size - part.sum())
        raise PlacedError(
            f"{place(family.family)}: {family.name(vertex)} reads {_elements(missing)} of {c.variable} ({c.field.name}) that nothing wrote"
        )


def _once(indices: NDArray[np.int64], n: int) -> NDArray[np.int64]:
    """Each index within 0..n once."""
    return np.flatnonzero(np.bincount(indices[(indices >= 0) & (indices < n)], minlength=n))


def immutable(array: Array) -> Array:
    """A copy that no flag makes writable."""
    return np.ndarray(array.shape, array.dtype, array.tobytes()) if array.size else np.zeros(array.shape, array.dtype)


def _bits(array: Array) -> NDArray[Any]:
    return array.view(f"u{array.itemsize}")


def poisoned(like: Array, attempt: int) -> Array:
    """Fresh memory of poison."""
    array = np.empty(like.shape, like.dtype)
    _bits(array).fill(POISON[attempt][array.itemsize])
    return array


def poison(array: Array, attempt: int) -> NDArray[np.bool_]:
    """Where an array still is poison."""
    return _bits(array) == POISON[attempt][array.itemsize]
