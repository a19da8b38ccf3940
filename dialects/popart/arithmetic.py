"""Arithmetic, comparisons and logic, element by element. Broadcasting, element types and rounding are those of ONNX."""

from __future__ import annotations

import math

from xdsl.dialects.builtin import IntegerAttr, TensorType, i1
from xdsl.ir import Attribute
from xdsl.irdl import irdl_op_definition, operand_def, prop_def

from populus.dialects import expr
from populus.dialects.element_types import is_float
from populus.dialects.expr import Expr, call, cast, equal, select
from populus.dialects.popart import calls
from populus.dialects.popart.base import BinaryOp, ElementwiseOp, UnaryOp


@irdl_op_definition
class AbsOp(UnaryOp):
    """`y = |x|`. Source: ONNX Abs-13."""

    name = "popart.abs"

    def forward(self, x: Expr) -> Expr:
        return expr.absolute(x)


@irdl_op_definition
class AcosOp(UnaryOp):
    """`y = acos x`. Source: ONNX Acos-22."""

    name = "popart.acos"

    def forward(self, x: Expr) -> Expr:
        return expr.acos(x)


@irdl_op_definition
class AcoshOp(UnaryOp):
    """`y = acosh x`. Source: ONNX Acosh-22."""

    name = "popart.acosh"

    def forward(self, x: Expr) -> Expr:
        return expr.acosh(x)


@irdl_op_definition
class AsinOp(UnaryOp):
    """`y = asin x`. Source: ONNX Asin-22."""

    name = "popart.asin"

    def forward(self, x: Expr) -> Expr:
        return expr.asin(x)


@irdl_op_definition
class AsinhOp(UnaryOp):
    """`y = asinh x`. Source: ONNX Asinh-22."""

    name = "popart.asinh"

    def forward(self, x: Expr) -> Expr:
        return expr.asinh(x)


@irdl_op_definition
class AtanOp(UnaryOp):
    """`y = atan x`. Source: ONNX Atan-22."""

    name = "popart.atan"

    def forward(self, x: Expr) -> Expr:
        return expr.atan(x)


@irdl_op_definition
class AtanhOp(UnaryOp):
    """`y = atanh x`. Source: ONNX Atanh-22."""

    name = "popart.atanh"

    def forward(self, x: Expr) -> Expr:
        return expr.atanh(x)


@irdl_op_definition
class BitwiseNotOp(UnaryOp):
    """`y = ~x`: each bit of an integer inverted. Source: ONNX BitwiseNot-18."""

    name = "popart.bitwise_not"

    def forward(self, x: Expr) -> Expr:
        return call("bitwise_not", x)


@irdl_op_definition
class CeilOp(UnaryOp):
    """`y = ceil(x)`, the smallest integer not below x. Source: ONNX Ceil-13."""

    name = "popart.ceil"

    def forward(self, x: Expr) -> Expr:
        return expr.ceil(x)


@irdl_op_definition
class CosOp(UnaryOp):
    """`y = cos x`. Source: ONNX Cos-22."""

    name = "popart.cos"

    def forward(self, x: Expr) -> Expr:
        return expr.cos(x)


@irdl_op_definition
class CoshOp(UnaryOp):
    """`y = cosh x`. Source: ONNX Cosh-22."""

    name = "popart.cosh"

    def forward(self, x: Expr) -> Expr:
        return expr.cosh(x)


@irdl_op_definition
class ErfOp(UnaryOp):
    """`y = 2/sqrt(pi) integral of exp(-t^2) from 0 to x`. Source: ONNX Erf-13."""

    name = "popart.erf"

    def forward(self, x: Expr) -> Expr:
        return expr.erf(x)


@irdl_op_definition
class ExpOp(UnaryOp):
    """`y = e^x`. Source: ONNX Exp-13."""

    name = "popart.exp"

    def forward(self, x: Expr) -> Expr:
        return expr.exp(x)


@irdl_op_definition
class FloorOp(UnaryOp):
    """`y = floor(x)`, the largest integer not above x. Source: ONNX Floor-13."""

    name = "popart.floor"

    def forward(self, x: Expr) -> Expr:
        return expr.floor(x)


@irdl_op_definition
class LogOp(UnaryOp):
    """`y = log(x)`, the natural logarithm. Source: ONNX Log-13."""

    name = "popart.log"

    def forward(self, x: Expr) -> Expr:
        return expr.log(x)


@irdl_op_definition
class NegOp(UnaryOp):
    """`y = -x`. Source: ONNX Neg-13."""

    name = "popart.neg"

    def forward(self, x: Expr) -> Expr:
        return -x


@irdl_op_definition
class NotOp(UnaryOp):
    """`y = not x`, of booleans. Source: ONNX Not-1."""

    name = "popart.not"

    def forward(self, x: Expr) -> Expr:
        return ~x


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
class SinOp(UnaryOp):
    """`y = sin x`. Source: ONNX Sin-22."""

    name = "popart.sin"

    def forward(self, x: Expr) -> Expr:
        return expr.sin(x)


@irdl_op_definition
class SinhOp(UnaryOp):
    """`y = sinh x`. Source: ONNX Sinh-22."""

    name = "popart.sinh"

    def forward(self, x: Expr) -> Expr:
        return expr.sinh(x)


@irdl_op_definition
class SqrtOp(UnaryOp):
    """`y = x^(1/2)`; NaN below 0. Source: ONNX Sqrt-13."""

    name = "popart.sqrt"

    def forward(self, x: Expr) -> Expr:
        return expr.sqrt(x)


