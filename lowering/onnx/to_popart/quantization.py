"""Conversions of ONNX's `quantization` category, and of products of quantized integers."""

from __future__ import annotations

from functools import partial

import numpy as np
from xdsl.dialects.builtin import f32, i32
from xdsl.ir import Attribute, SSAValue

from populus.dialects import popart
from populus.dialects.onnx.types import element_numbered
from populus.dialects.support import shapes
from populus.dialects.support.diagnostics import PopulusError
from populus.dialects.support.element_types import dtype_of, is_byte, is_float, is_integer, ui8
from populus.lowering.onnx.to_popart.cast import converted
from populus.lowering.onnx.to_popart.conversion import Conversion, Output, Rules, element, shape
from populus.lowering.onnx.to_popart.formula import Term
from populus.lowering.onnx.to_popart.nn import padding, spatial
from populus.lowering.popart import byte_products


def spread(c: Conversion, value: SSAValue, x: SSAValue) -> SSAValue:
    """Reshapes a scale or zero point so that it broadcasts to `x`.

    It has one element, one for each index of `axis`, or one for each block of it. Raises PopulusError otherwise.
    """
    rank = len(shape(x))
    if shape(value) in ((), (1,)):
        return c.reshape(value, ())
    axis = c.axis(rank, 1)
    if len(shape(value)) == 1:
        return c.reshape(value, [shape(value)[0] if d == axis else 1 for d in range(rank)])
    block = min(int(c.get("block_size") or 0), max(shape(x)[axis], 1))  # a longer block has no more elements
    if block < 1 or len(shape(value)) != rank:
        raise PopulusError(
            f"a scale is {shapes.text(shape(value))}, x is {shapes.text(shape(x))}; one, one for each index or each block is expected"
        )
    before, n, after = shape(value)[:axis], shape(value)[axis], shape(value)[axis + 1 :]
    repeated = c.expand(c.reshape(value, (*before, n, 1, *after)), (*before, n, block, *after))
    whole = c.reshape(repeated, (*before, n * block, *after))
    if n * block == shape(x)[axis]:
        return whole
    ends = [shape(x)[axis] if d == axis else m for d, m in enumerate(shape(whole))]
    return c.insert(popart.SliceOp(whole, begins=[0] * rank, ends=ends, steps=[1] * rank))


def dequantize(c: Conversion) -> Output:
    """Converts DequantizeLinear: `(x - zero point) scale`. Source: ONNX DequantizeLinear-25."""
    x, scale = c.input(0), c.input(1)
    target = element_numbered(c.get("output_dtype")) if c.get("output_dtype") else element(scale)
    assert target is not None, c.get("output_dtype")
    wide = element(scale)
    if is_byte(element(x)) or element(x) == i32:
        zero = c.input(2) if c.has(2) else c.scalar(0, x)
        return c.cast(c.insert(popart.DequantizeOp(x, spread(c, scale, x), spread(c, zero, x))), target)
    if c.has(2) and is_integer(element(x)):
        difference = c.insert(popart.SubOp(c.cast(x, i32), c.cast(spread(c, c.input(2), x), i32)))
        value = c.cast(difference, wide)
    else:  # the zero point of a float is 0
        value = c.cast(x, wide)
    return c.cast(c.insert(popart.MulOp(value, spread(c, scale, x))), target)


def quantize(c: Conversion) -> Output:
    """Converts QuantizeLinear: `round(x / scale) + zero point`, clamped to the range of the result's type.

    Raises PopulusError for the attribute `precision`. Source: ONNX QuantizeLinear-25.
    """
    x, scale = c.input(0), c.input(1)
    target = element(c.input(2)) if c.has(2) else element_numbered(c.get("output_dtype")) if c.get("output_dtype") else ui8
    assert target is not None, c.get("output_dtype")
    if c.get("precision"):
        raise PopulusError("precision is not supported")
    if is_float(target):
        return converted(c, c.insert(popart.DivOp(c.cast(x, element(scale)), spread(c, scale, x))), target)
    if is_byte(target):
        zero = c.input(2) if c.has(2) else c.constant(np.zeros((), dtype_of(target)))
        return c.insert(popart.QuantizeOp(c.cast(x, element(scale)), spread(c, scale, x), spread(c, zero, x)))
    ratio = c.cast(c.insert(popart.DivOp(c.cast(x, element(scale)), spread(c, scale, x))), f32)
    zero = c.cast(spread(c, c.input(2), x), f32) if c.has(2) else None
    return saturated(c, ratio, zero, target)


