"""populus check: what a model needs."""

from __future__ import annotations

import onnx
import pytest
from onnx import TensorProto, helper

OWN = '''
"""A custom op."""

from typing import ClassVar

from xdsl.irdl import irdl_op_definition

from populus.dialects.popart.base import UnaryOp


@irdl_op_definition
class TwiceOp(UnaryOp):
    """`y = x + x`."""

    name = "popart.twice_of_check"
    ONNX: ClassVar = ("my.domain", "Twice", 1)

    def forward(self, x):
        return x + x
'''


def save(path, *nodes, dims=(4,)):
    graph = helper.make_graph(
        list(nodes),
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, list(dims))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, list(dims))],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("my.domain", 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), path)
    return path


def test_a_model_whose_ops_are_all_there_is_listed(populus, tmp_path):
    model = save(tmp_path / "m.onnx", helper.make_node("Relu", ["x"], ["r"]), helper.make_node("Relu", ["r"], ["y"]))
    got = populus("check", model)
    assert (got.status, got.err) == (0, "")
    assert [line.split() for line in got.out.splitlines()] == [
        ["op", "opset", "element", "type", "nodes", "where"],
        ["Relu", "14", "float", "2", "tile"],
        ["2", "nodes:", "2", "tile"],
    ]


def test_an_op_that_is_missing_is_named_with_its_node_and_the_reason(populus, tmp_path):
    model = save(tmp_path / "m.onnx", helper.make_node("Twice", ["x"], ["y"], name="n1", domain="my.domain"))
    got = populus("check", model)
    assert got.status == 1
    assert got.err == f"populus: {model}: 1 of 1 nodes cannot be compiled\n"
    assert "missing Twice 'n1': Twice: there is no op Twice in the custom domain 'my.domain'; give the file that " in got.out


def test_an_op_that_is_loaded_is_there(populus, tmp_path):
    model = save(tmp_path / "m.onnx", helper.make_node("Twice", ["x"], ["y"], name="n1", domain="my.domain"))
    (tmp_path / "own.py").write_text(OWN)
    got = populus("check", model, "--load", tmp_path / "own.py", "--nodes")
    assert (got.status, got.err) == (0, "")
    assert "n1" in got.out


def test_a_symbolic_dimension_need_not_be_given(populus, tmp_path):
    assert populus("check", save(tmp_path / "m.onnx", helper.make_node("Relu", ["x"], ["y"]), dims=("n", 3))).status == 0


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["no.onnx"], "no.onnx: "),
        (["no.txt"], "no.txt: not an .onnx model, nor a .mlir program of StableHLO; check needs one"),
        ([], "the following arguments are required: MODEL"),
        (["m.onnx", "--dim", "n"], "--dim n: expected NAME=N"),
        (["m.onnx", "--load", "no.py"], "no.py: no such file; --load takes a Python file"),
    ],
)
def test_what_cannot_be_checked_is_one_line(args, message, populus, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    save(tmp_path / "m.onnx", helper.make_node("Relu", ["x"], ["y"]))
    got = populus("check", *args)
    assert got.status == (2 if message.startswith(("the following", "--dim")) else 1)
    assert got.err.count("\n") == 1
    assert message in got.err


def image(path, *nodes, size=("h", "w"), weights=()):
    infos = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 1, *size])]
    graph = helper.make_graph(list(nodes), "g", infos, [helper.make_empty_tensor_value_info("y")], list(weights))
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


HALVES = [
    helper.make_node("AveragePool", ["x"], ["small"], kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 0, 0]),
    helper.make_node("Resize", ["small", "", "twice"], ["big"]),
    helper.make_node("Concat", ["x", "big"], ["y"], name="skip", axis=1),
]
TWICE = helper.make_tensor("twice", TensorProto.FLOAT, [4], [1, 1, 2, 2])


def test_sizes_are_tried_until_every_node_can_be_compiled(populus, tmp_path):
    got = populus("check", image(tmp_path / "m.onnx", *HALVES, weights=[TWICE]))
    assert (got.status, got.err) == (0, "")
    assert "at batch = 1, h = 64, w = 64; nodes are missing at 1 (--dim states other sizes)\n3 nodes: 3 tile\n" in got.out


def test_a_size_that_weights_fix_is_found(populus, tmp_path):
    got = populus("check", image(tmp_path / "m.onnx", helper.make_node("MatMul", ["x", "w2"], ["y"]), weights=[matrix(224)]))
    assert got.status == 0
    assert "at batch = 1, h = 224, w = 224; nodes are missing at 1, 64 (--dim states other sizes)" in got.out


def matrix(n):
    return helper.make_tensor("w2", TensorProto.FLOAT, [n, 1], [0.0] * n)


def test_sizes_that_the_user_states_are_the_only_ones(populus, tmp_path):
    got = populus("check", image(tmp_path / "m.onnx", *HALVES, weights=[TWICE]), "--dim", "h=5", "--dim", "w=64", "--dim", "batch=2")
    assert got.status == 1
    assert "missing Concat 'skip'" in got.out
    assert "(--dim states other sizes)" not in got.out


def test_an_op_that_no_size_helps_ends_the_search(populus, tmp_path):
    nodes = [helper.make_node("Negate", ["x"], ["n"], name="unknown"), helper.make_node("Relu", ["n"], ["y"])]
    got = populus("check", image(tmp_path / "m.onnx", *nodes))
    assert got.status == 1
    assert "missing Negate 'unknown': there is no op Negate in the domain 'ai.onnx'" in got.out
    assert "at batch = 1, h = 1, w = 1 (--dim states other sizes)" in got.out


def test_what_fails_at_every_size_says_which_were_tried(populus, tmp_path):
    got = populus("check", image(tmp_path / "m.onnx", helper.make_node("MatMul", ["x", "w2"], ["y"]), weights=[matrix(23)]))
    assert got.status == 1
    assert "at batch = 1, h = 1, w = 1; as many nodes or more are missing at 64, 224, 640, 512, " in got.out
    assert "(--dim states other sizes)" in got.out


def test_an_input_that_decides_a_shape_may_be_given(populus, tmp_path):
    nodes = [helper.make_node("Reshape", ["x", "shape"], ["y"], name="reshape")]
    infos = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [6]), helper.make_tensor_value_info("shape", TensorProto.INT64, [2])]
    graph = helper.make_graph(nodes, "g", infos, [helper.make_empty_tensor_value_info("y")])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "m.onnx")
    got = populus("check", tmp_path / "m.onnx")
    assert got.status == 1
    assert "it follows from shape, to which --value shape=V gives a value" in got.out
    assert populus("check", tmp_path / "m.onnx", "--value", "shape=2,3").status == 0
