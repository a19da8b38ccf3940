"""Reductions over any dimensions: a formula before, a library reduction, a formula after.

Means, norms and logarithms of 16-bit floats are accumulated in f32; those of integers are computed in f64 and truncated.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from xdsl.builder import Builder
from xdsl.dialects.builtin import bf16, f16, f32, f64, i1
from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import irdl_op_definition

from populus.dialects import expr
from populus.dialects.expr import Arg, Expr, cast, equal, select
from populus.dialects.popart import calls
from populus.dialects.popart.base import ReduceOp
from populus.dialects.poplar.sums import narrowed, widened
from populus.dialects.poplar.target import sum_type
from populus.dialects.support.element_types import is_float


class _WideReduceOp(ReduceOp):
    """A reduction whose value in between wants a wider float than x has."""

    def wide(self) -> Attribute:
        """Returns the element type to reduce in."""
        element = calls.element(self.x)
        if element in (f16, bf16):
            return f32
        return element if is_float(element) else f64

    def widened(self, x: Expr) -> Expr:
        """Casts an expression of x's element type to the wide one."""
        return x if self.wide() == calls.element(self.x) else cast(x, self.wide())

    def narrowed(self, y: Expr) -> Expr:
        """Casts an expression of the wide element type to x's."""
        return y if self.wide() == calls.element(self.x) else cast(y, calls.element(self.x))

    def before(self, x: Expr) -> Expr:
        return self.widened(x)


@irdl_op_definition
class ReduceSumOp(ReduceOp):
    """`y = sum of x`. Source: ONNX ReduceSum-13."""

    name = "popart.reduce_sum"
    NEUTRAL: ClassVar = "zero"

    @property
    def reduction(self) -> str:
        return "add"

    def gradient(self, b: Builder, grads: Sequence[SSAValue]) -> Sequence[SSAValue | None]:
        return [calls.stretch(b, self.kept(b, grads[0]), calls.shape(self.x))]


@irdl_op_definition
class ReduceMeanOp(_WideReduceOp):
    """`y = sum of x / their number`; integers divide towards zero. Source: ONNX ReduceMean-18."""

    name = "popart.reduce_mean"

    @property
    def reduction(self) -> str:
        return "add"

    def wide(self) -> Attribute:
        return super().wide() if is_float(calls.element(self.x)) else calls.element(self.x)

    def after(self, s: Expr) -> Expr:
        return self.narrowed(s / self.count())

    def gradient(self, b: Builder, grads: Sequence[SSAValue]) -> Sequence[SSAValue | None]:
        # In the wide type: a 16-bit float holds no count beyond 65,504.
        each = calls.map(b, self.narrowed(self.widened(Arg(1)) / self.count()), self.kept(b, grads[0]))
        return [calls.stretch(b, each, calls.shape(self.x))]


class _ExtremeOp(ReduceOp):
    """The gradient is shared by the elements that are equal to the result."""

    def gradient(self, b: Builder, grads: Sequence[SSAValue]) -> Sequence[SSAValue | None]:
        # Counted in the wide type: a 16-bit float holds no count beyond 65,504.
        element, x, y = calls.element(self.x), self.x, self.kept(b, self.y)
        chosen = calls.map(b, cast(equal(Arg(1), Arg(2)), sum_type(element)), x, y)
        ties = self.kept(b, calls.reduce(b, "add", chosen, self.dims()))
        share = calls.map(b, narrowed(widened(Arg(1), element) / Arg(2), element), self.kept(b, grads[0]), ties)
        return [calls.map(b, select(Arg(3), 0.0, equal(Arg(1), Arg(2))), x, y, share)]


@irdl_op_definition
class ReduceMaxOp(_ExtremeOp):
    """`y = max over axes of x`; NaN if there is one. Of booleans: whether any is true. Source: ONNX ReduceMax-20."""

    name = "popart.reduce_max"
    NEUTRAL: ClassVar = "lowest"

    @property
    def reduction(self) -> str:
        return "or" if calls.element(self.x) == i1 else "max"


@irdl_op_definition
class ReduceMinOp(_ExtremeOp):
    """`y = min over axes of x`; NaN if there is one. Of booleans: whether all are true. Source: ONNX ReduceMin-20."""

    name = "popart.reduce_min"
    NEUTRAL: ClassVar = "highest"

    @property
    def reduction(self) -> str:
        return "and" if calls.element(self.x) == i1 else "min"


@irdl_op_definition
class ReduceProdOp(ReduceOp):
    """`y = product of x`. Source: ONNX ReduceProd-18."""

    name = "popart.reduce_prod"
    NEUTRAL: ClassVar = "one"

    @property
    def reduction(self) -> str:
        return "mul"

    def gradient(self, b: Builder, grads: Sequence[SSAValue]) -> Sequence[SSAValue | None]:
        # The product of the others is y / x, but where elements are 0: then only a single one of them has a gradient.
        x, element = self.x, calls.element(self.x)
        others = self.kept(b, calls.reduce(b, "mul", calls.map(b, select(1.0, Arg(1), equal(Arg(1), 0.0)), x), self.dims()))
        zeros = self.kept(b, calls.reduce(b, "add", calls.map(b, cast(equal(Arg(1), 0.0), element), x), self.dims()))
        x_, p, n, g = (Arg(i) for i in range(1, 5))
        at_zero = select(p, 0.0, equal(n, 1.0))
        elsewhere = select(p / x_, 0.0, equal(n, 0.0))
        return [calls.map(b, g * select(at_zero, elsewhere, equal(x_, 0.0)), x, others, zeros, self.kept(b, grads[0]))]


