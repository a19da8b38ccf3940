"""Products by weights of a few bits, which have a scale and a zero point for each block of a column."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from xdsl.builder import Builder
from xdsl.dialects.builtin import TensorType, f32
from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import irdl_op_definition, operand_def, result_def
from xdsl.utils.exceptions import VerifyException

from populus.dialects import expr
from populus.dialects.base.tensor_op import HIGH_VALUE
from populus.dialects.data import constant
from populus.dialects.expr import Arg
from populus.dialects.popart import calls
from populus.dialects.popart.base import PopartOp
from populus.dialects.popart.matmul import product
from populus.dialects.poplin import PackedMatMulOp as PackedProductOp
from populus.dialects.support.constraints import whole
from populus.dialects.support.element_types import element_type_of, shape_of, tensor
from populus.dialects.support.packed_weights import check_packed
from populus.dialects.support.shapes import ShapeError

if TYPE_CHECKING:
    from numpy.typing import NDArray


@irdl_op_definition
class PackedMatMulOp(PopartOp):
    """`y[.., m, n] = sum over k of x[.., m, k] (code(n, k) - zero[n, k / block]) scale[n, k / block]`, in f32.

    codes: [n, blocks, bytes], 8 / bits codes in a byte, the lowest bits first; a block has `8 bytes / bits` of them. The last block may
    have more codes than there are elements of k; they count as 0. scale, zero: [n, blocks]; zero is ui8 or f32. Weights have no
    gradient. Source: onnxruntime, ContribOperators.md, MatMulNBits.
    """

    OUTLINE_VALUE: ClassVar[float] = HIGH_VALUE

    name = "popart.packed_matmul"
    ONNX: ClassVar = ("populus", "PackedMatMul", 1)
    x = operand_def(TensorType)
    codes = operand_def(TensorType)
    scale = operand_def(TensorType)
    zero = operand_def(TensorType)
    bits = whole(4)
    y = result_def(TensorType)

    def infer(self) -> Sequence[TensorType[Attribute]]:
        x = shape_of(self.x.type)
        if not x:
            raise ShapeError("x is one element; [.., m, k] is expected")
        if element_type_of(self.x.type) != f32:
            raise VerifyException(f"x is {self.x.type}; f32 is expected")
        check_packed(x[-1], self.codes.type, self.scale.type, self.zero.type, self.bits)
        return [tensor((*x[:-1], shape_of(self.codes.type)[0]), f32)]

    def evaluate(self, *arrays: NDArray[Any]) -> Sequence[NDArray[Any]]:
        import numpy as np

        x, codes, scale, zero = arrays
        amounts = np.arange(0, 8, self.bits, dtype=np.uint8)
        apart = ((codes[..., None] >> amounts) & (2**self.bits - 1)).reshape(*codes.shape[:2], -1)
        w = (apart.astype("f4") - zero.astype("f4")[..., None]) * scale[..., None]
        return [x @ w.reshape(len(codes), math.prod(w.shape[1:]))[:, : x.shape[-1]].T]

    def lower(self, b: Builder) -> Sequence[SSAValue]:
        x = calls.shape(self.x)
        rows = calls.reshape(b, self.x, (math.prod(x[:-1]), x[-1]))
        made = calls.insert(b, PackedProductOp(rows, self.codes, self.scale, self.zero, bits=self.bits))
        return [calls.reshape(b, made, calls.shape(self.y))]

    def gradient(self, b: Builder, grads: Sequence[SSAValue]) -> Sequence[SSAValue | None]:
        import numpy as np

        n, blocks, length = calls.shape(self.codes)
        each, k = 8 // self.bits, calls.shape(self.x)[-1]
        factors = b.insert(constant(np.float32(2) ** -np.arange(0, 8, self.bits, dtype=np.float32))).result
        bytes = calls.stretch(b, calls.reshape(b, self.codes, (n, blocks, length, 1)), (n, blocks, length, each))
        # The code at bit p of a byte q is floor(q / 2^p) - 2^bits floor(q / 2^(p + bits)), exact in f32.
        low = expr.cast(Arg(1), f32) * Arg(2)
        code = expr.call("floor", low) - expr.call("floor", low * 2.0**-self.bits) * 2.0**self.bits
        codes = calls.reshape(b, calls.map(b, code, bytes, factors), (n, blocks, length * each))
        zero, scale = (calls.reshape(b, v, (n, blocks, 1)) for v in (self.zero, self.scale))
        w = calls.map(b, (Arg(1) - expr.cast(Arg(2), f32)) * Arg(3), codes, zero, scale)
        w = calls.slice_dim(b, calls.reshape(b, w, (n, blocks * length * each)), 1, 0, k)
        rows = calls.reshape(b, grads[0], (math.prod(calls.shape(grads[0])[:-1]), n))
        return [product(b, rows, w, to=calls.shape(self.x)), None, None, None]

    def independent(self) -> Sequence[tuple[int, int, int, int]]:
        return [(0, d, 0, d) for d in range(len(shape_of(self.x.type)) - 1)]
