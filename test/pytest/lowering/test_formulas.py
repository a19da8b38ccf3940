"""Element-wise ops around a value: which of them are looked at, and how many."""

from __future__ import annotations

import pytest
from xdsl.dialects.builtin import TensorType, f32
from xdsl.ir import Block, SSAValue

from helpers.effort import effort
from populus.dialects import popart
from populus.dialects.popart import ElementwiseOp
from populus.lowering.popart.patterns.formulas import DEEPEST, has_function


def chain(n: int, first: type[popart.UnaryOp]) -> ElementwiseOp:
    """Makes `first` and n - 1 sums behind it; returns the last."""
    block = Block(arg_types=[TensorType(f32, [4])])
    ops: list[ElementwiseOp] = [first(block.args[0])]
    for _ in range(n - 1):
        value: SSAValue = ops[-1].y
        ops.append(popart.AddOp(value, block.args[0]))
    block.add_ops(ops)
    return ops[-1]


@pytest.mark.parametrize(("n", "found"), [(1, True), (2, True), (DEEPEST, True), (DEEPEST + 3, False)])
def test_a_function_is_found_among_the_nearest_ops(n: int, found: bool):
    assert has_function(chain(n, popart.ExpOp)) == found


def test_sums_and_products_have_no_function_and_a_long_chain_costs_no_more():
    short, long = chain(DEEPEST + 2, popart.NegOp), chain(400, popart.NegOp)
    assert not has_function(short) and not has_function(long)
    assert effort(lambda: has_function(long)) == effort(lambda: has_function(short))
