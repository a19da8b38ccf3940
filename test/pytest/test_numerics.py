"""Numbers against NumPy in doubles: how near f32 is on the widest inputs, and what ONNX says of those that are special.

Each row of a table is an ONNX node, its inputs, and what a float64 evaluation gives; it runs on tiles by two engines.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, defs, helper, numpy_helper

import populus
from helpers.number_cases import BACKENDS, INF, NAN, SPECIAL, TINY, Array, D, F, Row, between, judged, positive, rows, run, wide

# -- element by element, f32


def _sigmoid(x: Array) -> Array:
    return np.where(x >= 0, 1 / (1 + np.exp(-np.abs(x))), np.exp(-np.abs(x)) / (1 + np.exp(-np.abs(x))))


def _softplus(x: Array) -> Array:
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


_erf = np.vectorize(math.erf, otypes=[D])
_erfc = np.vectorize(math.erfc, otypes=[D])

# op, inputs, float64 formula, attributes
Formula = Callable[..., Array]
ELEMENTWISE: Sequence[tuple[str, Sequence[Array], Formula, dict[str, Any]]] = (
    ("Abs", [wide()], np.abs, {}),
    ("Acos", [between(-1, 1)], np.arccos, {}),
    ("Acosh", [1 + np.abs(wide(-3, 37))], np.arccosh, {}),
    ("Add", [wide(-10, 10), wide(-10, 10, 1)], np.add, {}),
    ("Asin", [between(-1, 1)], np.arcsin, {}),
    ("Asinh", [wide()], np.arcsinh, {}),
    ("Atan", [wide()], np.arctan, {}),
    ("Atanh", [between(-0.999, 0.999)], np.arctanh, {}),
    ("Ceil", [wide()], np.ceil, {}),
    ("Celu", [wide()], lambda x: np.maximum(x, 0) + np.minimum(0, 2 * np.expm1(x / 2)), {"alpha": 2.0}),
    ("Cos", [wide(-38, 4)], np.cos, {}),
    ("Cosh", [wide(-38, 2)], np.cosh, {}),
    ("Div", [wide(-20, 20), wide(-18, 18, 1)], np.divide, {}),
    ("Elu", [wide()], lambda x: np.where(x > 0, x, 1.5 * np.expm1(np.minimum(x, 0))), {"alpha": 1.5}),
    ("Erf", [wide()], _erf, {}),
    ("Exp", [wide(-38, 2)], np.exp, {}),
    ("Floor", [wide()], np.floor, {}),
    ("HardSigmoid", [wide()], lambda x: np.clip(D(F(0.2)) * x + 0.5, 0, 1), {}),
    ("HardSwish", [wide(-38, 18)], lambda x: x * np.clip(x / 6 + 0.5, 0, 1), {}),
    ("LeakyRelu", [wide()], lambda x: np.where(x < 0, D(F(0.01)) * x, x), {}),
    ("Log", [positive()], np.log, {}),
    ("Mish", [wide(-38, 30)], lambda x: x * np.tanh(_softplus(x)), {}),
    ("Mul", [wide(-18, 18), wide(-18, 18, 1)], np.multiply, {}),
    ("Pow", [positive(-5, 5), wide(-4, 0, 1)[np.arange(522) % 500]], np.power, {}),
    ("Reciprocal", [wide(-36, 36)], np.reciprocal, {}),
    ("Selu", [wide()], lambda x: D(F(1.0507009873554805)) * np.where(x > 0, x, D(F(1.6732632423543772)) * np.expm1(np.minimum(x, 0))), {}),
    ("Sigmoid", [wide()], _sigmoid, {}),
    ("Sin", [wide(-38, 4)], np.sin, {}),
    ("Sinh", [wide(-38, 2)], np.sinh, {}),
    ("Softplus", [wide()], _softplus, {}),
    ("Softsign", [wide(-38, 37)], lambda x: x / (1 + np.abs(x)), {}),
    ("Sqrt", [positive()], np.sqrt, {}),
    ("Sub", [wide(-10, 10), wide(-10, 10, 1)], np.subtract, {}),
    ("Swish", [wide()], lambda x: x * _sigmoid(x), {}),
    ("Tan", [wide(-38, 2)], np.tan, {}),
    ("Tanh", [wide()], np.tanh, {}),
    ("ThresholdedRelu", [wide()], lambda x: np.where(x > 1, x, 0), {}),
)


def _elementwise() -> list[Row]:
    found: list[Row] = []
    with np.errstate(all="ignore"):
        for op, inputs, formula, attributes in ELEMENTWISE:
            inputs = [x.astype(F) for x in inputs]
            n = min(len(x) for x in inputs)
            inputs = [x[:n] for x in inputs]
            wanted = formula(*(x.astype(D) for x in inputs))
            # below f32's normal numbers, as near as at the smallest of them
            found.append(Row(op, inputs, wanted, attributes, rtol=1e-5, atol=1e-5 * TINY))
    return found


@rows(_elementwise())
def test_an_element_is_near_its_value_in_doubles(row, engine):
    judged(row, engine)


# -- sums of products


def normal(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).normal(size=shape).astype(F)


def _conv(x: Array, w: Array, b: Array) -> Array:
    """Strides 2, pads 1."""
    x = np.pad(x.astype(D), ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(x, w.shape[2:], (2, 3))[:, :, ::2, ::2]
    return np.einsum("ncyxij,ocij->noyx", windows, w.astype(D)) + b.astype(D)[:, None, None]


def _contractions() -> list[Row]:
    a, b, c = normal(3, 50, 700), normal(3, 700, 20, seed=1), normal(20, seed=2)
    x, w = normal(2, 16, 15, 15), normal(8, 16, 3, 3, seed=3)
    # rows and columns of magnitudes ten powers of ten apart
    rows, columns = (10.0 ** np.linspace(-5, 5, n) for n in (50, 20))
    scaled = (np.abs(normal(50, 300)) * rows[:, None]).astype(F), (np.abs(normal(300, 20, seed=1)) * columns).astype(F)
    long = np.abs(normal(4, 100_000)) + F(1)
    frames = normal(2, 256, 1, seed=4) + F(1e5)  # all but its mean is lost in sums of f32
    d = [v.astype(D) for v in (a, b, c, x, w, *scaled, long)]
    spectrum = np.fft.fft(frames[..., 0].astype(D))
    windows = np.lib.stride_tricks.sliding_window_view(frames[..., 0].astype(D), 64, 1)[:, ::32]
    spectra = np.fft.rfft(windows * np.hanning(64).astype(F).astype(D))
    pairs = lambda z: np.stack([z.real, z.imag], -1)  # noqa: E731
    near = {"rtol": 1e-4}
    return [
        Row("MatMul", [a, b], d[0] @ d[1], atol=1e-4, **near),
        Row("MatMul", list(scaled), d[5] @ d[6], name="of rows of all sizes", rtol=1e-4),
        Row("Gemm", [a[0], b[0], c], 0.5 * d[0][0] @ d[1][0] + 2 * d[2], {"alpha": 0.5, "beta": 2.0}, atol=1e-4, **near),
        Row("Conv", [x, w, c[:8]], _conv(x, w, c[:8]), {"strides": [2, 2], "pads": [1] * 4}, atol=1e-4, **near),
        Row("Einsum", [a, b], np.einsum("bij,bjk->ki", d[0], d[1]), {"equation": "bij,bjk->ki"}, atol=1e-4, **near),
        Row("ReduceSum", [long, np.array([1])], d[7].sum(1), {"keepdims": 0}, name="of 100,000", rtol=1e-6),
        Row("ReduceMean", [long, np.array([1])], d[7].mean(1), {"keepdims": 0}, name="of 100,000", rtol=1e-6),
        Row("ReduceL2", [long, np.array([1])], np.sqrt((d[7] ** 2).sum(1)), {"keepdims": 0}, name="of 100,000", rtol=1e-6),
        Row("ReduceLogSumExp", [a * F(100), np.array([2])], _log_sum(d[0] * 100), {"keepdims": 0}, rtol=1e-5),
        Row("CumSum", [long[:, :5000], np.array(1)], np.cumsum(d[7][:, :5000], 1), rtol=1e-5),
        Row("Softmax", [a * F(100)], np.exp(d[0] * 100 - _log_sum(d[0] * 100)[..., None]), {"axis": -1}, atol=1e-5, rtol=1e-4),
        Row("DFT", [frames, np.array(256), np.array(1)], pairs(spectrum), rtol=1e-6, atol=1e-6),
        Row(
            "STFT",
            [frames, np.array(32), np.hanning(64).astype(F)],
            pairs(spectra),
            {"onesided": 1},
            rtol=1e-6,
            atol=1e-6,
        ),
    ]


def _log_sum(x: Array) -> Array:
    m = x.max(-1)
    return m + np.log(np.exp(x - m[..., None]).sum(-1))


@rows(_contractions())
def test_a_sum_is_near_its_value_in_doubles(row, engine):
    judged(row, engine)


# -- what is special: infinities, NaN, zeros with a sign, ties, overflow, and what has no elements


def array(kind: Any, *values: Any) -> Array:
    return np.array(values, kind)


def floats(*values: float) -> Array:
    return np.array(values, F)


I8, I32, I64, U8, U64 = np.int8, np.int32, np.int64, np.uint8, np.uint64
NEAR_ENDS = {kind: array(kind, np.iinfo(kind).min, np.iinfo(kind).min + 1, 0, 1, 7, np.iinfo(kind).max) for kind in (I8, I32, I64, U8, U64)}
SIGNED = (I8, I32, I64)


def _pairs(kind: Any) -> tuple[Array, Array]:
    a, b = np.meshgrid(NEAR_ENDS[kind], NEAR_ENDS[kind])
    return a.ravel(), b.ravel()


def _truncated(a: Array, b: Array) -> Array:
    """Quotients towards zero; in Python's integers, so that the one that overflows wraps."""
    whole = [abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1) for x, y in zip(a.tolist(), b.tolist())]
    bits = 8 * a.dtype.itemsize
    return np.array([w % 2**bits for w in whole], U64).astype(a.dtype)


