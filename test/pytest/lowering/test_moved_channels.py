"""A factor, term or scale that moves into another op stays on its own dimension, also where another dimension is as large."""

from __future__ import annotations

import numpy as np
import pytest

from helpers.every_engine import model_of, node, on_every_engine

R = np.random.default_rng(3)


def drawn(*shape):
    return R.normal(size=shape).astype("f4")


def agree(model, inputs, expected):
    for engine, found in on_every_engine(model, inputs).items():
        np.testing.assert_allclose(found["y"], expected, rtol=1e-5, atol=1e-5, err_msg=engine)


@pytest.mark.parametrize("columns", [3, 5])
@pytest.mark.parametrize("lead", [(), (2,), (2, 3)])
def test_a_batch_norm_after_a_product_scales_dimension_1(lead, columns):
    x, w = drawn(*lead, 3, 4), drawn(*lead[1:], 4, columns)
    y = x.astype("f8") @ w
    channels = y.shape[1]
    s, b, m, v = drawn(channels), drawn(channels), drawn(channels), np.abs(drawn(channels)) + 1
    nodes = [node("MatMul", "x w", "h"), node("BatchNormalization", "h s b m v", "y")]
    along = (-1, *(1,) * (y.ndim - 2))
    expected = (y - m.reshape(along)) * (s / np.sqrt(v + 1e-5)).reshape(along) + b.reshape(along)
    agree(model_of(nodes, {"x": x}, {"w": w, "s": s, "b": b, "m": m, "v": v}), {"x": x}, expected)


@pytest.mark.parametrize("shape", [(3,), (1, 3), (3, 1), (1, 3, 1), (2, 1, 1), ()])
@pytest.mark.parametrize("kind", ["Mul", "Div", "Add", "Sub"])
def test_an_element_wise_op_after_a_product_keeps_its_dimension(kind, shape):
    x, w, by = drawn(2, 3, 4), drawn(4, 3), np.abs(drawn(*shape)) + np.float32(0.5)
    f = {"Mul": np.multiply, "Div": np.divide, "Add": np.add, "Sub": np.subtract}[kind]
    model = model_of([node("MatMul", "x w", "h"), node(kind, "h by", "y")], {"x": x}, {"w": w, "by": by})
    agree(model, {"x": x}, f(x.astype("f8") @ w, by))


def test_a_factor_after_a_product_of_two_vectors_scales_a_number():
    x, w, by = drawn(4), drawn(4), drawn()
    model = model_of([node("MatMul", "x w", "h"), node("Mul", "h by", "y")], {"x": x}, {"w": w, "by": by})
    agree(model, {"x": x}, x.astype("f8") @ w * by)


@pytest.mark.parametrize("axis", [0, 1])
def test_a_quantized_bias_has_its_scales_along_its_own_axis(axis):
    a, w = R.integers(-9, 9, (3, 4)).astype("i1"), R.integers(-9, 9, (4, 3)).astype("i1")
    c, scales = R.integers(-99, 99, (3, 3)).astype("i4"), np.array([0.5, 1, 2], "f4")
    one, zero = np.array(1, "f4"), np.array(0, "i1")
    nodes = [
        node("DequantizeLinear", "a one zero", "p"),
        node("DequantizeLinear", "w scales", "q", axis=1),
        node("DequantizeLinear", "c scales", "r", axis=axis),
        node("Gemm", "p q r", "y"),
    ]
    model = model_of(nodes, {"a": a}, {"w": w, "c": c, "scales": scales, "one": one, "zero": zero})
    agree(model, {"a": a}, a.astype("f8") @ (w * scales) + c * (scales[:, None] if axis == 0 else scales))
