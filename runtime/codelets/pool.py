"""Kernel of `pool`: the maximum, mean, sum or sum of squares of each window, one dimension after the other."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np

from populus.dialects.support.shapes import reach
from populus.runtime.codelets.implementation import Implementation, flops_a_point
from populus.runtime.codelets.task import Array, Run, Task, arithmetic, nothing, sequence
from populus.runtime.cycles.counts import ceil_div
from populus.runtime.cycles.vertices import Sizes, Vertex


def pool(task: Task) -> Run:
    """Computes `y[n, c, o..] = op over k.. of x[n, c, o stride + k dilation - pad ..]`.

    Padding is left out, and NaN propagates through a maximum. A mean divides by the number of the window's elements
    inside x, or with `count_padding` inside x and its padding.
    """
    x, y, kind = task.fields["x"], task["y"], task.text("kind")
    if y.size == 0:
        return nothing
    spatial = y.ndim - 2
    axes = [_Axis(task, d) for d in range(spatial)]
    ufunc = np.maximum if kind == "max" else np.add
    dtype = y.dtype if kind == "max" else arithmetic(y.dtype)
    # Elements outside add nothing: a sum of -0.0 alone is -0.0.
    outside = _lowest(dtype) if kind == "max" else 0.0 if kind == "square_sum" else -0.0
    if x.array.size == 0:  # every window is padding
        empty = _lowest(dtype) if kind == "max" else 0
        return lambda: y.fill(empty)
    steps: list[Run] = []
    source = x.array
    if kind == "square_sum":
        squares = task.scratch(source.shape, dtype)
        steps.append(_square(source, squares))
        source = squares
    # Innermost first: the outer dimensions then read fewer elements.
    for d in reversed(range(spatial)):
        shape = (*source.shape[: 2 + d], axes[d].count, *source.shape[3 + d :])
        last = d == 0 and y.dtype == dtype
        target = y if last else task.scratch(shape, dtype)
        steps += axes[d].steps(ufunc, source, target, 2 + d, outside)
        source = target
    if kind == "average":
        counts = np.ones((), np.float64)
        for axis in axes:
            counts = counts[..., None] * axis.counts()
        # A window of padding alone has no mean: 0 / 0 gives NaN.
        divisor = counts.astype(dtype) if dtype.kind == "f" else counts
        total = source
        steps.append(lambda: np.divide(total, divisor, out=total, casting="unsafe"))
    if source is not y:
        result = source
        steps.append(lambda: np.copyto(y, result, casting="unsafe"))
    return sequence(steps)


class _Axis:
    """Windows along one spatial dimension of the box."""

    def __init__(self, task: Task, d: int):
        first, end, _ = task.box[f"o{d}"]
        self.first, self.count = first, end - first
        self.kernel = task.size(f"k{d}")
        x = task.fields["x"]
        self.stride, self.dilation, self.before = x.windows("o", "k")[d]
        self.size, self.overhang = x.whole[2 + d], x.pads[2 + d][0]
        self.behind = task.ints("after")[d]
        self.count_padding = bool(task.number("count_padding"))

    def steps(self, ufunc: np.ufunc, source: Array, target: Array, dim: int, outside: Any) -> list[Run]:
        """Builds the steps of target = ufunc over the window's elements of source, along `dim`; `outside` stands for padding."""
        steps: list[Run] = []
        for k in range(self.kernel):
            low, high, begin = self._span(k, source.shape[dim])
            if k == 0 and (low, high) != (0, self.count):
                steps.append(partial(target.fill, outside))
            if low < high:
                part = _along(source, dim, slice(begin, begin + reach(high - low, self.stride, 1, 1), self.stride))
                out = _along(target, dim, slice(low, high))
                steps.append(_apply(ufunc, part, out) if steps else _copy(part, out))
        return steps

    def _span(self, k: int, n: int) -> tuple[int, int, int]:
        """Finds the windows whose element k lies inside a source of n elements.

        Returns the first such window, the end of the range, and the first window's index in the source.
        """
        shift = k * self.dilation - self.overhang
        low = max(0, -(shift // self.stride)) if shift < 0 else 0
        high = min(self.count, (n - 1 - shift) // self.stride + 1)
        return low, high, low * self.stride + shift

    def counts(self) -> Any:
        """Counts the elements of each window that its mean divides by."""
        starts = np.arange(self.first, self.first + self.count) * self.stride - self.before
        at = starts[:, None] + np.arange(self.kernel) * self.dilation
        low, high = (-self.before, self.size + self.behind) if self.count_padding else (0, self.size)
        return ((low <= at) & (at < high)).sum(1).astype(np.float64)


def _lowest(dtype: np.dtype[Any]) -> Any:
    if dtype.kind in "iu":
        return np.iinfo(dtype).min
    return False if dtype.kind == "b" else -math.inf


def _along(array: Array, dim: int, part: slice) -> Array:
    return array[(slice(None),) * dim + (part,)]


def _square(x: Array, out: Array) -> Run:
    return lambda: np.multiply(x, x, out=out, dtype=out.dtype, casting="unsafe")


def _copy(x: Array, out: Array) -> Run:
    return lambda: np.copyto(out, x, casting="unsafe")


def _apply(ufunc: np.ufunc, x: Array, out: Array) -> Run:
    return lambda: ufunc(out, x, out=out, dtype=out.dtype, casting="unsafe")


def _cycles(v: Vertex, sizes: Sizes) -> Any:
    """Estimates by the form of PopLibs' planner: for each vector of outputs, 7 cycles plus 3 per window element."""
    window = v.product(sizes, lambda a: a[:1] == "k")
    vectors = ceil_div(ceil_div(v.elements(v.output, sizes), v.target.vector_width(v.element)), v.target.workers)
    return 13 + v.target.workers * (23 + 13 + vectors * (7 + 3 * window))


IMPLEMENTATIONS = {
    "pool": Implementation(pool, _cycles, flops_a_point(1), native="pool_kernels.pool"),
}
