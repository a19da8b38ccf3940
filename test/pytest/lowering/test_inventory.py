"""The rows of `populus check`."""

from __future__ import annotations

from onnx import TensorProto as T
from onnx import helper

from populus.lowering.driver.inventory import Row, inventory


def test_each_node_has_a_row_and_what_is_missing_says_why():
    nodes = [
        helper.make_node("Relu", ["x"], ["r"], name="a"),
        helper.make_node("CastMap", ["r"], ["v"], name="b", domain="ai.onnx.ml"),
        helper.make_node("Twice", ["r"], ["t"], name="c", domain="own"),
        helper.make_node("Neg", ["t"], ["y"], name="d"),
    ]
    k = helper.make_tensor("k", T.INT64, [1], [2])
    infos = [helper.make_tensor_value_info(name, T.FLOAT, ["n", 2, 2]) for name in ("x", "y")]
    graph = helper.make_graph(nodes, "g", infos[:1], infos[1:], [k])
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid(d, v) for d, v in (("", 17), ("own", 1), ("ai.onnx.ml", 3))], ir_version=8
    )
    rows = inventory(model, dims={"n": 8})
    assert rows[0] == Row("a", "Relu", "", 14, "float", "tile", "")
    assert [(r.node, r.status) for r in rows[1:3]] == [("b", "missing"), ("c", "missing")]
    assert rows[1].reason == "ai.onnx.ml.CastMap-1: X typestr: T1, has unsupported type: tensor(float); its inputs are tensor<8x2x2xf32>"
    assert "give the file that defines it with --load FILE.py" in rows[2].reason
    assert rows[3].reason == "what it reads, %t, is given by a node that is missing"
