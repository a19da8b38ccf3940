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
from typing import Any, TypeAlias

import numpy as np

from populus.dialects.poplar.partition import Access
from populus.dialects.support.shapes import reach
from populus.runtime.codelets.task import Array, Piece, Task, Window, seen_as
from populus.runtime.engine.native.codegen.jit import Kernel
from populus.runtime.engine.native.kernels.endings import Formula
from populus.runtime.engine.native.kernels.panels import Table, offsets

Word: TypeAlias = "int | Array | Kernel"
WHOLE = "*"  # the axis of a dimension that is accessed whole


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
    """Derives the words of one of a task's fields, or of a copy of it that has its dimensions."""
    whole = [(WHOLE, n) for access, n in zip(piece.access, piece.array.shape) if access.whole]
    return walk(piece.access, points_of(task) | dict(whole), piece.array.strides)


def walks_of(task: Task, name: str) -> Callable[[Array], Walk]:
    """Gives what walks over arrays that have the dimensions of one of a task's fields."""
    return lambda array: walk_over(task, replace(task.fields[name], array=array))


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
    """Finds the bytes from one point of some axes to the next; None if they vary."""
    table = found.table(*axes)
    step = int(table[1]) if len(table) > 1 else 0
    return None if (np.diff(table) != step).any() else step


def ending_words(formula: Formula | None, along: Callable[[Array], Walk], planes: Sequence[str], *steps: Sequence[str]) -> list[Word]:
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


NO_AXIS = Access()


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

    def matrix(self, array: Array) -> Array | None:
        """Shows an array of y's dimensions as [positions of all images, g, oc]; None if its strides do not allow it."""
        order = (0, *range(3, array.ndim), 1, 2)
        return seen_as(array.transpose(order), self.area)

    @property
    def area(self) -> tuple[int, int, int]:
        """Positions of all images, groups, and output channels."""
        return self.y.shape[0] * math.prod(self.y.shape[3:]), *self.y.shape[1:3]

    def formula_on_matrix(self) -> Formula | None:
        """Shows the arrays of the formula so; None if strides do not allow it."""
        f = self.formula
        return f and f.transposed(0, *range(3, self.y.ndim), 1, 2).seen(self.area)
