"""Dequantized values that products, windows and rearrangements read: these compute on the integers instead."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from xdsl.dialects.builtin import f32, i32
from xdsl.ir import Operation, SSAValue

from populus.dialects import popart
from populus.dialects.base.tensor_op import ints
from populus.dialects.popart import calls
from populus.dialects.popart.base import PopartOp
from populus.dialects.support.element_types import is_byte
from populus.lowering.popart import byte_products
from populus.lowering.popart.patterns.constants import FoldConstants
from populus.lowering.popart.rewriting import Pattern, Rewriting, array_of, made_by, read_once, scalar

MOST = (1 << 31) // (255 * 255)  # products that an i32 sum holds for certain
SCALES = (1e-30, 1e30)  # no multiple of a scale between these by less than 512 over- or underflows


class DequantizedProduct(Pattern[popart.ConvOp | popart.GemmOp | popart.MatMulOp]):
    """A product of dequantized 8-bit integers is the scaled product of the integers.

    Legal: the left-hand side has one scale and zero point, the right-hand side one for all or for each column (output
    channel); zero points are constants; the i32 sums cannot wrap around. The sum is exact, so the result differs by the
    rounding of the float sums. A dequantized bias of the product's scale is added to the integers.
    """

    ROOTS = (popart.ConvOp, popart.GemmOp, popart.MatMulOp)
    EXACT = False

    def rewrite(self, op: popart.ConvOp | popart.GemmOp | popart.MatMulOp, r: Rewriting) -> Sequence[SSAValue] | None:
        a, b = (made_by(o, popart.DequantizeOp, op) for o in op.operands[:2])
        if a is None or b is None or not all(is_byte(calls.element(v.x)) and calls.element(v.y) == f32 for v in (a, b)):
            return None
        if any(array_of(v.zero) is None for v in (a, b)) or any(math.prod(calls.shape(v)) != 1 for v in (a.scale, a.zero)):
            return None
        return _convolved(op, a, b, r) if isinstance(op, popart.ConvOp) else _multiplied(op, a, b, r)


def _convolved(op: popart.ConvOp, x: popart.DequantizeOp, w: popart.DequantizeOp, r: Rewriting) -> Sequence[SSAValue] | None:
    out, *rest = calls.shape(op.w)
    pads = ints(op.pads)
    if math.prod(rest) > MOST or not (_along(w.scale, op.w, 0) and _along(w.zero, op.w, 0)) or min(pads, default=0) < 0:
        return None
    channels = (1, out, *(1,) * (len(rest) - 1))
    factor = _factor(r, x, w, channels)
    bias = None if op.bias is None else _of_integers(op.bias, x, w, op)
    y = byte_products.convolution(r, x.x, w.x, x.zero, _several(r, w.zero), bias, ints(op.strides), pads, ints(op.dilations), op.group)
    y = r.insert(popart.MulOp(r.insert(popart.CastOp(y, to=f32)), factor))
    if op.bias is not None and bias is None:
        y = r.insert(popart.AddOp(y, byte_products.reshape(r, op.bias, channels)))
    return [y]


def _multiplied(
    op: popart.GemmOp | popart.MatMulOp, a: popart.DequantizeOp, b: popart.DequantizeOp, r: Rewriting
) -> Sequence[SSAValue] | None:
    left, right, rank = a.x, b.x, len(calls.shape(op.b))
    columns = rank - 1
    bias = None
    if isinstance(op, popart.GemmOp):
        if op.alpha != 1 or (op.c is not None and op.beta != 1):
            return None
        columns, bias = 0 if op.trans_b else 1, op.c
    k = calls.shape(op.b)[1 - columns if rank == 2 else rank - 2] if rank > 1 else 0
    if rank < 2 or len(calls.shape(op.a)) < 2 or k > MOST or not (_along(b.scale, op.b, columns) and _along(b.zero, op.b, columns)):
        return None
    if isinstance(op, popart.GemmOp):
        left = r.insert(popart.TransposeOp(left, permutation=(1, 0))) if op.trans_a else left
        right = r.insert(popart.TransposeOp(right, permutation=(1, 0))) if op.trans_b else right
    n = calls.shape(op.y)[-1]
    factor = _factor(r, a, b, (n,))
    y = byte_products.product(r, left, right, byte_products.given(r, a.zero, ()), byte_products.given(r, b.zero, (1, n)))
    whole = None if bias is None else _of_integers(bias, a, b, op)
    if whole is not None:
        y = r.insert(popart.AddOp(y, whole))
    y = r.insert(popart.MulOp(r.insert(popart.CastOp(y, to=f32)), factor))
    return [y if bias is None or whole is not None else r.insert(popart.AddOp(y, bias))]


def _along(value: SSAValue, of: SSAValue, axis: int) -> bool:
    """Tells whether a scale or zero point is one for all, or one for each index of an axis."""
    shape, whole = calls.shape(value), calls.shape(of)
    lead = len(whole) - len(shape)
    return math.prod(shape) == 1 or all(n == 1 or (d + lead == axis and n == whole[axis]) for d, n in enumerate(shape))


def _several(r: Rewriting, value: SSAValue) -> SSAValue:
    """Gives a constant of one value as a scalar, others as a vector."""
    array = array_of(value)
    assert array is not None, value
    return r.constant(array.reshape(() if array.size == 1 else -1))


def _factor(r: Rewriting, a: popart.DequantizeOp, b: popart.DequantizeOp, shape: tuple[int, ...]) -> SSAValue:
    """Inserts the product's scale: one for all, or one for each column in `shape`."""
    of_b = byte_products.reshape(r, b.scale, () if math.prod(calls.shape(b.scale)) == 1 else shape)
    return r.insert(popart.MulOp(byte_products.reshape(r, a.scale, ()), of_b))


