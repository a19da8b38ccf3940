"""The rows of `populus check`."""

from __future__ import annotations

from onnx import TensorProto as T
from onnx import helper

from populus.lowering.driver.inventory import Row, arriving, inventory


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
    assert "give the file that defines it with load='FILE.py'" in rows[2].reason
    assert rows[3].reason == "its operand %t is the result of a missing node"


def floats(*names):
    return [helper.make_tensor_value_info(name, T.FLOAT, [2, 3]) for name in names]


def test_a_node_that_cannot_be_built_is_listed_and_the_others_are_judged():
    nodes = [
        helper.make_node("Negate", ["x"], ["a"], name="unknown"),
        helper.make_node("Relu", ["x"], ["b"], name="attribute", alpha=1.0),
        helper.make_node("Neg", ["x"], ["c"], name="good"),
        helper.make_node("Gelu", ["c"], ["y"], name="early"),
    ]
    model = helper.make_model(helper.make_graph(nodes, "g", floats("x"), floats("y")), opset_imports=[helper.make_opsetid("", 17)])
    assert [(r.node, r.op_type, r.status, r.reason) for r in inventory(model)] == [
        ("unknown", "Negate", "missing", "there is no op Negate in the domain 'ai.onnx'; did you mean 'Neg'?"),
        ("attribute", "Relu", "missing", "Relu-14 has no attribute 'alpha'"),
        ("good", "Neg", "tile", ""),
        ("early", "Gelu", "missing", "Gelu exists from opset 20 on, the model states opset 17"),
    ]


def test_what_waits_for_values_that_arrive_is_open_and_what_nothing_helps_is_missing():
    nodes = [
        helper.make_node("Reshape", ["x", "shape"], ["r"], name="reshape"),
        helper.make_node("Negate", ["r"], ["a"], name="unknown"),
        helper.make_node("Relu", ["r"], ["y"], name="after"),
        helper.make_node("Neg", ["x"], ["b"], name="beside"),
    ]
    inputs = [*floats("x"), helper.make_tensor_value_info("shape", T.INT64, [2])]
    model = helper.make_model(helper.make_graph(nodes, "g", inputs, [helper.make_empty_tensor_value_info("y")]))
    assert [(r.node, r.status) for r in arriving(model)] == [
        ("reshape", "open"),
        ("unknown", "missing"),
        ("after", "open"),
        ("beside", "tile"),
    ]
