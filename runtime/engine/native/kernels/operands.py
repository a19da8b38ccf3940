"""Operands along the axes of a family: the one place where accesses and layouts become the words of a launch.

A dimension that one axis indexes has an element for each of its points. Windows are two axes along one dimension, each with its step.
A dimension that is accessed whole is an axis of the operand alone, `*`.
So an axis of an operand is a number of bytes from one point to the next, whatever the layout, and a table has the offsets of some axes.
The addresses that `codegen/touched.py` reads back from these words are held to the accesses (`run/launch_check.py`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import EllipsisType
from typing import Any, TypeAlias

import numpy as np
from numpy.lib.stride_tricks import as_strided

from populus.dialects.expr import Expr
from populus.dialects.poplar.partition import Access
from populus.dialects.support.shapes import reach
from populus.runtime.codelets.task import Array, Piece, Task, Window
from populus.runtime.engine.native.codegen.jit import Kernel
from populus.runtime.engine.native.codegen.touched import address_of
from populus.runtime.engine.native.kernels.panels import Table, offsets
from populus.runtime.expr import coalesced

Word: TypeAlias = "int | Array | Kernel"
Index: TypeAlias = "int | slice | EllipsisType"
Along: TypeAlias = "Callable[[Array], Walk]"
WHOLE = "*"  # the axis of a dimension that is accessed whole
NO_AXIS = Access()


@dataclass(frozen=True)
class Walk:
    """An operand's points along each axis, and the bytes from one to the next; it has one place along an axis that does not index it."""

    points: Mapping[str, int]
    bytes: Mapping[str, int]

    def table(self, *axes: str) -> Table:
        """Lists the offsets of all points of some axes, in row-major order."""
        return offsets(tuple(self.points.get(a, 1) for a in axes), tuple(self.bytes.get(a, 0) for a in axes))

    def by(self, axis: str, n: int, points: int) -> Walk:
        """Gives the walk that takes n points of an axis as one. `points`: the axis's with those of padding."""
        return Walk({**self.points, axis: points // n}, {**self.bytes, axis: self.bytes[axis] * n})


def walk(accesses: Sequence[Access], points: Mapping[str, int], strides: Sequence[int]) -> Walk:
    """Derives the words of an operand from its accesses and its layout, the bytes between neighbours in each dimension."""
    bytes: dict[str, int] = {}
    for access, stride in zip(accesses, strides, strict=True):
        for axis, step in ((WHOLE, 1),) if access.whole else access.terms if not access.part else ():
            bytes[axis] = bytes.get(axis, 0) + stride * (step if len(access.terms) > 1 else 1)
    return Walk(points, bytes)


def points_of(task: Task) -> dict[str, int]:
    """Counts the points along each axis. An axis may be longer than an operand that it indexes alone: further points read padding."""
    points = {axis: end - first for axis, (first, end, _) in task.box.items()}
    for piece in task.fields.values():
        for access, n in zip(piece.access, piece.array.shape):
            if len(access.terms) == 1 and not access.part:
                axis = access.terms[0][0]
                points[axis] = min(points[axis], n)
    return points


def axes_of(accesses: Sequence[Access]) -> list[str]:
    """Lists the axes whose points index dimensions, in their order."""
    return [axis for access in accesses if not access.part for axis, _ in access.terms]


def walk_over(task: Task, piece: Piece) -> Walk:
    """Derives the words of one of a task's fields, or of a copy of it that has its dimensions, or all but leading ones of parts."""
    accesses = piece.access[len(piece.access) - piece.array.ndim :]
    whole = [(WHOLE, n) for access, n in zip(accesses, piece.array.shape) if access.whole]
    return walk(accesses, points_of(task) | dict(whole), piece.array.strides)


def walks_of(task: Task, name: str) -> Along:
    """Gives what walks over arrays that have the dimensions of one of a task's fields."""
    return lambda array: walk_over(task, replace(task.fields[name], array=array))


def sides_from(array: Array) -> list[str]:
    """Names an array's dimensions as axes, from the last: arrays that are broadcast to it have the same."""
    return [f"d{d}" for d in range(-array.ndim, 0)]


def shown(array: Array) -> Walk:
    """Walks over an array by its dimensions."""
    axes = sides_from(array)
    return walk([Access(((axis, 1),)) for axis in axes], dict(zip(axes, array.shape)), array.strides)


def run_of(axes: Sequence[str], item: int, *walks: Walk) -> tuple[Sequence[str], int]:
    """Finds the trailing points that are adjacent in all walks over elements of `item` bytes: the axes before them, and their number."""
    run = 1
    for i, axis in reversed(list(enumerate(axes, 1))):
        n = walks[0].points[axis]
        if n > 1 and any(w.bytes[axis] != run * item for w in walks):
            return axes[:i], run
        run *= n
    return (), run


def step_of(found: Walk, *axes: str) -> int | None:
    """Finds the bytes from one point of some axes to the next, 0 for one point alone; None if they vary."""
    step, run = 0, 1
    for axis in reversed(axes):
        n, here = found.points.get(axis, 1), found.bytes.get(axis, 0)
        if n > 1 and run > 1 and here != step * run:
            return None
        step, run = here if n > run == 1 else step, run * n
    return step


@dataclass(frozen=True)
class Nest:
    """Loops over axes, at each point of which some arrays have an element; the last array is written."""

    axes: Sequence[str]
    arrays: Sequence[Array]
    walks: Sequence[Walk]

    @staticmethod
    def of(*arrays: Array) -> Nest:
        """Makes the loops over the dimensions of the last array, to which the others are broadcast."""
        *given, last = arrays
        own = [*(np.broadcast_to(a, last.shape) for a in given), last]
        return Nest(sides_from(last), own, [shown(a) for a in own])

    @staticmethod
    def over(task: Task, *pieces: Piece) -> Nest:
        """Makes the loops over the axes of the last field."""
        return Nest(axes_of(pieces[-1].access), [p.array for p in pieces], [walk_over(task, p) for p in pieces])

    def of_one(self, i: int) -> Nest:
        """Leaves out all that is read but one array."""
        return Nest(self.axes, [self.arrays[i], self.arrays[-1]], [self.walks[i], self.walks[-1]])

    def is_written(self, i: int) -> bool:
        """Tells whether an array is the last one, element for element."""
        x, y = self.walks[i], self.walks[-1]
        alike = all(y.points[axis] == 1 or x.bytes.get(axis, 0) == y.bytes[axis] for axis in self.axes)
        return alike and _begins_at(self.arrays[i], self.arrays[-1])

    def loops(self) -> tuple[list[int], list[list[int]]]:
        """Lists the loops in the order of the last array's memory, joined where all allow it: sizes, and each array's steps in bytes."""
        last = self.walks[-1]
        axes = sorted((a for a in self.axes if last.points[a] > 1), key=lambda a: -abs(last.bytes[a]))
        steps = [[w.bytes.get(axis, 0) for axis in axes] for w in self.walks]
        return coalesced([last.points[axis] for axis in axes], steps, [a.itemsize for a in self.arrays])


def _begins_at(x: Array, out: Array) -> bool:
    return x.dtype == out.dtype and address_of(x) == address_of(out)


@dataclass(frozen=True)
class Matrix:
    """An array's elements as rows and columns. `array`: begins with the first; `steps`: bytes from a row and a column to the next."""

    array: Array
    shape: tuple[int, int]
    steps: tuple[int, int]

    @staticmethod
    def of(array: Array, along: Walk, rows: Sequence[str], columns: Sequence[str]) -> Matrix | None:
        """Takes the points of some axes as rows, and those of others as columns; None if they have no one step."""
        shape, steps = list[int](), list[int]()
        for axes in (rows, columns):
            shape.append(math.prod(along.points.get(axis, 1) for axis in axes))
            step = step_of(along, *axes) if shape[-1] > 1 else along.bytes.get(axes[-1], 0) if axes else 0
            if step is None:
                return None
            steps.append(step)
        return Matrix(array, (shape[0], shape[1]), (steps[0], steps[1]))

    @staticmethod
    def plain(array: Array) -> Matrix:
        """Takes a matrix as it is."""
        return Matrix(array, (array.shape[0], array.shape[1]), (array.strides[0], array.strides[1]))

    @property
    def out(self) -> Matrix:
        """The matrix itself, as of a formula."""
        return self

    @property
    def moves(self) -> tuple[int, int]:
        """Bytes from a row, and from a column, to the next; 0 where there is one."""
        return self.steps[0] * (self.shape[0] > 1), self.steps[1] * (self.shape[1] > 1)

    @property
    def seen(self) -> Array:
        """The matrix as an array."""
        return as_strided(self.array, self.shape, self.steps)

    def at(self, *index: Index) -> Matrix:
        """Gives the matrix that begins elsewhere in its array."""
        return replace(self, array=self.array[index])

    def is_written(self, out: Matrix) -> bool:
        """Tells whether the matrix is another, element for element."""
        return _begins_at(self.array, out.array) and self.moves == out.moves


@dataclass(frozen=True)
class Formula:
    """A `map` on the sums: its expression, its inputs (None: the sums) and its output, of the sums' dimensions."""

    expr: Expr
    inputs: Sequence[Array | None]
    out: Array

    @property
    def others(self) -> list[Array]:
        """Lists its inputs beside the sums."""
        return [x for x in self.inputs if x is not None]


@dataclass(frozen=True)
class OnMatrix:
    """A formula on sums that are rows and columns."""

    expr: Expr
    inputs: Sequence[Matrix | None]
    out: Matrix

    @property
    def others(self) -> list[Matrix]:
        """Lists its inputs beside the sums."""
        return [x for x in self.inputs if x is not None]

    @property
    def words(self) -> list[Word]:
        """Lists the words of these inputs: for each its address and its steps."""
        return [word for x in self.others for word in (x.array, *x.moves)]

    def at(self, *index: Index) -> OnMatrix:
        """Gives the formula on the matrices that begin elsewhere in their arrays."""
        return OnMatrix(self.expr, [x and x.at(*index) for x in self.inputs], self.out.at(*index))


def on_matrix(formula: Formula, along: Along, rows: Sequence[str], columns: Sequence[str]) -> OnMatrix | None:
    """Takes the arrays of a formula as matrices; None if one has no one step."""
    found = [x if x is None else Matrix.of(x, along(x), rows, columns) for x in (*formula.inputs, formula.out)]
    if found[-1] is None or any(a is None and x is not None for a, x in zip(found, formula.inputs)):
        return None
    return OnMatrix(formula.expr, found[:-1], found[-1])


def stored(y: Array, formula: Formula | None, along: Along, rows: Sequence[str], columns: Sequence[str]) -> Matrix | OnMatrix | None:
    """Gives where sums go as rows and columns: y, or a formula. None if an array has no one step."""
    return Matrix.of(y, along(y), rows, columns) if formula is None else on_matrix(formula, along, rows, columns)


def ending_words(formula: Formula | None, along: Along, planes: Sequence[str], *steps: Sequence[str]) -> list[Word]:
    """Lists the words of an ending's operands: for each its address, the places of planes, and the bytes of each further step.

    `along`: walks over an operand. `planes`: the axes that number planes. `steps`: for each step the axes that it goes along.
    """
    words: list[Word] = []
    for x in () if formula is None else formula.others:
        found = along(x)
        moves = [step_of(found, *axes) for axes in steps]
        assert None not in moves, (steps, found)
        words += [x, found.table(*planes), *(m for m in moves if m is not None)]
    return words


OUTSIDE = -(1 << 63)  # in place of the byte offset of an element outside the input; any other number may be a view's


@dataclass(frozen=True)
class Side:
    """Windows along one dimension: output o meets element o stride + k dilation - before, if that is one of `n`.

    `step`, `leap`: bytes from an element, and from an output, to the next.
    """

    outputs: int = 1
    kernel: int = 1
    stride: int = 1
    dilation: int = 1
    before: int = 0
    n: int = 1
    step: int = 0
    leap: int = 0

    @staticmethod
    def of(window: Window, before: int, n: int, axes: tuple[str, str], x: Walk, y: Walk) -> Side:
        """Derives the words of windows from the axes of outputs and taps."""
        (stride, dilation, _), (out, tap) = window, axes
        step, leap = x.bytes.get(tap, 0) // dilation, y.bytes.get(out, 0)
        return Side(y.points.get(out, 1), x.points.get(tap, 1), stride, dilation, before, n, step, leap)

    def rows(self) -> Table:
        """Builds [outputs, kernel]: byte offsets of the elements, OUTSIDE where there is none."""
        at = (np.arange(self.outputs, dtype=np.int64) * self.stride - self.before)[:, None] + np.arange(self.kernel) * self.dilation
        return np.ascontiguousarray(np.where((at >= 0) & (at < self.n), at * self.step, OUTSIDE))

    def columns(self, step: int) -> Table:
        """Builds [kernel, 3]: first output and end of those with an element inside; byte offset for output 0."""
        table: list[tuple[int, int, int]] = []
        for k in range(self.kernel):
            shift = k * self.dilation - self.before
            low = max(0, -(shift // self.stride)) if shift < 0 else 0
            table.append((low, max(low, min(self.outputs, (self.n - 1 - shift) // self.stride + 1)), shift * step))
        return np.array(table, np.int64)


def sides_of(task: Task, x: Piece, y: Piece) -> list[Side]:
    """Lists the sides of windows over x, whose outputs are y."""
    along_x, along_y, lead = walk_over(task, x), walk_over(task, y), len(x.access) - len(x.windows("o", "k"))
    found = zip(x.windows("o", "k"), x.pads[lead:], x.array.shape[lead:])
    return [Side.of(w, before, n, (f"o{d}", f"k{d}"), along_x, along_y) for d, (w, (before, _), n) in enumerate(found)]


@dataclass(frozen=True)
class Convolution:
    """A convolution, or a formula of it: operands with a dimension of groups, and with as many sides as a kernel asks for.

        y[b, g, oc, o..] = sum over ic, k.. of x[b, g, ic, o stride + k dilation - before ..] w[g, oc, ic, k..]

    `constant`: w is. `pads`: elements of padding around x, (before, after) for each side. The windows may end inside x: then there is none
    after it, and part of x is not read.
    """

    x: Array
    w: Array
    y: Array
    formula: Formula | None
    constant: bool
    windows: tuple[Window, ...]
    pads: tuple[tuple[int, int], ...]
    points: Mapping[str, int]
    accesses: tuple[Sequence[Access], ...]
    outs: tuple[str, ...]
    taps: tuple[str, ...]

    @staticmethod
    def of(task: Task, formula: Formula | None, sides: int = 1) -> Convolution | None:
        """Reads a task, with at least so many `sides`: the first may be of one element. None unless there are sides, each with windows."""
        x, w, y, grouped = task.fields["x"], task.fields["w"], task.fields["y"], "g" in task.box
        windows, out = x.windows("o", "k"), y.without_parts()
        spatial = out.ndim - 2 - grouped
        if not 0 < len(windows) == spatial:
            return None
        more = max(sides - spatial, 0)

        def widened(dimensions: Sequence[Any], own: Any, group: int) -> list[Any]:
            found = [*dimensions[: len(dimensions) - spatial], *[own] * more, *dimensions[len(dimensions) - spatial :]]
            return found if grouped else [*found[:group], own, *found[group:]]

        def shown(array: Array, group: int = 1) -> Array:
            return array[tuple(widened([slice(None)] * array.ndim, None, group))]

        arrays = shown(x.array), shown(w.array, 0), shown(out)
        if formula is not None:
            formula = Formula(formula.expr, [None if a is None else shown(a) for a in formula.inputs], shown(formula.out))
        accesses = (widened(access, NO_AXIS, group) for access, group in ((x.access, 1), (w.access, 0), (y.access[-out.ndim :], 1)))
        names = (tuple(f"{side}{d}" for d in range(spatial)) for side in "ok")
        ends = map(reach, out.shape[-spatial:], (v.stride for v in windows), w.array.shape[-spatial:], (v.dilation for v in windows))
        before = [b for b, _ in x.pads[-spatial:]]
        pads = [(b, max(0, end - b - n)) for b, end, n in zip(before, ends, x.array.shape[-spatial:])]
        return Convolution(
            *arrays, formula, w.constant, (Window(1, 1, 0),) * more + windows, ((0, 0),) * more + tuple(pads), points_of(task),
            tuple(accesses), *names,
        )  # fmt: skip

    @property
    def kernel(self) -> tuple[int, ...]:
        """Taps along each side."""
        return self.w.shape[3:]

    @property
    def sides(self) -> list[Side]:
        """Sides of the windows."""
        more = ("",) * (len(self.windows) - len(self.outs))
        found = zip(self.windows, self.pads, self.x.shape[3:], (*more, *self.outs), (*more, *self.taps))
        return [Side.of(w, before, n, (out, tap), self.along_x(), self.along_y) for w, (before, _), n, out, tap in found]

    @property
    def strides(self) -> tuple[int, ...]:
        """Elements between neighbouring windows along each side."""
        return tuple(v.stride for v in self.windows)

    @property
    def is_padded(self) -> bool:
        """True if windows reach beyond x."""
        return any(map(any, self.pads))

    @property
    def padded(self) -> list[int]:
        """Sides of x with its padding."""
        return [b + n + e for (b, e), n in zip(self.pads, self.x.shape[3:])]

    @property
    def inner(self) -> tuple[slice, ...]:
        """The place of x in its padding, for each side."""
        return tuple(slice(b, b + n) for (b, _), n in zip(self.pads, self.x.shape[3:]))

    def reading(self, x: Array) -> Convolution:
        """Gives the convolution of x with its padding, [b, g, ic, sides..]."""
        return replace(self, x=x, pads=((0, 0),) * len(self.pads))

    def along_x(self, strides: Sequence[int] | None = None) -> Walk:
        """Walks over x, or over memory of its dimensions with other strides."""
        return walk(self.accesses[0], self.points, self.x.strides if strides is None else strides)

    @property
    def target(self) -> Array:
        """The array that is stored: y, or the formula's output."""
        return self.y if self.formula is None else self.formula.out

    def along(self, array: Array) -> Walk:
        """Walks over an array of y's dimensions."""
        return walk(self.accesses[2], self.points, array.strides)

    @property
    def along_y(self) -> Walk:
        """Walks over what is stored."""
        return self.along(self.target)

    @property
    def along_w(self) -> Walk:
        """Walks over w."""
        return walk(self.accesses[1], self.points, self.w.strides)

    @property
    def area(self) -> int:
        """Positions of all images."""
        return self.y.shape[0] * math.prod(self.y.shape[3:])

    def stored(self, *planes: str, column: str = "oc") -> Matrix | OnMatrix | None:
        """Gives where sums go, as rows of positions, of some `planes` too, and columns. None if an array has no one step."""
        return stored(self.y, self.formula, self.along, (*planes, *self.outs), (column,))
