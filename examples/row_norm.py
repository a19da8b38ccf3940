"""An op with user tile code: a Python function computes one tile's share, and every engine checks, costs and runs it."""

from collections.abc import Sequence
from math import sqrt
from typing import ClassVar

from xdsl.builder import Builder
from xdsl.dialects.builtin import TensorType, f16, f32, f64
from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import irdl_op_definition, operand_def, result_def

from populus.dialects.expr import Arg
from populus.dialects.popart import calls
from populus.dialects.popart.base import Examples, PopartOp
from populus.dialects.poplar.tile_code import Vector, codelet
from populus.dialects.support.constraints import tensors
from populus.dialects.support.element_types import element_type_of, shape_of, tensor
from populus.write.builder import function_of


@codelet(axes={"x": "row column", "y": "row"})
def row_norm_vertex(x: Vector, y: Vector) -> None:
    """Computes `y[i] = sqrt(sum of x[i, k]^2)`."""
    for i in range(len(y)):
        total = 0.0
        for k in range(x.shape[1]):
            total += x[i, k] * x[i, k]
        y[i] = sqrt(total)


@irdl_op_definition
class RowNormOp(PopartOp):
    """`y[i] = sqrt(sum over k of x[i, k]^2)`, x: [rows, columns]. The gradient of a row of zeros is NaN. Source: com.acme RowNorm-1."""

    name = "acme.row_norm"
    ONNX: ClassVar = ("com.acme", "RowNorm", 1)
    EXAMPLES: ClassVar[Examples] = [([(6, 5)], {})]
    x = operand_def(tensors("T", f16, f32, f64))
    y = result_def(TensorType)

    def infer(self) -> Sequence[TensorType[Attribute]]:
        return [tensor(shape_of(self.x.type)[:1], element_type_of(self.x.type))]

    def lower(self, b: Builder) -> Sequence[SSAValue]:
        return [calls.codelet(b, row_norm_vertex, self.x, shape=shape_of(self.y.type))]

    def gradient(self, b: Builder, grads: Sequence[SSAValue]) -> Sequence[SSAValue | None]:
        column = (*shape_of(self.y.type), 1)
        y, g = calls.reshape(b, self.y, column), calls.reshape(b, grads[0], column)
        return [calls.map(b, Arg(1) / Arg(2) * Arg(3), self.x, y, g)]


row_norm = function_of(RowNormOp)