def _integers() -> list[Row]:
    found: list[Row] = []
    for kind in NEAR_ENDS:
        a, b = _pairs(kind)
        name = kind.__name__
        divided = [a[b != 0], b[b != 0]]
        negative = np.array([-3, 3], kind) if kind in SIGNED else np.array([3, 5], kind)
        dividends = np.array([[-7, -6, 0, 7]] if kind in SIGNED else [[7, 6, 0, 250]]).T.astype(kind)
        with np.errstate(all="ignore"):
            found += [
                Row("Add", [a, b], a + b, name=name),
                Row("Sub", [a, b], a - b, name=name),
                Row("Mul", [a, b], a * b, name=name),
                Row("Div", divided, _truncated(*divided), name=name),
                Row("Mod", [dividends, negative], np.mod(dividends, negative), name=f"{name} has the sign of the divisor"),
                Row("Mod", [dividends, negative], np.fmod(dividends, negative), {"fmod": 1}, name=f"{name} has the sign of the dividend"),
                Row("Mod", divided, np.mod(*divided), name=f"{name} at the ends"),
                Row("Max", [a, b], np.maximum(a, b), name=name),
                Row("Less", [a, b], a < b, name=name),
                Row("ReduceSum", [a, array(I64, 0)], a.sum(dtype=kind), {"keepdims": 0}, name=name),
                Row("ReduceProd", [a[:3] + kind(3), array(I64, 0)], np.prod(a[:3] + kind(3), dtype=kind), {"keepdims": 0}, name=name),
                Row("CumSum", [a, np.array(0)], np.cumsum(a, dtype=kind), name=name),
                Row("MatMul", [a.reshape(6, 6), b.reshape(6, 6)], a.reshape(6, 6) @ b.reshape(6, 6), name=name),
            ]
            if kind in SIGNED:
                found += [Row("Neg", [a], -a, name=name), Row("Abs", [a], np.abs(a), name=name)]
            found += [
                Row("Cast", [a], a.astype(t), {"to": helper.np_dtype_to_tensor_dtype(np.dtype(t))}, name=f"{name} to {t.__name__}")
                for t in (I8, U8, I32, F)
            ]
    for kind in (np.uint8, np.uint16, np.uint32, np.uint64):
        bits = 8 * np.dtype(kind).itemsize
        by = array(kind, 0, 1, bits - 1, bits, bits + 1, 200)
        x = np.full(6, np.iinfo(kind).max, kind)
        for way, shifted in (("LEFT", [int(x[0]) << int(n) & int(x[0]) for n in by]), ("RIGHT", [int(x[0]) >> int(n) for n in by])):
            found.append(Row("BitShift", [x, by], np.array(shifted, kind), {"direction": way}, name=f"{way} {kind.__name__}"))
    return [row for row in found if _takes(row)]


