"""Ops that PopART has beside ONNX's, under its own domain `ai.graphcore`."""

from __future__ import annotations

from typing import ClassVar

from xdsl.irdl import irdl_op_definition

from populus.dialects import expr
from populus.dialects.expr import Expr, call, equal, select
from populus.dialects.popart.base import BinaryOp, UnaryOp


@irdl_op_definition
class Atan2Op(BinaryOp):
    """`y = atan2(a, b)`, the angle of the point (b, a) within -pi and pi; its gradient at the origin is 0. Source: PopART Atan2-1."""

    name = "popart.atan2"
    ONNX: ClassVar = ("ai.graphcore", "Atan2", 1)

    def forward(self, a: Expr, b: Expr) -> Expr:
        return call("atan2", a, b)

    def backward(self, g: Expr, a: Expr, b: Expr, y: Expr) -> list[Expr | None]:
        square = a * a + b * b
        each = select(0, g / square, equal(square, 0))
        return [each * b, -(each * a)]


@irdl_op_definition
class DetachOp(UnaryOp):
    """`y = x`, through which no gradient flows. Source: PopART Detach-1."""

    name = "popart.detach"
    ONNX: ClassVar = ("ai.graphcore", "Detach", 1)

    def forward(self, x: Expr) -> Expr:
        return x

    def backward(self, g: Expr, x: Expr, y: Expr) -> list[Expr | None]:
        return [None]


@irdl_op_definition
class Expm1Op(UnaryOp):
    """`y = e^x - 1`, exact for small x. Source: PopART Expm1-1."""

    name = "popart.expm1"
    ONNX: ClassVar = ("ai.graphcore", "Expm1", 1)

    def forward(self, x: Expr) -> Expr:
        return expr.expm1(x)


@irdl_op_definition
class Log1pOp(UnaryOp):
    """`y = log(1 + x)`, exact for small x. Source: PopART Log1p-1."""

    name = "popart.log1p"
    ONNX: ClassVar = ("ai.graphcore", "Log1p", 1)

    def forward(self, x: Expr) -> Expr:
        return expr.log1p(x)
