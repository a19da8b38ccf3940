"""The `poplin` dialect: matrix products and convolutions, the work that the matrix units do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from xdsl.dialects.builtin import DenseArrayBase, TensorType, f32, i32, i64
from xdsl.ir import Attribute, Dialect
from xdsl.irdl import irdl_op_definition, operand_def, prop_def, result_def
from xdsl.utils.exceptions import VerifyException

from populus.dialects.base.tensor_op import HIGH_VALUE, TensorOp, ints
from populus.dialects.poplar.meaning import RESULT, Meaning, Whole, numbered, plain, windows
from populus.dialects.poplar.partition import ALL, Access
from populus.dialects.support import shapes
from populus.dialects.support.constraints import whole
from populus.dialects.support.element_types import element_type_of, is_byte, shape_of, tensor
from populus.dialects.support.packed_weights import check_packed
from populus.dialects.support.shapes import ShapeError


def product_element(a: Attribute, b: Attribute) -> Attribute:
    """Returns the element type of a product: that of both operands, and i32 for 8-bit integers of either sign.

    Raises VerifyException for other operands.
    """
    if is_byte(a) and is_byte(b):
        return i32
    if a != b:
        raise VerifyException(f"{a} times {b}; equal element types are expected, or 8-bit integers")
    return a


@irdl_op_definition
class MatMulOp(TensorOp):
    """`c[g, m, n] = sum over k of a[g, m, k] b[g, k, n]`; a: [groups, m, k], b: [groups, k, n].

    The product of 8-bit integers is i32.
    Source: poplin::matMulGrouped.
    """

    OUTLINE_VALUE: ClassVar[float] = HIGH_VALUE

    name = "poplin.matmul"
    a = operand_def(TensorType)
    b = operand_def(TensorType)
    c = result_def(TensorType)

    def infer(self) -> Sequence[TensorType[Attribute]]:
        a, b = shape_of(self.a.type), shape_of(self.b.type)
        if len(a) != 3 or len(b) != 3 or a[0] != b[0] or a[2] != b[1]:
            raise ShapeError(f"{shapes.text(a)} times {shapes.text(b)}; [g, m, k] times [g, k, n] is expected")
        return [tensor((a[0], a[1], b[2]), product_element(element_type_of(self.a.type), element_type_of(self.b.type)))]

    def meaning(self) -> Meaning:
        """Says what the result is."""
        (g, m, k), n = shape_of(self.a.type), shape_of(self.b.type)[2]
        fields = (("a", 0, plain("g", "m", "k")), ("b", 1, plain("g", "k", "n")), ("c", RESULT, plain("g", "m", "n")))
        return [Whole("matmul", (("g", g), ("m", m), ("k", k), ("n", n)), fields)]


@irdl_op_definition
class ConvolutionOp(TensorOp):
    """Cross-correlation over any number of spatial dimensions, in groups:

    `y[b, g oc, o..] = sum over ic, k.. of x[b, g ic, o stride + k dilation - pad ..] w[g oc, ic, k..]`

    x: [batch, groups * in, size..], w: [groups * out, in, kernel..], y: [batch, groups * out, windows..].
    `pads`: the lower pads of all dimensions, then the upper ones. Elements outside x count as 0.
    The result of 8-bit integers is i32.
    Source: poplin::convolution; ONNX Conv-22.
    """

    OUTLINE_VALUE: ClassVar[float] = HIGH_VALUE

    name = "poplin.convolution"
    x = operand_def(TensorType)
    w = operand_def(TensorType)
    strides = prop_def(DenseArrayBase.constr(i64))
    pads = prop_def(DenseArrayBase.constr(i64))
    dilations = prop_def(DenseArrayBase.constr(i64))
    groups = whole()
    y = result_def(TensorType)

    def infer(self) -> Sequence[TensorType[Attribute]]:
        x, w, groups = shape_of(self.x.type), shape_of(self.w.type), self.groups
        if len(w) != len(x):
            raise ShapeError(f"x {shapes.text(x)} and w {shapes.text(w)} do not agree on the number of spatial dimensions")
        sizes = shapes.windows(x, w[2:], ints(self.strides), ints(self.pads), ints(self.dilations))
        if x[1] != w[1] * groups:
            raise ShapeError(f"w has {w[1]} input channels, x has {x[1]}; group = {groups} needs {groups} times as many")
        if groups < 1 or w[0] % groups:
            raise ShapeError(f"w has {w[0]} output channels, which do not divide into group = {groups}")
        return [tensor((x[0], w[0], *sizes), product_element(element_type_of(self.x.type), element_type_of(self.w.type)))]

    def meaning(self) -> Meaning:
        """Says what the result is."""
        w, y, groups = shape_of(self.w.type), shape_of(self.y.type), self.groups
        outs, taps, per = numbered("o", len(y) - 2), numbered("k", len(y) - 2), w[0] // groups
        axes = (("b", y[0]), ("g", groups), ("oc", per), ("ic", w[1]), *zip(outs, y[2:]), *zip(taps, w[2:]))
        seen = windows(outs, taps, ints(self.strides), ints(self.dilations), ints(self.pads))
        out = Access((("g", per), ("oc", 1)))
        fields = (
            ("x", 0, (*plain("b"), Access((("g", w[1]), ("ic", 1))), *seen)),
            ("w", 1, (out, *plain("ic", *taps))),
            ("y", RESULT, (*plain("b"), out, *plain(*outs))),
        )
        return [Whole("conv", axes, fields)]


@irdl_op_definition
class PackedMatMulOp(TensorOp):
    """`y[m, n] = sum over k of x[m, k] (code(n, k) - zero[n, k / block]) scale[n, k / block]`, in f32.

    codes: [n, blocks, bytes], 8 / bits codes in a byte, the lowest bits first. scale, zero: [n, blocks]; zero is ui8 or f32.
    """

    OUTLINE_VALUE: ClassVar[float] = HIGH_VALUE

    name = "poplin.packed_matmul"
    x = operand_def(TensorType)
    codes = operand_def(TensorType)
    scale = operand_def(TensorType)
    zero = operand_def(TensorType)
    bits = whole(4)
    y = result_def(TensorType)

    def infer(self) -> Sequence[TensorType[Attribute]]:
        x = shape_of(self.x.type)
        if len(x) != 2 or element_type_of(self.x.type) != f32:
            raise ShapeError(f"x is {self.x.type}; [m, k] of f32 is expected")
        check_packed(x[1], self.codes.type, self.scale.type, self.zero.type, self.bits)
        return [tensor((x[0], shape_of(self.codes.type)[0]), f32)]

    def meaning(self) -> Meaning:
        """Says what the result is."""
        (m, k), n = shape_of(self.x.type), shape_of(self.codes.type)[0]
        rows = [(name, i, (*plain("n"), *[ALL] * count)) for name, i, count in (("codes", 1, 2), ("scale", 2, 1), ("zero", 3, 1))]
        fields = (("x", 0, plain("m", "k")), *rows, ("y", RESULT, plain("m", "n")))
        return [Whole("packed_matmul", (("m", m), ("n", n), ("k", k)), fields, {"bits": self.properties["bits"]})]


POPLIN = Dialect("poplin", [ConvolutionOp, MatMulOp, PackedMatMulOp], [])
