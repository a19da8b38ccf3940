"""Cycles of vertices over whole rows: softmax and whitening. Counts may be arrays or numbers, as in `contraction`."""

from __future__ import annotations

from typing import Any

from xdsl.ir import Attribute

from populus.dialects.expr import Arg, Call
from populus.dialects.poplar.target import Target
from populus.runtime.cycles.counts import Count
from populus.runtime.cycles.family import map_cycles, reduce_cycles


def _unary(n: Count, function: str, element: Attribute, target: Target) -> Any:
    return map_cycles(n, Call(function, (Arg(1),)), [element], [False], element, target, False)


def _in_place(n: Count, function: str, element: Attribute, target: Target, operands: int = 2) -> Any:
    call = Call(function, tuple(Arg(i) for i in range(1, operands + 1)))
    return map_cycles(n, call, [element] * operands, [False] * operands, element, target, True)


def softmax_cycles(target: Target, element: Attribute, rows: Count, row: Count) -> Any:
    """Estimates tile cycles of `softmax` over `rows` rows of `row` elements: maximum, exponentials, sum, product."""
    n = rows * row
    passes = _in_place(n, "sub", element, target) + _in_place(n, "exp", element, target, 1)
    reductions = 2 * reduce_cycles(rows, row, element, target, contiguous=True)
    return reductions + passes + _unary(rows, "inv", element, target) + _in_place(n, "mul", element, target)


def whiten_cycles(target: Target, element: Attribute, rows: Count, row: Count) -> Any:
    """Estimates tile cycles of `whiten`: sum, differences, sum of squares, product with the inverse deviation."""
    n = rows * row
    passes = 2 * _in_place(n, "sub", element, target) + _unary(n, "square", element, target)
    return 2 * reduce_cycles(rows, row, element, target, contiguous=True) + passes + _unary(rows, "rsqrt", element, target)
