"""Layers that PopART computes otherwise than ONNX, variables that a batch leaves, and the graphs as JSON."""

from __future__ import annotations

import json
from itertools import groupby, product
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


def test_indices_of_uint32_and_bounds_of_another_float_are_taken():
    at = np.array([[2, 0, 1, 0]], np.uint32)
    (found,) = inferred(lambda b, x, i, u: b.aiOnnx.scatter([x, i, u], 0), X, at, np.ones((2, 4), np.float32), opset=10)
    expected = X.copy()  # the second row of updates has no indices
    expected[at[0], np.arange(4)] = 1
    np.testing.assert_array_equal(found, expected)
    half = X.astype(np.float16)
    (found,) = inferred(lambda b, x: b.aiOnnx.clip([x, "", b.aiOnnx.constant(np.float32(3.4e38))]), half)
    np.testing.assert_array_equal(found, half)
    (found,) = inferred(lambda b, x: b.aiOnnx.clip([x, b.aiOnnx.constant(np.array([-0.5], np.float32))]), half)
    np.testing.assert_array_equal(found, half.clip(-0.5))


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


def log_probability(log_probs: Any, target: list[int], blank: int) -> float:
    """Sums the probabilities of all paths that give a target: repeated labels are one, and blanks are left out."""
    steps, classes = log_probs.shape
    total = -np.inf
    for path in product(range(classes), repeat=steps):
        if [c for c, _ in groupby(path) if c != blank] == target:
            total = np.logaddexp(total, sum(log_probs[t, c] for t, c in enumerate(path)))
    return float(total)


@pytest.mark.parametrize(("blank", "reduction"), [(0, "NoReduction"), (2, "Mean"), (0, "Sum")])
def test_the_ctc_loss_sums_all_paths_to_its_targets(blank, reduction):
    raw = G.normal(size=(4, 3, 3))
    log_probs = (raw - np.log(np.exp(raw).sum(2, keepdims=True))).astype(np.float32)
    labels = [c for c in range(3) if c != blank]
    targets = np.array([[labels[0], labels[0]], [labels[1], labels[0]], [labels[1], labels[1]]], np.uint32)
    lengths, sizes = np.array([4, 3, 4], np.uint32), np.array([2, 2, 0], np.uint32)
    kind = getattr(popart.ReductionType, reduction)
    (found,) = inferred(lambda b, *n: b.aiGraphcore.ctcloss(list(n), kind, blank), log_probs, targets, lengths, sizes)
    each = np.array([-log_probability(log_probs[: lengths[i], i], targets[i, : sizes[i]].tolist(), blank) for i in range(3)])
    expected = {"NoReduction": each, "Mean": (each / [2, 2, 1]).mean(), "Sum": each.sum()}[reduction]
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_a_target_that_no_path_gives_has_an_infinite_loss_or_counts_for_nothing():
    log_probs = np.log(np.full((2, 1, 3), 1 / 3, np.float32))
    rest = [np.array([[1, 1]], np.uint32), np.array([2], np.uint32), np.array([2], np.uint32)]
    for zero, expected in ((0, np.inf), (1, 0)):
        (found,) = inferred(lambda b, *n, zero=zero: b.aiGraphcore.ctcloss(list(n), zeroInfinity=zero), log_probs, *rest)
        assert found == expected


def test_the_gradient_of_the_ctc_loss_is_that_of_differences():
    log_probs = np.log(G.dirichlet(np.ones(3), size=(3, 1))).astype(np.float32)
    targets, three, two = np.array([[1, 2]], np.int32), np.array([3], np.int32), np.array([2], np.int32)

    def make(b: popart.Builder) -> tuple[str, list[str]]:
        given = [b.aiOnnx.constant(v) for v in (targets, three, two)]
        loss = b.aiGraphcore.ctcloss(["x", *given], popart.ReductionType.Sum)
        return loss, ["Gradient___x"]

    found, _ = trained(make, {"x": log_probs}, {}, popart.ConstSGD(0.1))
    expected = np.zeros_like(log_probs, np.float64)
    for at in np.ndindex(log_probs.shape):
        moved = [log_probs.astype(np.float64) for _ in range(2)]
        for side, sign in zip(moved, (1, -1)):
            side[at] += sign * 1e-4
        expected[at] = (log_probability(moved[1][:, 0], [1, 2], 0) - log_probability(moved[0][:, 0], [1, 2], 0)) / 2e-4
    np.testing.assert_allclose(found["Gradient___x"], expected, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("degree", [1, 2, 3])
def test_splines_of_an_edge_sum_to_one_and_belong_to_neighbouring_weights(degree):
    pseudo = G.random((5, 2)).astype(np.float32)
    sizes, opened = np.array([6, 5], np.int32), np.array([1, 0], np.uint8)
    basis, places = inferred(lambda b, *n: b.aiGraphcore.splinebasis(list(n), degree), pseudo, sizes, opened)
    assert basis.shape == places.shape == (5, (degree + 1) ** 2)
    np.testing.assert_allclose(basis.sum(1), np.ones(5), rtol=1e-5)  # B-splines are a partition of one
    first = np.floor(pseudo * (sizes - degree * opened)).astype(int)
    for s in range((degree + 1) ** 2):
        moved = np.add(first, (s % (degree + 1), s // (degree + 1))) % sizes
        np.testing.assert_array_equal(places[:, s], moved[:, 0] + 6 * moved[:, 1])
    if degree == 1:
        v = pseudo * (sizes - opened) - first
        np.testing.assert_allclose(basis[:, 0], (1 - v[:, 0]) * (1 - v[:, 1]), rtol=1e-5, atol=1e-6)


def test_weights_of_splines_are_mixed_by_their_basis():
    x, w = G.normal(size=(5, 3)).astype(np.float32), G.normal(size=(7, 3, 2)).astype(np.float32)
    basis, places = G.random((5, 4)).astype(np.float32), G.integers(0, 7, (5, 4)).astype(np.int32)
    (found,) = inferred(lambda b, *n: b.aiGraphcore.splineweighting(list(n)), x, w, basis, places)
    np.testing.assert_allclose(found, np.einsum("es,ei,esio->eo", basis, x, w[places]), rtol=1e-5, atol=1e-6)


def test_a_remapped_tensor_is_the_same():
    (found,) = inferred(lambda b, x: b.aiGraphcore.tensorremap([x], popart.TensorRemapType.FwdBwd), X)
    np.testing.assert_array_equal(found, X)
