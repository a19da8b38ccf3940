"""Cycles of vertices over whole rows: softmax and whitening. Counts may be arrays or numbers, as in `contraction`."""

from __future__ import annotations

from typing import Any

from xdsl.ir import Attribute

from populus.dialects.poplar.target import Target
from populus.runtime.cycles.contraction import Count
from populus.runtime.cycles.elementwise import binary, unary
from populus.runtime.cycles.reduction import reduce_cycles


def softmax_cycles(target: Target, element: Attribute, rows: Count, row: Count) -> Any:
    """Estimates tile cycles of `softmax` over `rows` rows of `row` elements: maximum, exponentials, sum, product."""
    n = rows * row
    passes = binary(n, "sub", element, target, inout=True) + unary(n, "exp", element, target, inout=True)
    reductions = 2 * reduce_cycles(rows, row, element, target, contiguous=True)
    return reductions + passes + unary(rows, "inv", element, target) + binary(n, "mul", element, target, inout=True)


def whiten_cycles(target: Target, element: Attribute, rows: Count, row: Count) -> Any:
    """Estimates tile cycles of `whiten`: sum, differences, sum of squares, product with the inverse deviation."""
    n = rows * row
    passes = 2 * binary(n, "sub", element, target, inout=True) + unary(n, "square", element, target)
    return 2 * reduce_cycles(rows, row, element, target, contiguous=True) + passes + unary(rows, "rsqrt", element, target)
