"""Single vertices under the rules of the `strict` engine: isolated operands, poisoned outputs, and a record of written
elements.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from xdsl.ir import SSAValue

from populus.dialects.poplar.compute import ExecuteOp, FamilyOp
from populus.dialects.poplar.memory import ConstOp, StorageOp
from populus.dialects.poplar.partition import Box, bounds_problem
from populus.dialects.poplar.types import Field
from populus.dialects.poplar.view import View
from populus.dialects.support.diagnostics import PopulusError, where
from populus.runtime.codelets import IMPLEMENTATIONS
from populus.runtime.codelets.task import Piece, Task, Workspace
from populus.runtime.views import PlacedError, params_of, slices_of, view_array

Array: TypeAlias = NDArray[Any]
Slices: TypeAlias = "tuple[slice, ...]"

# By attempt, then by item size in bytes. The patterns are compared as bits, and the floats are NaNs with a payload,
# so a computed NaN is not mistaken for poison. A kernel result that equals the first pattern by chance differs from
# the second.
POISON = ({1: 0xA5, 2: 0x7FA5, 4: 0x7FE5A5A5, 8: 0x7FFA5A5A5A5A5A5A}, {1: 0x5A, 2: 0x7FDA, 4: 0x7FDA5A5A, 8: 0x7FF5A5A5A5A5A5A5})


@dataclass(slots=True)
class Store:
    """The memory of a variable, constant or argument.

    `memory`: [elements], row-major. `defined`: [elements], true where a step has written. `complete`: true if all are
    written. `whole`: the store that an argument is a part of.
    """

    op: StorageOp
    memory: Array
    defined: NDArray[np.bool_]
    complete: bool
    whole: Store | None = None

    def forget(self) -> None:
        """Marks all elements as unwritten. A constant stays defined."""
        if self.defined.flags.writeable:
            self.defined[:] = False
            store: Store | None = self
            while store is not None:
                store.complete = store.defined.size == 0
                store = store.whole

    def define(self, view: View, part: Slices | None = None) -> None:
        """Marks the elements of a view, or of the slices `part` of it, as written."""
        if not self.complete:
            marks = view_array(self.defined, view)
            marks[... if part is None else (*part, ...)] = True

    def settle(self) -> None:
        """Sets `complete` if every element has been written."""
        if not self.complete:
            self.complete = bool(self.defined.all())


@dataclass(slots=True)
class Connection:
    """A field of a family, with the view and the memory of its operand."""

    field: Field
    value: SSAValue
    view: View
    store: Store
    array: Array

    @property
    def variable(self) -> str:
        """The operand's variable in messages: `'conv1'`."""
        return f"'{self.store.op.label.data}'"

    @property
    def name(self) -> str:
        """Variable and field in messages: `'conv1' (y)`."""
        return f"{self.variable} ({self.field.name})"


class Vertices:
    """The vertices of one family, numbered in row-major order over the parts of the axes as declared.

    Raises PlacedError for an access that leaves its operand, unless the codelet pads.
    """

    def __init__(self, family: FamilyOp, connections: Sequence[Connection], workspace: Workspace, tiles: int):
        self.family, self.connections, self.workspace, self.tiles = family, connections, workspace, tiles
        self.kernel, self.params = IMPLEMENTATIONS[family.codelet.data].kernel, params_of(family.params)
        axes = family.space.axes
        self.axes = [a for a, _ in axes]
        self.shape = tuple(s.parts for _, s in axes)
        self.count = int(np.prod(self.shape))
        self._parts = [[(b[i], b[i + 1], i) for i in range(s.parts)] for _, s in axes for b in (s.bounds(),)]
        # The piece of a field depends only on the split axes that its access names.
        self._named = [
            [i for i, (axis, split) in enumerate(axes) if split.parts > 1 and any(axis == a for x in c.field.access for a, _ in x.terms)]
            for c in connections
        ]
        self._slices: list[dict[tuple[int, ...], tuple[Slices, tuple[tuple[int, int], ...]]]] = [{} for _ in connections]
        self._check_bounds()

    def tile(self, vertex: int) -> int:
        """Gives the tile that runs a vertex."""
        return self.family.space.tile(self.box(vertex), self.tiles)

    def name(self, vertex: int) -> str:
        """Names a vertex in messages: `vertex 4 (tile 12)`."""
        return f"vertex {vertex} (tile {self.tile(vertex)})"

    def place(self, vertex: int) -> str:
        """Names a vertex with its family's place: `'conv1': execute 'conv1/partials', @conv: vertex 4 (tile 12)`."""
        return f"{family_place(self.family)}: {self.name(vertex)}"

    def box(self, vertex: int) -> Box:
        """Gives the box of the iteration space that a vertex computes: (begin, end, part number) by axis."""
        index = np.unravel_index(vertex, self.shape) if self.shape else ()
        return {a: parts[int(i)] for a, parts, i in zip(self.axes, self._parts, index)}

    def index(self, vertex: int) -> tuple[int, ...]:
        """Gives the part number of a vertex along each axis."""
        index: list[int] = []
        for n in reversed(self.shape):
            vertex, i = divmod(vertex, n)
            index.append(i)
        return tuple(reversed(index))

    def part(self, number: int, index: tuple[int, ...]) -> tuple[tuple[int, ...], Slices, tuple[tuple[int, int], ...]]:
        """Gives (key, slices, pads) of field `number`. Vertices with equal keys touch the same elements."""
        key = tuple(index[i] for i in self._named[number])
        part = self._slices[number].get(key)
        if part is None:
            connection = self.connections[number]
            box = {a: parts[i] for a, parts, i in zip(self.axes, self._parts, index)}
            part = self._slices[number][key] = slices_of(self.family, connection.field, connection.view.shape, box)
        return key, *part

    def _check_bounds(self) -> None:
        for number, c in enumerate(self.connections):
            if self.family.declaration.padded and c.field.kind == "in":
                continue
            if problem := bounds_problem(self.family.space, c.field.access, c.view.shape):
                first = next(v for v in range(self.count) if self._leaves(number, v))
                raise PlacedError(f"{self.place(first)}: {c.field.name}: {problem}, in {c.variable}")

    def _leaves(self, number: int, vertex: int) -> bool:
        box = self.box(vertex)
        c = self.connections[number]
        return any(
            before or after or (a.part and box[a.terms[0][0]][2] >= n)
            for a, n in zip(c.field.access, c.view.shape)
            for _, _, before, after in (a.interval(n, box),)
        )

    def task(self, index: tuple[int, ...], pieces: dict[str, Piece]) -> Task:
        """Gives the kernel's input for the vertex at `index`, with the pieces of its fields by name."""
        box = {a: parts[i] for a, parts, i in zip(self.axes, self._parts, index)}
        return Task(self.params, box, pieces, self.workspace)


