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
        (["no.mlir"], "no.mlir: not an .onnx model; check needs one"),
        ([], "the following arguments are required: MODEL"),
        (["m.onnx", "--dim", "n"], "--dim n: expected NAME=N"),
        (["m.onnx", "--load", "no.py"], "no.py: no such file; --load takes a Python file"),
    ],
)
def test_what_cannot_be_checked_is_one_line(args, message, populus, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    save(tmp_path / "m.onnx", helper.make_node("Relu", ["x"], ["y"]))
    got = populus("check", *args)
    assert got.status == 1
    assert got.err.count("\n") == 1
    assert message in got.err
