"""The oracle agrees with onnxruntime where ONNX's reference does not."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto as T
from onnx import helper

from populus.runtime.onnx_reference import run_reference


@pytest.mark.parametrize(
    ("op_type", "opset", "attributes"),
    [("Softmax", 11, {"axis": 1}), ("LogSoftmax", 11, {"axis": 1}), ("LRN", 13, {"size": 3}), ("Hardmax", 11, {})],
)
def test_old_nodes_have_their_own_meaning(op_type, opset, attributes):
    shape = [2, 5, 3, 2]
    infos = [helper.make_tensor_value_info(name, T.FLOAT, shape) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node(op_type, ["x"], ["y"], **attributes)], "g", infos[:1], infos[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=6)
    inputs = {"x": np.random.default_rng(0).standard_normal(shape, np.float32)}
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    np.testing.assert_allclose(run_reference(model, inputs)["y"], session.run(None, inputs)[0], rtol=1e-5, atol=1e-6)


def test_every_nodes_outputs_are_there():
    nodes = [helper.make_node("Neg", ["x"], ["a"]), helper.make_node("Relu", ["a"], ["y"])]
    infos = [helper.make_tensor_value_info(name, T.FLOAT, [2]) for name in ("x", "y")]
    graph = helper.make_graph(nodes, "g", infos[:1], infos[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    found = run_reference(model, {"x": np.array([1, -2], np.float32)})
    assert {name: value.tolist() for name, value in found.items()} == {"x": [1, -2], "a": [-1, 2], "y": [0, 2]}
