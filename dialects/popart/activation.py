"""Activation functions, element by element. Gradients are the formulas' derivatives unless a better form is stated."""

from __future__ import annotations

import math

from xdsl.dialects.builtin import f32
from xdsl.irdl import irdl_op_definition

from populus.dialects import expr
from populus.dialects.expr import Expr, cast, clamp, maximum, select
from populus.dialects.popart import calls
from populus.dialects.popart.base import BinaryOp, UnaryOp
from populus.dialects.support.constraints import flag, number
from populus.dialects.support.element_types import is_float


def softplus(x: Expr) -> Expr:
    """Builds `log(1 + e^x)`, which neither overflows for large x nor underflows to 0 for small x."""
    return maximum(x, 0) + expr.log1p(expr.exp(-expr.absolute(x)))


@irdl_op_definition
class CeluOp(UnaryOp):
    """`y = x where x >= 0, alpha (e^(x / alpha) - 1) elsewhere`. Source: ONNX Celu-12."""

    name = "popart.celu"
    alpha = number(1.0)

    def forward(self, x: Expr) -> Expr:
        alpha = self.alpha
        return select(x, alpha * expr.expm1(x / alpha), x >= 0)


@irdl_op_definition
class EluOp(UnaryOp):
    """`y = x where x >= 0, alpha (e^x - 1) elsewhere`.

    With alpha > 0, y has the sign of x, and the gradient reads y alone. Source: ONNX Elu-22.
    """

    name = "popart.elu"
    alpha = number(1.0)

    def forward(self, x: Expr) -> Expr:
        return select(x, self.alpha * expr.expm1(x), x >= 0)

    def backward(self, g: Expr, x: Expr, y: Expr) -> Expr:
        alpha = self.alpha
        return select(g, g * (y + alpha), (y if alpha > 0 else x) >= 0)


@irdl_op_definition
class GeluOp(UnaryOp):
    """`y = x/2 (1 + erf(x / sqrt(2)))`; with `tanh`, `x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))`. Source: ONNX Gelu-20."""

    name = "popart.gelu"
    tanh = flag()

    def forward(self, x: Expr) -> Expr:
        if self.tanh:
            return 0.5 * x * (1.0 + expr.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * (x * x * x))))
        return 0.5 * x * (1.0 + expr.erf(x * math.sqrt(0.5)))

    def backward(self, g: Expr, x: Expr, y: Expr) -> Expr | list[Expr | None]:
        if not self.tanh:
            return calls.slopes(self.formula(), [calls.element(self.x)])
        # Beyond 16, 1 - t^2 is 0 in every float type, and an x^2 that overflows would make NaN of it.
        c, k = clamp(x, -16, 16), math.sqrt(2 / math.pi)
        t = expr.tanh(k * (c + 0.044715 * (c * c * c)))
        return g * (0.5 * (1.0 + t) + 0.5 * c * (1.0 - t * t) * (k * (1.0 + 3 * 0.044715 * (c * c))))


@irdl_op_definition
class HardSigmoidOp(UnaryOp):
    """`y = alpha x + beta, within 0 and 1`. Source: ONNX HardSigmoid-22."""

    name = "popart.hard_sigmoid"
    alpha = number(0.2)
    beta = number(0.5)

    def forward(self, x: Expr) -> Expr:
        return clamp(self.alpha * x + self.beta, 0, 1)


@irdl_op_definition
class HardSwishOp(UnaryOp):
    """`y = x (x/6 + 1/2, within 0 and 1)`. Source: ONNX HardSwish-22."""

    name = "popart.hard_swish"

    def forward(self, x: Expr) -> Expr:
        return x * clamp(x * (1 / 6) + 0.5, 0, 1)


@irdl_op_definition
class LeakyReluOp(UnaryOp):
    """`y = x where x >= 0, alpha x elsewhere`; `dy/dx = 1 where x >= 0, alpha elsewhere`.

    With alpha > 0, y has the sign of x, and the gradient reads y alone; otherwise it reads x.
    Source: ONNX LeakyRelu-16; PopART leakyrelux.cpp, which reads y for every alpha.
    """

    name = "popart.leaky_relu"
    alpha = number(0.01)

    def forward(self, x: Expr) -> Expr:
        return select(x, self.alpha * x, x >= 0)

    def backward(self, g: Expr, x: Expr, y: Expr) -> Expr:
        alpha = self.alpha
        return select(g, alpha * g, (y if alpha > 0 else x) >= 0)


