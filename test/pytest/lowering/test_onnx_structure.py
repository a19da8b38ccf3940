"""What is found out about a graph before it runs: quickly, and refused where it cannot be."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

import populus
from populus.dialects.support.diagnostics import PopulusError

info = helper.make_tensor_value_info


def model(nodes: list, outputs: list, initializers: list | None = None) -> ModelProto:
    graph = helper.make_graph(nodes, "g", [info("x", TensorProto.FLOAT, [3])], outputs, initializers or [])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_a_long_chain_before_a_branch_is_asked_once():
    """Each op reads the one before twice: asking both each time would be 2^60 questions."""
    chain = [helper.make_node("Add", [f"t{i - 1}" if i else "x"] * 2, [f"t{i}"]) for i in range(60)]
    branches = {
        f"{name}_branch": helper.make_graph([helper.make_node(op, ["x"], [name])], name, [], [info(name, TensorProto.FLOAT, [3])])
        for name, op in (("then", "Relu"), ("else", "Neg"))
    }
    nodes = [*chain, helper.make_node("ReduceMax", ["t59"], ["m"], keepdims=0), helper.make_node("Greater", ["m", "zero"], ["c"])]
    nodes.append(helper.make_node("If", ["c"], ["y"], **branches))
    zero = numpy_helper.from_array(np.array(0, np.float32), "zero")
    program = populus.compile(model(nodes, [info("y", TensorProto.FLOAT, [3])], [zero]), tiles=2)
    assert program.run({"x": np.array([1, -1, 0], np.float32)})["y"].tolist() == [1, 0, 0]
    assert program.run({"x": np.array([-1, -2, -3], np.float32)})["y"].tolist() == [1, 2, 3]


def test_nothing_is_erased_from_an_empty_sequence():
    nodes = [helper.make_node("SequenceEmpty", [], ["s"]), helper.make_node("SequenceErase", ["s"], ["e"])]
    nodes.append(helper.make_node("SequenceLength", ["e"], ["n"]))
    with pytest.raises(PopulusError, match="the sequence is empty; there is nothing to erase"):
        populus.compile(model(nodes, [info("n", TensorProto.INT64, [])]))


def test_sizes_of_a_split_that_do_not_add_up_are_refused():
    five = numpy_helper.from_array(np.arange(5, dtype=np.float32), "five")
    sizes = numpy_helper.from_array(np.array([2, 2]), "sizes")
    nodes = [helper.make_node("Split", ["five", "sizes"], ["a", "b"], name="cut")]
    with pytest.raises(PopulusError, match="'cut'"):
        populus.compile(model(nodes, [info("a", TensorProto.FLOAT, [2]), info("b", TensorProto.FLOAT, None)], [five, sizes]))