def saturated(c: Conversion, x: SSAValue, zero: SSAValue | None, target: Attribute) -> SSAValue:
    """Rounds `x` (f32) to even, adds a zero point (f32), and clamps to the range of an integer type."""
    import ml_dtypes

    limits = ml_dtypes.iinfo(dtype_of(target))
    rounded = c.insert(popart.RoundOp(x))
    moved = rounded if zero is None else c.insert(popart.AddOp(rounded, zero))
    low = c.insert(popart.MaxOp(moved, c.scalar(int(limits.min), moved)))
    return c.cast(c.insert(popart.MinOp(low, c.scalar(int(limits.max), moved))), target)


def dynamic_quantize(c: Conversion) -> list[Output]:
    """Converts DynamicQuantizeLinear: x in 8 bits, its scale and its zero point, from the range of x and 0.

    ONNX's function divides by a scale of 0 if x is all 0; as in onnxruntime, the scale is 1 then.
    Source: ONNX DynamicQuantizeLinear-11.
    """
    x, extreme = c.input(0), c.insert
    if c.masks is not None:  # the range has 0, so zeros beyond the valid part serve both ends
        x, extreme = c.masks.filled(c, x, None, "zero"), partial(c.masks.plain, c)
    everywhere = tuple(range(len(shape(x))))
    low = Term(c, extreme(popart.ReduceMinOp(x, axes=everywhere, keep=False))).min(0)
    high = Term(c, extreme(popart.ReduceMaxOp(x, axes=everywhere, keep=False))).max(0)
    reach = high - low
    scale = (reach > 0).where(reach / 255, 1)
    zero = (0 - low) / scale
    ratio = c.insert(popart.DivOp(x, scale.value))
    rounded = zero.max(0).min(255).round()
    # Bounded where it is cast too: a formula that casts it alone then shows that it fits.
    return [saturated(c, ratio, rounded.value, ui8), scale.value, c.cast(rounded.max(0).min(255).value, ui8)]


def centred(c: Conversion, x: SSAValue, zero: SSAValue | None) -> SSAValue:
    """Subtracts a zero point (i32) from `x`: i32."""
    return c.cast(x, i32) if zero is None else c.insert(popart.SubOp(c.cast(x, i32), zero))


def integer_product(c: Conversion, a: SSAValue, b: SSAValue, a_zero: SSAValue | None, b_zero: SSAValue | None) -> SSAValue:
    """Computes `(a - a_zero) (b - b_zero)` in i32; zero points are i32 and broadcast."""
    summed = ((a, len(shape(a)) - 1), (b, max(len(shape(b)) - 2, 0)))
    if c.masks is not None and any(d in c.masks.valid.sized(v) for v, d in summed):
        # What lies beyond the valid part of what is summed over counts as 0 only once it is centred.
        return c.insert(popart.MatMulOp(centred(c, a, a_zero), centred(c, b, b_zero)))
    return byte_products.product(c, a, b, a_zero, b_zero)


def rows(value: SSAValue, x: SSAValue) -> tuple[int, ...]:
    """Gives the shape of one value for each row of a matrix."""
    return (*shape(value), 1) if len(shape(value)) == 1 and len(shape(x)) > 1 else shape(value)


def columns(value: SSAValue) -> tuple[int, ...]:
    """Gives the shape of one value for each column of a matrix, or of each matrix: [.., 1, n]."""
    return (1, *shape(value)) if len(shape(value)) == 1 else shape(value)


def matmul_integer(c: Conversion) -> Output:
    """Converts MatMulInteger.

    The i32 product of 8-bit integers less their zero points. Source: ONNX MatMulInteger-10.
    """
    a, b, a_zero, b_zero = c.input(0), c.input(1), c.optional(2), c.optional(3)
    left = byte_products.given(c, a_zero, rows(a_zero, a) if a_zero is not None else ())
    return integer_product(c, a, b, left, byte_products.given(c, b_zero, columns(b_zero) if b_zero is not None else ()))