@irdl_op_definition
class TanOp(UnaryOp):
    """`y = tan x`. Source: ONNX Tan-22."""

    name = "popart.tan"

    def forward(self, x: Expr) -> Expr:
        return expr.tan(x)


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
class IsNanOp(ElementwiseOp):
    """`y = isnan(x)`: true where x is not a number. Source: ONNX IsNaN-20."""

    name = "popart.is_nan"
    x = operand_def(TensorType)

    def forward(self, x: Expr) -> Expr:
        return expr.isnan(x)


@irdl_op_definition
class IsInfOp(ElementwiseOp):
    """`y = x is inf or -inf`, of a sign that is to be detected. Source: ONNX IsInf-20."""

    name = "popart.is_inf"
    x = operand_def(TensorType)
    detect_negative = prop_def(IntegerAttr.constr(i1), default_value=IntegerAttr(1, i1))
    detect_positive = prop_def(IntegerAttr.constr(i1), default_value=IntegerAttr(1, i1))

    def forward(self, x: Expr) -> Expr:
        match bool(self.detect_negative.value.data), bool(self.detect_positive.value.data):
            case True, True:
                return expr.isinf(x)
            case True, False:
                return equal(x, -math.inf)
            case False, True:
                return equal(x, math.inf)
            case _:
                return expr.isinf(x) & False


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


@irdl_op_definition
class DivOp(BinaryOp):
    """`y = a / b`, of integers towards zero. Source: ONNX Div-14."""

    name = "popart.div"

    def forward(self, a: Expr, b: Expr) -> Expr:
        return a / b


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
class AndOp(BinaryOp):
    """`y = a and b`, of booleans. Source: ONNX And-7."""

    name = "popart.and"

    def forward(self, a: Expr, b: Expr) -> Expr:
        return a & b


@irdl_op_definition
class OrOp(BinaryOp):
    """`y = a or b`, of booleans. Source: ONNX Or-7."""

    name = "popart.or"

    def forward(self, a: Expr, b: Expr) -> Expr:
        return a | b


@irdl_op_definition
class XorOp(BinaryOp):
    """`y = a xor b`, of booleans. Source: ONNX Xor-7."""

    name = "popart.xor"

    def forward(self, a: Expr, b: Expr) -> Expr:
        return call("xor", a, b)


@irdl_op_definition
class EqualOp(BinaryOp):
    """`y = (a = b)`, a boolean. Source: ONNX Equal-19."""

    name = "popart.equal"

    def forward(self, a: Expr, b: Expr) -> Expr:
        return equal(a, b)


@irdl_op_definition
class GreaterOp(BinaryOp):
    """`y = (a > b)`, a boolean. Source: ONNX Greater-13."""

    name = "popart.greater"

    def forward(self, a: Expr, b: Expr) -> Expr:
        return a > b


@irdl_op_definition
class GreaterOrEqualOp(BinaryOp):
    """`y = (a >= b)`, a boolean. Source: ONNX GreaterOrEqual-16."""

    name = "popart.greater_or_equal"

    def forward(self, a: Expr, b: Expr) -> Expr:
        return a >= b


@irdl_op_definition
class LessOp(BinaryOp):
    """`y = (a < b)`, a boolean. Source: ONNX Less-13."""

    name = "popart.less"

    def forward(self, a: Expr, b: Expr) -> Expr:
        return a < b


@irdl_op_definition
class LessOrEqualOp(BinaryOp):
    """`y = (a <= b)`, a boolean. Source: ONNX LessOrEqual-16."""

    name = "popart.less_or_equal"

    def forward(self, a: Expr, b: Expr) -> Expr:
        return a <= b


@irdl_op_definition
class BitwiseAndOp(BinaryOp):
    """`y = a & b`, bit by bit, of integers. Source: ONNX BitwiseAnd-18."""

    name = "popart.bitwise_and"

    def forward(self, a: Expr, b: Expr) -> Expr:
        return call("bitwise_and", a, b)


@irdl_op_definition
class BitwiseOrOp(BinaryOp):
    """`y = a | b`, bit by bit, of integers. Source: ONNX BitwiseOr-18."""

    name = "popart.bitwise_or"

    def forward(self, a: Expr, b: Expr) -> Expr:
        return call("bitwise_or", a, b)


@irdl_op_definition
class BitwiseXorOp(BinaryOp):
    """`y = a ^ b`, bit by bit, of integers. Source: ONNX BitwiseXor-18."""

    name = "popart.bitwise_xor"

    def forward(self, a: Expr, b: Expr) -> Expr:
        return call("bitwise_xor", a, b)


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
    fmod = prop_def(IntegerAttr.constr(i1), default_value=IntegerAttr(0, i1))

    def forward(self, a: Expr, b: Expr) -> Expr:
        r = call("rem", a, b)
        if self.fmod.value.data:
            return r
        return select(r + b, r, ~equal(r, 0) & call("xor", r < 0, b < 0))


@irdl_op_definition
class BitShiftOp(BinaryOp):
    """a shifted by b bits, towards the high end where `left`; 0 from b = width on. Source: ONNX BitShift-11."""

    name = "popart.bit_shift"
    left = prop_def(IntegerAttr.constr(i1))

    def forward(self, a: Expr, b: Expr) -> Expr:
        return call("shift_left" if self.left.value.data else "shift_right", a, b)


@irdl_op_definition
class WhereOp(ElementwiseOp):
    """a where `condition` holds, b elsewhere. Source: ONNX Where-16."""

    name = "popart.where"
    condition = operand_def(TensorType)
    a = operand_def(TensorType)
    b = operand_def(TensorType)

    def forward(self, condition: Expr, a: Expr, b: Expr) -> Expr:
        return select(a, b, condition)
