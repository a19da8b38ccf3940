"""Kernel of `winograd`: a 3x3 convolution of stride 1 as fewer products, F(m x m, 3 x 3) with m = 2 or 4.

    y = A' [ sum over ic of (G w G') * (B' x B) ] A        for each tile of m by m outputs, n = m + 2

A tile needs n^2 products for each input channel instead of 9 m^2: 2.25 times (m = 2) and 4 times (m = 4) fewer. The
weights G w G' are computed in f64 and rounded once. The polynomial's points are 0, 1, -1 for m = 2, and 0, 3/4, -3/4,
3/2, -3/2 for m = 4, which give less error than 0, 1, -1, 2, -2; infinity is one too.
Source: Lavin and Gray, Fast Algorithms for Convolutional Neural Networks (2016); poplin's planner has it too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.lib.stride_tricks import as_strided

from populus.runtime.codelets.implementation import Implementation
from populus.runtime.codelets.task import Array, Run, Task, nothing
from populus.runtime.cycles.vertices import Sizes, Vertex
from populus.runtime.cycles.winograd import winograd_cycles, winograd_transform_cycles

A, B = 0.75, 1.5
POINTS = {2: (0.0, 1.0, -1.0), 4: (0.0, A, -A, B, -B)}
T = TypeVar("T")


def kernel_rows(m: int) -> list[list[tuple[float, int]]]:
    """Lists G: for each of n sums its (factor, element of the kernel); factors of 0 are left out."""
    if m == 2:
        return [[(1.0, 0)], [(0.5, 0), (0.5, 1), (0.5, 2)], [(0.5, 0), (-0.5, 1), (0.5, 2)], [(1.0, 2)]]
    points = POINTS[m]
    scales = [math.prod(q - r for r in points if r != q) for q in points]
    return [*([(q**j / s, j) for j in range(3) if q**j] for q, s in zip(points, scales)), [(1.0, 2)]]


def input_side(m: int, d: Sequence[T], add: Callable[[T, T], T], sub: Callable[[T, T], T], times: Callable[[float, T], T]) -> list[T]:
    """Computes B' d of n elements, in the order of operations that all engines share."""
    if m == 2:
        return [sub(d[0], d[2]), add(d[1], d[2]), sub(d[2], d[1]), sub(d[1], d[3])]
    aa, bb = A * A, B * B
    e, f = sub(d[4], times(bb, d[2])), times(A, sub(d[3], times(bb, d[1])))
    g, h = sub(d[4], times(aa, d[2])), times(B, sub(d[3], times(aa, d[1])))
    ends = [sub(add(d[i + 4], times(aa * bb, d[i])), times(aa + bb, d[i + 2])) for i in (0, 1)]
    return [ends[0], add(e, f), sub(e, f), add(g, h), sub(g, h), ends[1]]


def output_side(m: int, d: Sequence[T], add: Callable[[T, T], T], sub: Callable[[T, T], T], times: Callable[[float, T], T]) -> list[T]:
    """Computes A' d of n elements, in the order of operations that all engines share."""
    if m == 2:
        return [add(add(d[0], d[1]), d[2]), sub(sub(d[1], d[2]), d[3])]
    s, u, v, w = add(d[1], d[2]), sub(d[1], d[2]), add(d[3], d[4]), sub(d[3], d[4])
    last = add(add(times(A**3, u), times(B**3, w)), d[5])
    return [add(add(d[0], s), v), add(times(A, u), times(B, w)), add(times(A * A, s), times(B * B, v)), last]


def _add(a: Array, b: Array) -> Array:
    return a + b


def _sub(a: Array, b: Array) -> Array:
    return a - b


def _times(a: float, b: Array) -> Array:
    return b.dtype.type(a) * b


def transformed_weights(m: int, w: Array) -> Array:
    """Computes G w G' of w: [oc, ic, 3, 3] in f64, rounded to w's type: [n n, oc, ic]."""
    wide = w.astype(np.float64)

    def sums(parts: list[Array]) -> list[Array]:
        found: list[Array] = []
        for row in kernel_rows(m):
            terms = [parts[j] if factor == 1.0 else factor * parts[j] for factor, j in row]
            total = terms[0]
            for term in terms[1:]:
                total = total + term
            found.append(total)
        return found

    halves = [sums([wide[:, :, i, j] for i in range(3)]) for j in range(3)]  # [j][p]: down the columns
    rows = [sums([halves[j][p] for j in range(3)]) for p in range(m + 2)]
    return np.stack([u for row in rows for u in row]).astype(w.dtype)


