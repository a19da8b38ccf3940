"""Kernels of contractions: `conv` and `matmul`, each as few matrix products as its box allows.

16- and 8-bit floats are multiplied and summed in float32 and rounded when stored; integers wrap around in the
output's type. With `partials = "f16"`, the running sum is rounded to f16 after each call of a matrix unit: after
every 16 in-channels of every kernel element. BLAS chooses the order of sums; all other steps are exact.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from populus.dialects.poplar.codelets import CODELETS
from populus.dialects.poplar.view import row_major
from populus.dialects.support.shapes import reach
from populus.runtime.codelets.implementation import Implementation, flops_a_point
from populus.runtime.codelets.task import Array, Piece, Run, Task, arithmetic, nothing, seen_as, sequence
from populus.runtime.cycles import Products, contraction
from populus.runtime.cycles.vertices import Sizes, Vertex

BYTE_PRODUCT = 255 * 255  # no product of 8-bit integers is larger
COLUMN_BYTES = 4 << 20  # of unfolded input at a time: about a core's share of the cache; it also bounds memory
HALVES = 16  # in-channels of a call of the matrix unit
TAP_BYTES = 256 << 10  # of output per pass of shifted multiply-adds


def summed(dtype: np.dtype[Any], depth: int, *operands: Array) -> np.dtype[Any]:
    """Returns the dtype in which `depth` products are summed.

    Sums of products of 8-bit integers are exact in floats while they are below 2^24 and 2^31, and BLAS computes them.
    """
    if dtype == np.int32 and all(a.dtype.name in ("int8", "uint8") for a in operands):
        exact = (np.float32, 1 << 24), (np.float64, 1 << 31)
        return next((np.dtype(t) for t, most in exact if depth * BYTE_PRODUCT < most), dtype)
    return arithmetic(dtype)


def matmul(task: Task) -> Run:
    """Computes `c[g, m, n] = sum over k of a[g, m, k] b[g, k, n]`."""
    c = task.fields["c"].without_parts()
    if c.size == 0:
        return nothing
    if task.size("k") == 0:
        return lambda: c.fill(0)
    dtype = summed(c.dtype, task.size("k"), task.fields["a"].array, task.fields["b"].array)
    steps: list[Run] = []
    a = _operand(task, task.fields["a"], dtype, steps)
    b = _operand(task, task.fields["b"], dtype, steps)
    if "partials" in task.params:
        depth = range(0, task.size("k"), HALVES)
        return sequence([*steps, _half_sums(task, lambda: ((a[..., k : k + HALVES], b[:, k : k + HALVES]) for k in depth), c)])
    return _product(task, a, b, c, dtype, steps)


def _product(task: Task, a: Array, b: Array, c: Array, dtype: np.dtype[Any], steps: list[Run]) -> Run:
    """Runs `steps`, then c = a b by `np.matmul`.

    The product goes through scratch memory if c has another type, or strides that BLAS cannot write.
    """
    direct = c.dtype == dtype and _suits_blas(c)
    out = c if direct else task.scratch(c.shape, dtype)
    left, right, into = _merged(a, b, out)
    steps.append(lambda: _matmul(left, right, into))
    if not direct:
        steps.append(lambda: np.copyto(c, out, casting="unsafe"))
    return sequence(steps)


def _half_sums(task: Task, parts: Callable[[], Iterable[tuple[Array, Array]]], y: Array) -> Run:
    """Adds products of float32 in order, and rounds the sum to f16 after each."""
    product, total, half = (task.scratch(y.shape, dtype) for dtype in (np.float32, np.float32, np.float16))

    def run() -> None:
        total.fill(0)
        for a, b in parts():
            np.matmul(a, b, out=product)
            np.add(total, product, out=total)
            np.copyto(half, total, casting="unsafe")
            np.copyto(total, half)
        np.copyto(y, half, casting="unsafe")

    return run


def _matmul(a: Array, b: Array, c: Array) -> None:
    np.matmul(a, b, out=c)


def _merged(a: Array, b: Array, c: Array) -> tuple[Array, Array, Array]:
    """Merges a batch of products into one if they share the right-hand side or if there is only one."""
    if a.ndim == 3 and a.shape[0] == b.shape[0] == 1:
        return a[0], b[0], c[0]
    if a.ndim == 3 and (b.shape[0] == 1 or b.strides[0] == 0):
        rows = (a.shape[0] * a.shape[1], a.shape[2])
        left, into = seen_as(a, rows), seen_as(c, (rows[0], c.shape[2]))
        if left is not None and into is not None and _suits_blas(left) and _suits_blas(into):
            return left, b[0], into
    return a, b, c


def _suits_blas(array: Array) -> bool:
    """Tells whether BLAS accepts the strides of the last two dimensions.

    One must be contiguous, and steps along the other must not overlap.
    """
    (m, n), (s, t), item = array.shape[-2:], array.strides[-2:], array.itemsize
    return _rows(n, s, t, item) or _rows(m, t, s, item)


def _rows(n: int, outer: int, inner: int, item: int) -> bool:
    return inner == item and outer % item == 0 and outer // item >= max(n, 1)


def _operand(task: Task, piece: Piece, dtype: np.dtype[Any], steps: list[Run]) -> Array:
    """Returns the piece in `dtype` and with strides for BLAS, or a copy that has them. Binding copies constants."""
    array = piece.array
    if array.shape[0] > 1 and array.strides[0] == 0:  # all groups share it
        return np.broadcast_to(_prepared(task, array[:1], piece.constant, dtype, steps), array.shape)
    return _prepared(task, array, piece.constant, dtype, steps)


def _prepared(task: Task, array: Array, constant: bool, dtype: np.dtype[Any], steps: list[Run]) -> Array:
    if array.dtype == dtype and (dtype.kind in "iu" or _suits_blas(array)):
        return array
    if constant:
        return np.ascontiguousarray(array, dtype)
    copy = task.scratch(array.shape, dtype)
    steps.append(lambda: np.copyto(copy, array, casting="unsafe"))
    return copy


def conv(task: Task) -> Run:
    """Computes a convolution; elements outside x are 0.

        y[b, g, oc, o..] = sum over ic, k.. of x[b, g, ic, o stride + k dilation - pad ..] w[g, oc, ic, k..]

    A kernel of one element on an unpadded input is one product on the input as it is. Groups of one input and one
    output channel take a multiply-add per kernel element. All others are products of w and the unfolded input, some
    rows of outputs at a time.
    """
    return _Conv(task).bind()


class _Conv:
    """One box of a convolution, with x: [b, g, ic, size..], w: [g, oc, ic, k..], y: [b, g, oc, o..]."""

    def __init__(self, task: Task):
        self.task = task
        x, w, y = task.fields["x"], task.fields["w"], task.fields["y"].without_parts()
        grouped = "g" in task.box
        self.x: Array = x.array if grouped else x.array[:, None]
        self.w: Array = w.array if grouped else w.array[None]
        self.y: Array = y if grouped else y[:, None]
        self.constant = w.constant
        spatial = self.x.ndim - 3
        self.pads = x.pads[len(x.pads) - spatial :]
        windows = x.windows("o", "k")
        self.strides, self.dilations = tuple(w.stride for w in windows), tuple(w.dilation for w in windows)
        self.kernel: tuple[int, ...] = self.w.shape[3:]
        self.out: tuple[int, ...] = self.y.shape[3:]
        self.dtype = summed(self.y.dtype, math.prod(self.w.shape[2:]), self.x, self.w)
        # The extent of all windows together, padding included.
        self.extents = tuple(map(reach, self.out, self.strides, self.kernel, self.dilations))

    def bind(self) -> Run:
        """Chooses the form of the convolution and binds it."""
        y = self.y
        if y.size == 0:
            return nothing
        if 0 in self.w.shape or 0 in self.x.shape:
            return lambda: y.fill(0)
        if "partials" in self.task.params:
            return self._rounded()
        if self.x.shape[2] == 1 == y.shape[2] and y.shape[1] > 1:
            return self._taps()
        whole = self.x.shape[3:] == self.out and not any(map(any, self.pads))  # windows may end inside of x
        plain = whole and math.prod(self.kernel) == 1 and all(s == 1 for s in self.strides)
        return self._plain() if plain else self._unfolded()

    def _matrix(self, steps: list[Run]) -> Array:
        """Returns w as [g, oc, ic k..]."""
        g, oc = self.w.shape[:2]
        shape = (g, oc, math.prod(self.w.shape[2:]))
        seen = seen_as(self.w, shape)
        if seen is not None:
            return _prepared(self.task, seen, self.constant, self.dtype, steps)
        if self.constant:
            return np.ascontiguousarray(self.w, self.dtype).reshape(shape)
        copy, w = self.task.scratch(self.w.shape, self.dtype), self.w
        steps.append(lambda: np.copyto(copy, w, casting="unsafe"))
        return copy.reshape(shape)

    def _plain(self) -> Run:
        """Computes y = w x for each image and group, on x as it is."""
        steps: list[Run] = []
        w, area = self._matrix(steps), math.prod(self.out)
        b, g, ic = self.x.shape[:3]
        x = seen_as(self.x, (b, g, ic, area))
        if x is not None:
            x = _prepared(self.task, x, False, self.dtype, steps)
        else:
            copy, source = self.task.scratch(self.x.shape, self.dtype), self.x
            steps.append(lambda: np.copyto(copy, source, casting="unsafe"))
            x = copy.reshape(b, g, ic, area)
        oc, y = w.shape[1], self.y
        into = seen_as(y, (b, g, oc, area)) if y.dtype == self.dtype else None
        if into is not None and _suits_blas(into):
            return self._products(w, x, into, steps)
        out = self.task.scratch((b, g, oc, area), self.dtype)
        result = out.reshape(y.shape)
        return sequence([self._products(w, x, out, steps), lambda: np.copyto(y, result, casting="unsafe")])

    @staticmethod
    def _products(w: Array, x: Array, y: Array, steps: list[Run]) -> Run:
        if x.shape[0] == x.shape[1] == 1:
            w, x, y = w[0], x[0, 0], y[0, 0]
        steps.append(lambda: _matmul(w, x, y))
        return sequence(steps)

    def _padded(self, image: int | slice, steps: list[Run]) -> Array:
        """Returns x[image] with its padding in the arithmetic type, or x itself if it is the same."""
        x = self.x[image]
        if x.dtype == self.dtype and not any(map(any, self.pads)):
            return x
        lead = x.ndim - len(self.out)
        padded = self.task.scratch((*x.shape[:lead], *self.extents), self.dtype)
        inside: list[slice] = [slice(None)] * lead
        borders: list[Array] = []
        for (before, _), n, extent in zip(self.pads, x.shape[lead:], self.extents):
            # The extent may end inside x: then there is no padding after x, and part of x is not read.
            if before:
                borders.append(padded[(*inside, slice(0, before))])
            if before + n < extent:
                borders.append(padded[(*inside, slice(before + n, extent))])
            inside.append(slice(before, before + n))
        middle = padded[tuple(inside)]

        def pad() -> None:
            for border in borders:
                border.fill(0)
            np.copyto(middle, x[tuple(map(slice, middle.shape))], casting="unsafe")

        steps.append(pad)
        return padded

    def _windows(self, padded: Array) -> Array:
        """Views a padded image [g, ic, size..] as its windows [g, ic, k.., o..]."""
        lead, strides = padded.shape[:2], padded.strides[2:]
        return as_strided(
            padded,
            (*lead, *self.kernel, *self.out),
            (
                *padded.strides[:2],
                *(t * d for t, d in zip(strides, self.dilations)),
                *(t * s for t, s in zip(strides, self.strides)),
            ),
            writeable=False,
        )

    def _unfolded(self) -> Run:
        """Computes y = w columns for each image. The columns are copies of the windows of some rows of outputs."""
        task, (batch, g) = self.task, self.x.shape[:2]
        once: list[Run] = []
        w = self._matrix(once)
        oc, depth = w.shape[1], w.shape[2]
        row = math.prod(self.out[1:])
        rows = max(1, min(self.out[0], COLUMN_BYTES // max(1, g * depth * row * self.dtype.itemsize)))
        first = task.used
        steps = once
        for image in range(batch):
            task.used = first  # the copies of one image are dead when the next image's are made
            windows = self._windows(self._padded(image, steps))
            columns = task.scratch((g * depth * rows * row,), self.dtype)
            result = None
            if not self._direct():
                result = task.scratch((g * oc * rows * row,), self.dtype)
            for begin in range(0, self.out[0], rows):
                end = min(begin + rows, self.out[0])
                area = (end - begin) * row
                source = _along(windows, 2 + len(self.kernel), begin, end)
                matrix = columns[: g * depth * area]
                steps.append(_copier(_shaped(matrix, source), source))
                y = self.y[image][:, :, begin:end]
                into = seen_as(y, (g, oc, area)) if result is None else None
                if into is None:
                    assert result is not None, y.strides
                    into = result[: g * oc * area].reshape(g, oc, area)
                left, right, out = _merged(w, matrix.reshape(g, depth, area), into)
                steps.append(_multiplier(left, right, out))
                if result is not None:
                    steps.append(_copier(y, _shaped(into, y)))
        return sequence(steps)

    def _rounded(self) -> Run:
        """Sums halves as `partials = "f16"` says, with one product for each 16 in-channels and kernel element."""
        task, (batch, g, ic), area = self.task, self.x.shape[:3], math.prod(self.out)
        steps: list[Run] = []
        first = task.used
        for image in range(batch):
            task.used = first
            windows = self._windows(self._padded(image, steps))
            total = task.scratch((g, self.y.shape[2], area), np.float16)
            steps += [_half_sums(task, partial(self._parts, windows, ic), total), _copier(self.y[image], total.reshape(self.y.shape[1:]))]
        return sequence(steps)

    def _parts(self, windows: Array, channels: int) -> Iterable[tuple[Array, Array]]:
        """Gives w and the unfolded input of each 16 in-channels and kernel element."""
        shape = (self.w.shape[0], -1, math.prod(self.out))
        for c, k in itertools.product(range(0, channels, HALVES), np.ndindex(*self.kernel)):
            own = slice(c, min(c + HALVES, channels))
            yield self.w[(slice(None), slice(None), own, *k)].astype(self.dtype), windows[(slice(None), own, *k)].reshape(shape)

    def _direct(self) -> bool:
        """Tells whether products can be written into y."""
        if self.y.dtype != self.dtype:
            return False
        y = self.y[0]
        seen = seen_as(y, (*y.shape[:2], math.prod(self.out)))
        return seen is not None and _suits_blas(seen) and seen.strides[-1] == seen.itemsize

    def _taps(self) -> Run:
        """Computes y += w[k] (x shifted by k) for each kernel element k, some groups at a time."""
        steps: list[Run] = []
        g = self.y.shape[1]
        padded = self._padded(slice(None), steps)  # [b, g, 1, size..]
        y = self.y.reshape(self.y.shape[0], g, *self.out, copy=False)
        runs = seen_as(padded, (*padded.shape[:2], math.prod(padded.shape[3:]))) if all(t == 1 for t in self.strides) else None
        if runs is not None and runs.strides[-1] == runs.itemsize:
            w = self._matrix(steps)
            return sequence([*steps, *self._runs(runs, padded.shape[3:], w, y)])
        w = self.w.reshape(g, *self.kernel, copy=False)
        if w.dtype != self.dtype:
            if self.constant:
                w = w.astype(self.dtype)
            else:
                copy, source = self.task.scratch(w.shape, self.dtype), w
                steps.append(_copier(copy, source))
                w = copy
        groups = min(g, max(1, TAP_BYTES // (math.prod(self.out) * self.dtype.itemsize)))
        product = self.task.scratch((groups, *self.out), self.dtype)
        total = None if y.dtype == self.dtype else self.task.scratch((groups, *self.out), self.dtype)
        for image, begin in itertools.product(range(y.shape[0]), range(0, g, groups)):
            part = slice(begin, min(begin + groups, g))
            n = part.stop - begin
            out = y[image, part] if total is None else total[:n]
            for number, k in enumerate(np.ndindex(*self.kernel)):
                weight = w[(part, *k)].reshape(n, *(1,) * len(self.out))
                steps.append(_tap(padded[(image, part, 0, *self._shifted(k))], weight, product[:n], out, number == 0))
            if total is not None:
                steps.append(_copier(y[image, part], out))
        return sequence(steps)

    def _runs(self, x: Array, sizes: tuple[int, ...], w: Array, y: Array) -> list[Run]:
        """Computes `_taps` for strides of 1, with the rows of an image as one run.

        Elements between the output's rows are computed and dropped. x: [b, g, elements of a padded image of
        `sizes`], w: [g, 1, elements of the kernel]. Each kernel element is then a row of a matrix, a copy of one
        run.
        """
        batch, g, _ = x.shape
        distance, item = row_major(sizes), self.dtype.itemsize
        length = sum((o - 1) * t for o, t in zip(self.out, distance)) + 1
        taps, room = math.prod(self.kernel), self.out[0] * distance[0]
        groups = min(g, max(1, COLUMN_BYTES // 4 // (taps * length * item)))
        columns = self.task.scratch((groups, *self.kernel, length), self.dtype)
        result = self.task.scratch((groups, room), self.dtype)
        steps: list[Run] = []
        for image, begin in itertools.product(range(batch), range(0, g, groups)):
            n = min(groups, g - begin)
            source = x[image, begin : begin + n]
            shifts = (source.strides[0], *(d * t * item for d, t in zip(self.dilations, distance)), item)
            steps.append(_copier(columns[:n], as_strided(source, (n, *self.kernel, length), shifts, writeable=False)))
            steps.append(_multiplier(w[begin : begin + n], columns[:n].reshape(n, taps, length), result[:n, None, :length]))
            rows = result[:n].reshape(n, self.out[0], *sizes[1:])[(slice(None), *(slice(0, o) for o in self.out))]
            steps.append(_copier(y[image, begin : begin + n], rows))
        return steps

    def _shifted(self, k: tuple[int, ...]) -> tuple[slice, ...]:
        """Gives the slices of a padded image that kernel element k multiplies."""
        return tuple(slice(i * d, i * d + reach(o, s, 1, 1), s) for i, d, o, s in zip(k, self.dilations, self.out, self.strides))


def _shaped(array: Array, like: Array) -> Array:
    return array.reshape(like.shape)


def _along(array: Array, dim: int, begin: int, end: int) -> Array:
    return array[(slice(None),) * dim + (slice(begin, end),)]


def _copier(to: Array, source: Array) -> Run:
    return lambda: np.copyto(to, source, casting="unsafe")


def _multiplier(a: Array, b: Array, c: Array) -> Run:
    return lambda: _matmul(a, b, c)


def _tap(window: Array, weight: Array, product: Array, out: Array, first: bool) -> Run:
    multiply: Callable[..., Any] = np.multiply
    if first:
        return lambda: multiply(window, weight, out=out)

    def run() -> None:
        multiply(window, weight, out=product)
        np.add(out, product, out=out)

    return run


# -- cost


def _cycles(v: Vertex, sizes: Sizes) -> Any:
    """Estimates a contraction, with its axes classified by the fields that they occur in.

    Groups occur in both inputs and the output; positions in x and y; output channels in w and y; input channels and
    taps in both inputs.
    """
    x, w, y = (v.axes_of(i) for i in range(3))
    taps = frozenset(a for a in x & w if a[:1] == "k" and a[1:].isdigit())
    summed = frozenset(a for a in x & w if CODELETS[v.codelet].is_contracted(a))
    positions = [a for a, _ in v.domain.axes if a in x and a not in w]
    strides = [1, *(n for access in v.fields[0].access for a, n in access.terms if a in positions)]
    vertex = Products(
        v.product(sizes, lambda a: a in x & w & y and a not in summed),
        v.product(sizes, lambda a: a in positions[: 2 if len(positions) > 2 else 1] or a not in x | w),
        v.product(sizes, lambda a: a in positions[2 if len(positions) > 2 else 1 :]),
        v.product(sizes, lambda a: a in w and a not in x),
        v.product(sizes, lambda a: a in summed - taps),
        v.product(sizes, lambda a: a in taps),
        v.element, v.target, v.partials, rounds=v.types[2].element == v.element,
        kernel_rows=sizes["k0"] if len(taps) > 1 else 1, stride=strides[-1], swapped=v.swapped, block=v.types[1].block,
    )  # fmt: skip
    return contraction(vertex)


IMPLEMENTATIONS = {
    "conv": Implementation(conv, _cycles, flops_a_point(2), native="products.conv"),
    "matmul": Implementation(matmul, _cycles, flops_a_point(2), native="products.matmul"),
}
