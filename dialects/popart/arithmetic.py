"""Arithmetic and conversion of element types, element by element. Broadcasting and rounding are those of ONNX."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import TensorType
from xdsl.ir import Attribute
from xdsl.irdl import irdl_op_definition, operand_def, prop_def

from populus.dialects import expr
from populus.dialects.expr import Expr, call, cast, equal, select
from populus.dialects.popart import calls
from populus.dialects.popart.base import BinaryOp, ElementwiseOp, Neutral, UnaryOp
from populus.dialects.support.constraints import flag
from populus.dialects.support.element_types import is_float, shape_of


@irdl_op_definition
class AbsOp(UnaryOp):
    """`y = |x|`. Source: ONNX Abs-13."""

    name = "popart.abs"

    def forward(self, x: Expr) -> Expr:
        return expr.absolute(x)


@irdl_op_definition
class CeilOp(UnaryOp):
    """`y = ceil(x)`, the smallest integer not below x. Source: ONNX Ceil-13."""

    name = "popart.ceil"

    def forward(self, x: Expr) -> Expr:
        return expr.ceil(x)


@irdl_op_definition
class FloorOp(UnaryOp):
    """`y = floor(x)`, the largest integer not above x. Source: ONNX Floor-13."""

    name = "popart.floor"

    def forward(self, x: Expr) -> Expr:
        return expr.floor(x)


@irdl_op_definition
class NegOp(UnaryOp):
    """`y = -x`. Source: ONNX Neg-13."""

    name = "popart.neg"

    def forward(self, x: Expr) -> Expr:
        return -x


@irdl_op_definition
class ReciprocalOp(UnaryOp):
    """`y = 1 / x`. Source: ONNX Reciprocal-13."""

    name = "popart.reciprocal"

    def forward(self, x: Expr) -> Expr:
        return expr.inv(x)


@irdl_op_definition
class RoundOp(UnaryOp):
    """`y = round(x)`, the nearest integer, a half to the even one. Source: ONNX Round-22."""

    name = "popart.round"

    def forward(self, x: Expr) -> Expr:
        return expr.nearbyint(x)


@irdl_op_definition
class SignOp(UnaryOp):
    """`y = sign(x)`: -1, 0 or 1; NaN stays NaN. Source: ONNX Sign-13."""

    name = "popart.sign"

    def forward(self, x: Expr) -> Expr:
        return expr.signum(x)


@irdl_op_definition
class CastOp(ElementwiseOp):
    """x converted to the element type `to`: floats to integers towards zero, anything but 0 to true. Source: ONNX Cast-24."""

    name = "popart.cast"
    x = operand_def(TensorType)
    to = prop_def(Attribute)

    def forward(self, x: Expr) -> Expr:
        return cast(x, self.to)

    def backward(self, g: Expr, x: Expr, y: Expr) -> Expr | list[Expr | None]:
        # From a float to an integer and to a boolean the function is a staircase.
        return cast(g, calls.element(self.x)) if is_float(self.to) else [None]


@irdl_op_definition
class BitCastOp(ElementwiseOp):
    """The bits of x as elements of the type `to`, of the same size. Source: ONNX BitCast-26."""

    name = "popart.bit_cast"
    x = operand_def(TensorType)
    to = prop_def(Attribute)

    def forward(self, x: Expr) -> Expr:
        return expr.bits(x, self.to)

    def backward(self, g: Expr, x: Expr, y: Expr) -> list[Expr | None]:
        return [None]


@irdl_op_definition
class AddOp(BinaryOp):
    """`y = a + b`. Source: ONNX Add-14."""

    name = "popart.add"

    def forward(self, a: Expr, b: Expr) -> Expr:
        return a + b


@irdl_op_definition
class SubOp(BinaryOp):
    """`y = a - b`. Source: ONNX Sub-14."""

    name = "popart.sub"

    def forward(self, a: Expr, b: Expr) -> Expr:
        return a - b


@irdl_op_definition
class MulOp(BinaryOp):
    """`y = a b`. Source: ONNX Mul-14."""

    name = "popart.mul"

    def forward(self, a: Expr, b: Expr) -> Expr:
        return a * b


def divided_by_one(op: BinaryOp) -> list[Neutral]:
    """Says that integers beyond a size are not divided by what stands there."""
    rank = len(shape_of(op.b.type))
    return [] if is_float(calls.element(op.b)) else [(1, d, "one", d + len(shape_of(op.y.type)) - rank) for d in range(rank)]


@irdl_op_definition
class DivOp(BinaryOp):
    """`y = a / b`, of integers towards zero. Source: ONNX Div-14."""

    name = "popart.div"

    def forward(self, a: Expr, b: Expr) -> Expr:
        return a / b

    def neutral(self) -> Sequence[Neutral]:
        return divided_by_one(self)


@irdl_op_definition
class MaxOp(BinaryOp):
    """`y = max(a, b)`; NaN if either is NaN. At a tie the gradient goes to a. Source: ONNX Max-13."""

    name = "popart.max"

    def forward(self, a: Expr, b: Expr) -> Expr:
        return expr.maximum(a, b)


@irdl_op_definition
class MinOp(BinaryOp):
    """`y = min(a, b)`; NaN if either is NaN. At a tie the gradient goes to a. Source: ONNX Min-13."""

    name = "popart.min"

    def forward(self, a: Expr, b: Expr) -> Expr:
        return expr.minimum(a, b)


@irdl_op_definition
class PowOp(BinaryOp):
    """`y = a^b`, of a's element type.

    An exponent of another type is converted to a's; but an integer base with a float exponent is computed in float and
    then truncated. Negative integer powers of integers are 0 but for the bases 1 and -1. Source: ONNX Pow-15.
    """

    name = "popart.pow"

    def forward(self, a: Expr, b: Expr) -> Expr:
        base, exponent = calls.element(self.a), calls.element(self.b)
        if base == exponent:
            return call("pow", a, b)
        if is_float(exponent) and not is_float(base):
            return cast(call("pow", cast(a, exponent), b), base)
        return call("pow", a, cast(b, base))


@irdl_op_definition
class ModOp(BinaryOp):
    """The remainder of a / b, with the sign of b; with `fmod`, the sign of a (C's fmod). Source: ONNX Mod-13."""

    name = "popart.mod"
    fmod = flag()

    def forward(self, a: Expr, b: Expr) -> Expr:
        r = call("rem", a, b)
        if self.fmod:
            return r
        return select(r + b, r, ~equal(r, 0) & call("xor", r < 0, b < 0))

    def neutral(self) -> Sequence[Neutral]:
        return divided_by_one(self)
