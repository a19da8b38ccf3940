"""Writes counter.onnx: sums of products of x with weights, and a state that counts the runs."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

weights = np.linspace(-1, 1, 8 * 4, dtype=np.float32).reshape(8, 4)
nodes = [
    helper.make_node("MatMul", ["x", "w"], ["p"], name="product"),
    helper.make_node("Add", ["runs", "one"], ["runs_next"], name="count"),
    helper.make_node("Add", ["p", "runs_next"], ["y"], name="sum"),
]
tensors = {"x": [2, 8], "runs": [1], "y": [2, 4], "runs_next": [1]}
infos = {name: helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in tensors.items()}
constants = [numpy_helper.from_array(weights, "w"), numpy_helper.from_array(np.ones(1, np.float32), "one")]
graph = helper.make_graph(nodes, "counter", [infos["x"], infos["runs"]], [infos["y"], infos["runs_next"]], constants)
onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), "counter.onnx")
