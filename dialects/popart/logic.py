"""Comparisons, logic and bits, element by element. Broadcasting is that of ONNX."""

from __future__ import annotations

import math

from xdsl.dialects.builtin import TensorType
from xdsl.irdl import irdl_op_definition, operand_def

from populus.dialects import expr
from populus.dialects.expr import Expr, call, equal, select
from populus.dialects.popart.base import BinaryOp, ElementwiseOp, UnaryOp
from populus.dialects.support.constraints import flag


@irdl_op_definition
class BitwiseNotOp(UnaryOp):
    """`y = ~x`: each bit of an integer inverted. Source: ONNX BitwiseNot-18."""

    name = "popart.bitwise_not"

    def forward(self, x: Expr) -> Expr:
        return call("bitwise_not", x)


@irdl_op_definition
class NotOp(UnaryOp):
    """`y = not x`, of booleans. Source: ONNX Not-1."""

    name = "popart.not"

    def forward(self, x: Expr) -> Expr:
        return ~x


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
    detect_negative = flag(True)
    detect_positive = flag(True)

    def forward(self, x: Expr) -> Expr:
        match bool(self.detect_negative), bool(self.detect_positive):
            case True, True:
                return expr.isinf(x)
            case True, False:
                return equal(x, -math.inf)
            case False, True:
                return equal(x, math.inf)
            case _:
                return expr.isinf(x) & False


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
class BitShiftOp(BinaryOp):
    """a shifted by b bits, towards the high end where `left`; 0 from b = width on. Source: ONNX BitShift-11."""

    name = "popart.bit_shift"
    left = flag(None)

    def forward(self, a: Expr, b: Expr) -> Expr:
        return call("shift_left" if self.left else "shift_right", a, b)


@irdl_op_definition
class WhereOp(ElementwiseOp):
    """a where `condition` holds, b elsewhere. Source: ONNX Where-16."""

    name = "popart.where"
    condition = operand_def(TensorType)
    a = operand_def(TensorType)
    b = operand_def(TensorType)

    def forward(self, condition: Expr, a: Expr, b: Expr) -> Expr:
        return select(a, b, condition)
