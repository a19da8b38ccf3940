"""Programs of many nodes, results and constants: the work for each of them does not grow with their number."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from onnx import ModelProto
from xdsl.ir import Attribute, Operation, OpOperands, SSAValue
from xdsl.rewriter import Rewriter

import populus
from benchmarks.many_nodes import chain, constants, joined, mixed_chain, parted, pieces, results
from helpers.effort import effort


@pytest.mark.parametrize("make", [parted, results], ids=lambda make: make.__name__)
def test_the_reader_of_many_results_gets_its_operands_once(make: Callable[[int], ModelProto], monkeypatch: pytest.MonkeyPatch) -> None:
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
    populus.compile(make(100), engine="numpy")
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
