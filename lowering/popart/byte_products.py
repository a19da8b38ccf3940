"""Products of integers less their zero points, as exact products of 8-bit integers and terms beside them.

    (a - a_zero) (b - b_zero) = a b - a_zero (sums of columns of b) - b_zero (sums of rows of a) + k a_zero b_zero

All is i32 and wraps around, so the two sides are equal to the last bit. Terms of constants alone are folded later.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from xdsl.dialects.builtin import i8, i32
from xdsl.ir import SSAValue

from populus.dialects import popart
from populus.dialects.base.tensor_op import TensorOp
from populus.dialects.data import constant_value, is_loaded
from populus.dialects.popart import calls
from populus.dialects.support.element_types import ui8


class Inserts(Protocol):
    """Place that ops are inserted at: a node's conversion, or a pattern's rewriting."""

    def insert(self, op: TensorOp, /) -> SSAValue:
        """Inserts an op and gives its result."""
        ...

    def constant(self, array: NDArray[Any], /) -> SSAValue:
        """Inserts a constant."""
        ...


def number(to: Inserts, n: int) -> SSAValue:
    """Inserts an i32 scalar."""
    return to.constant(np.array(n, np.int32))


def reshape(to: Inserts, x: SSAValue, shape: Sequence[int]) -> SSAValue:
    """Reshapes `x`, unless it has the shape already."""
    return x if calls.shape(x) == tuple(shape) else to.insert(popart.ReshapeOp(x, shape=tuple(shape)))


def given(to: Inserts, zero: SSAValue | None, shape: Sequence[int]) -> SSAValue | None:
    """Gives a zero point in i32; None for one that is absent or known to be 0. `shape`: its shape if it has several."""
    if zero is None:
        return None
    shape, known = () if math.prod(calls.shape(zero)) == 1 else shape, constant_value(zero)
    if known is None:
        return reshape(to, to.insert(popart.CastOp(zero, to=i32)), shape)
    return to.constant(known.astype(np.int32).reshape(tuple(shape))) if known.any() else None


def signed(to: Inserts, b: SSAValue, zero: SSAValue | None) -> tuple[SSAValue, SSAValue | None]:
    """Moves unsigned weights `b` and their zero point (i32) down by 128, for machines multiply ui8 by i8."""
    if calls.element(b) != ui8:
        return b, zero
    weights = constant_value(b) if is_loaded(b) else None
    if weights is not None:  # of any size: computed at run time it would be packed in each run
        moved = to.constant((weights ^ np.uint8(128)).view(np.int8))
    else:
        moved = to.insert(popart.CastOp(to.insert(popart.SubOp(to.insert(popart.CastOp(b, to=i32)), number(to, 128))), to=i8))
    known = None if zero is None else constant_value(zero)
    if known is not None:
        return moved, to.constant(known - np.int32(128)) if (known != 128).any() else None
    return moved, number(to, -128) if zero is None else to.insert(popart.SubOp(zero, number(to, 128)))


def product(to: Inserts, a: SSAValue, b: SSAValue, a_zero: SSAValue | None, b_zero: SSAValue | None) -> SSAValue:
    """Computes `(a - a_zero) (b - b_zero)`: i32. Zero points are i32 and broadcast to [.., m, 1] and [.., 1, n]; None: 0."""
    of_a, of_b = calls.shape(a), calls.shape(b)
    a = reshape(to, a, (1, *of_a)) if len(of_a) == 1 else a
    b = reshape(to, b, (*of_b, 1)) if len(of_b) == 1 else b
    b, b_zero = signed(to, b, b_zero)
    y = to.insert(popart.IntegerMatMulOp(a, b))
    k = calls.shape(b)[-2]
    if a_zero is not None:
        y = _less(to, y, a_zero, to.insert(popart.IntegerMatMulOp(_ones(to, 1, k), b)))
    if b_zero is not None:
        y = _less(to, y, b_zero, to.insert(popart.IntegerMatMulOp(a, _ones(to, k, 1))))
    if a_zero is not None and b_zero is not None:
        y = _less(to, y, to.insert(popart.MulOp(a_zero, b_zero)), number(to, -k))
    *lead, m, n = calls.shape(y)
    return reshape(to, y, (*lead, *([] if len(of_a) == 1 else [m]), *([] if len(of_b) == 1 else [n])))


def convolution(
    to: Inserts,
    x: SSAValue,
    w: SSAValue,
    x_zero: SSAValue | None,
    w_zero: SSAValue | None,
    bias: SSAValue | None,
    strides: Sequence[int],
    pads: Sequence[int],
    dilations: Sequence[int],
    group: int,
) -> SSAValue:
    """Convolves `x - x_zero` with `w - w_zero` and adds a bias [channels]: i32. Padding counts as the zero point.

    `x_zero` is of x's type, `w_zero` of w's, one or one for each output channel; None: 0.
    """
    out, spatial = calls.shape(w)[0], len(calls.shape(w)) - 2
    depth, channels = math.prod(calls.shape(w)[1:]), (1, out, *(1,) * spatial)
    own, other = given(to, x_zero, ()), given(to, w_zero, channels)
    if own is not None and any(pads):
        assert x_zero is not None
        around = {"lower": (0, 0, *pads[:spatial]), "upper": (0, 0, *pads[spatial:])}
        x, pads = to.insert(popart.PadOp(x, reshape(to, x_zero, ()), **around)), [0] * len(pads)
    w, other = signed(to, w, other)

    def of(weights: SSAValue) -> SSAValue:
        return to.insert(
            popart.IntegerConvOp(x, weights, strides=tuple(strides), pads=tuple(pads), dilations=tuple(dilations), group=group)
        )

    y = of(w)
    term = None if bias is None else reshape(to, bias, channels)
    if own is not None:  # the sum of a channel's weights, as a product with ones
        sums = to.insert(popart.IntegerMatMulOp(reshape(to, w, (out, depth)), _ones(to, depth, 1)))
        term = _less(to, term, own, reshape(to, sums, channels))
    if other is not None:
        sums = 1 if group == 1 else out  # all output channels of a group have the same sums of windows
        y = _less(to, y, other, of(_ones(to, sums, *calls.shape(w)[1:])))
    if own is not None and other is not None:
        term = _less(to, term, to.insert(popart.MulOp(own, other)), number(to, -depth))
    return y if term is None else to.insert(popart.AddOp(y, term))


def _ones(to: Inserts, *sizes: int) -> SSAValue:
    """Inserts ones, products with which are sums."""
    return to.constant(np.broadcast_to(np.array(1, np.int8), sizes))


def _less(to: Inserts, y: SSAValue | None, a: SSAValue, b: SSAValue) -> SSAValue:
    """Subtracts `a b` from `y`; from 0 if it is None."""
    product = to.insert(popart.MulOp(a, b))
    return to.insert(popart.NegOp(product) if y is None else popart.SubOp(y, product))
