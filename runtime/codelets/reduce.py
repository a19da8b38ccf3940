"""Kernel of `reduce`: sums, products and extremes along some axes.

The order of a sum depends only on the family. Trailing reduced dimensions of x are summed first, pairwise, as NumPy
sums contiguous rows. The leading reduced dimensions are summed next, one slice after the other. So neither cuts of
parallel axes nor the memory layout of x change a bit.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from populus.runtime.codelets.implementation import Implementation
from populus.runtime.codelets.task import Array, Run, Task, arithmetic, nothing, seen_as, sequence
from populus.runtime.cycles.family import reduce_cycles
from populus.runtime.cycles.vertices import Sizes, Vertex

_UFUNCS: dict[str, np.ufunc] = {
    "add": np.add,
    "and": np.logical_and,
    "max": np.maximum,
    "min": np.minimum,
    "mul": np.multiply,
    "or": np.logical_or,
    "square_add": np.add,
}

FEW = 64  # up to this many slices are added by one call each


def reduce(task: Task) -> Run:
    """Computes `y = op of x along the axes that y does not have`; `square_add` is the sum of squares."""
    op = task.text("op")
    y, piece = task.fields["y"].without_parts(), task.fields["x"]
    if y.size == 0:
        return nothing
    own = [a for a in task.fields["y"].access if not a.part]
    own_axes = [a.terms[0][0] for a in own if a.terms]
    order = [piece.dimension(axis) for axis in own_axes]
    if len(own_axes) < y.ndim:  # dimensions of one element, accessed by a constant
        y = y[(*(slice(None) if a.terms else 0 for a in own), ...)]
    reduced = [d for d in range(piece.array.ndim) if d not in order]
    if any(piece.array.shape[d] == 0 for d in reduced):
        identity = identity_of(op, y.dtype)
        return lambda: np.copyto(y, identity)
    ufunc = _UFUNCS[op]
    if op in ("and", "max", "min", "or"):  # the order does not matter
        x = piece.array.transpose(*order, *reduced)
        axes = tuple(range(len(order), x.ndim))
        return lambda: ufunc.reduce(x, axis=axes, out=y)
    rank = piece.array.ndim
    trailing = next((rank - d - 1 for d in reversed(range(rank)) if d not in reduced), rank)
    front = [d for d in reduced if d < rank - trailing]
    x = piece.array.transpose(*front, *order, *range(rank - trailing, rank))
    return _Sum(task, ufunc, op == "square_add", x, len(front), trailing, y).bind()


def identity_of(op: str, dtype: np.dtype[Any]) -> Array:
    """Gives the reduction of no elements."""
    match op:
        case "add" | "square_add" | "or":
            value: Any = 0
        case "mul" | "and":
            value = 1
        case _ if dtype.kind in "iu":
            value = np.iinfo(dtype).min if op == "max" else np.iinfo(dtype).max
        case _ if dtype.kind == "b":
            value = op == "min"
        case _:
            value = -np.inf if op == "max" else np.inf
    return np.asarray(value).astype(dtype)


class _Sum:
    """A sum or product of x: [front.., own.., trailing..] into y: [own..]: trailing rows first, then the front."""

    def __init__(self, task: Task, ufunc: np.ufunc, square: bool, x: Array, front: int, trailing: int, y: Array):
        self.task, self.ufunc, self.square, self.y = task, ufunc, square, y
        self.dtype = arithmetic(y.dtype)
        self.front, self.trailing, self.x = front, trailing, x

    def bind(self) -> Run:
        """Builds the steps of the whole reduction."""
        steps: list[Run] = []
        x, square = self.x, self.square
        count = math.prod(x.shape[: self.front])
        direct = self.y.dtype == self.dtype
        out = self.y if direct else self.task.scratch(self.y.shape, self.dtype)
        if self.trailing:
            rows = math.prod(x.shape[x.ndim - self.trailing :])
            x = self._rows(x, rows, square, steps)
            square = False
            sums = out if count == 1 else self.task.scratch(x.shape[:-1], self.dtype)
            target = sums.reshape(x.shape[:-1], copy=False)
            steps.append(_reducer(self.ufunc, x, -1, target))
            x = sums
        if not self.trailing or count > 1:
            self._slices(self._stacked(x, count, steps), out, square, steps)
        if not direct:
            y = self.y
            steps.append(lambda: np.copyto(y, out, casting="unsafe"))
        return sequence(steps)

    def _rows(self, x: Array, n: int, square: bool, steps: list[Run]) -> Array:
        """Returns x as [.., n], with contiguous rows in the arithmetic type, squared if `square`."""
        shape = (*x.shape[: x.ndim - self.trailing], n)
        if not square and x.dtype == self.dtype:
            seen = _as_rows(x, shape)
            if seen is not None:
                return seen
        copy = self.task.scratch(x.shape, self.dtype)
        steps.append(_square(x, copy) if square else _copy(x, copy))
        return copy.reshape(shape)

    def _stacked(self, x: Array, count: int, steps: list[Run]) -> Array:
        """Returns x: [front.., own..] as [count, own..]."""
        shape = (count, *self.y.shape)
        seen = seen_as(x, shape)
        if seen is not None:
            return seen
        copy = self.task.scratch(x.shape, x.dtype)
        steps.append(_copy(x, copy))
        return copy.reshape(shape)

    def _slices(self, x: Array, out: Array, square: bool, steps: list[Run]) -> None:
        """Computes out = x[0] + x[1] + ..., in this order. x: [count, own..]."""
        if square:
            copy = self.task.scratch(x.shape, self.dtype)
            steps.append(_square(x, copy))
            x = copy
        if x.shape[0] <= FEW:
            steps.append(_accumulate(self.ufunc, x, out))
        elif out.size > 1:
            # NumPy adds whole slices if the reduced dimension is the outer one.
            if x.dtype != self.dtype or not x.flags.c_contiguous:
                copy = self.task.scratch(x.shape, self.dtype)
                steps.append(_copy(x, copy))
                x = copy
            flat = x.reshape(x.shape[0], out.size)
            total = self.task.scratch((out.size,), self.dtype)
            shaped = total.reshape(out.shape)
            steps += [_reducer(self.ufunc, flat, 0, total), _copy(shaped, out)]
        else:
            column, ufunc, dtype = x.reshape(x.shape[0]), self.ufunc, self.dtype
            steps.append(lambda: out.fill(ufunc.accumulate(column, dtype=dtype)[-1]))


def _as_rows(x: Array, shape: tuple[int, ...]) -> Array | None:
    """Reshapes x to rows of n contiguous elements that do not overlap. Returns None if that needs a copy."""
    seen = seen_as(x, shape)
    if seen is None:
        return None
    n, item = shape[-1], x.itemsize
    if n > 1 and seen.strides[-1] != item:
        return None
    if any(m > 1 and abs(s) < n * item for m, s in zip(seen.shape[:-1], seen.strides)):
        return None
    return seen


def _square(x: Array, out: Array) -> Run:
    return lambda: np.multiply(x, x, out=out, dtype=out.dtype, casting="unsafe")


def _copy(x: Array, out: Array) -> Run:
    return lambda: np.copyto(out, x, casting="unsafe")


def _reducer(ufunc: np.ufunc, x: Array, axis: int, out: Array) -> Run:
    # NumPy begins at 0.0, which would make 0.0 of a sum of -0.0 alone.
    given: dict[str, Any] = {"initial": -0.0} if ufunc is np.add and out.dtype.kind == "f" else {}
    return lambda: ufunc.reduce(x, axis=axis, out=out, dtype=out.dtype, **given)


def _accumulate(ufunc: np.ufunc, x: Array, out: Array) -> Run:
    slices = [x[i, ...] for i in range(x.shape[0])]  # with the dots, one element stays a view
    if len(slices) == 1:
        return lambda: np.copyto(out, slices[0], casting="unsafe")
    first, second, *rest = slices

    def run() -> None:
        ufunc(first, second, out=out, dtype=out.dtype, casting="unsafe")
        for term in rest:
            ufunc(out, term, out=out, dtype=out.dtype, casting="unsafe")

    return run


def _cycles(v: Vertex, sizes: Sizes) -> Any:
    outputs = v.product(sizes, lambda a: not _is_reduced(a))
    last = v.fields[0].access[-1].terms if v.fields[0].access else ()
    contiguous = any(_is_reduced(a) for a, _ in last)
    depth = v.product(sizes, _is_reduced)
    return reduce_cycles(outputs, depth, v.element, v.target, contiguous, v.op == "add", v.op == "square_add")


def _is_reduced(axis: str) -> bool:
    return axis[:1] == "r" and (axis == "r" or axis[1:].isdigit())


def _flops(v: Vertex) -> int:
    return v.points * (2 if v.op == "square_add" else 1)


IMPLEMENTATIONS = {
    "reduce": Implementation(reduce, _cycles, _flops, native="reduction.reduce"),
}
