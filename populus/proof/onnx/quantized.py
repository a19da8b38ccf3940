"""ONNX's quantised ops: integers that stand for numbers, and exact products of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import ml_dtypes
from xdsl.dialects.builtin import f32, i32
from xdsl.ir import Attribute

from populus.dialects import expr
from populus.dialects.expr import Arg
from populus.dialects.onnx.types import element_numbered
from populus.dialects.poplar.affine import box, names, read_map, within
from populus.dialects.support.element_types import dtype_of, element_type_of, is_float, ui8
from populus.proof.onnx.formulas import converted
from populus.proof.onnx.node import Node, Results
from populus.proof.onnx.products import convolved, multiplied
from populus.proof.report import Undecided
from populus.proof.trees import Pieces

_1, _2, _3 = Arg(1), Arg(2), Arg(3)


def _spread(n: Node, i: int, full: tuple[int, ...], axis: int | None) -> Pieces:
    """Gives a scale or zero point at each element: one for all, one for each index of an axis, or one for each block of it."""
    shape, v = n.shape(i), names("i", len(full))
    if shape in ((), (1,)):
        to = ["0"] * len(shape)
    elif axis is None:
        raise Undecided("a scale of several numbers")
    elif len(shape) == 1:
        to = [v[axis]]
    else:
        block = min(int(n.get("block_size") or 0), full[axis])
        to = [f"floor({e}/{block})" if d == axis else e for d, e in enumerate(v)]
    return n.t.seen(n.x(i), read_map(f"{{ [{', '.join(v)}] -> [{', '.join(to)}] : {within(v, full)} }}"))


def _axis(n: Node) -> int | None:
    return n.axis(len(n.full)) if n.full and n.get("axis") is not None else None


def _dequantised(n: Node) -> Results:
    """Gives (x - zero point) scale."""
    full, wide = n.full, n.element(1)
    axis = _axis(n)
    target = element_type_of(n.op.results[0].type)
    value = expr.cast(_1, wide)
    operands = [n.x(0), _spread(n, 1, full, axis)]
    if n.has(2) and not is_float(n.element(0)):
        operands.append(_spread(n, 2, full, axis))
        value = expr.cast(expr.cast(_1, i32) - expr.cast(_3, i32), wide)
    return [n.t.elementwise(expr.cast(value * _2, target), box(full), operands, False)]


def _limited(x: expr.Expr, to: Attribute) -> expr.Expr:
    limits = ml_dtypes.iinfo(dtype_of(to))
    return expr.cast(expr.clamp(x, float(int(limits.min)), float(int(limits.max))), to)


def _quantised(n: Node) -> Results:
    """Gives the nearest integer of x / scale, halves to even, with the zero point added, in the result's range."""
    full = n.full
    axis = _axis(n)
    to = n.element(2) if n.has(2) else (element_numbered(n.get("output_dtype")) if n.get("output_dtype") else ui8)
    if to is None or n.get("precision"):
        raise Undecided("precision")
    operands = [n.x(0), _spread(n, 1, full, axis)]
    ratio = expr.cast(_1, n.element(1)) / _2
    if is_float(to):
        e = converted(ratio, n.element(1), to, n.get("saturate") != 0)
        if e is None:
            raise Undecided("a conversion")
        return [n.t.elementwise(e, box(full), operands, True)]
    e = expr.nearbyint(expr.cast(ratio, f32))
    if n.has(2):
        operands.append(_spread(n, 2, full, axis))
        e = e + expr.cast(_3, f32)
    return [n.t.elementwise(_limited(e, to), box(full), operands, False)]


def _centred(n: Node, i: int, zero: int, axis: int | None) -> Pieces:
    """Gives 8-bit integers less their zero point."""
    full = n.shape(i)
    if not n.has(zero):
        return n.t.elementwise(expr.cast(_1, i32), box(full), [n.x(i)], False)
    difference = expr.cast(_1, i32) - expr.cast(_2, i32)
    return n.t.elementwise(difference, box(full), [n.x(i), _zero(n, zero, full, axis)], False)


def _zero(n: Node, i: int, full: tuple[int, ...], axis: int | None) -> Pieces:
    if len(n.shape(i)) > 1 and len(n.shape(i)) == len(full):
        return n.stretched(i, full)
    return _spread(n, i, full, axis)


def _matmul_integer(n: Node) -> Results:
    a, b = n.shape(0), n.shape(1)
    left, right = _centred(n, 0, 2, len(a) - 2), _centred(n, 1, 3, len(b) - 1)
    return [multiplied(n.t, a, b, left, right, n.full)]


def _rescaled(n: Node, y: Pieces, scales: list[Pieces], zero: int) -> Results:
    """Gives the product times its scales over the result's, rounded, with the result's zero point."""
    to = n.element(zero)
    e = expr.nearbyint(expr.cast(_1, f32) * (expr.cast(_2, f32) * expr.cast(_3, f32) / expr.cast(Arg(4), f32)))
    e = _limited(e + expr.cast(Arg(5), f32), to)
    operands = [y, *scales, _spread(n, zero, n.full, None)]
    return [n.t.elementwise(e, box(n.full), operands, False)]


def _qlinear_matmul(n: Node) -> Results:
    a, b = n.shape(0), n.shape(3)
    y = multiplied(n.t, a, b, _centred(n, 0, 2, len(a) - 2), _centred(n, 3, 5, len(b) - 1), n.full)
    rank = len(n.full)
    scales = [_spread(n, 1, n.full, rank - 2), _spread(n, 4, n.full, rank - 1), _spread(n, 6, n.full, None)]
    return _rescaled(n, y, scales, 7)


def _conv_integer(n: Node) -> Results:
    return [convolved(n, n.shape(0), n.shape(1), _centred(n, 0, 2, None), _centred(n, 1, 3, 0))]


def _qlinear_conv(n: Node) -> Results:
    y = convolved(n, n.shape(0), n.shape(3), _centred(n, 0, 2, None), _centred(n, 3, 5, 0))
    if n.has(8):
        y = n.t.elementwise(_1 + _2, box(n.full), [y, _spread(n, 8, n.full, 1)], False)
    scales = [_spread(n, 1, n.full, None), _spread(n, 4, n.full, 1), _spread(n, 6, n.full, None)]
    return _rescaled(n, y, scales, 7)


QUANTIZED: Mapping[str, Callable[[Node], Results]] = {
    "ConvInteger": _conv_integer,
    "DequantizeLinear": _dequantised,
    "MatMulInteger": _matmul_integer,
    "QLinearConv": _qlinear_conv,
    "QLinearMatMul": _qlinear_matmul,
    "QuantizeLinear": _quantised,
}
"""The definition of each op."""
