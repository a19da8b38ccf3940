"""Layers that PopART computes otherwise than ONNX, variables that a batch leaves, and the graphs as JSON."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from helpers.popart_programs import CPU, inferred, trained
from populus import popart
from populus.dialects.support.diagnostics import PopulusError

G = np.random.default_rng(7)
X = G.normal(size=(3, 4)).astype(np.float32)


def test_a_transposed_convolution_has_its_odd_pad_at_the_end():
    x, w = np.array([[[[1, 2], [3, 4]]]], np.float32), np.array([[[[1, 2], [2, 1]]]], np.float32)
    full = np.array([[1, 4, 4], [5, 15, 10], [6, 11, 4]], np.float32)

    def make(b: popart.Builder, x: str, w: str, pad: str | None) -> str:
        y = b.aiOnnx.convtranspose([x, w], output_shape=[2, 2])
        if pad is not None:
            b.addNodeAttribute("auto_pad", pad, {y})
        return y

    for pad, part in ((None, full[:2, :2]), ("SAME_UPPER", full[1:, 1:])):
        (found,) = inferred(lambda b, *n, pad=pad: make(b, *n, pad), x, w)
        assert found[0, 0].tolist() == part.tolist()
    with pytest.raises(PopulusError, match=r"output_shape = \[9, 9\]; at most \[3, 3\]"):
        inferred(lambda b, *n: b.aiOnnx.convtranspose(list(n), output_shape=[9, 9]), x, w)


def test_a_pool_pads_as_its_auto_pad_says():
    x = np.arange(25, dtype=np.float32).reshape(1, 1, 5, 5)
    (found,) = inferred(lambda b, x: b.aiOnnx.maxpool([x], 1, [3, 3], strides=[2, 2], auto_pad="SAME_UPPER"), x, opset=10)
    assert found[0, 0].tolist() == [[6, 8, 9], [16, 18, 19], [21, 23, 24]]


@pytest.mark.parametrize("scale", [0.5, 1.5, 2.0, 2.3])
def test_the_resize_of_opset_10_takes_the_element_below(scale):
    def make(b: popart.Builder, x: str) -> str:
        return b.aiOnnx.resize([x, b.aiOnnx.constant(np.array([1, scale], np.float32))])

    (found,) = inferred(make, X, opset=10)
    at = np.floor(np.arange(int(4 * scale)) / np.float32(scale)).astype(int)
    np.testing.assert_array_equal(found, X[:, at])


def test_a_resize_takes_f16_scales_sizes_of_int32_and_not_both():
    def make(b: popart.Builder, x: str, scales: Any, sizes: Any) -> str:
        given = [b.aiOnnx.constant(np.array(v)) if v is not None else "" for v in (scales, sizes)]
        return b.aiOnnx.resize([x, b.aiOnnx.constant(np.array([], np.float32)), *given], nearest_mode="floor")

    doubled = X.repeat(2, 1)
    for scales, sizes in (
        (np.array([1, 2], np.float16), None),
        (None, np.array([3, 8], np.int32)),
        (np.array([], np.float16), np.array([3, 8])),
    ):
        (found,) = inferred(lambda b, x, s=scales, z=sizes: make(b, x, s, z), X)
        assert found.shape == doubled.shape
    with pytest.raises(PopulusError, match="it has scales and sizes; one of"):
        inferred(lambda b, x: make(b, x, np.array([1, 2], np.float16), np.array([3, 8])), X)


def test_a_scatter_without_broadcast_takes_the_part_of_its_indices():
    at = np.array([[2, 0], [1, 2]], np.int32)

    def make(b: popart.Builder, x: str, i: str) -> str:
        return b.aiGraphcore.scatterreduce([x, i], axis=0, axis_size=3, enable_index_broadcast=0)

    (found,) = inferred(make, X, at)
    expected = np.zeros((3, 2), np.float32)
    for row in range(2):
        for column in range(2):
            expected[at[row, column], column] += X[row, column]
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_the_angle_has_the_gradient_0_at_the_origin():
    def make(b: popart.Builder) -> tuple[str, list[str]]:
        y = b.aiGraphcore.atan2(["y", "x"])
        return b.aiGraphcore.identityloss([y], popart.ReductionType.Sum), ["Gradient___y", "Gradient___x"]

    y, x = np.array([0, 1, -2], np.float32), np.array([0, 2, -0.5], np.float32)
    found, _ = trained(make, {"y": y, "x": x}, {}, popart.ConstSGD(0.1))
    square = np.array([1, 5, 4.25], np.float32)
    np.testing.assert_allclose(found["Gradient___y"], x / square, rtol=1e-6)
    np.testing.assert_allclose(found["Gradient___x"], -y / square, rtol=1e-6)


def test_both_forms_of_an_lstm_agree_to_the_bit():
    x, w, r = (G.normal(size=s).astype(np.float32) for s in ((5, 2, 3), (1, 16, 3), (1, 16, 4)))
    bias = G.normal(size=(1, 32)).astype(np.float32)
    (of_onnx,) = inferred(lambda b, *n: b.aiOnnx.lstm(list(n), 3)[0], x, w, r, bias, opset=10)
    gates = [2, 0, 3, 1]  # forget, input, cell, output of ONNX's input, output, forget, cell
    each = [np.concatenate([w[0, 4 * g : 4 * g + 4].T, r[0, 4 * g : 4 * g + 4].T]) for g in gates]
    sums = (bias[0, :16] + bias[0, 16:]).reshape(4, 4)[gates]
    (of_popart,) = inferred(lambda b, *n: b.aiGraphcore.lstm(list(n))[0], x, np.stack(each), sums, opset=10)
    np.testing.assert_array_equal(of_onnx[:, 0], of_popart)


def test_a_batch_leaves_its_moving_statistics_and_counters_in_weights():
    def make(b: popart.Builder) -> tuple[str, list[str]]:
        y = b.aiOnnx.batchnormalization(["x", "s", "z", "mean", "var"], 5, 1e-5, 0.75)[0]
        counted = b.aiGraphcore.copyvarupdate(["n", b.aiOnnx.add(["n", b.aiOnnx.constant(np.ones(1, np.float32))])])
        return b.aiGraphcore.identityloss([b.aiOnnx.mul([y, y])]), [counted, "n", "s"]

    x = G.normal(size=(4, 2, 3, 3)).astype(np.float32)
    one, zero = np.ones(2, np.float32), np.zeros(2, np.float32)
    weights = {"s": one, "z": zero, "mean": zero, "var": one, "n": np.zeros(1, np.float32)}
    anchors, new = trained(make, {"x": x}, weights, popart.ConstSGD(0.1), steps=2)
    assert (anchors["n"], new["n"]) == (2, 2)
    mean, spread = x.mean((0, 2, 3)), x.var((0, 2, 3), ddof=1)
    np.testing.assert_allclose(new["mean"], mean * (1 - 0.75**2), rtol=1e-5)
    np.testing.assert_allclose(new["var"], 0.75**2 + spread * (1 - 0.75**2), rtol=1e-5)
    np.testing.assert_array_equal(anchors["s"], new["s"])  # a weight is fetched as it is after its update
    assert (new["s"] != 1).all()


def test_a_variable_must_be_a_weight_of_the_same_type():
    with pytest.raises(PopulusError, match="is no weight; only a weight can be assigned"):
        inferred(lambda b, x: b.aiGraphcore.copyvarupdate([x, x]), X)
    with pytest.raises(PopulusError, match=r"float32 \[2\]; float32 \[3 4\] is given"):
        inferred(lambda b, x: b.aiGraphcore.copyvarupdate([b.addInitializedInputTensor(np.ones(2, np.float32)), x]), X)


def test_the_graphs_of_a_session_are_json():
    b = popart.Builder()
    x = b.addInputTensor("FLOAT", [2, 2])
    body = b.createSubgraphBuilder()
    body.addOutputTensor(body.aiOnnx.exp([x]))
    other = b.createSubgraphBuilder()
    other.addOutputTensor(other.aiOnnx.neg([x]))
    y = b.aiOnnx.logical_if([b.aiOnnx.constant(np.array(True))], 1, other, body)[0]
    z = b.aiGraphcore.gelu([b.aiOnnx.randomnormallike([y])])
    session = popart.InferenceSession(b.getModelProto(), popart.DataFlow(1, [z]), CPU)
    graphs = json.loads(session._serializeIr(popart.IrSerializationFormat.JSON))
    assert [op["type"] for op in graphs["maingraph"]] == ["Constant", "If", "RandomNormal", "Gelu"]
    assert {op["type"] for name, graph in graphs.items() if name != "maingraph" for op in graph} >= {"Exp", "Neg"}
    assert graphs["maingraph"][2]["outputs"][0]["shape"] == [2, 2]
    with pytest.raises(PopulusError, match="JSON is the only one"):
        session._serializeIr("text")
