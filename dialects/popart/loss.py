"""Losses, element by element: what a mean over them makes the loss of a batch.

%each = train.cross_entropy %logits, %labels {axis = 1 : i64} : (tensor<32x10xf32>, tensor<32xi32>) -> tensor<32xf32>
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.builder import Builder
from xdsl.dialects.builtin import TensorType
from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import irdl_op_definition, operand_def, result_def
from xdsl.utils.exceptions import VerifyException

from populus.dialects import expr, popnn
from populus.dialects.expr import Arg, Expr, equal, maximum, select
from populus.dialects.popart import calls
from populus.dialects.popart.base import BinaryOp, PopartOp
from populus.dialects.popops import IotaOp
from populus.dialects.support import shapes
from populus.dialects.support.constraints import whole
from populus.dialects.support.element_types import element_type_of, is_float, is_integer, shape_of, tensor
from populus.dialects.support.shapes import ShapeError


@irdl_op_definition
class CrossEntropyOp(PopartOp):
    """`y[n..] = log(sum over c of e^x[n, c..]) - x[n, label[n..]..]`; the gradient is `softmax(x) - (c = label)` times that of y.

    x: logits with the classes in dimension `axis`; labels: x's shape without that dimension, integers from 0 to classes - 1.
    A label out of range picks nothing, so check labels where they come from. Source: PyTorch CrossEntropyLoss, reduction = none.
    """

    name = "train.cross_entropy"
    x = operand_def(TensorType)
    labels = operand_def(TensorType)
    axis = whole(1)
    y = result_def(TensorType)

    def infer(self) -> Sequence[TensorType[Attribute]]:
        shape, element = shape_of(self.x.type), element_type_of(self.x.type)
        axis = self.axis
        shapes.front(axis, len(shape))
        if not is_float(element) or not is_integer(element_type_of(self.labels.type)):
            raise VerifyException(f"x is {self.x.type} and the labels {self.labels.type}; floats and integers are expected")
        rest = shapes.reduced(shape, [axis], keep=False)
        if shape_of(self.labels.type) != rest:
            raise ShapeError(f"the labels are {shapes.text(shape_of(self.labels.type))}, x without dimension {axis} {shapes.text(rest)}")
        return [tensor(rest, element)]

    def _rows(self, b: Builder, log: bool) -> SSAValue:
        """Computes the (log-)softmax of x, with the classes in the last dimension."""
        return calls.insert(b, popnn.SoftmaxOp(calls.transpose(b, self.x, self._order()), log=log))

    def _order(self) -> list[int]:
        axis, rank = self.axis, len(calls.shape(self.x))
        return [*(d for d in range(rank) if d != axis), axis]

    def _classes(self, b: Builder) -> tuple[SSAValue, SSAValue]:
        """Builds the class indices, and the labels in a shape that broadcasts against them."""
        n = calls.shape(self.x)[self.axis]
        numbers = calls.insert(b, IotaOp(count=n, start=0, step=1, element=calls.element(self.labels)))
        return numbers, calls.reshape(b, self.labels, (*calls.shape(self.labels), 1))

    def lower(self, b: Builder) -> Sequence[SSAValue]:
        logarithms = self._rows(b, log=True)
        picked = calls.map(b, select(-Arg(1), 0, equal(Arg(2), Arg(3))), logarithms, *self._classes(b))
        return [calls.reduce(b, "add", picked, [len(calls.shape(self.labels))])]

    def gradient(self, b: Builder, grads: Sequence[SSAValue]) -> Sequence[SSAValue | None]:
        g = calls.reshape(b, grads[0], (*calls.shape(grads[0]), 1))
        p, each, numbers, label = (Arg(i) for i in range(1, 5))
        dx = calls.map(b, each * select(p - 1, p, equal(numbers, label)), self._rows(b, log=False), g, *self._classes(b))
        order = self._order()
        return [calls.transpose(b, dx, [order.index(d) for d in range(len(order))]), None]


@irdl_op_definition
class SquaredErrorOp(BinaryOp):
    """`y = (a - b)^2`. Source: PyTorch MSELoss, reduction = none."""

    name = "train.squared_error"

    def forward(self, a: Expr, b: Expr) -> Expr:
        return expr.square(a - b)


@irdl_op_definition
class AbsoluteErrorOp(BinaryOp):
    """`y = |a - b|`. Source: PyTorch L1Loss, reduction = none."""

    name = "train.absolute_error"

    def forward(self, a: Expr, b: Expr) -> Expr:
        return expr.absolute(a - b)


@irdl_op_definition
class BinaryCrossEntropyOp(BinaryOp):
    """`y = log(1 + e^a) - a b`: of the logit a and the probability b. Source: PyTorch BCEWithLogitsLoss, reduction = none."""

    name = "train.binary_cross_entropy"

    def forward(self, a: Expr, b: Expr) -> Expr:
        return maximum(a, 0) - a * b + expr.log1p(expr.exp(-expr.absolute(a)))

    def backward(self, g: Expr, a: Expr, b: Expr, y: Expr) -> list[Expr | None]:
        # Not the derivative of the formula: at a = 0 the slopes of its two kinks would have to cancel.
        return [g * (expr.sigmoid(a) - b), -(g * a)]
