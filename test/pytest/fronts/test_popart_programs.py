"""Programs of PopART: builders, PopART's own ops, sessions that infer and train."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest

from helpers.popart_programs import Array, inferred, trained
from populus import popart, popxl
from populus.dialects.support.diagnostics import PopulusError
from populus.popart.graphcore_signatures import SIGNATURES
from populus.popart.opsets import signatures
from populus.popart.settings import SessionOptions
from populus.popxl import ops

G = np.random.default_rng(3)
X = G.normal(size=(3, 4)).astype(np.float32)
Y = (G.random((3, 4)) + 0.5).astype(np.float32)

ELEMENTWISE: list[tuple[str, dict[str, Any], Sequence[Array], Array]] = [
    ("atan2", {}, [X, Y], np.arctan2(X, Y)),
    ("detach", {}, [X], X),
    ("expm1", {}, [X], np.expm1(X)),
    ("fmod", {}, [X, Y], np.fmod(X, Y)),
    ("log1p", {}, [Y], np.log1p(Y)),
    ("remainder", {}, [X, Y], X - Y * np.floor(X / Y)),
    ("round", {}, [np.array([-2.5, -0.5, 0.5, 2.5], np.float32)], np.array([-3, -1, 1, 3], np.float32)),
    ("nearbyint", {}, [np.array([-2.5, -0.5, 0.5, 1.5], np.float32)], np.array([-2, -0.0, 0, 2], np.float32)),
    ("scale", {"scale": 3}, [X], 3 * X),
    ("scaledadd", {"scale0": 0.5, "scale1": 2.0}, [X, Y], 0.5 * X + 2 * Y),
    ("swish", {}, [X], X / (1 + np.exp(-X))),
    ("reverse", {"dimensions": [0, 1]}, [X], X[::-1, ::-1]),
    ("slice", {"ends": [3, 4], "starts": [1, 2]}, [X], X[1:3, 2:4]),
    ("subsample", {"strides": [2, 3]}, [X], X[::2, ::3]),
    ("reshape", {"shape": [2, 6]}, [X], X.reshape(2, 6)),
    ("bitwisexnor", {}, [np.array([12], np.int32), np.array([10], np.int32)], np.array([~(12 ^ 10)], np.int32)),
    ("incrementmod", {"increment": 3, "modulus": 5}, [np.array([0, 4], np.int32)], np.array([3, 2], np.int32)),
    ("incrementmod", {"increment": 3, "modulus": 4}, [np.array([5, -5, -7], np.int32)], np.array([0, -2, 0], np.int32)),
    ("incrementmod", {"increment": 3.0, "modulus": 4.0}, [np.array([5, -5], np.float32)], np.array([0, -2], np.float32)),
    ("bucketize", {"right": 1}, [np.array([1, 4], np.int32), np.array([1, 4, 9], np.int32)], np.array([1, 2], np.int32)),
    ("dynamicslice", {"axes": [1], "sizes": [2]}, [X, np.array([1], np.uint32)], X[:, 1:3]),
    ("dynamiczero", {"axes": [0], "sizes": [1]}, [X, np.array([1], np.uint32)], X * np.array([[1], [0], [1]], np.float32)),
    ("groupedgather", {"axis": 1, "group_size": 3}, [X, np.array([[0], [2], [1]], np.int32)], X[[0, 1, 2], [0, 2, 1]][:, None]),
]


@pytest.mark.parametrize(("op", "attributes", "arrays", "expected"), ELEMENTWISE, ids=[row[0] for row in ELEMENTWISE])
def test_an_op_of_graphcore_computes_its_formula(op, attributes, arrays, expected):
    (found,) = inferred(lambda b, *names: getattr(b.aiGraphcore, op)(list(names), **attributes), *arrays)
    assert found.dtype == expected.dtype
    np.testing.assert_allclose(found, expected, rtol=2e-6, atol=1e-6)


def test_dynamic_update_and_add_write_a_part():
    update, at = np.full((3, 2), 7, np.float32), np.array([1], np.uint32)
    for op, expected in (("dynamicupdate", update), ("dynamicadd", X[:, 1:3] + update)):
        (found,) = inferred(lambda b, *n, op=op: getattr(b.aiGraphcore, op)(list(n), axes=[1], sizes=[2]), X, at, update)
        np.testing.assert_allclose(found, np.concatenate([X[:, :1], expected, X[:, 3:]], 1))


@pytest.mark.parametrize("reduction", ["Sum", "Max", "Min", "Mul"])
def test_scatter_reduce_leaves_rows_that_no_index_names(reduction):
    at = np.array([2, 0, 2], np.int32)
    kind = getattr(popart.ScatterReduction, reduction)
    (found,) = inferred(lambda b, x, i: b.aiGraphcore.scatterreduce([x, i], axis_size=4, axis=0, reduction=kind), X, at)
    combine = {"Sum": np.add, "Max": np.maximum, "Min": np.minimum, "Mul": np.multiply}[reduction]
    empty = np.full(4, 1 if reduction == "Mul" else 0, np.float32)
    np.testing.assert_allclose(found, np.stack([X[1], empty, combine(X[0], X[2]), empty]), rtol=1e-6)


def test_group_norm_gives_mean_and_inverse_deviation():
    x = G.normal(size=(2, 4, 3)).astype(np.float32)
    one, zero = np.ones(4, np.float32), np.zeros(4, np.float32)
    y, mean, inverse = inferred(lambda b, *names: b.aiGraphcore.groupnormalization(list(names), 2), x, one, zero)
    rows = x.reshape(4, 6)
    np.testing.assert_allclose(mean, rows.mean(1), atol=1e-6)
    np.testing.assert_allclose(inverse, 1 / np.sqrt(rows.var(1) + 1e-5), rtol=1e-5)
    np.testing.assert_allclose(y.reshape(4, 6), (rows - rows.mean(1, keepdims=True)) * inverse[:, None], atol=1e-5)


def test_the_negative_log_likelihood_ignores_an_index_in_its_mean():
    p = np.full((4, 2), 0.5, np.float32)
    p[0] = [0.25, 0.75]
    labels = np.array([0, 1, 1, 0], np.int32)
    (found,) = inferred(lambda b, *n: b.aiGraphcore.nllloss(list(n), popart.ReductionType.Mean, ignoreIndex=1), p, labels)
    np.testing.assert_allclose(found, -(np.log(0.25) + np.log(0.5)) / 2, rtol=1e-6)


LEAST = {np.float32: (16.118095, -1e10), np.float16: (9.704061, -16384.0)}  # of the type: the loss at p = 0, and its slope


@pytest.mark.parametrize("dtype", LEAST)
@pytest.mark.parametrize("front", ["popart", "popxl"])
def test_the_negative_log_likelihood_of_nothing_is_the_same_in_both_fronts(front, dtype):
    p, labels = np.array([[0, 1], [0.5, 0.5], [1, 0]], dtype), np.array([0, 1, 0], np.int32)
    loss, slope = LEAST[dtype]
    if front == "popart":
        found, gradient = inferred_with_gradient(p, labels)
    else:
        ir = popxl.Ir()
        with ir.main_graph:
            x, y = popxl.variable(p), popxl.variable(labels)
            graph = ir.create_graph(lambda x, y: ops.nll_loss(x, y, reduction="none"), x, y)
            (each,) = ops.call(graph, x, y)
            back = popxl.transforms.autodiff(graph, grads_required=[graph.inputs[0]]).graph
            (dx,) = ops.call(back, popxl.constant(np.ones(3, dtype)), x, y)
            outs = [popxl.d2h_stream(t.shape, t.dtype) for t in (each, dx)]
            for out, t in zip(outs, (each, dx)):
                ops.host_store(out, t)
        with popxl.Session(ir, "ipu_model") as session:
            results = session.run()
        found, gradient = (results[out] for out in outs)
    np.testing.assert_allclose(found, np.array([loss, np.log(2), 0]), rtol=1e-3 if dtype is np.float16 else 1e-6)
    np.testing.assert_allclose(gradient, np.array([[slope, 0], [0, -2], [-1, 0]]), rtol=1e-3 if dtype is np.float16 else 1e-6)


def inferred_with_gradient(p: Array, labels: Array) -> tuple[Array, Array]:
    """Gives PopART's loss of each row, and its gradient of p."""
    b = popart.Builder(opsets={"ai.onnx": 10, "ai.graphcore": 1})
    x = b.addInitializedInputTensor(p)
    y = b.addInputTensor(popart.TensorInfo("INT32", labels.shape))
    each = b.aiGraphcore.nllloss([x, y], popart.ReductionType.NoReduction)
    loss = b.aiGraphcore.identityloss([each], popart.ReductionType.Sum)
    gradient = popart.reservedGradientPrefix() + x
    session = popart.TrainingSession(
        b.getModelProto(),
        popart.DataFlow(1, [each, gradient]),
        loss,
        popart.ConstSGD(0.0),
        deviceInfo=popart.DeviceManager().createCpuDevice(),
    )
    session.prepareDevice()
    anchors = session.initAnchorArrays()
    session.weightsFromHost()
    session.run(popart.PyStepIO({y: labels}, anchors))
    return anchors[each], anchors[gradient]