def _takes(row: Row) -> bool:
    """Whether ONNX lets the op have these types."""
    schema = defs.get_schema(row.op)
    allowed = {c.type_param_str: c.allowed_type_strs for c in schema.type_constraints}[schema.inputs[0].type_str]
    return f"tensor({row.inputs[0].dtype})" in allowed


@rows(_integers())
def test_integers_wrap_and_divide_as_onnx_says(row, engine):
    judged(row, engine)


@pytest.mark.parametrize("engine", BACKENDS)
@pytest.mark.parametrize("op", ["Div", "Mod"])
@pytest.mark.parametrize("kind", [I8, I32, I64, U8])
def test_an_integer_divided_by_zero_stops_nothing(op, kind, engine):
    (found,) = run(Row(op, [array(kind, 6, 7), array(kind, 3, 0)], np.zeros(2)), engine)
    assert found[0] == (2 if op == "Div" else 0)


X = SPECIAL[:-2]
A, B = (v.ravel() for v in np.meshgrid(X, X))


def _floats() -> list[Row]:
    with np.errstate(all="ignore"):
        bases, powers = (
            v.ravel()
            for v in np.meshgrid(floats(0, -0.0, 1, -1, 2, -2, -0.5, INF, -INF, NAN), floats(0, -0.0, 1, -1, 2, 3, 0.5, -3, INF, -INF, NAN))
        )
        halves = floats(*(np.arange(-7, 8) / 2), -0.2, 0.2, -0.0, INF, -INF, NAN, 8388609, 4194304.5)
        return [
            Row("Add", [A, B], A + B),
            Row("Sub", [A, B], A - B),
            Row("Mul", [A, B], A * B),
            Row("Div", [A, B], A / B),
            Row("Mod", [A, B], np.fmod(A, B), {"fmod": 1}),
            Row("Pow", [bases, powers], np.power(bases, powers)),
            Row("Pow", [bases, floats(0.5)], np.power(bases, np.full_like(bases, 0.5)), name="of all by one"),
            Row("Pow", [floats(-INF), floats(0.5)], floats(INF), name="of one element"),
            Row("Neg", [X], -X),
            Row("Sqrt", [X], np.sqrt(X)),
            Row("Round", [halves], np.round(halves)),
            Row("Ceil", [halves], np.ceil(halves)),
            Row("Floor", [halves], np.floor(halves)),
            Row("Abs", [X], np.abs(X)),
            Row("Log", [floats(-1, 0, -0.0, INF, -INF, NAN, 1)], floats(NAN, -INF, -INF, INF, NAN, NAN, 0)),
            Row("Acos", [floats(1.5, -1.5, INF, 1)], floats(NAN, NAN, NAN, 0)),
            Row("Acosh", [floats(0.5, -INF, INF, 1)], floats(NAN, NAN, INF, 0)),
            Row("Atanh", [floats(1, -1, 2, 0, -0.0)], floats(INF, -INF, NAN, 0, -0.0)),
            Row("Equal", [A, B], A == B),
            Row("Less", [A, B], A < B),
            Row("GreaterOrEqual", [A, B], A >= B),
            Row("IsNaN", [X], np.isnan(X)),
            Row("IsInf", [X], np.isinf(X)),
            Row("IsInf", [X], np.isneginf(X), {"detect_positive": 0}, name="negative"),
            Row("Sign", [X[2:]], np.sign(X[2:])),
            Row("Max", [A, B[::-1].copy()], np.maximum(A, B[::-1]) + 0, rtol=1e-7),
            Row("Min", [A, B[::-1].copy()], np.minimum(A, B[::-1]) + 0, rtol=1e-7),
            Row("Relu", [X[2:]], np.maximum(X[2:], F(0))),
            Row("Clip", [X, np.array(-1, F), np.array(1, F)], np.clip(X, -1, 1)),
            Row("Clip", [X[:3], np.array(2, F), np.array(1, F)], floats(1, 1, 1), name="between bounds that have changed places"),
            Row("Where", [A > 0, A, B], np.where(A > 0, A, B)),
            Row("Identity", [X], X),
            Row("Softmax", [np.stack([floats(1, -INF, 1), floats(-INF, -INF, 3)])], np.stack([floats(0.5, 0, 0.5), floats(0, 0, 1)])),
            Row("LogSoftmax", [floats(-INF, -INF, 3)], floats(-INF, -INF, 0)),
            Row("Cast", [floats(1e6, -1e6, 65519, NAN)], array(np.float16, INF, -INF, 65504, NAN), {"to": 10}, name="to f16"),
            Row("Cast", [X], X.astype(bool), {"to": 9}, name="to bool"),
            Row("Cast", [floats(-2.7, 2.7, -0.5, 100)], array(I8, -2, 2, 0, 100), {"to": 3}, name="to int8"),
        ]