@irdl_op_definition
class MishOp(UnaryOp):
    """`y = x tanh(log(1 + e^x))`. Source: ONNX Mish-22."""

    name = "popart.mish"

    def forward(self, x: Expr) -> Expr:
        return x * expr.tanh(softplus(x))

    def backward(self, g: Expr, x: Expr, y: Expr) -> Expr:
        t = expr.tanh(softplus(x))
        return g * (t + x * (1.0 - t * t) * expr.sigmoid(x))


@irdl_op_definition
class PReluOp(BinaryOp):
    """`y = a where a >= 0, b a elsewhere`; b, the slope, broadcasts to a. Source: ONNX PRelu-16."""

    name = "popart.prelu"

    def forward(self, a: Expr, b: Expr) -> Expr:
        return select(a, b * a, a >= 0)


@irdl_op_definition
class ReluOp(UnaryOp):
    """`y = max(x, 0)`; no gradient at 0. Source: ONNX Relu-14."""

    name = "popart.relu"

    def forward(self, x: Expr) -> Expr:
        return maximum(x, 0)

    def backward(self, g: Expr, x: Expr, y: Expr) -> Expr:
        return select(g, 0.0, y > 0)


@irdl_op_definition
class SeluOp(UnaryOp):
    """`y = gamma x where x > 0, gamma alpha (e^x - 1) elsewhere`. Source: ONNX Selu-22."""

    name = "popart.selu"
    alpha = number(1.6732632423543772)
    gamma = number(1.0507009873554805)

    def forward(self, x: Expr) -> Expr:
        return self.gamma * select(x, self.alpha * expr.expm1(x), x > 0)


@irdl_op_definition
class ShrinkOp(UnaryOp):
    """`y = x + bias where x < -lambd, x - bias where x > lambd, 0 between`. Source: ONNX Shrink-9."""

    name = "popart.shrink"
    lambd = number(0.5)
    bias = number(0.0)

    def forward(self, x: Expr) -> Expr:
        element, lambd, bias = calls.element(self.x), self.lambd, self.bias
        v = x if is_float(element) else cast(x, f32)  # the limits need not be integers
        y = select(v + bias, select(v - bias, 0.0, v > lambd), v < -lambd)
        return y if is_float(element) else cast(y, element)


@irdl_op_definition
class SigmoidOp(UnaryOp):
    """`y = 1 / (1 + e^-x)`. Source: ONNX Sigmoid-13."""

    name = "popart.sigmoid"

    def forward(self, x: Expr) -> Expr:
        return expr.sigmoid(x)


@irdl_op_definition
class SoftplusOp(UnaryOp):
    """`y = log(1 + e^x)`. Source: ONNX Softplus-22."""

    name = "popart.softplus"

    def forward(self, x: Expr) -> Expr:
        return softplus(x)

    def backward(self, g: Expr, x: Expr, y: Expr) -> Expr:
        return g * expr.sigmoid(x)


@irdl_op_definition
class SoftsignOp(UnaryOp):
    """`y = x / (1 + |x|)`. Source: ONNX Softsign-22."""

    name = "popart.softsign"

    def forward(self, x: Expr) -> Expr:
        return x / (1.0 + expr.absolute(x))

    def backward(self, g: Expr, x: Expr, y: Expr) -> Expr:
        return g * expr.square(1.0 - expr.absolute(y))


@irdl_op_definition
class SwishOp(UnaryOp):
    """`y = x / (1 + e^(-alpha x))`. Source: ONNX Swish-24."""

    name = "popart.swish"
    alpha = number(1.0)

    def forward(self, x: Expr) -> Expr:
        alpha = self.alpha
        return x * expr.sigmoid(x if alpha == 1 else alpha * x)


@irdl_op_definition
class TanhOp(UnaryOp):
    """`y = tanh x`. Source: ONNX Tanh-13."""

    name = "popart.tanh"

    def forward(self, x: Expr) -> Expr:
        return expr.tanh(x)


@irdl_op_definition
class ThresholdedReluOp(UnaryOp):
    """`y = x where x > alpha, 0 elsewhere`. Source: ONNX ThresholdedRelu-22."""

    name = "popart.thresholded_relu"
    alpha = number(1.0)

    def forward(self, x: Expr) -> Expr:
        return select(x, 0.0, x > self.alpha)
