"""Conversions of products: dot_general, convolution, fft."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from xdsl.dialects.builtin import i1, i32
from xdsl.ir import Attribute, SSAValue

from populus.dialects import popart
from populus.dialects.stablehlo.attributes import ConvolutionDimensions, Named
from populus.dialects.support.diagnostics import PopulusError
from populus.dialects.support.element_types import dtype_of, is_float, size_in_bytes
from populus.lowering.stablehlo.to_popart.conversion import Conversion, Pair, Rules, Value, as_pair, element, real, shape
from populus.lowering.stablehlo.to_popart.tensors import padded

if TYPE_CHECKING:
    from numpy.typing import NDArray


def bilinear(c: Conversion, a: Value, b: Value, product: Callable[[SSAValue, SSAValue], SSAValue]) -> Value:
    """Multiplies complex operands by products of their parts; real ones by one product."""
    if not (isinstance(a, Pair) or isinstance(b, Pair)):
        return product(real(a), real(b))
    if not isinstance(a, Pair):
        assert isinstance(b, Pair)
        return Pair(product(real(a), b.real), product(real(a), b.imag))
    if not isinstance(b, Pair):
        return Pair(product(a.real, real(b)), product(a.imag, real(b)))
    re = c(popart.SubOp, product(a.real, b.real), product(a.imag, b.imag))
    return Pair(re, c(popart.AddOp, product(a.real, b.imag), product(a.imag, b.real)))


def summed_type(c: Conversion, *operands: SSAValue) -> Attribute:
    """Gives the element type in which products are summed: the result's, or i32 for shorter integers and booleans."""
    to = c.element()
    if not is_float(to):
        return to if to != i1 and size_in_bytes(to) >= 4 else i32
    widest = max((element(v) for v in operands if is_float(element(v))), key=size_in_bytes, default=to)
    return to if size_in_bytes(to) >= size_in_bytes(widest) else widest


def dot(c: Conversion, a: SSAValue, b: SSAValue, batch: Sequence[Sequence[int]], contract: Sequence[Sequence[int]]) -> SSAValue:
    """Multiplies: batch dimensions first, then the free ones of a, then those of b, as one matrix product."""
    to = summed_type(c, a, b)
    (lb, rb), (lc, rc) = batch, contract
    lf, rf = ([d for d in range(len(shape(v))) if d not in taken] for v, taken in ((a, (*lb, *lc)), (b, (*rb, *rc))))
    sizes = [[shape(v)[d] for d in dims] for v, dims in ((a, lb), (a, lf), (a, lc), (b, rf))]
    n, m, k, o = (math.prod(s) for s in sizes)
    left = c.reshape(c.transpose(c.cast(a, to), (*lb, *lf, *lc)), (*sizes[0], m, k))
    right = c.reshape(c.transpose(c.cast(b, to), (*rb, *rc, *rf)), (*sizes[0], k, o))
    out = (*sizes[0], *sizes[1], *sizes[3])
    if 0 in (n, m, k, o):
        return c.expand(c.scalar(0, c.element()), out)
    found = c.reshape(c(popart.MatMulOp, left, right), out)
    return c(popart.NotOp, c(popart.EqualOp, found, c.scalar(0, found))) if c.element() == i1 else c.cast(found, c.element())


def dot_general(c: Conversion) -> Value:
    """Converts dot_general."""
    d = c.op.stated("dot_dimension_numbers")
    assert isinstance(d, Named)
    batch = d.ints("lhs_batching_dimensions"), d.ints("rhs_batching_dimensions")
    contract = d.ints("lhs_contracting_dimensions"), d.ints("rhs_contracting_dimensions")
    return bilinear(c, c.inputs[0], c.inputs[1], lambda a, b: dot(c, a, b, batch, contract))


def plain_dot(c: Conversion) -> Value:
    """Converts dot: the last dimension of the left side with the first of the right one."""

    def product(a: SSAValue, b: SSAValue) -> SSAValue:
        return dot(c, a, b, ((), ()), ((len(shape(a)) - 1,), (0,)))

    return bilinear(c, c.inputs[0], c.inputs[1], product)


def einsum(c: Conversion) -> Value:
    """Converts einsum of two operands without repeated letters in one."""
    text = c.get("einsum_config").replace(" ", "")
    (left, right), out = text.partition("->")[0].split(","), text.partition("->")[2]
    both = [x for x in left if x in right]
    batch, contract = [x for x in both if x in out], [x for x in both if x not in out]
    free = [x for x in left if x not in both] + [x for x in right if x not in both]
    if sorted([*batch, *free]) != sorted(out) or len(set(left)) < len(left) or len(set(right)) < len(right):
        raise PopulusError(f"einsum_config is '{text}'; letters that one side alone has are to be in the result, and none is repeated")

    def product(a: SSAValue, b: SSAValue) -> SSAValue:
        places = [[[side.index(x) for x in letters] for side in (left, right)] for letters in (batch, contract)]
        return c.transpose(dot(c, a, b, *places), [[*batch, *free].index(x) for x in out])

    return bilinear(c, c.inputs[0], c.inputs[1], product)