@rows(_floats())
def test_special_floats_are_what_ieee_says(row, engine):
    judged(row, engine)


TIES = np.array([[3, 1, 3, 1], [2, 2, 2, 2], [-INF, -INF, INF, INF]], F)
NO = np.zeros((2, 0, 3), F)


def _choices() -> list[Row]:
    pooled = np.array([[[1, 1, 2, 2, 0, 2]]], F)
    return [
        Row("ArgMax", [TIES], array(I64, 0, 0, 2), {"axis": 1, "keepdims": 0}),
        Row("ArgMax", [TIES], array(I64, 2, 3, 3), {"axis": 1, "keepdims": 0, "select_last_index": 1}, name="the last"),
        Row("ArgMin", [TIES], array(I64, 1, 0, 0), {"axis": 1, "keepdims": 0}),
        Row("ArgMin", [TIES], array(I64, 3, 3, 1), {"axis": 1, "keepdims": 0, "select_last_index": 1}, name="the last"),
        Row("TopK", [TIES, array(I64, 3)], [np.sort(TIES)[:, :0:-1].copy(), np.array([[0, 2, 1], [0, 1, 2], [2, 3, 0]])]),
        Row(
            "TopK",
            [TIES, array(I64, 3)],
            [np.sort(TIES)[:, :3], np.array([[1, 3, 0], [0, 1, 2], [0, 1, 2]])],
            {"largest": 0},
            name="smallest",
        ),
        Row("MaxPool", [pooled], [np.array([[[1, 2, 2]]], F), np.array([[[0, 2, 5]]])], {"kernel_shape": [2], "strides": [2]}),
        Row("MaxPool", [np.full((1, 1, 2), -INF, F)], np.full((1, 1, 3), -INF, F), {"kernel_shape": [2], "pads": [1, 1]}, name="of -inf"),
        Row(
            "MaxPool",
            [np.array([[[3, 0, 0]]], np.uint8)],
            [np.array([[[3, 3, 0, 0]]], np.uint8), np.array([[[0, 0, 1, 2]]])],
            {"kernel_shape": [2], "pads": [1, 1]},
            name="of the lowest number beside padding",
        ),
        Row(
            "MaxPool",
            [np.array([[[3, 9, 1, 0, 2]]], np.uint8)],
            [np.array([[[0, 3, 9]]], np.uint8), np.array([[[3, 0, 1]]])],
            {"kernel_shape": [2], "dilations": [4], "pads": [1, 1]},
            name="whose first tap is padding",
        ),
        Row("ReduceMax", [TIES, array(I64, 1)], floats(3, 2, INF), {"keepdims": 0}),
        Row("ReduceMax", [floats(1, NAN, 2), array(I64, 0)], np.array(NAN, F), {"keepdims": 0}, name="of NaN"),
        Row("ReduceMin", [floats(1, NAN, -INF), array(I64, 0)], np.array(NAN, F), {"keepdims": 0}, name="of NaN"),
        Row("ReduceSum", [floats(1, INF, -INF), array(I64, 0)], np.array(NAN, F), {"keepdims": 0}, name="of both infinities"),
        Row("ReduceLogSumExp", [np.stack([floats(-INF, -INF), floats(INF, 1)]), array(I64, 1)], floats(-INF, INF), {"keepdims": 0}),
        Row(
            "ReduceLogSumExp",
            [floats(1000, 1000), array(I64, 0)],
            np.array(1000 + np.log(2)),
            {"keepdims": 0},
            name="of what overflows",
            rtol=1e-6,
        ),
        Row("NonZero", [floats(0, -0.0, NAN, INF, 1e-45)], np.array([[2, 3, 4]])),
        Row("Unique", [floats(2, 1, 2, -1)], [floats(-1, 1, 2)]),
    ]


