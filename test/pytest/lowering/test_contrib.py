"""Ops of com.microsoft, node by node, against onnxruntime's."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import populus
from helpers import contrib_models
from populus.dialects.support.diagnostics import PopulusError

RNG = np.random.default_rng(0)
X = RNG.normal(size=(2, 3, 4)).astype(np.float32)
W = RNG.normal(size=(4, 5)).astype(np.float32)
Q = RNG.integers(0, 255, (2, 4, 6, 6), np.uint8)
ROW = RNG.normal(size=4).astype(np.float32)


def scalar(value, dtype=np.float32):
    return np.array(value, dtype)


def q(array, scale, zero):
    return [array, scalar(scale), scalar(zero, np.uint8)]


MATRIX = RNG.integers(0, 255, (3, 4), np.uint8)
WEIGHTS = RNG.integers(*contrib_models.WEIGHTS, (4, 5), np.int8)
OUT = [scalar(0.05), scalar(100, np.uint8)]
CASES = {
    "BiasGelu": ([X, ROW], {}),
    "DynamicQuantizeMatMul": ([X, WEIGHTS, scalar(0.02), scalar(3, np.int8), RNG.normal(size=5).astype(np.float32)], {}),
    "FastGelu": ([X, ROW], {}),
    "FusedConv": (
        [RNG.normal(size=(1, 2, 5, 5)).astype(np.float32), RNG.normal(size=(3, 2, 3, 3)).astype(np.float32)],
        {"activation": "Relu", "pads": [1, 1, 1, 1]},
    ),
    "FusedMatMul": ([X, RNG.normal(size=(2, 5, 4)).astype(np.float32)], {"alpha": 0.5, "transB": 1}),
    "Gelu": ([X], {}),
    "MatMulIntegerToFloat": ([MATRIX, WEIGHTS, scalar(0.1), np.linspace(0.01, 0.05, 5).astype(np.float32), scalar(7, np.uint8)], {}),
    "QGemm": (
        [
            *q(MATRIX, 0.1, 120),
            np.ascontiguousarray(WEIGHTS.T),
            np.linspace(0.01, 0.05, 5).astype(np.float32),
            np.zeros(5, np.int8),
            np.arange(5, dtype=np.int32),
            *OUT,
        ],
        {"transB": 1},
    ),
    "QLinearAdd": ([*q(Q, 0.1, 120), *q(Q[:1], 0.2, 3), *OUT], {}),
    "QLinearAveragePool": ([*q(Q, 0.1, 120), *OUT], {"kernel_shape": [2, 2], "strides": [2, 2]}),
    "QLinearConcat": ([*OUT, *q(Q, 0.1, 120), *q(Q, 0.05, 100)], {"axis": 1}),
    "QLinearGlobalAveragePool": ([*q(Q, 0.1, 120), *OUT], {}),
    "QLinearLeakyRelu": ([*q(Q, 0.1, 120), *OUT], {"alpha": 0.2}),
    "QLinearMul": ([*q(Q, 0.1, 120), *q(Q[:1], 0.02, 3), *OUT], {}),
    "QLinearSigmoid": ([*q(Q, 0.1, 120), scalar(1 / 256), scalar(0, np.uint8)], {}),
    "QuickGelu": ([X], {"alpha": 1.5}),
    "SkipLayerNormalization": ([X, X[::-1].copy(), ROW, ROW + 1, ROW * 2], {"epsilon": 1e-5}),
    "SkipSimplifiedLayerNormalization": ([X, X[::-1].copy(), ROW], {"epsilon": 1e-5}),
}


def model(op, inputs, **attributes):
    names = [f"x{i}" for i in range(len(inputs))]
    node = helper.make_node(op, names, ["y"], "node", domain="com.microsoft", **attributes)
    infos = [helper.make_tensor_value_info("x0", helper.np_dtype_to_tensor_dtype(inputs[0].dtype), list(inputs[0].shape))]
    tensors = [numpy_helper.from_array(x, n) for n, x in zip(names[1:], inputs[1:])]
    graph = helper.make_graph([node], "g", infos, [helper.make_empty_tensor_value_info("y")], tensors)
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=8)


@pytest.mark.parametrize("op", CASES)
def test_an_op_gives_what_onnxruntimes_does(op):
    inputs, attributes = CASES[op]
    made = model(op, inputs, **attributes)
    (wanted,) = onnxruntime.InferenceSession(made.SerializeToString()).run(None, {"x0": inputs[0]})
    found = populus.compile(made, tiles=4).run({"x0": inputs[0]})["y"]
    assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
    if wanted.dtype.kind == "f":
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)
    else:  # halves may be rounded either way
        assert np.abs(found.astype(int) - wanted.astype(int)).max() <= 1


def test_what_is_not_supported_says_so():
    for op, attributes, said in [
        (
            "FusedConv",
            {"activation": "Gelu"},
            "FusedConv with the activation Gelu is not supported; Clip, Elu, HardSigmoid, LeakyRelu, Relu, Selu, ",
        ),
        ("Unheard", {}, "there is no op Unheard in the custom domain 'com.microsoft'; give the file that defines it with load='FILE.py'$"),
        ("FusedMatMull", {}, "domain 'com.microsoft'; give the file that defines it with load='FILE.py'; did you mean 'FusedMatMul'"),
    ]:
        inputs = CASES[op][0] if op in CASES else [X]
        with pytest.raises(PopulusError, match=said):
            populus.compile(model(op, inputs, **attributes))


@pytest.mark.parametrize("outputs", [("y",), ("y", "second")])
@pytest.mark.parametrize(
    ("op", "axis"), [("LayerNormalization", -1), ("SimplifiedLayerNormalization", -1), ("SimplifiedLayerNormalization", 1)]
)
def test_a_norm_that_an_optimiser_wrote_in_onnxs_own_domain_runs_at_an_opset_older_than_the_op(op, axis, outputs):
    names = [outputs[0], "", *outputs[1:]] if op == "LayerNormalization" and len(outputs) > 1 else list(outputs)
    node = helper.make_node(op, ["x", "scale"], names, axis=axis, epsilon=1e-3)
    x = np.random.default_rng(0).standard_normal((2, 3, 4)).astype(np.float32)
    scale = np.arange(1, 5, dtype=np.float32) if axis == -1 else np.arange(12, dtype=np.float32).reshape(3, 4)
    infos = [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)]
    results = [helper.make_tensor_value_info(o, TensorProto.FLOAT, None) for o in outputs]
    graph = helper.make_graph([node], "g", infos, results, [numpy_helper.from_array(scale, "scale")])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 11)], ir_version=8)
    wanted = onnxruntime.InferenceSession(made.SerializeToString()).run(None, {"x": x})
    found = populus.compile(made, tiles=4).run({"x": x})
    for w, o in zip(wanted, outputs):
        np.testing.assert_allclose(found[o], w, rtol=1e-5, atol=1e-5)
        assert found[o].shape == w.shape


def test_simplified_layer_normalization_is_in_microsofts_domain_too():
    made = model("SimplifiedLayerNormalization", [X, ROW], epsilon=1e-3)
    wanted = X / np.sqrt((X**2).mean(-1, keepdims=True) + 1e-3) * ROW
    np.testing.assert_allclose(populus.compile(made, tiles=4).run({"x0": X})["y"], wanted, rtol=1e-5, atol=1e-5)


def written_early(nodes, outputs, opset=7):
    """A model as PyTorch's exporter writes one for an old opset: with ops that this opset does not have, in ONNX's own domain."""
    entry = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3])
    results = [helper.make_empty_tensor_value_info(name) for name in outputs]
    graph = helper.make_graph(nodes, "g", [entry], results, [numpy_helper.from_array(np.array([3, 2]), "shape")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def test_ops_that_pytorch_writes_for_opsets_that_lack_them():
    nodes = [
        helper.make_node("Erf", ["x"], ["e"], "erf"),
        helper.make_node("ConstantFill", ["shape"], ["f"], "filled", dtype=1, input_as_shape=1, value=2.5),
        helper.make_node("ConstantFill", ["x"], ["i"], "counted", dtype=7, value=3.0),
    ]
    x = np.linspace(-2, 2, 6, dtype=np.float32).reshape(2, 3)
    found = populus.compile(written_early(nodes, ["e", "f", "i"])).run({"x": x})
    (wanted,) = onnxruntime.InferenceSession(written_early(nodes[:1], ["e"], opset=9).SerializeToString()).run(None, {"x": x})
    np.testing.assert_allclose(found["e"], wanted, rtol=1e-6)
    assert found["f"].tolist() == [[2.5, 2.5]] * 3 and found["i"].tolist() == [[3] * 3] * 2 and found["i"].dtype == np.int64


@pytest.mark.parametrize(
    ("attributes", "said"),
    [({"dtype": 8}, "'fill': ConstantFill: ConstantFill with the dtype 8"), ({"shape": [2]}, "ConstantFill with shape is not supported")],
)
def test_a_constant_fill_of_another_kind_is_refused(attributes, said):
    with pytest.raises(PopulusError, match=said):
        populus.compile(written_early([helper.make_node("ConstantFill", ["x"], ["y"], "fill", **attributes)], ["y"]))