def family_place(family: FamilyOp) -> str:
    """Names a family in messages: `'conv1': execute 'conv1/partials', @conv`."""
    parent = family.parent_op()
    label = f"execute '{parent.label.data}', " if isinstance(parent, ExecuteOp) else ""
    return f"{where(family)}: {label}@{family.codelet.data}"


def count_elements(n: int) -> str:
    """Writes a number of elements in messages: `1 element`, `128 elements`."""
    return f"{n} element{'' if n == 1 else 's'}"


@dataclass(slots=True)
class Result:
    """The elements that a vertex wrote to one field."""

    vertices: Vertices
    vertex: int
    connection: Connection
    part: Slices
    array: Array


def execute_vertex(family: Vertices, vertex: int, read: Callable[[int, tuple[int, ...], Slices], Array]) -> list[Result]:
    """Runs one vertex in isolation and returns the result of each field that it writes.

    `read(field number, key, slices)` gives an immutable copy of an input's elements.
    Raises PlacedError if the kernel leaves an output element unwritten, writes an input, or refuses its operands.
    """
    index = family.index(vertex)
    parts = [family.part(number, index) for number in range(len(family.connections))]
    inputs: dict[int, Array] = {}
    for number, (c, (key, slices, _)) in enumerate(zip(family.connections, parts)):
        if c.field.kind != "out":
            inputs[number] = read(number, key, slices)
    suspects: list[NDArray[np.bool_]] = []
    for attempt in (0, 1):
        pieces: dict[str, Piece] = {}
        results: list[Result] = []
        for number, (c, (_, slices, pads)) in enumerate(zip(family.connections, parts)):
            if c.field.kind == "in":
                array = inputs[number]
            else:
                array = poisoned(c.array[(*slices, ...)], attempt) if c.field.kind == "out" else inputs[number].copy()
                results.append(Result(family, vertex, c, slices, array))
            pieces[c.field.name] = Piece(array, c.field.access, pads, isinstance(c.store.op, ConstOp), c.view.shape)
        _run(family, vertex, index, pieces)
        outputs = [r for r in results if r.connection.field.kind == "out"]
        found = [poison(r.array, attempt) for r in outputs]
        # Bytes may hold both patterns by chance, but not both in one element.
        marked = [old & new for old, new in zip(suspects, found, strict=True)] if attempt else found
        unwritten = [(r, marks) for r, marks in zip(outputs, marked) if marks.any()]
        if not unwritten:
            return results
        suspects = found
        if attempt:
            r, marks = unwritten[0]
            raise PlacedError(
                f"{family.place(vertex)} leaves {count_elements(int(marks.sum()))} of {r.connection.field.name} "
                f"unwritten, in {r.connection.variable}"
            )
    raise AssertionError(vertex)


def _run(family: Vertices, vertex: int, index: tuple[int, ...], pieces: dict[str, Piece]) -> None:
    try:
        family.kernel(family.task(index, pieces))()
    except PopulusError as error:
        raise PlacedError(f"{family.place(vertex)}: {error}") from error
    except ValueError as error:
        if "read-only" not in str(error) and "not writeable" not in str(error):
            raise
        raise PlacedError(f"{family.place(vertex)} writes one of its inputs, which are read-only") from error


def check_defined(family: Vertices, number: int, slices: Slices, vertex: int) -> None:
    """Raises PlacedError if a vertex reads elements that nothing wrote.

    The elements in the gaps that a stride or dilation leaves between windows are not read.
    """
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
        raise PlacedError(f"{family.place(vertex)} reads {count_elements(missing)} of {c.name} that nothing wrote")


def _once(indices: NDArray[np.int64], n: int) -> NDArray[np.int64]:
    """Gives the distinct indices within 0..n, ascending."""
    return np.flatnonzero(np.bincount(indices[(indices >= 0) & (indices < n)], minlength=n))


def immutable(array: Array) -> Array:
    """Copies an array into memory that no flag makes writable."""
    return np.ndarray(array.shape, array.dtype, array.tobytes()) if array.size else np.zeros(array.shape, array.dtype)


def _bits(array: Array) -> NDArray[Any]:
    return array.view(f"u{array.itemsize}")


def poisoned(like: Array, attempt: int) -> Array:
    """Allocates an array like `like`, filled with the poison of this attempt (0 or 1)."""
    array = np.empty(like.shape, like.dtype)
    _bits(array).fill(POISON[attempt][array.itemsize])
    return array


def poison(array: Array, attempt: int) -> NDArray[np.bool_]:
    """Marks the elements of an array that still hold the poison of this attempt."""
    return _bits(array) == POISON[attempt][array.itemsize]
