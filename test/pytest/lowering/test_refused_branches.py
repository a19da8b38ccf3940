"""Branches of an If that cannot be compiled for the sizes at hand: the other one runs, and taking them is refused."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto as T
from onnx import helper, numpy_helper

import populus
from populus.dialects.support.diagnostics import PopulusError, PopulusWarning
from populus.lowering.onnx.importer import import_onnx

X = np.arange(12, dtype=np.float32).reshape(2, 6)
# Ops that do not fit 2 by 6 elements: refused by ONNX's inference, and only when it is converted.
UNTYPED, UNCONVERTED = ("MatMul", "m55"), ("Reshape", "s35")


def branch(name, op, constant, scale=1.0):
    nodes = [helper.make_node(op, ["x", constant], [f"{name}_z"], f"{name}_op")]
    nodes += [helper.make_node("ReduceSum", [f"{name}_z"], [f"{name}_s"], keepdims=0)]
    nodes += [helper.make_node("Mul", [f"{name}_s", "scale"], [f"{name}_y"])]
    own = [numpy_helper.from_array(np.array(scale, np.float32), "scale")]
    return helper.make_graph(nodes, name, [], [helper.make_empty_tensor_value_info(f"{name}_y")], own)


def model(then, other, looped=False, rows=2):
    """y = if k = 1 then `then` else `other`, or the sum of two such."""
    constants = [
        np.array(1, np.int64),
        np.array([3, 4], np.int64),
        np.array([3, 5], np.int64),
        np.ones((5, 5), np.float32),
        np.array(2, np.float32),
    ]
    names = ["one", "s34", "s35", "m55", "two"]
    nodes = [
        helper.make_node("Equal", ["k", "one"], ["c"]),
        helper.make_node("If", ["c"], ["y"], "choice", then_branch=branch("then", *then), else_branch=branch("else", *other, 2.0)),
    ]
    inputs = [helper.make_tensor_value_info("x", T.FLOAT, [rows, 6]), helper.make_tensor_value_info("k", T.INT64, [])]
    outputs = [helper.make_tensor_value_info("y", T.FLOAT, None)]
    weights = [numpy_helper.from_array(a, n) for a, n in zip(constants, names)]
    if looped:
        body_in = [helper.make_tensor_value_info(n, t, []) for n, t in (("i", T.INT64), ("go", T.BOOL), ("t", T.FLOAT))]
        body_out = [helper.make_tensor_value_info(n, t, []) for n, t in (("go_on", T.BOOL), ("t_next", T.FLOAT))]
        inner = [*nodes, helper.make_node("Add", ["t", "y"], ["t_next"]), helper.make_node("Identity", ["go"], ["go_on"])]
        weights += [numpy_helper.from_array(np.array(0, np.float32), "t0")]
        body = helper.make_graph(inner, "body", body_in, body_out)
        nodes = [helper.make_node("Loop", ["n", "", "t0"], ["total"], "loop", body=body)]
        inputs.append(helper.make_tensor_value_info("n", T.INT64, []))
        outputs = [helper.make_tensor_value_info("total", T.FLOAT, None)]
    graph = helper.make_graph(nodes, "g", inputs, outputs, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


GOOD = ("Reshape", "s34")


@pytest.mark.parametrize("engine", ["numpy", "strict", "native"])
@pytest.mark.parametrize("unfit", [UNTYPED, UNCONVERTED], ids=["untyped", "unconverted"])
@pytest.mark.parametrize("taken", ["then", "else"])
def test_the_other_branch_runs_and_a_run_that_takes_it_is_refused(taken, unfit, engine):
    made = model(*((GOOD, unfit) if taken == "then" else (unfit, GOOD)))
    refused = "else_branch" if taken == "then" else "then_branch"
    with pytest.warns(PopulusWarning, match=f"'choice': If: its {refused} cannot be compiled for these sizes: .*; a run that takes it"):
        program = populus.compile(made, tiles=4, engine=engine, host=False)
    keys = [np.array(k) for k in ((1, 0) if taken == "then" else (0, 1))]
    assert program.run({"x": X, "k": keys[0]})["y"] == X.sum() * (1 if taken == "then" else 2)
    with pytest.raises(PopulusError, match=f"'choice': If: the run takes its {refused}, which cannot be compiled for these sizes"):
        program.run({"x": X, "k": keys[1]})
    assert program.run({"x": X, "k": keys[0]})["y"] == X.sum() * (1 if taken == "then" else 2)


def test_onnxruntime_runs_the_other_branch_too():
    session = onnxruntime.InferenceSession(model(GOOD, UNCONVERTED).SerializeToString())
    assert session.run(None, {"x": X, "k": np.array(1)})[0] == X.sum()


@pytest.mark.parametrize("unfit", [UNTYPED, UNCONVERTED], ids=["untyped", "unconverted"])
def test_a_refused_branch_may_be_in_a_loop(unfit):
    with pytest.warns(PopulusWarning, match="its else_branch cannot be compiled"):
        program = populus.compile(model(GOOD, unfit, looped=True), tiles=4)
    assert program.run({"x": X, "k": np.array(1), "n": np.array(3)})["total"] == 3 * X.sum()
    assert program.run({"x": X, "k": np.array(0), "n": np.array(0)})["total"] == 0
    with pytest.raises(PopulusError, match="the run takes its else_branch"):
        program.run({"x": X, "k": np.array(0), "n": np.array(2)})


def test_gradients_are_those_of_the_branch_that_runs():
    with pytest.warns(PopulusWarning):
        program = populus.vjp(model(GOOD, UNCONVERTED), ["x"], tiles=4)
    _, gradients = program.run({"x": X, "k": np.array(1)}, {"y": np.array(3, np.float32)})
    np.testing.assert_array_equal(gradients["x"], np.full((2, 6), 3, np.float32))
    with pytest.raises(PopulusError, match="the run takes its else_branch"):
        program.run({"x": X, "k": np.array(0)}, {"y": np.array(3, np.float32)})


def test_an_if_of_which_no_branch_can_be_compiled_is_refused():
    with pytest.raises(PopulusError, match="then_op"):
        populus.compile(model(UNCONVERTED, UNTYPED), tiles=4)


@pytest.mark.parametrize("unfit", [UNTYPED, UNCONVERTED], ids=["untyped", "unconverted"])
def test_a_program_for_a_range_of_sizes_has_both_branches_or_is_refused(unfit):
    module = import_onnx(model(("Mul", "two"), unfit, rows="n"), dims={"n": (1, 4)})
    with pytest.raises(PopulusError, match="else_op"):
        populus.compile(module, tiles=4)