def scales(c: Conversion, *positions: int) -> SSAValue:
    """Computes the scale of a product in f32: the scales of inputs a and b over that of y, by input positions."""
    a, b, y = (c.cast(c.input(i), f32) for i in positions)
    a, y = (c.reshape(v, ()) if shape(v) in ((), (1,)) else v for v in (a, y))
    return c.insert(popart.DivOp(c.insert(popart.MulOp(a, b)), y))


def qlinear_matmul(c: Conversion) -> Output:
    """Converts QLinearMatMul: the exact product in i32, then scaled.

    Scales and zero points are one for all, one for each row of a, or one for each column of b.
    Raises PopulusError for scales of the result's rows. Source: ONNX QLinearMatMul-21.
    """
    a, b = c.input(0), c.input(3)

    def along(i: int, rows: bool) -> tuple[int, ...]:
        size = shape(c.input(i))
        return () if size in ((), (1,)) else (*size, 1) if rows and len(size) == 1 else size

    if any(along(i, False) for i in (6, 7)):
        raise PopulusError("scales and zero points of the result's rows are not supported; one for all of it is")
    left = byte_products.given(c, c.input(2), along(2, True))
    product = integer_product(c, a, b, left, byte_products.given(c, c.input(5), columns(c.input(5))))
    of_a, of_b = (c.reshape(c.input(i), along(i, rows)) for i, rows in ((1, True), (4, False)))
    factor = c.insert(popart.DivOp(c.insert(popart.MulOp(c.cast(of_a, f32), c.cast(of_b, f32))), c.reshape(c.cast(c.input(6), f32), ())))
    zero = c.reshape(c.cast(c.input(7), f32), ())
    return saturated(c, c.insert(popart.MulOp(c.cast(product, f32), factor)), zero, element(c.input(7)))


def convolved(
    c: Conversion, x: SSAValue, w: SSAValue, x_zero: SSAValue | None, w_zero: SSAValue | None, bias: SSAValue | None = None
) -> SSAValue:
    """Convolves `x - x_zero` with `w - w_zero` in i32 by the node's attributes, and adds a bias (i32, [channels])."""
    kernel, group = shape(w)[2:], c.get("group")
    strides, dilations = spatial(c, "strides", len(kernel)), spatial(c, "dilations", len(kernel))
    pads = padding(c, shape(x)[2:], kernel, strides, dilations)
    return byte_products.convolution(c, x, w, x_zero, w_zero, bias, strides, pads, dilations, group)


def channels(value: SSAValue, y: SSAValue) -> tuple[int, ...]:
    """Gives the shape of one value for each channel of y."""
    return (1, *shape(value), *(1,) * (len(shape(y)) - 2))


def conv_integer(c: Conversion) -> Output:
    """Converts ConvInteger; padding counts as the zero point. Source: ONNX ConvInteger-10."""
    return convolved(c, c.input(0), c.input(1), c.optional(2), c.optional(3))


def qlinear_conv(c: Conversion) -> Output:
    """Converts QLinearConv.

    Exact in i32, then scaled; the bias has the product's scale. Source: ONNX QLinearConv-10.
    """
    y = convolved(c, c.input(0), c.input(3), c.input(2), c.input(5), c.optional(8))
    factor = scales(c, 1, 4, 6)
    factor = c.reshape(factor, () if shape(factor) in ((), (1,)) else channels(factor, y))
    zero = c.reshape(c.cast(c.input(7), f32), ())
    return saturated(c, c.insert(popart.MulOp(c.cast(y, f32), factor)), zero, element(c.input(7)))


RULES: Rules = {
    "ConvInteger": conv_integer,
    "DequantizeLinear": dequantize,
    "DynamicQuantizeLinear": dynamic_quantize,
    "MatMulInteger": matmul_integer,
    "QLinearConv": qlinear_conv,
    "QLinearMatMul": qlinear_matmul,
    "QuantizeLinear": quantize,
}
