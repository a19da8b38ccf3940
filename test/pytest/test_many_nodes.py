"""Programs of many nodes, results and constants: the work for each of them does not grow with their number."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper
from xdsl.ir import Attribute, Operation, OpOperands, SSAValue
from xdsl.rewriter import Rewriter

import populus
from helpers.effort import effort

Arrays = dict[str, NDArray[np.float32]]


def model(nodes: list[NodeProto], inputs: dict[str, int], outputs: dict[str, int], constants: Arrays | None = None) -> ModelProto:
    """Makes a model of f32 vectors, given by their lengths."""
    ends = [[helper.make_tensor_value_info(name, TensorProto.FLOAT, [n]) for name, n in end.items()] for end in (inputs, outputs)]
    held = [numpy_helper.from_array(array, name) for name, array in (constants or {}).items()]
    graph = helper.make_graph(nodes, "many", *ends, held)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


def numbers(n: int) -> Arrays:
    return {f"c{i}": np.array([i, 1, 2, 3], np.float32) for i in range(n)}


def chain(n: int) -> ModelProto:
    return model([helper.make_node("Relu", [f"v{i}"], [f"v{i + 1}"]) for i in range(n)], {"v0": 4}, {f"v{n}": 4})


def mixed_chain(n: int) -> ModelProto:
    ops = ("Sin", "Tanh", "Abs", "Neg")
    return model([helper.make_node(ops[i % 4], [f"v{i}"], [f"v{i + 1}"]) for i in range(n)], {"v0": 4}, {f"v{n}": 4})


def results(n: int) -> ModelProto:
    nodes = [helper.make_node("Mul", ["x", f"c{i}"], [f"y{i}"]) for i in range(n)]
    return model(nodes, {"x": 4}, {f"y{i}": 4 for i in range(n)}, numbers(n))


def constants(n: int) -> ModelProto:
    return model([helper.make_node("Add", [f"v{i}", f"c{i}"], [f"v{i + 1}"]) for i in range(n)], {"v0": 4}, {f"v{n}": 4}, numbers(n))


def pieces(n: int) -> ModelProto:
    return model([helper.make_node("Split", ["x"], [f"y{i}" for i in range(n)], num_outputs=n)], {"x": n}, {f"y{i}": 1 for i in range(n)})


def joined(n: int) -> ModelProto:
    """Makes n vectors, whose steps become one, and joins them."""
    nodes = [helper.make_node("Mul", ["x", f"c{i}"], [f"p{i}"]) for i in range(n)]
    return model([*nodes, helper.make_node("Concat", [f"p{i}" for i in range(n)], ["y"], axis=0)], {"x": 4}, {"y": 4 * n}, numbers(n))


def parted(n: int) -> ModelProto:
    """Splits a vector into n, which one node joins."""
    names = [f"p{i}" for i in range(n)]
    nodes = [helper.make_node("Split", ["x"], names, num_outputs=n), helper.make_node("Concat", names, ["y"], axis=0)]
    return model(nodes, {"x": n}, {"y": n})


def test_the_reader_of_many_results_gets_its_operands_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counts the operands and results that xDSL copies where one of an op's is set: a hundred of each were 40,000."""
    copied, set_operand, new_type = 0, OpOperands.__setitem__, Rewriter.replace_value_with_new_type

    def operand(operands: OpOperands, i: int, value: SSAValue) -> None:
        nonlocal copied
        copied += len(operands)
        set_operand(operands, i, value)

    def typed(value: SSAValue, type: Attribute) -> SSAValue:
        nonlocal copied
        copied += len(value.owner.results) if isinstance(value.owner, Operation) else 1
        return new_type(value, type)

    monkeypatch.setattr(OpOperands, "__setitem__", operand)
    monkeypatch.setattr(Rewriter, "replace_value_with_new_type", staticmethod(typed))
    populus.compile(parted(100), engine="numpy")
    assert copied < 1000


@pytest.mark.parametrize("make", [chain, mixed_chain, results, constants, pieces, joined], ids=lambda make: make.__name__)
def test_the_work_for_a_node_does_not_grow_with_their_number(make: Callable[[int], ModelProto]) -> None:
    """Counts events of Python from the model to its results: 256 nodes take at most 4.2 times those of 64."""

    def lines(n: int) -> int:
        made = make(n)

        def call() -> None:
            program = populus.compile(made, engine="numpy")
            program.run(program.signature.random())

        return effort(call)

    lines(8)  # imports, tables that are made once
    few, many = lines(64), lines(256)
    assert many <= 4.2 * few, f"{few / 64:.0f} lines a node of 64, {many / 256:.0f} of 256"
