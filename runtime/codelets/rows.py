"""Kernels of whole rows: `softmax` and `whiten`. NumPy sums contiguous rows, so cuts between rows change no bit."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np
from xdsl.ir import Attribute

from populus.dialects.poplar.target import Target
from populus.runtime.codelets.implementation import Cycles, Implementation, flops_a_point
from populus.runtime.codelets.task import Array, Run, Task, arithmetic, nothing, sequence
from populus.runtime.cycles.counts import Count
from populus.runtime.cycles.rows import softmax_cycles, whiten_cycles

BLOCK_BYTES = 256 << 10  # of rows per block, so that all passes over a block stay in cache


def softmax(task: Task) -> Run:
    """Computes `y = exp(x - max) / sum of exp(x - max)` along r; with `log`, `y = x - max - log of that sum`."""
    return _blocks(task, _LogSoftmax if task.number("log") else _Softmax)


def whiten(task: Task) -> Run:
    """Computes `y = (x - mean) / sqrt(variance + epsilon)` along r; the variance is the mean of (x - mean)^2."""
    return _blocks(task, _Whiten)


class _Rows(ABC):
    """A block of rows, x and y: [.., r]. `work` and `other` have the same shape; `one` has one number per row."""

    def __init__(self, task: Task, x: Array, y: Array, work: Array, other: Array, one: Array):
        self.task, self.x, self.y, self.work, self.other, self.one = task, x, y, work, other, one

    @abstractmethod
    def run(self) -> None:
        """Computes y from x."""


class _Softmax(_Rows):
    """Softmax that rounds each step to y's 16-bit type, as ONNX's decomposition of Softmax does; only sums are
    wider.
    """

    def run(self) -> None:
        work, one = self.work, self.one
        np.maximum.reduce(self.x, axis=-1, out=one, keepdims=True)
        np.subtract(self.x, one, out=work)
        self.round(work)
        np.exp(work, out=work)
        self.round(work)
        np.add.reduce(work, axis=-1, out=one, keepdims=True)
        self.round(one)
        np.divide(work, one, out=self.y, casting="unsafe")

    def round(self, work: Array) -> None:
        """Rounds values to the type of y, in place."""
        if self.y.dtype != work.dtype:
            np.copyto(work, work.astype(self.y.dtype), casting="unsafe")


class _LogSoftmax(_Rows):
    def run(self) -> None:
        work, one, shifted = self.work, self.one, self.other
        np.maximum.reduce(self.x, axis=-1, out=one, keepdims=True)
        np.subtract(self.x, one, out=shifted)
        np.exp(shifted, out=work)
        np.add.reduce(work, axis=-1, out=one, keepdims=True)
        np.log(one, out=one)
        np.subtract(shifted, one, out=self.y, casting="unsafe")


class _Whiten(_Rows):
    def __init__(self, task: Task, x: Array, y: Array, work: Array, other: Array, one: Array):
        super().__init__(task, x, y, work, other, one)
        self.count = work.dtype.type(work.shape[-1])
        self.epsilon = work.dtype.type(task.number("epsilon"))

    def run(self) -> None:
        work, one, square = self.work, self.one, self.other
        np.copyto(work, self.x, casting="unsafe")
        np.add.reduce(work, axis=-1, out=one, keepdims=True)
        np.divide(one, self.count, out=one)
        np.subtract(work, one, out=work)
        np.multiply(work, work, out=square)
        np.add.reduce(square, axis=-1, out=one, keepdims=True)
        np.divide(one, self.count, out=one)
        np.add(one, self.epsilon, out=one)
        np.sqrt(one, out=one)
        np.divide(work, one, out=self.y, casting="unsafe")


def _blocks(task: Task, kind: type[_Rows]) -> Run:
    """Moves the row dimension to the end and binds the box's rows in blocks of at most BLOCK_BYTES."""
    x, y = (np.moveaxis(piece.array, piece.dimension("r"), -1) for piece in (task.fields["x"], task.fields["y"]))
    if y.size == 0:
        return nothing
    dtype = arithmetic(y.dtype)
    if x.ndim == 1:
        x, y = x[None], y[None]
    while y.ndim > 2 and y[0].nbytes > BLOCK_BYTES and y.shape[0] == 1:
        x, y = x[0], y[0]
    rows = max(1, min(y.shape[0], BLOCK_BYTES // max(1, y[0].size * dtype.itemsize)))
    shape = (rows, *y.shape[1:])
    work, other, one = (task.scratch(s, dtype) for s in (shape, shape, (*shape[:-1], 1)))
    converted = None if x.dtype == dtype else task.scratch(shape, dtype)
    steps: list[Run] = []
    for begin in range(0, y.shape[0], rows):
        n = min(rows, y.shape[0] - begin)
        part = x[begin : begin + n]
        if converted is not None:
            steps.append(_copy(part, converted[:n]))
            part = converted[:n]
        steps.append(kind(task, part, y[begin : begin + n], work[:n], other[:n], one[:n]).run)
    return sequence(steps)


def _copy(x: Array, out: Array) -> Run:
    return lambda: np.copyto(out, x, casting="unsafe")


def _row_by_row(of: Callable[[Target, Attribute, Count, Count], Any]) -> Cycles:
    return lambda v, sizes: of(v.target, v.element, v.product(sizes, lambda a: a != "r"), sizes["r"])


# Five operations per element; for softmax: max, sub, exp, add, mul.
IMPLEMENTATIONS = {
    "softmax": Implementation(softmax, _row_by_row(softmax_cycles), flops_a_point(5), native="rows.softmax"),
    "whiten": Implementation(whiten, _row_by_row(whiten_cycles), flops_a_point(5), native="rows.whiten"),
}