def _empty() -> list[Row]:
    over = array(I64, 1)
    of = {"ReduceSum": 0, "ReduceSumSquare": 0, "ReduceL1": 0, "ReduceL2": 0, "ReduceProd": 1, "ReduceMax": -INF, "ReduceMin": INF}
    of |= {"ReduceLogSum": -INF, "ReduceLogSumExp": -INF}
    small = np.iinfo(I32)
    bounds = {"ReduceMax": small.min, "ReduceMin": small.max, "ReduceSum": 0, "ReduceProd": 1}
    return [
        *(Row(op, [NO, over], np.full((2, 3), v, F), {"keepdims": 0}) for op, v in of.items()),
        *(Row(op, [NO.astype(I32), over], np.full((2, 1, 3), v, I32), name="int32") for op, v in bounds.items()),
        *(Row(op, [NO], NO) for op in ("Abs", "Exp", "Neg", "Relu", "Sigmoid", "Softmax", "Identity", "Floor", "Erf")),
        *(Row(op, [NO, np.ones((1, 3), F)], NO) for op in ("Add", "Mul", "Max", "Pow")),
        Row("MatMul", [np.ones((2, 0), F), np.ones((0, 3), F)], np.zeros((2, 3), F)),
        Row("MatMul", [np.ones((0, 4), F), np.ones((4, 3), F)], np.zeros((0, 3), F), name="of no rows"),
        Row("Gemm", [np.ones((2, 0), F), np.ones((0, 3), F), floats(1, 2, 3)], np.stack([floats(1, 2, 3)] * 2)),
        Row("Einsum", [np.ones((2, 0), F), np.ones((0, 3), F)], np.zeros((2, 3), F), {"equation": "ij,jk->ik"}),
        Row("Conv", [np.ones((0, 2, 5), F), np.ones((3, 2, 2), F)], np.ones((0, 3, 4), F)),
        Row("MaxPool", [np.ones((0, 2, 5), F)], np.ones((0, 2, 4), F), {"kernel_shape": [2]}),
        Row("Concat", [NO, np.ones((2, 1, 3), F)], np.ones((2, 1, 3), F), {"axis": 1}),
        Row("Gather", [np.ones((4, 3), F), np.zeros((0, 2), I64)], np.ones((0, 2, 3), F)),
        Row("Gather", [np.ones((4, 0), F), array(I64, 1)], np.ones((1, 0), F), name="of empty rows"),
        Row("ScatterND", [np.ones((4, 3), F), np.zeros((0, 1), I64), np.zeros((0, 3), F)], np.ones((4, 3), F)),
        Row("Transpose", [NO], np.zeros((3, 0, 2), F), {"perm": [2, 1, 0]}),
        Row("Reshape", [NO, array(I64, 6, 0)], np.zeros((6, 0), F), {"allowzero": 1}),
        Row("Slice", [np.ones(4, F), array(I64, 3), array(I64, 1)], np.ones(0, F)),
        Row("Tile", [np.ones((2, 3), F), array(I64, 1, 0)], np.ones((2, 0), F)),
        Row("Expand", [np.ones((2, 1), F), array(I64, 2, 0)], np.ones((2, 0), F)),
        Row("Pad", [np.ones((0, 2), F), array(I64, 1, 0, 1, 0)], np.zeros((2, 2), F)),
        Row("CumSum", [NO, np.array(1)], NO),
        Row("TopK", [np.ones((2, 3), F), array(I64, 0)], [np.ones((2, 0), F), np.ones((2, 0), I64)]),
        Row("NonZero", [NO], np.zeros((3, 0), I64)),
        Row("Where", [NO > 0, NO, NO], NO),
        Row("OneHot", [np.zeros(0, I64), np.array(3), floats(0, 1)], np.zeros((0, 3), F)),
        Row("ArgMax", [np.zeros((0, 3), F)], np.zeros(0, I64), {"axis": 1, "keepdims": 0}),
        Row("LayerNormalization", [np.ones((0, 3), F), np.ones(3, F)], np.ones((0, 3), F)),
        Row("Split", [NO], [NO[:1], NO[1:]], {"num_outputs": 2}),
        Row("Range", [np.array(3), np.array(3), np.array(1)], np.zeros(0, I64)),
    ]


