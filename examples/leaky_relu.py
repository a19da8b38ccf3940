"""A complete user op: `populus run model.onnx --load leaky_relu.py`, `populus check-op leaky_relu.py`."""

from typing import ClassVar

from xdsl.dialects.builtin import f16, f32, f64
from xdsl.irdl import irdl_op_definition, operand_def, result_def

from populus.dialects.expr import Expr, select
from populus.dialects.popart.base import UnaryOp
from populus.dialects.support.constraints import number, tensors
from populus.write.builder import function_of


@irdl_op_definition
class LeakyReluOp(UnaryOp):
    """`y = x where x >= 0, alpha x elsewhere`. At 0 and -0.0 the derivative is 1. Source: com.acme LeakyRelu-1."""

    name = "acme.leaky_relu"
    ONNX: ClassVar = ("com.acme", "LeakyRelu", 1)
    T: ClassVar = tensors("T", f16, f32, f64)
    x = operand_def(T)
    y = result_def(T)
    alpha: float = number(0.01, low=-1, high=1)

    def forward(self, x: Expr) -> Expr:
        return select(x, self.alpha * x, x >= 0)

    def backward(self, g: Expr, x: Expr, y: Expr) -> Expr:
        return select(g, self.alpha * g, x >= 0)


leaky_relu = function_of(LeakyReluOp)
