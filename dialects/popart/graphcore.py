"""Ops that PopART has beside ONNX's, under its own domain `ai.graphcore`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from xdsl.builder import Builder
from xdsl.dialects.builtin import TensorType, f16
from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import irdl_op_definition, operand_def, result_def
from xdsl.utils.exceptions import VerifyException

from populus.dialects import expr
from populus.dialects.expr import Arg, Expr, call, equal, log, maximum, select
from populus.dialects.popart import calls
from populus.dialects.popart.base import BinaryOp, PopartOp, UnaryOp
from populus.dialects.popart.examples import Examples, Input
from populus.dialects.popops import IotaOp
from populus.dialects.support import shapes
from populus.dialects.support.constraints import flag
from populus.dialects.support.element_types import element_type_of, is_float, is_integer, shape_of, tensor
from populus.dialects.support.shapes import ShapeError


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


@irdl_op_definition
class NllOp(PopartOp):
    """`y[n..] = -log(max(p[n.., label[n..]], smallest))`, the negative log-likelihood; with `logarithms`, `-p[n.., label[n..]]`.

    p: [.., classes]; label: p's shape without the classes, integers. A label out of range picks a probability of 0.
    `smallest` is 1e-7, in f16 2^-14. The gradient is `-g / max(p, 1e-10)`, in f16 `-g / max(p, 2^-14)`, at the label, else 0: it does
    not vanish at p = 0, where it is needed most. Source: PopART Nll-1, `NllOpx` and `NllGradOpx`, without their reduction.
    """

    name = "popart.nll"
    ONNX: ClassVar = ("ai.graphcore", "Nll", 1)
    EXAMPLES: ClassVar[Examples] = (
        ([Input((2, 3), low=0.1, high=0.9), Input((2,), "int32", low=0, high=2)], {}),
        ([(2, 2, 3), Input((2, 2), "int32", low=0, high=2)], {"logarithms": True}),
    )
    p = operand_def(TensorType)
    label = operand_def(TensorType)
    logarithms = flag()
    y = result_def(TensorType)

    def infer(self) -> Sequence[TensorType[Attribute]]:
        shape, element = shape_of(self.p.type), element_type_of(self.p.type)
        if not is_float(element) or not is_integer(element_type_of(self.label.type)):
            raise VerifyException(f"p is {self.p.type} and the labels {self.label.type}; floats and integers are expected")
        if not shape or shape_of(self.label.type) != shape[:-1]:
            raise ShapeError(f"the labels are {shapes.text(shape_of(self.label.type))} for probabilities {shapes.text(shape)}")
        return [tensor(shape[:-1], element)]

    def _classes(self, b: Builder) -> tuple[SSAValue, SSAValue]:
        """Builds the class indices, and the labels in a shape that broadcasts against them."""
        count = calls.shape(self.p)[-1]
        numbers = calls.insert(b, IotaOp(count=count, start=0, step=1, element=calls.element(self.label)))
        return numbers, calls.reshape(b, self.label, (*calls.shape(self.label), 1))

    @property
    def smallest(self) -> float:
        """The probability that takes the place of smaller ones."""
        return 2.0**-14 if calls.element(self.p) == f16 else 1e-7

    def lower(self, b: Builder) -> Sequence[SSAValue]:
        picked = calls.map(b, select(Arg(1), 0, equal(Arg(2), Arg(3))), self.p, *self._classes(b))
        chosen = calls.reduce(b, "add", picked, [len(calls.shape(self.label))])
        return [calls.map(b, -Arg(1) if self.logarithms else -log(maximum(Arg(1), self.smallest)), chosen)]

    def gradient(self, b: Builder, grads: Sequence[SSAValue]) -> Sequence[SSAValue | None]:
        g = calls.reshape(b, grads[0], (*calls.shape(grads[0]), 1))
        p, each, numbers, label = (Arg(i) for i in range(1, 5))
        least = self.smallest if calls.element(self.p) == f16 else 1e-10
        slope = -each if self.logarithms else -(each / maximum(p, least))
        return [calls.map(b, select(slope, 0, equal(numbers, label)), self.p, g, *self._classes(b)), None]
