"""Codelets give what their functions give when Python itself calls them, in double precision, whole and cut."""

from __future__ import annotations

from math import exp, sqrt

import numpy as np
import pytest

from populus.dialects.poplar.tile_code import IntVector, Vector, codelet
from populus.runtime.codelets.plain_python import plain
from populus.runtime.codelets.tile_code import run


def masked_store(x: Vector, y: Vector) -> None:
    for i in range(len(y)):
        if x[i] > 0.5:
            y[i] = 1.0
        elif x[i] < -0.5 and not x[i] < -1:
            y[i] = x[i] * 2
        else:
            t = x[i] + 1
            y[i] = t * t


def masked_local(x: Vector, y: Vector) -> None:
    for i in range(len(y)):
        t = 0.0
        s = 2.0
        if x[i] > 0:
            t = x[i]
            if x[i] > 1:
                s = t
                t = 1.0
        y[i] = t + s


def plane(x: Vector, y: Vector) -> None:
    for i in range(y.shape[0]):
        for j in range(y.shape[1]):
            if x[i, j] > 0:
                y[i, j] = sqrt(x[i, j])
            else:
                y[i, j] = -x[i, j]


def columns(x: Vector, y: Vector) -> None:
    for i in range(x.shape[0]):
        low = x[i, 0]
        for j in range(x.shape[1]):
            if x[i, j] < low:
                low = x[i, j]
        y[i, 0] = low
        y[i, 1] = low * low


def softmax(x: Vector, y: Vector) -> None:
    for i in range(y.shape[0]):
        top = x[i, 0]
        for j in range(1, y.shape[1]):
            top = max(top, x[i, j])
        total = 0.0
        for j in range(y.shape[1]):
            total += exp(x[i, j] - top)
        for j in range(y.shape[1]):
            y[i, j] = exp(x[i, j] - top) / total


def outer_sequence(x: Vector, y: Vector) -> None:
    for k in range(3):
        for i in range(len(y)):
            y[i] = x[i] * k


def buckets(x: Vector, table: Vector, y: Vector) -> None:
    for i in range(len(y)):
        j = int(abs(x[i]))
        y[i] = table[j] if j < 2 else -1.0


def whole_numbers(a: IntVector, y: IntVector) -> None:
    for i in range(len(y)):
        n = a[i]
        if n % 2 == 0 or n // 3 > 1:
            n = abs(n) - 7 * (n // 2)
        y[i] = min(n, 5, a[i])


def triangle(x: Vector, y: Vector) -> None:
    for i in range(len(y)):
        s = 0.0
        for j in range(i):
            s += x[j]
        y[i] = s


def scattered(x: Vector, at: IntVector, y: Vector) -> None:
    for k in range(len(at)):
        y[at[k]] = x[k]


def scattered_rows(x: Vector, at: IntVector, y: Vector) -> None:
    for k in range(len(at)):
        for j in range(y.shape[1]):
            y[at[k], j] = x[k, j]


def scattered_where_positive(x: Vector, at: IntVector, y: Vector) -> None:
    for k in range(len(at)):
        for j in range(y.shape[1]):
            if x[k, j] > 0:
                y[at[k], j] = x[k, j]
            else:
                y[at[at[k]], j] = 0.5
                y[at[k], j] = -x[k, j]


def running(x: Vector, y: Vector) -> None:
    total = 0.0
    for i in range(len(y)):
        total += x[i]
        y[i] = total


@pytest.mark.parametrize(("dtype", "last"), [(np.float32, 0), (np.float64, 1)])
def test_the_plain_function_sums_in_the_type_of_its_vectors(dtype, last):
    x, y = np.array([2.0**30, 1, -(2.0**30)], dtype), np.zeros(3, dtype)
    plain(codelet(running), {"x": x, "y": y}, {})
    assert y[-1] == last


G = np.random.default_rng(4)
X, XX = G.normal(size=41), G.normal(size=(7, 5))
ORDER = np.random.default_rng(5).permutation(41)
CASES = [
    (masked_store, {}, [X], (41,), ("i",)),
    (masked_local, {}, [X], (41,), ("i",)),
    (plane, {"x": "a b", "y": "a b"}, [XX], (7, 5), ("a", "b")),
    (columns, {"x": "a b", "y": "a c"}, [XX], (7, 2), ("a",)),
    (softmax, {"x": "a b", "y": "a b"}, [XX], (7, 5), ("a",)),
    (outer_sequence, {}, [X], (41,), ("i",)),
    (buckets, {"x": "i", "table": "n", "y": "i"}, [X, np.arange(4.0)], (41,), ("i",)),
    (whole_numbers, {}, [G.integers(-9, 9, 41)], (41,), ("i",)),
    (triangle, {}, [X], (41,), ()),
    (scattered, {"x": "n", "at": "n", "y": "i"}, [X, ORDER], (41,), ()),
    (scattered_rows, {"x": "a b", "at": "a", "y": "c b"}, [XX, ORDER[ORDER < 7]], (7, 5), ("b",)),
    (scattered_where_positive, {"x": "a b", "at": "a", "y": "c b"}, [XX, ORDER[ORDER < 7]], (7, 5), ("b",)),
]


@pytest.mark.parametrize(("function", "axes", "inputs", "shape", "lanes"), CASES, ids=[c[0].__name__ for c in CASES])
def test_a_codelet_is_its_function(function, axes, inputs, shape, lanes):
    code = codelet(function, axes=axes)
    assert code.lanes == lanes
    expected, got, slow = (np.zeros(shape, inputs[0].dtype) for _ in range(3))
    function(*inputs, expected)
    run(code, {**dict(zip(code.inputs, inputs)), code.outputs[0]: got}, {})
    assert got == pytest.approx(expected, rel=1e-14)
    run(codelet(function, axes=axes, whole=" ".join(lanes)), {**dict(zip(code.inputs, inputs)), code.outputs[0]: slow}, {})
    assert slow.tobytes() == got.tobytes()