def convolution(c: Conversion) -> Value:
    """Converts convolution: dimensions in ONNX's order, dilations of the input as zeros between its elements, batch groups as features."""
    dims = c.op.stated("dimension_numbers")
    assert isinstance(dims, ConvolutionDimensions)
    rank = len(dims.data[0]) - 2
    strides, into, apart = (c.ints(name, rank) for name in ("window_strides", "lhs_dilation", "rhs_dilation"))
    stated = [int(v) for v in c.known(2).reshape(-1)] if c.op.kind == "dynamic_conv" else c.ints("padding", 2 * rank, 0)
    pads = list(zip(stated[::2], stated[1::2]))
    flipped = c.get("window_reversal") or (False,) * rank
    groups, batches = c.get("feature_group_count"), c.get("batch_group_count")
    out = dims.order(2, "b", "f")

    def product(x: SSAValue, w: SSAValue) -> SSAValue:
        to = summed_type(c, x, w)
        x = c.transpose(c.cast(x, to), dims.order(0, "b", "f"))
        w = c.transpose(c.cast(w, to), dims.order(1, "o", "i"))
        none = (0,) * (rank + 2)
        x = padded(c, x, c.scalar(0, to), none, none, (0, 0, *(i - 1 for i in into)))
        w = c.slice(w, {d + 2: (shape(w)[d + 2] - 1, -1, -1) for d in range(rank) if flipped[d] and shape(w)[d + 2] > 1})
        if batches > 1:
            n, f, *size = shape(x)
            x = c.reshape(x, (batches, n // batches, f, *size))
            x = c.transpose(x, (1, 0, 2, *range(3, 3 + rank)))
            x = c.reshape(x, (n // batches, batches * f, *size))
        final = c.shape()
        if 0 in (*shape(x), *shape(w), *final) or rank == 0:
            if 0 in final or 0 in (*shape(x), *shape(w)):
                return c.expand(c.scalar(0, c.element()), final)
            x, w = c.reshape(x, (*shape(x), 1)), c.reshape(w, (*shape(w), 1))
        lower, upper = [a for a, _ in pads], [b for _, b in pads]
        settings = {"strides": strides or (1,), "pads": (*lower, *upper) or (0, 0), "dilations": apart or (1,)}
        y = c(popart.ConvOp, x, w, None, **settings, group=groups * batches)
        y = c.reshape(y, shape(y)[: rank + 2])
        return c.cast(c.transpose(y, [out.index(d) for d in range(rank + 2)]), c.element())

    return bilinear(c, c.inputs[0], c.inputs[1], product)


def fft(c: Conversion) -> Value:
    """Converts fft: the transform of each dimension is a product with a matrix of roots of unity."""
    kind, lengths = c.get("fft_type"), c.ints("fft_length")
    x, first = c.inputs[0], len(c.shape()) - len(lengths)
    inverse = kind in ("IFFT", "IRFFT")
    axes = list(range(first, first + len(lengths)))
    if kind == "IRFFT":  # the last dimension, which is half of it, comes last
        for axis, n in list(zip(axes, lengths))[:-1]:
            x = transformed(c, as_pair(c, x), axis, n, inverse)
        return halved(c, as_pair(c, x), axes[-1], lengths[-1])
    for axis, n in reversed(list(zip(axes, lengths))):
        kept = n // 2 + 1 if kind == "RFFT" and axis == axes[-1] else n
        x = transformed(c, x, axis, n, inverse, kept)
    return x


def roots(n: int, kept: int, inverse: bool) -> tuple[NDArray[Any], NDArray[Any]]:
    """Gives cosines and sines of the transform: [n, kept], in f64. Those of multiples of a quarter turn are exact."""
    import numpy as np

    turns = np.outer(np.arange(n), np.arange(kept)) % n
    angles = 2 * np.pi * turns / n
    cos, sin = np.cos(angles), np.sin(angles)
    for quarter, (a, b) in enumerate(((1, 0), (0, 1), (-1, 0), (0, -1))):
        exact = 4 * turns == quarter * n
        cos[exact], sin[exact] = a, b
    return (cos / n, sin / n) if inverse else (cos, -sin)


def along(c: Conversion, x: SSAValue, matrix: NDArray[Any], axis: int) -> SSAValue:
    """Multiplies a dimension of `x` by a matrix."""
    rank = len(shape(x))
    order = [*(d for d in range(rank) if d != axis), axis]
    y = c(popart.MatMulOp, c.transpose(x, order), c.constant(matrix.astype(dtype_of(element(x)))))
    return c.transpose(y, [order.index(d) for d in range(rank)])


def transformed(c: Conversion, x: Value, axis: int, n: int, inverse: bool, kept: int | None = None) -> Value:
    """Transforms a dimension; of a real operand, half of the products are zero."""
    cos, sin = roots(n, n if kept is None else kept, inverse)
    if not isinstance(x, Pair):
        return Pair(along(c, real(x), cos, axis), along(c, real(x), sin, axis))
    re = c(popart.SubOp, along(c, x.real, cos, axis), along(c, x.imag, sin, axis))
    return Pair(re, c(popart.AddOp, along(c, x.real, sin, axis), along(c, x.imag, cos, axis)))


def halved(c: Conversion, x: Pair, axis: int, n: int) -> Value:
    """Transforms half a spectrum back to real numbers: each element but the first and the middle one stands for two."""
    import numpy as np

    half = n // 2 + 1
    cos, sin = roots(n, half, inverse=True)
    weights = np.array([1 if k == 0 or 2 * k == n else 2 for k in range(half)])
    re, im = along(c, x.real, (cos * weights).T, axis), along(c, x.imag, (sin * weights).T, axis)
    return c(popart.SubOp, re, im)


RULES: Rules = {
    "convolution": convolution,
    "dynamic_conv": convolution,
    "dot": plain_dot,
    "dot_general": dot_general,
    "einsum": einsum,
    "fft": fft,
}
