"""Inputs that become constants: `values` of `compile` and `vjp`, and --value."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto as T
from onnx import helper, numpy_helper, save

import populus
from helpers.command import command
from populus.dialects.support.diagnostics import PopulusError
from populus.tools.main import main

X = np.arange(6, dtype=np.float32)


def model(shape=(), rows=6):
    """y: x in rows of k, or its first k elements, by a flag; the branches differ in rank."""
    then = helper.make_graph([helper.make_node("Reshape", ["x", "pair"], ["a"])], "then", [], [helper.make_empty_tensor_value_info("a")])
    other = helper.make_graph(
        [helper.make_node("Slice", ["x", "zero", "k1"], ["b"])], "else", [], [helper.make_empty_tensor_value_info("b")]
    )
    nodes = [
        helper.make_node("Reshape", ["k", "any"], ["k1"]),
        helper.make_node("Concat", ["any", "k1"], ["pair"], axis=0),
        helper.make_node("If", ["flag"], ["y"], "choice", then_branch=then, else_branch=other),
    ]
    inputs = [("x", T.FLOAT, [rows]), ("k", T.INT64, list(shape)), ("flag", T.BOOL, [])]
    weights = [numpy_helper.from_array(np.array([n], np.int64), name) for name, n in (("any", -1), ("zero", 0))]
    outputs = [helper.make_tensor_value_info("y", T.FLOAT, None)]
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info(*i) for i in inputs], outputs, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


@pytest.mark.parametrize("rows", [6, "n"])
@pytest.mark.parametrize("shape", [(), (1,)], ids=["scalar", "one"])
def test_a_value_decides_branches_and_shapes(shape, rows):
    program = populus.compile(model(shape, rows), tiles=2, values={"k": 3, "flag": True})
    np.testing.assert_array_equal(program.run({"x": X})["y"], X.reshape(2, 3))
    # A caller that always passes all inputs may go on to do so.
    same = program.run({"x": X, "k": np.full(shape, 3, np.int64), "flag": np.array(True)})
    np.testing.assert_array_equal(same["y"], X.reshape(2, 3))
    with pytest.raises(PopulusError, match=r"input 'k' is 2; the program was compiled for \[?3\]?, as `values` says"):
        program.run({"x": X, "k": 2})


def test_gradients_and_the_level_onnx_take_values():
    values = {"k": 3, "flag": 0}
    np.testing.assert_array_equal(populus.compile(model(), tiles=2, values=values).run_at("onnx", {"x": X})["y"], X[:3])
    _, gradients = populus.vjp(model(), ["x"], tiles=2, values=values).run({"x": X, "k": 3}, {"y": np.ones(3, np.float32)})
    np.testing.assert_array_equal(gradients["x"], np.array([1, 1, 1, 0, 0, 0], np.float32))


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"kk": 3}, "there is no input 'kk' to give a value to; did you mean 'k'"),
        ({"k": 1.5}, "input 'k' is int64, and 1.5 is given, which it cannot hold"),
        ({"flag": 2}, "input 'flag' is bool, and 2 is given, which it cannot hold"),
        ({"k": [1, 2]}, "input 'k' is a scalar, and the value that is given is 2"),
        ({"k": "three"}, "input 'k' is int64, and 'three' is given, which it cannot hold"),
        ({}, "its branches give .*; it follows from flag, to which values={'flag': V} gives a value"),
    ],
)
def test_a_value_that_an_input_cannot_have_is_refused(values, said):
    with pytest.raises(PopulusError, match=said):
        populus.compile(model(), tiles=2, values={"k": 3, **values} if "kk" not in values else values)


def test_a_shape_asks_for_the_value_that_decides_it():
    with pytest.raises(PopulusError, match="tiles need static shapes; it follows from k, to which values={'k': V} gives a value"):
        populus.compile(model(), tiles=2, values={"flag": True})


def test_modules_have_no_inputs_to_give_values_to():
    module = populus.compile(model(), tiles=2, values={"k": 3, "flag": True}).module("popart")
    with pytest.raises(PopulusError, match="values are for inputs of files, and this is a module"):
        populus.compile(module, values={"k": 3})


def test_the_command_line_gives_values(tmp_path, capsys):
    path, call = tmp_path / "m.onnx", command(main, capsys)
    save(model(), path)
    ran = call("run", path, "--tiles", 2, "--value", "k=3", "--value", "flag=true")
    assert (ran.status, ran.err) == (0, "")
    assert "2x3" in ran.out
    ran = call("run", path, "--value", "k=three")
    assert ran.status == 2
    assert "--value k=three: expected NAME=V with a number, true or false, such as --value sr=16000" in ran.err