def test_arg_max_is_of_int32_and_no_axes_reduce_nothing():
    (found,) = inferred(lambda b, x: b.aiOnnx.argmax([x], axis=1, keepdims=0), X, opset=10)
    assert found.dtype == np.int32
    assert found.tolist() == X.argmax(1).tolist()
    (found,) = inferred(lambda b, x: b.aiOnnx.reducesum([x], axes=[]), X, opset=10)
    assert found.tolist() == X.tolist()


def test_a_scan_keeps_the_scanned_dimension():
    def make(b: popart.Builder, x: str) -> list[str]:
        body = b.createSubgraphBuilder()
        part = body.addInputTensor(popart.TensorInfo("FLOAT", [1, 4]))
        body.addOutputTensor(body.aiOnnx.concat([part, part], 0))
        return b.aiOnnx.scan([x], 1, body, num_scan_inputs=1)

    (found,) = inferred(make, X)
    np.testing.assert_array_equal(found, X.repeat(2, axis=0))


def test_graphs_are_called_chosen_and_repeated():
    def make(b: popart.Builder, x: str) -> list[str]:
        callee = b.createSubgraphBuilder()
        callee.addOutputTensor(callee.aiGraphcore.scale([callee.addUntypedInputTensor()], 2.0))
        (twice,) = b.aiGraphcore.call([x], 1, callee)
        (fourfold,) = b.aiGraphcore.call([twice], 1, callee)
        branches = [b.createSubgraphBuilder() for _ in range(2)]
        for branch, op in zip(branches, ("neg", "abs")):
            branch.addOutputTensor(getattr(branch.aiOnnx, op)([fourfold]))
        (chosen,) = b.aiOnnx.logical_if([b.aiOnnx.constant(np.array(True))], 1, *branches)
        body = b.createSubgraphBuilder()
        body.addInputTensor(popart.TensorInfo("INT64", []))
        going = body.addInputTensor(popart.TensorInfo("BOOL", []))
        value = body.addUntypedInputTensor()
        body.addOutputTensor(going)
        body.addOutputTensor(body.aiOnnx.add([value, x]))
        return b.aiOnnx.loop([b.aiOnnx.constant(np.array(3)), b.aiOnnx.constant(np.array(True)), chosen], 1, body)

    (found,) = inferred(make, X)
    np.testing.assert_allclose(found, np.abs(4 * X) + 3 * X, rtol=1e-6)


