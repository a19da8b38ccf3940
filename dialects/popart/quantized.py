"""Tensors of 8-bit integers: their exact products, and the conversions from and to floats by a scale and a zero point."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from xdsl.builder import Builder
from xdsl.dialects.builtin import DenseArrayBase, TensorType, f32, i32, i64
from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import irdl_op_definition, operand_def, prop_def, result_def
from xdsl.utils.exceptions import VerifyException

from populus.dialects import expr
from populus.dialects.base.tensor_op import HIGH_VALUE, LOW_VALUE, ints
from populus.dialects.expr import Expr
from populus.dialects.popart.base import ElementwiseOp, Link, Neutral, PopartOp
from populus.dialects.popart.conv import convolution
from populus.dialects.popart.matmul import product, product_links, product_zeros
from populus.dialects.support import shapes
from populus.dialects.support.constraints import whole
from populus.dialects.support.element_types import element_type_of, is_byte, is_float, is_integer, shape_of, tensor, ui8
from populus.dialects.support.shapes import ShapeError

if TYPE_CHECKING:
    from numpy.typing import NDArray


def _bytes(*values: SSAValue) -> None:
    """Raises VerifyException unless all values hold 8-bit integers."""
    for value in values:
        if not is_byte(element_type_of(value.type)):
            raise VerifyException(f"elements of {element_type_of(value.type)}; i8 or ui8 is expected")


@irdl_op_definition
class IntegerMatMulOp(PopartOp):
    """`y[.., m, n] = sum over k of a[.., m, k] b[.., k, n]`, 8-bit integers of either sign in, i32 out.

    Batch dimensions broadcast. Sums wrap around, which takes more than 33,000 products. Source: ONNX MatMulInteger-10.
    """

    OUTLINE_VALUE: ClassVar[float] = HIGH_VALUE

    name = "popart.integer_matmul"
    a = operand_def(TensorType)
    b = operand_def(TensorType)
    y = result_def(TensorType)

    def infer(self) -> Sequence[TensorType[Attribute]]:
        _bytes(self.a, self.b)
        a, b = shape_of(self.a.type), shape_of(self.b.type)
        if len(a) < 2 or len(b) < 2 or a[-1] != b[-2]:
            raise ShapeError(f"{shapes.text(a)} times {shapes.text(b)}; [.., m, k] times [.., k, n] is expected")
        return [tensor((*shapes.broadcast(a[:-2], b[:-2]), a[-2], b[-1]), i32)]

    def independent(self) -> Sequence[Link]:
        return product_links(self.a, self.b, self.y)

    def neutral(self) -> Sequence[Neutral]:
        return product_zeros(self.a, self.b)

    def evaluate(self, *arrays: NDArray[Any]) -> Sequence[NDArray[Any]]:
        a, b = arrays
        return [a.astype("i4") @ b.astype("i4")]

    def lower(self, b: Builder) -> Sequence[SSAValue]:
        return [product(b, self.a, self.b, to=shape_of(self.y.type))]


@irdl_op_definition
class IntegerConvOp(PopartOp):
    """`y[n, oc, o] = sum over ic, k of x[n, ic, o stride + k dilation - pad] w[oc, ic, k]`, in groups.

    Like `popart.conv`, with 8-bit integers of either sign in and i32 out. Elements outside x count as 0.
    Source: ONNX ConvInteger-10.
    """

    # A function's parameters are in their own order, and a convolution's channels are last: at each call they would be copied.
    OUTLINE_VALUE: ClassVar[float] = LOW_VALUE

    name = "popart.integer_conv"
    x = operand_def(TensorType)
    w = operand_def(TensorType)
    strides = prop_def(DenseArrayBase.constr(i64))
    pads = prop_def(DenseArrayBase.constr(i64))
    dilations = prop_def(DenseArrayBase.constr(i64))
    group = whole(1)
    y = result_def(TensorType)

    def infer(self) -> Sequence[TensorType[Attribute]]:
        _bytes(self.x, self.w)
        x, w, group = shape_of(self.x.type), shape_of(self.w.type), self.group
        spatial = len(x) - 2
        if spatial < 1 or len(w) != len(x) or (len(self.strides), len(self.pads), len(self.dilations)) != (spatial, 2 * spatial, spatial):
            raise ShapeError(
                f"x {shapes.text(x)}, w {shapes.text(w)}, {len(self.strides)} strides, {len(self.pads)} pads and "
                f"{len(self.dilations)} dilations do not agree on the number of spatial dimensions"
            )
        if group < 1 or x[1] != w[1] * group or w[0] % group:
            raise ShapeError(f"x {shapes.text(x)} and w {shapes.text(w)} do not fit group = {group}")
        windows = shapes.windows(x, w[2:], ints(self.strides), ints(self.pads), ints(self.dilations), crops=True)
        return [tensor((x[0], w[0], *windows), i32)]

    def independent(self) -> Sequence[Link]:
        return [(0, 0, 0, 0)]

    def neutral(self) -> Sequence[Neutral]:
        return [(0, d, "zero") for d in shapes.overhanging(ints(self.pads))]

    def lower(self, b: Builder) -> Sequence[SSAValue]:
        pads = ints(self.pads)
        around = list(zip(pads[: len(pads) // 2], pads[len(pads) // 2 :]))
        return [convolution(b, self.x, self.w, ints(self.strides), around, ints(self.dilations), self.group)]


@irdl_op_definition
class DequantizeOp(ElementwiseOp):
    """`y = float(x - zero) scale`: the difference in i32, y of the scale's type; operands broadcast.

    Source: ONNX DequantizeLinear-25.
    """

    name = "popart.dequantize"
    x = operand_def(TensorType)
    scale = operand_def(TensorType)
    zero = operand_def(TensorType)

    def infer(self) -> Sequence[TensorType[Attribute]]:
        if not is_integer(element_type_of(self.x.type)) or self.zero.type != tensor(shape_of(self.zero.type), element_type_of(self.x.type)):
            raise VerifyException(f"x is {self.x.type}, the zero point {self.zero.type}; integers of one type are expected")
        if not is_float(element_type_of(self.scale.type)):
            raise VerifyException(f"the scale is {self.scale.type}; floats are expected")
        return super().infer()

    def forward(self, x: Expr, scale: Expr, zero: Expr) -> Expr:
        return expr.cast(expr.cast(x, i32) - expr.cast(zero, i32), element_type_of(self.scale.type)) * scale


@irdl_op_definition
class QuantizeOp(ElementwiseOp):
    """`y = clamp(round(x / scale) + zero)`: to the nearest even, in f32, within the range of the zero point's type, which is y's.

    Operands broadcast. Source: ONNX QuantizeLinear-25.
    """

    name = "popart.quantize"
    x = operand_def(TensorType)
    scale = operand_def(TensorType)
    zero = operand_def(TensorType)

    def infer(self) -> Sequence[TensorType[Attribute]]:
        _bytes(self.zero)
        if not is_float(element_type_of(self.x.type)) or element_type_of(self.x.type) != element_type_of(self.scale.type):
            raise VerifyException(f"x is {self.x.type}, the scale {self.scale.type}; floats of one type are expected")
        return super().infer()

    def forward(self, x: Expr, scale: Expr, zero: Expr) -> Expr:
        low, high = (0, 255) if element_type_of(self.zero.type) == ui8 else (-128, 127)
        moved = expr.nearbyint(expr.cast(x / scale, f32)) + expr.cast(zero, f32)
        return expr.cast(expr.minimum(expr.maximum(moved, float(low)), float(high)), element_type_of(self.zero.type))