@irdl_op_definition
class ReduceL1Op(ReduceOp):
    """`y = sum of |x|`. Source: ONNX ReduceL1-18."""

    name = "popart.reduce_l1"
    NEUTRAL: ClassVar = "zero"

    @property
    def reduction(self) -> str:
        return "add"

    def before(self, x: Expr) -> Expr:
        return expr.absolute(x)

    def gradient(self, b: Builder, grads: Sequence[SSAValue]) -> Sequence[SSAValue | None]:
        return [calls.map(b, expr.signum(Arg(1)) * Arg(2), self.x, self.kept(b, grads[0]))]


@irdl_op_definition
class ReduceL2Op(_WideReduceOp):
    """`y = sqrt(sum of x^2)`; no gradient at 0. Source: ONNX ReduceL2-18."""

    name = "popart.reduce_l2"
    NEUTRAL: ClassVar = "zero"

    @property
    def reduction(self) -> str:
        return "square_add"

    def after(self, s: Expr) -> Expr:
        return self.narrowed(expr.sqrt(s))

    def gradient(self, b: Builder, grads: Sequence[SSAValue]) -> Sequence[SSAValue | None]:
        x, y, g = (Arg(i) for i in range(1, 4))
        return [calls.map(b, g * select(0.0, x / y, equal(y, 0.0)), self.x, self.kept(b, self.y), self.kept(b, grads[0]))]


@irdl_op_definition
class ReduceLogSumOp(_WideReduceOp):
    """`y = log(sum of x)`. Source: ONNX ReduceLogSum-18."""

    name = "popart.reduce_log_sum"
    NEUTRAL: ClassVar = "zero"

    @property
    def reduction(self) -> str:
        return "add"

    def after(self, s: Expr) -> Expr:
        return self.narrowed(expr.log(s))

    def gradient(self, b: Builder, grads: Sequence[SSAValue]) -> Sequence[SSAValue | None]:
        each = calls.map(b, Arg(1) * expr.exp(-Arg(2)), self.kept(b, grads[0]), self.kept(b, self.y))
        return [calls.stretch(b, each, calls.shape(self.x))]


@irdl_op_definition
class ReduceLogSumExpOp(_WideReduceOp):
    """`y = log(sum of e^x)`, computed as `m + log(sum of e^(x - m))` with m the largest. Source: ONNX ReduceLogSumExp-18."""

    name = "popart.reduce_log_sum_exp"
    NEUTRAL: ClassVar = "lowest"

    @property
    def reduction(self) -> str:
        return "add"

    def after(self, s: Expr) -> Expr:
        return self.narrowed(s)

    def _exponentials(self, b: Builder) -> tuple[SSAValue, SSAValue, SSAValue]:
        """Computes wide x, m, and the sum of e^(x - m)."""
        x = calls.map(b, self.widened(Arg(1)), self.x)
        largest = calls.reduce(b, "max", x, self.dims())
        # An infinite m would make NaN of inf - inf; the sum then is 0 or infinite without it.
        m = calls.map(b, select(Arg(1), 0.0, expr.isfinite(Arg(1))), largest)
        return x, m, calls.reduce(b, "add", calls.map(b, expr.exp(Arg(1) - Arg(2)), x, self.kept(b, m)), self.dims())

    def lower(self, b: Builder) -> Sequence[SSAValue]:
        _, m, s = self._exponentials(b)
        return [calls.reshape(b, calls.map(b, self.narrowed(expr.log(Arg(1)) + Arg(2)), s, m), calls.shape(self.y))]

    def gradient(self, b: Builder, grads: Sequence[SSAValue]) -> Sequence[SSAValue | None]:
        g, own = self.kept(b, grads[0]), calls.element(self.x)
        if self.wide() == own:
            return [calls.map(b, Arg(1) * expr.exp(Arg(2) - Arg(3)), g, self.x, self.kept(b, self.y))]
        # A half that is a logarithm, raised to a power again, would have lost its digits.
        x, m, s = self._exponentials(b)
        each = widened(Arg(1), own) * (expr.exp(Arg(2) - Arg(3)) / Arg(4))
        return [calls.map(b, narrowed(each, own), g, x, self.kept(b, m), self.kept(b, s))]


@irdl_op_definition
class ReduceSumSquareOp(ReduceOp):
    """`y = sum of x^2`. Source: ONNX ReduceSumSquare-18."""

    name = "popart.reduce_sum_square"
    NEUTRAL: ClassVar = "zero"

    @property
    def reduction(self) -> str:
        return "square_add"

    def gradient(self, b: Builder, grads: Sequence[SSAValue]) -> Sequence[SSAValue | None]:
        return [calls.map(b, 2.0 * Arg(1) * Arg(2), self.x, self.kept(b, grads[0]))]
