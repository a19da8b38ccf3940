"""Softmax and its logarithm along one dimension."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.builder import Builder
from xdsl.dialects.builtin import TensorType
from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import irdl_op_definition, operand_def, result_def
from xdsl.utils.exceptions import VerifyException

from populus.dialects import expr, popnn
from populus.dialects.expr import Arg
from populus.dialects.popart import calls
from populus.dialects.popart.base import Link, Neutral, PopartOp
from populus.dialects.poplar.sums import narrowed, widened
from populus.dialects.poplar.target import sum_type
from populus.dialects.support import shapes
from populus.dialects.support.constraints import whole
from populus.dialects.support.element_types import element_type_of, is_float, shape_of, tensor


class _AxisOp(PopartOp):
    x = operand_def(TensorType)
    axis = whole()
    y = result_def(TensorType)

    def infer(self) -> Sequence[TensorType[Attribute]]:
        shape, element = shape_of(self.x.type), element_type_of(self.x.type)
        shapes.front(self.axis, len(shape))
        if not is_float(element):
            raise VerifyException(f"x is {self.x.type}; floats are expected")
        return [tensor(shape, element)]

    def aliases(self) -> Sequence[tuple[int, int]]:
        return ((0, 0),)

    def independent(self) -> Sequence[Link]:
        return [(0, d, 0, d) for d in range(len(shape_of(self.x.type))) if d != self.axis]

    def neutral(self) -> Sequence[Neutral]:
        return [(0, self.axis, "lowest", self.axis)]

    def _rows(self, b: Builder, log: bool) -> SSAValue:
        axis, rank = self.axis, len(calls.shape(self.x))
        swapped = [d for d in range(rank) if d != axis] + [axis]
        y = calls.insert(b, popnn.SoftmaxOp(calls.transpose(b, self.x, swapped), log=log))
        return calls.transpose(b, y, [swapped.index(d) for d in range(rank)])

    def _sum(self, b: Builder, x: SSAValue) -> SSAValue:
        """Sums along `axis`, which stays as 1; halves as floats."""
        axis, shape = self.axis, calls.shape(x)
        total = calls.reduce(b, "add", x, [axis], sum_type(calls.element(x)))
        return calls.reshape(b, total, shapes.reduced(shape, [axis], keep=True))


@irdl_op_definition
class SoftmaxOp(_AxisOp):
    """`y = e^x / sum of e^x` along `axis`; the gradient is `y (g - sum of g y)`. Source: ONNX Softmax-13."""

    name = "popart.softmax"

    def lower(self, b: Builder) -> Sequence[SSAValue]:
        return [self._rows(b, log=False)]

    def gradient(self, b: Builder, grads: Sequence[SSAValue]) -> Sequence[SSAValue | None]:
        own = calls.element(self.y)
        g, y = widened(Arg(1), own), widened(Arg(2), own)
        total = self._sum(b, calls.map(b, g * y, grads[0], self.y))
        return [calls.map(b, narrowed(y * (g - Arg(3)), own), grads[0], self.y, total)]


@irdl_op_definition
class LogSoftmaxOp(_AxisOp):
    """`y = x - log(sum of e^x)` along `axis`; the gradient is `g - e^y sum of g`. Source: ONNX LogSoftmax-13."""

    name = "popart.log_softmax"

    def lower(self, b: Builder) -> Sequence[SSAValue]:
        return [self._rows(b, log=True)]

    def gradient(self, b: Builder, grads: Sequence[SSAValue]) -> Sequence[SSAValue | None]:
        own = calls.element(self.y)
        g, y = widened(Arg(1), own), widened(Arg(2), own)
        return [calls.map(b, narrowed(g - expr.exp(y) * Arg(3), own), grads[0], self.y, self._sum(b, grads[0]))]
