"""Formulas of `popart` ops, written with Python's operators.

x, y = Term(c, c.input(0)), Term(c, c.input(1))
result = ((x - 1) * y).floor().value
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from xdsl.ir import Attribute, SSAValue

from populus.dialects import popart
from populus.dialects.base.tensor_op import TensorOp
from populus.lowering.onnx.to_popart.conversion import Conversion

Number: TypeAlias = "Term | float"


@dataclass(frozen=True)
class Term:
    """A value, and the conversion that inserts its ops. A number takes the element type of the other operand."""

    c: Conversion
    value: SSAValue

    def _with(self, kind: type[TensorOp], other: Number, swapped: bool = False) -> Term:
        value = other.value if isinstance(other, Term) else self.c.scalar(other, self.value)
        pair = (value, self.value) if swapped else (self.value, value)
        return Term(self.c, self.c.insert(kind(*pair)))

    def __add__(self, other: Number) -> Term:
        return self._with(popart.AddOp, other)

    def __radd__(self, other: float) -> Term:
        return self + other

    def __sub__(self, other: Number) -> Term:
        return self._with(popart.SubOp, other)

    def __rsub__(self, other: float) -> Term:
        return self._with(popart.SubOp, other, swapped=True)

    def __mul__(self, other: Number) -> Term:
        return self._with(popart.MulOp, other)

    def __rmul__(self, other: float) -> Term:
        return self * other

    def __truediv__(self, other: Number) -> Term:
        return self._with(popart.DivOp, other)

    def __lt__(self, other: Number) -> Term:
        return self._with(popart.LessOp, other)

    def __le__(self, other: Number) -> Term:
        return self._with(popart.LessOrEqualOp, other)

    def __gt__(self, other: Number) -> Term:
        return self._with(popart.GreaterOp, other)

    def __ge__(self, other: Number) -> Term:
        return self._with(popart.GreaterOrEqualOp, other)

    def __and__(self, other: Term) -> Term:
        return self._with(popart.AndOp, other)

    def __or__(self, other: Term) -> Term:
        return self._with(popart.OrOp, other)

    def equals(self, other: Number) -> Term:
        """Compares element by element: i1."""
        return self._with(popart.EqualOp, other)

    def max(self, other: Number) -> Term:
        """Takes the larger element of each pair."""
        return self._with(popart.MaxOp, other)

    def min(self, other: Number) -> Term:
        """Takes the smaller element of each pair."""
        return self._with(popart.MinOp, other)

    def floor(self) -> Term:
        """Rounds towards minus infinity."""
        return Term(self.c, self.c.insert(popart.FloorOp(self.value)))

    def round(self) -> Term:
        """Rounds to the nearest integer, halves to even."""
        return Term(self.c, self.c.insert(popart.RoundOp(self.value)))

    def abs(self) -> Term:
        """Takes the absolute value."""
        return Term(self.c, self.c.insert(popart.AbsOp(self.value)))

    def sqrt(self) -> Term:
        """Takes the square root."""
        return Term(self.c, self.c.insert(popart.SqrtOp(self.value)))

    def power(self, exponent: Number, swapped: bool = False) -> Term:
        """Computes `self ^ exponent`; with `swapped`, `exponent ^ self`."""
        return self._with(popart.PowOp, exponent, swapped)

    def cast(self, to: Attribute) -> Term:
        """Casts to an element type."""
        return Term(self.c, self.c.cast(self.value, to))

    def reshape(self, *shape: int) -> Term:
        """Reshapes to `shape`."""
        return Term(self.c, self.c.reshape(self.value, shape))

    def where(self, yes: Term, no: Number) -> Term:
        """Selects `yes` where this mask is true, and `no` elsewhere."""
        other = no.value if isinstance(no, Term) else self.c.scalar(no, yes.value)
        return Term(self.c, self.c.insert(popart.WhereOp(self.value, yes.value, other)))
