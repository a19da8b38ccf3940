"""Exponential, logarithm, roots, trigonometric and hyperbolic functions, element by element, as ONNX has them."""

from __future__ import annotations

from xdsl.irdl import irdl_op_definition

from populus.dialects import expr
from populus.dialects.expr import Expr
from populus.dialects.popart.base import UnaryOp


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
class LogOp(UnaryOp):
    """`y = log(x)`, the natural logarithm. Source: ONNX Log-13."""

    name = "popart.log"

    def forward(self, x: Expr) -> Expr:
        return expr.log(x)


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