def test_the_builder_knows_types_attributes_and_names():
    builder = popart.Builder()
    with builder.nameScope("net"):
        x = builder.addInputTensor("FLOAT16", [2, 3], "x")
        y = builder.aiOnnx.transpose([x], [1, 0], "turned")
    assert (x, y) == ("net/x", "net/turned/Transpose:0")
    assert builder.getTensorShape(y) == [3, 2]
    assert builder.getTensorDtypeString(y) == "float16"
    builder.addNodeAttribute("mark", [1, 2], {y})
    assert builder.getInt64VectorNodeAttribute("mark", {y}) == [1, 2]
    builder.removeNodeAttribute("mark", {y})
    assert builder.getAllNodeAttributeNames({y}) == ["perm"]
    with pytest.raises(RuntimeError, match="the model has ai.onnx 10 already"):
        builder.aiOnnxOpset11.relu([x])
    with pytest.raises(PopulusError, match="there is no tensor 'z'"):
        builder.aiOnnx.relu(["z"])


def test_a_model_of_onnx_ops_satisfies_onnx_s_checker():
    builder = popart.Builder()
    x = builder.addInputTensor(popart.TensorInfo("FLOAT", [1, 1, 4, 4]))
    w = builder.addInitializedInputTensor(np.ones((1, 1, 2, 2), np.float32))
    builder.addOutputTensor(builder.aiOnnx.conv([x, w], [1, 1], 1, [], [0, 0, 0, 0], [1, 1]))
    proto = onnx.ModelProto.FromString(builder.getModelProto())
    proto.graph.output[0].type.CopyFrom(onnx.helper.make_tensor_type_proto(1, [1, 1, 3, 3]))
    onnx.checker.check_model(proto, full_check=True)