def _of_integers(bias: SSAValue, a: popart.DequantizeOp, b: popart.DequantizeOp, op: Operation) -> SSAValue | None:
    """Gives the i32 integers of a bias that is dequantized by the product's scale, without a zero point; else None.

    The scale is one for all, or runs along the last dimension, as the product's columns do.
    """
    found = made_by(bias, popart.DequantizeOp, op)
    if found is None or calls.element(found.x) != i32 or not _along(found.scale, bias, len(calls.shape(bias)) - 1):
        return None
    scales = [array_of(v) for v in (a.scale, b.scale, found.scale, found.zero)]
    of_a, of_b, own, zero = scales
    if of_a is None or of_b is None or own is None or zero is None or zero.any():
        return None
    wanted, own = (of_a.reshape(()) * of_b).reshape(-1), own.reshape(-1)
    return found.x if wanted.size in (1, own.size) and (wanted == own).all() else None


class DequantizeLater(Pattern[PopartOp]):
    """A maximum over windows, a view or a concatenation of dequantized values is dequantized afterwards.

    Legal: one positive scale for all, which keeps the order of the integers; parts of a concatenation have the same.
    """

    ROOTS = (popart.MaxPoolOp, popart.ReshapeOp, popart.SliceOp, popart.TransposeOp, popart.ConcatOp)

    def rewrite(self, op: PopartOp, r: Rewriting) -> Sequence[SSAValue] | None:
        parts = [made_by(o, popart.DequantizeOp, op) for o in op.operands]
        found = [p for p in parts if p is not None and _alike(p, parts[0])]
        if len(found) != len(parts) or not found or not is_byte(calls.element(found[0].x)) or not all(read_once(p.y) for p in found):
            return None
        first = found[0]
        if not isinstance(op, popart.MaxPoolOp) and isinstance(first.x.owner, Operation) and array_of(first.x) is not None:
            return None  # weights; the product that reads them knows their columns
        integers = r.insert(type(op)(*(p.x for p in found), **dict(op.properties)))
        points = (byte_products.reshape(r, v, ()) for v in (first.scale, first.zero))
        return [r.insert(popart.DequantizeOp(integers, *points))]


def _alike(a: popart.DequantizeOp, b: popart.DequantizeOp | None) -> bool:
    """Tells whether two dequantize by one equal, positive scale and zero point."""
    if b is None or calls.element(a.x) != calls.element(b.x):
        return False
    scale, zero = scalar(a.scale), scalar(a.zero)
    one = math.prod(calls.shape(a.scale)) == 1 == math.prod(calls.shape(a.zero))
    return one and scale is not None and zero is not None and scale > 0 and (scale, zero) == (scalar(b.scale), scalar(b.zero))


class QuantizedAgain(Pattern[popart.QuantizeOp]):
    """Dequantized integers that are quantized by the same scale and zero point are these integers.

    Legal: 8-bit integers; the scale is far from the smallest and largest floats, so a multiple of it over it rounds back.
    """

    ROOTS = (popart.QuantizeOp,)

    def rewrite(self, op: popart.QuantizeOp, r: Rewriting) -> Sequence[SSAValue] | None:
        inner = made_by(op.x, popart.DequantizeOp, op)
        if inner is None or inner.x.type != op.y.type or calls.element(op.x) != f32:
            return None
        pairs = [(array_of(a), array_of(b)) for a, b in ((op.scale, inner.scale), (op.zero, inner.zero))]
        if any(a is None or b is None or a.size != b.size or not np.array_equal(a.reshape(-1), b.reshape(-1)) for a, b in pairs):
            return None
        shapes = [calls.shape(v) for v in (op.scale, inner.scale, op.zero, inner.zero)]
        scale: Any = pairs[0][0]
        if any(math.prod(s) > 1 for s in shapes) and len({s for s in shapes if math.prod(s) > 1}) > 1:
            return None
        return [inner.x] if ((scale > SCALES[0]) & (scale < SCALES[1])).all() else None


class QuantizeSooner(Pattern[popart.QuantizeOp]):
    """A concatenation that is quantized by one scale is the concatenation of quantized parts, which are a quarter of the bytes.

    Legal: nothing else reads the concatenation.
    """

    ROOTS = (popart.QuantizeOp,)

    def rewrite(self, op: popart.QuantizeOp, r: Rewriting) -> Sequence[SSAValue] | None:
        inner = made_by(op.x, popart.ConcatOp, op)
        if inner is None or not read_once(op.x) or math.prod((*calls.shape(op.scale), *calls.shape(op.zero))) != 1:
            return None
        scale, zero = (byte_products.reshape(r, v, ()) for v in (op.scale, op.zero))
        parts = [r.insert(popart.QuantizeOp(p, scale, zero)) for p in inner.operands]
        return [r.insert(popart.ConcatOp(*parts, **dict(inner.properties)))]


class FoldDequantized(Pattern[popart.DequantizeOp]):
    """Dequantized constants that no product takes as integers are constants of four times the bytes.

    Legal: at most 16 MiB. Equal up to rounding, as `FoldConstants`.
    """

    ROOTS = (popart.DequantizeOp,)
    EXACT = False
    LATE = True

    def rewrite(self, op: popart.DequantizeOp, r: Rewriting) -> Sequence[SSAValue] | None:
        return FoldConstants().folded(op, r, 1 << 24)
