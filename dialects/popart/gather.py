"""Elements picked by index."""

from __future__ import annotations

import math
from collections.abc import Sequence

from xdsl.builder import Builder
from xdsl.dialects.builtin import IntegerAttr, TensorType
from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import irdl_op_definition, operand_def, prop_def, result_def
from xdsl.utils.exceptions import VerifyException

from populus.dialects import expr, shapes
from populus.dialects.data import constant, constant_value
from populus.dialects.diagnostics import PopulusError, where
from populus.dialects.element_types import element_type_of, is_integer, is_unsigned, shape_of, tensor
from populus.dialects.expr import Arg
from populus.dialects.popart import calls
from populus.dialects.popart.base import PopartOp
from populus.dialects.popart.matmul import product
from populus.dialects.popops import IotaOp, MultiSliceOp


@irdl_op_definition
class GatherOp(PopartOp):
    """`y[.., i.., ..] = x[.., indices[i..], ..]` along `axis`; negative indices count from the end. Source: ONNX Gather-13."""

    name = "popart.gather"
    x = operand_def(TensorType)
    indices = operand_def(TensorType)
    axis = prop_def(IntegerAttr)
    y = result_def(TensorType)

    def infer(self) -> Sequence[TensorType[Attribute]]:
        shape = shape_of(self.x.type)
        axis = shapes.axis(self.axis.value.data, len(shape))
        if not is_integer(element_type_of(self.indices.type)):
            raise VerifyException(f"the indices are {self.indices.type}, not integers")
        return [tensor((*shape[:axis], *shape_of(self.indices.type), *shape[axis + 1 :]), element_type_of(self.x.type))]

    def lower(self, b: Builder) -> Sequence[SSAValue]:
        axis = self.axis.value.data
        n = calls.shape(self.x)[axis]
        known = constant_value(self.indices)
        if known is None:
            indices = self.indices
            if not is_unsigned(calls.element(indices)):
                indices = calls.map(b, expr.select(Arg(1) + n, Arg(1), Arg(1) < 0), indices)
        elif known.size and not (-n <= known.min() and known.max() < n):
            wrong = known.min() if known.min() < -n else known.max()
            raise PopulusError(f"{where(self)}: {self.name}: index {wrong} is outside dimension {axis} of x, which has {n} elements")
        elif known.size and known.min() < 0:
            indices = b.insert(constant(known + n * (known < 0).astype(known.dtype))).result
        else:
            indices = self.indices
        return [calls.insert(b, MultiSliceOp(self.x, indices, dim=axis))]

    def gradient(self, b: Builder, grads: Sequence[SSAValue]) -> Sequence[SSAValue | None]:
        # Row i of dx is the sum of the rows of g whose index is i: a product with the matrix of "index j is i".
        axis, shape = self.axis.value.data, calls.shape(self.x)
        n, picked = shape[axis], math.prod(calls.shape(self.indices))
        numbers = calls.reshape(b, calls.insert(b, IotaOp(count=n, start=0, step=1, element=calls.element(self.indices))), (n, 1))
        same = expr.equal(Arg(1), Arg(2))
        if not is_unsigned(calls.element(self.indices)):
            same = same | expr.equal(Arg(1) - n, Arg(2))
        chosen = calls.map(b, expr.cast(same, calls.element(self.x)), numbers, calls.reshape(b, self.indices, (1, picked)))
        outer, inner = math.prod(shape[:axis]), math.prod(shape[axis + 1 :])
        g = calls.transpose(b, calls.reshape(b, grads[0], (outer, picked, inner)), (1, 0, 2))
        rows = product(b, chosen, calls.reshape(b, g, (picked, outer * inner)))
        dx = calls.transpose(b, calls.reshape(b, rows, (n, outer, inner)), (1, 0, 2))
        return [calls.reshape(b, dx, shape), None]