@pytest.mark.parametrize("version", [6, 8, 11])
def test_required_attributes_come_first_and_auto_pad_is_none(version):
    found = signatures(version)
    assert found["lrn"].attributes == ("size", "alpha", "beta", "bias")
    assert "auto_pad" not in found["conv"].attributes
    assert found["split"].counted
    assert {"logical_if", "logical_and"} <= set(found)


def test_every_op_of_graphcore_runs_or_is_refused_by_name():
    from populus.popart.rules import rule_of
    from populus.popart.translation import NATIVE

    absent = {n for n, s in SIGNATURES.items() if rule_of("ai.graphcore", s.op) is None and s.op not in NATIVE}
    assert absent == {
        "abort", "ctcbeamsearchdecoder", "replicatedallreduce", "replicatedreducescatter",
    }  # fmt: skip
    with pytest.raises(PopulusError, match="PopART's op CtcBeamSearchDecoder is not there yet"):
        inferred(lambda b, x: b.aiGraphcore.ctcbeamsearchdecoder([x, x]), X)


def product(builder: popart.Builder) -> tuple[str, list[str]]:
    """Builds the loss `sum(x w)`; its inner tensor is `x w`."""
    y = builder.aiOnnx.matmul(["x", "w"])
    loss = builder.aiGraphcore.identityloss([y], popart.ReductionType.Sum)
    return loss, [loss, popart.reservedGradientPrefix() + y, "Gradient___x", "Gradient___w"]


def test_gradients_of_inputs_weights_and_inner_tensors_are_anchors():
    w = G.normal(size=(4, 2)).astype(np.float32)
    anchors, new = trained(product, {"x": X}, {"w": w}, popart.ConstSGD(0.1, weight_decay=0.5, loss_scaling=4))
    gradient = X.T @ np.ones((3, 2), np.float32)
    np.testing.assert_allclose(anchors["Gradient___w"], 4 * gradient, rtol=1e-5)
    np.testing.assert_allclose(anchors["Gradient___x"], 4 * np.ones((3, 2), np.float32) @ w.T, rtol=1e-5)
    assert anchors["Gradient___MatMul:0"].tolist() == [[4, 4]] * 3
    np.testing.assert_allclose(new["w"], w - 0.1 * (gradient + 0.5 * w), rtol=1e-5)


def test_parts_of_a_batch_accumulate_into_one_update():
    options = popart.SessionOptions()
    options.enableGradientAccumulation, options.accumulationFactor = True, 3
    w, x = np.ones((4, 2), np.float32), G.normal(size=(6, 3, 4)).astype(np.float32)
    anchors, new = trained(product, {"x": x}, {"w": w}, popart.ConstSGD(0.1), options, batches=2)
    np.testing.assert_allclose(new["w"], w - 0.1 * x.sum((0, 1))[:, None] * np.ones((1, 2)), rtol=1e-4)
    assert anchors["Gradient___w"].shape == (2, 3, 4, 2)


def adam_steps(w: Array, g: Array, steps: int) -> Array:
    """Computes Adam in float64, with decay of the weight itself."""
    m, v, w = np.zeros_like(w), np.zeros_like(w), w.astype(np.float64)
    for t in range(1, steps + 1):
        m, v = 0.9 * m + 0.1 * g, 0.99 * v + 0.01 * g * g
        w = w - 0.1 * (m / (1 - 0.9**t) / (np.sqrt(v / (1 - 0.99**t)) + 1e-6) + 0.5 * w)
    return w


def momentum_steps(w: Array, g: Array, steps: int) -> Array:
    """Computes SGD with momentum in float64."""
    v, w = np.zeros_like(w), w.astype(np.float64)
    for _ in range(steps):
        v = 0.5 * v + g
        w = w - 0.1 * v
    return w


