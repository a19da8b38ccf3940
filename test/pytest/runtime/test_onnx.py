"""The oracle agrees with onnxruntime where ONNX's reference does not."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from onnx import GraphProto, NodeProto, helper, numpy_helper
from onnx import TensorProto as T

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


@pytest.mark.parametrize("shape", [[], [3], [2, 3], [0, 2]], ids=str)
def test_each_iteration_of_a_loop_gives_a_row(shape: list[int]):
    """The inner loop's rows are what the outer loop collects."""
    info = helper.make_tensor_value_info

    def body(name: str, nodes: list[NodeProto], rows: str, of: list[int]) -> GraphProto:
        ends = [info(f"{name}on", T.BOOL, []), info(f"{name}next", T.FLOAT, shape), info(rows, T.FLOAT, of)]
        begins = [info(f"{name}i", T.INT64, []), info(f"{name}c", T.BOOL, []), info(f"{name}v", T.FLOAT, shape)]
        nodes = [helper.make_node("Identity", [f"{name}c"], [f"{name}on"]), *nodes]
        return helper.make_graph(nodes, name, begins, ends)

    inner = body("a", [helper.make_node("Add", ["av", "av"], ["anext"]), helper.make_node("Neg", ["av"], ["row"])], "row", shape)
    outer = body("b", [helper.make_node("Loop", ["three", "on", "bv"], ["bnext", "rows"], body=inner)], "rows", [3, *shape])
    counts = [numpy_helper.from_array(np.array(n), name) for n, name in ((2, "two"), (3, "three"), (True, "on"))]
    node = helper.make_node("Loop", ["two", "on", "x"], ["last", "y"], body=outer)
    ends = [info("last", T.FLOAT, shape), info("y", T.FLOAT, [2, 3, *shape])]
    graph = helper.make_graph([node], "g", [info("x", T.FLOAT, shape)], ends, counts)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 16)], ir_version=8)
    inputs = {"x": np.arange(np.prod(shape), dtype=np.float32).reshape(shape)}
    expected = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, inputs)
    found = run_reference(model, inputs)
    for name, array in zip(("last", "y"), expected):
        assert (found[name].shape, found[name].tolist()) == (array.shape, array.tolist())
