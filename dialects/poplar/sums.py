"""Formulas in the type that values are summed in: halves as floats. docs/half-sums.md has the table of ops."""

from __future__ import annotations

from xdsl.ir import Attribute

from populus.dialects.expr import Expr, cast
from populus.dialects.poplar.target import sum_type


def widened(x: Expr, own: Attribute) -> Expr:
    """Casts an expression of the element type `own` to the type that it is summed in."""
    return x if sum_type(own) == own else cast(x, sum_type(own))


def narrowed(x: Expr, own: Attribute) -> Expr:
    """Casts an expression of the type that the element type `own` is summed in back to it."""
    return x if sum_type(own) == own else cast(x, own)