def rms_steps(w: Array, g: Array, steps: int) -> Array:
    """Computes RMSProp in float64."""
    a, w = np.zeros_like(w), w.astype(np.float64)
    for _ in range(steps):
        a = 0.9 * a + 0.1 * g * g
        w = w - 0.1 * g / (np.sqrt(a) + 1e-6)
    return w


OPTIMIZERS = [
    (popart.SGD({"defaultLearningRate": (0.1, False), "defaultMomentum": (0.5, True)}), momentum_steps),
    (popart.Adam({"defaultLearningRate": (0.1, False), "defaultBeta2": (0.99, True), "defaultWeightDecay": (0.5, True)}), adam_steps),
    (popart.Adaptive({"defaultLearningRate": (0.1, False), "defaultAlpha": (0.9, True)}), rms_steps),
]


@pytest.mark.parametrize(("optimizer", "expected"), OPTIMIZERS, ids=["momentum", "adam", "rmsprop"])
def test_an_optimizer_keeps_its_states_between_steps(optimizer, expected):
    w = G.normal(size=(4, 2)).astype(np.float32)
    _, new = trained(product, {"x": X}, {"w": w}, optimizer, steps=3)
    gradient = (X.T @ np.ones((3, 2), np.float32)).astype(np.float64)
    np.testing.assert_allclose(new["w"], expected(w, gradient, 3), rtol=1e-4, atol=1e-5)


def test_what_is_detached_has_no_gradient_and_does_not_move():
    def make(b: popart.Builder) -> tuple[str, list[str]]:
        still = b.aiGraphcore.detach([b.aiOnnx.matmul(["x", "w"])])
        loss = b.aiGraphcore.l1loss([b.aiOnnx.matmul([still, "u"])], 0.5, popart.ReductionType.Sum)
        return loss, [loss, "Gradient___u"]

    weights = {"w": np.ones((4, 2), np.float32), "u": np.ones((2, 2), np.float32)}
    anchors, new = trained(make, {"x": X}, weights, popart.ConstSGD(0.1, weight_decay=0.5))
    assert (new["w"] == 1).all()
    np.testing.assert_allclose(new["u"], 1 - 0.1 * (anchors["Gradient___u"] + 0.5), rtol=1e-5)
    with pytest.raises(PopulusError, match="no gradient flows from the loss 'L1:0' to 'x'"):
        trained(lambda b: (make(b)[0], ["Gradient___x"]), {"x": X}, weights, popart.ConstSGD(0.1))


def test_dropout_drops_only_in_training_and_anew_in_each_step():
    ones = np.ones((1, 200), np.float32)

    def make(b: popart.Builder) -> tuple[str, list[str]]:
        (y,) = b.aiOnnx.dropout([b.aiOnnx.mul(["x", "w"])], 1, 0.25)
        z = b.aiGraphcore.shapeddropout([y], [1, 1], 0.0)
        return b.aiGraphcore.identityloss([z]), [y]

    anchors, _ = trained(make, {"x": ones}, {"w": ones}, popart.ConstSGD(0.0))
    first = anchors["Dropout:0"].copy()
    assert set(np.round(np.unique(first), 4)) == {0, np.float32(1.3333)}
    anchors, _ = trained(make, {"x": ones}, {"w": ones}, popart.ConstSGD(0.0), steps=2)
    assert (anchors["Dropout:0"] != first).any()
    (found,) = inferred(lambda b, x: b.aiOnnx.dropout([x], 1, 0.25), ones)
    assert (found == 1).all()


def test_a_member_without_meaning_here_warns_once_and_another_is_refused():
    options = popart.SessionOptions()
    with pytest.warns(UserWarning, match="SessionOptions.swapLimitScheduler and ignores it"):
        options.swapLimitScheduler = 7
    options.swapLimitScheduler = 8
    with pytest.raises(AttributeError, match="did you mean 'enableOutlining'"):
        options.enableOutlinin = True
    options.enableReplicatedGraphs, options.replicatedGraphCount = True, 0
    with pytest.raises(PopulusError, match="a program has at least 1 replica"):
        options.check()
    assert len(SessionOptions.DEFAULTS) >= 104


def test_an_option_that_would_change_results_is_refused():
    options = popart.SessionOptions()
    options.check()
    options.automaticLossScalingSettings.enabled = True
    with pytest.raises(PopulusError, match="^automaticLossScalingSettings is not there yet"):
        options.check()