@rows(_choices())
def test_a_tie_goes_to_the_first_and_a_nan_wins(row, engine):
    judged(row, engine)


@rows(_empty())
def test_nothing_has_a_shape_and_a_sum(row, engine):
    judged(row, engine)


@pytest.mark.parametrize("engine", BACKENDS)
def test_a_constant_operand_is_left_out_only_where_nothing_special_changes(engine):
    ops = {"Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Div": np.divide}
    cases = [(op, c, left) for op in ops for c in (0.0, -0.0, 1.0, -1.0, 2.0) for left in (False, True)]
    names = [f"y{i}" for i in range(len(cases))]
    nodes = [helper.make_node(op, [f"c{c}", "x"] if left else ["x", f"c{c}"], [y]) for (op, c, left), y in zip(cases, names)]
    constants = [numpy_helper.from_array(np.array(c, F), f"c{c}") for c in (0.0, -0.0, 1.0, -1.0, 2.0)]
    x, *y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, X.shape) for name in ("x", *names))
    program = populus.compile(helper.make_model(helper.make_graph(nodes, "g", [x], y, constants)), tiles=2, engine=engine)
    found = program.run({"x": X})
    for (op, c, left), name in zip(cases, names):
        with np.errstate(all="ignore"):
            wanted = ops[op](F(c), X) if left else ops[op](X, F(c))
        np.testing.assert_array_equal(found[name], wanted, err_msg=f"{op} {c} {left}")
        there = ~np.isnan(wanted)
        np.testing.assert_array_equal(np.signbit(found[name])[there], np.signbit(wanted)[there], err_msg=f"{op} {c} {left}")


@pytest.mark.parametrize("engine", BACKENDS)
@pytest.mark.parametrize("dtype", [F, D, np.float16])
@pytest.mark.parametrize("power", [0.5, -0.5, 1, -1, 2, 4])
def test_a_literal_power_is_that_of_each_element(power: float, dtype: type[np.floating[Any]], engine: str):
    x = np.array([0, -0.0, 1, -1, 4, -4, 0.25, INF, -INF, NAN], dtype)
    powers = numpy_helper.from_array(np.array(power, dtype), "p")
    element = helper.np_dtype_to_tensor_dtype(x.dtype)
    infos = [helper.make_tensor_value_info(n, element, x.shape) for n in "xy"]
    graph = helper.make_graph([helper.make_node("Pow", ["x", "p"], ["y"])], "g", infos[:1], infos[1:], [powers])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    with np.errstate(all="ignore"):
        expected = np.power(x, np.full_like(x, power))
    found = populus.compile(model, engine=engine, cache=False).run({"x": x})["y"]
    np.testing.assert_array_equal(found, expected)
    there = ~np.isnan(expected)
    np.testing.assert_array_equal(np.signbit(found)[there], np.signbit(expected)[there])