def winograd(task: Task) -> Run:
    """Computes `y[b, oc, o0, o1] = sum over ic, k0, k1 of x[b, ic, o0 + k0 - pad, ..] w[oc, ic, k0, k1]` in tiles."""
    field_x, field_w, y = task.fields["x"], task.fields["w"], task["y"]
    x, w, m = field_x.array, field_w.array, int(task.number("tile"))
    if y.size == 0:
        return nothing
    n, (batch, oc, *out), ic = m + 2, y.shape, x.shape[1]
    (top, _), (left, _) = field_x.pads[2:]
    down, across = (-(-o // m) for o in out)
    padded = task.scratch((batch, ic, down * m + 2, across * m + 2), x.dtype)
    inside = padded[:, :, top : top + x.shape[2], left : left + x.shape[3]]
    b, c, r, s = padded.strides
    tiles = as_strided(padded, (batch, ic, down, across, n, n), (b, c, m * r, m * s, r, s), writeable=False)
    v = task.scratch((n * n, ic, batch * down * across), x.dtype)
    products = task.scratch((n * n, oc, batch * down * across), x.dtype)
    whole = task.scratch((batch, oc, down * m, across * m), x.dtype)
    u = transformed_weights(m, w) if field_w.constant else None
    blocks = v.reshape(n, n, ic, batch, down, across)

    def run() -> None:
        padded.fill(0)
        np.copyto(inside, x[:, :, : inside.shape[2], : inside.shape[3]])
        _transform(m, np.moveaxis(tiles, (4, 5, 1), (0, 1, 2)), blocks)
        np.matmul(transformed_weights(m, w) if u is None else u, v, out=products)
        _back(m, products.reshape(n, n, oc, batch, down, across), whole)
        np.copyto(y, whole[:, :, : out[0], : out[1]])

    return run


def _transform(m: int, parts: Array, v: Array) -> None:
    """Computes v = B' x B of tiles; both are [n, n, ic, b, down, across]."""
    n = m + 2
    halves = [input_side(m, [parts[i, j] for i in range(n)], _add, _sub, _times) for j in range(n)]
    for i in range(n):
        for j, part in enumerate(input_side(m, [halves[k][i] for k in range(n)], _add, _sub, _times)):
            v[i, j] = part


def _back(m: int, products: Array, y: Array) -> None:
    """Computes y = A' m A. products: [n, n, oc, b, down, across], y: [b, oc, down m, across m]."""
    n = m + 2
    columns = [output_side(m, [products[i, j] for i in range(n)], _add, _sub, _times) for j in range(n)]
    for i in range(m):
        for j, part in enumerate(output_side(m, [columns[k][i] for k in range(n)], _add, _sub, _times)):
            y[:, :, i::m, j::m] = part.swapaxes(0, 1)


def winograd_input(task: Task) -> Run:
    """Computes `v = B' x B` of tiles of 4 by 4 that overlap by 2. x: [b, ic, rows, columns], v: [4, 4, ic, b, down, across]."""
    field_x, v = task.fields["x"], task["v"]
    x = field_x.array
    if v.size == 0:
        return nothing
    n, m = v.shape[0], v.shape[0] - 2
    ic, batch, down, across = v.shape[2:]
    (top, _), (left, _) = field_x.pads[2:]
    padded = task.scratch((batch, ic, down * m + 2, across * m + 2), x.dtype)
    inside = padded[:, :, top : top + x.shape[2], left : left + x.shape[3]]
    b, c, r, s = padded.strides
    tiles = as_strided(padded, (n, n, ic, batch, down, across), (r, s, c, b, m * r, m * s), writeable=False)

    def run() -> None:
        padded.fill(0)
        np.copyto(inside, x[:, :, : inside.shape[2], : inside.shape[3]])
        _transform(m, tiles, v)

    return run


def winograd_output(task: Task) -> Run:
    """Computes `y = A' m A` of tiles of 2 by 2. m: [4, 4, oc, b, down, across], y: [b, oc, 2 down, 2 across]."""
    products, y = task["m"], task["y"]
    return nothing if y.size == 0 else lambda: _back(products.shape[0] - 2, products, y)


def _cycles(v: Vertex, sizes: Sizes) -> Any:
    b, oc, ic, o0, o1 = (v.product(sizes, lambda a, name=name: a == name) for name in ("b", "oc", "ic", "o0", "o1"))
    return winograd_cycles(dict(v.scalars)["tile"], b, oc, ic, o0, o1, v.element, v.target)


def _flops(v: Vertex) -> int:
    """Counts the operations of the convolution, as for `conv`, so that rates of both are comparable."""
    return 2 * v.points


def _input_cycles(v: Vertex, sizes: Sizes) -> Any:
    return winograd_transform_cycles(True, v.product(sizes, lambda a: a in ("b", "ic", "o0", "o1")), v.element, v.target)


def _output_cycles(v: Vertex, sizes: Sizes) -> Any:
    return winograd_transform_cycles(False, v.product(sizes, lambda a: a in ("b", "oc", "o0", "o1")), v.element, v.target)


IMPLEMENTATIONS = {
    "winograd": Implementation(winograd, _cycles, _flops, native="winograd.winograd"),
    "winograd_input": Implementation(winograd_input, _input_cycles, lambda v: 2 * v.points, native="winograd_transforms.winograd_input"),
    "winograd_output": Implementation(
        winograd_output, _output_cycles, lambda v: 3 * v.points // 8, native="winograd_transforms.winograd_output"
    ),
}
