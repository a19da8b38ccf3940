"""Conversions of ops that move elements: reshapes, broadcasts, slices, pads, concatenation; and constants."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, cast

from xdsl.dialects.builtin import DenseIntOrFPElementsAttr, i1
from xdsl.ir import Attribute, SSAValue

from populus.dialects import popart
from populus.dialects.support.diagnostics import PopulusError
from populus.dialects.support.element_types import dtype_of, is_known, is_packed, shape_of, size_in_bytes
from populus.lowering.stablehlo.to_popart.conversion import (
    BITS,
    Conversion,
    Pair,
    Rule,
    Rules,
    Value,
    apart,
    element,
    is_complex,
    leaves,
    part_type,
    shape,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray


def array_of(value: object, type: Attribute) -> NDArray[Any]:
    """Gives the elements of a constant's value; those of a complex one are pairs, [.., 2]. Raises PopulusError for no dense value."""
    import numpy as np

    if not is_known(part_type(type)):
        raise PopulusError(f"a constant is {type}; tiles cannot hold {part_type(type)}")
    dtype, parts = dtype_of(part_type(type)), (2,) if is_complex(type) else ()
    if not isinstance(value, DenseIntOrFPElementsAttr):
        raise PopulusError(f"the value is {value}; a dense one is expected")
    dense = cast("DenseIntOrFPElementsAttr[Any]", value)
    if dtype == np.bool_ or dtype.name in ("int4", "uint4", "int2", "uint2"):
        found = np.array([int(v) for v in dense.get_values()]).astype(dtype)
    else:
        found = np.frombuffer(dense.data.data, dtype)
    target = (*shape_of(type), *parts)
    splat = found.size == math.prod(parts)
    return np.broadcast_to(found.reshape(parts), target) if splat else found.reshape(target)


def constant(c: Conversion) -> Value:
    """Converts constant."""
    array = array_of(c.op.stated("value"), c.any.results[0].type)
    return Pair(c.constant(array[..., 0]), c.constant(array[..., 1])) if c.is_complex() else c.constant(array)


def reshape(c: Conversion, x: SSAValue) -> SSAValue:
    """Converts reshape."""
    return x if c.lifted and c.shape() == () else c.reshape(x, c.shape())


def broadcast_in_dim(c: Conversion, x: SSAValue) -> SSAValue:
    """Converts broadcast_in_dim: the dimensions are put in order, then the others between them."""
    to, dims = c.shape(), c.ints("broadcast_dimensions")
    if c.lifted and to == ():
        return x
    order = sorted(range(len(dims)), key=lambda i: dims[i])
    x = c.transpose(x, order)
    sizes = dict(zip(sorted(dims), shape(x)))
    return c.expand(c.reshape(x, [sizes.get(d, 1) for d in range(len(to))]), to)


def broadcast(c: Conversion, x: SSAValue) -> SSAValue:
    """Converts broadcast: new dimensions in front."""
    return c.expand(c.reshape(x, (*(1,) * len(c.ints("broadcast_sizes")), *shape(x))), c.shape())


def transpose(c: Conversion, x: SSAValue) -> SSAValue:
    """Converts transpose."""
    return x if c.lifted and c.shape() == () else c.transpose(x, c.ints("permutation"))


def slice_(c: Conversion, x: SSAValue) -> SSAValue:
    """Converts slice."""
    low, high, steps = (c.ints(name) for name in ("start_indices", "limit_indices", "strides"))
    return c.slice(x, dict(enumerate(zip(low, high, steps))))


def real_dynamic_slice(c: Conversion) -> Value:
    """Converts real_dynamic_slice, whose bounds are constants."""
    bounds = dict(enumerate(zip(*([int(v) for v in c.known(i)] for i in (1, 2, 3)))))

    def one(c: Conversion, x: SSAValue) -> SSAValue:
        return c.slice(x, bounds)

    return apart(one)(c.of(1))


def padded(c: Conversion, x: SSAValue, value: SSAValue, low: Any, high: Any, inside: Any) -> SSAValue:
    """Pads: elements between neighbours first, as a dimension of their own; negative pads crop."""
    for d, count in enumerate(inside):
        n = shape(x)[d]
        if count and n > 1:
            rank = len(shape(x))
            x = c.reshape(x, (*shape(x)[: d + 1], 1, *shape(x)[d + 1 :]))
            upper = tuple(int(count) if e == d + 1 else 0 for e in range(rank + 1))
            x = c(popart.PadOp, x, value, lower=(0,) * (rank + 1), upper=upper, mode="constant")
            merged = (*shape(x)[:d], n * (count + 1), *shape(x)[d + 2 :])
            x = c.slice(c.reshape(x, merged), {d: (0, (n - 1) * (count + 1) + 1, 1)})
    if not any((*low, *high)):
        return x
    if any(n + min(a, 0) + min(b, 0) < 0 for n, a, b in zip(shape(x), low, high)):  # cropped beyond its other end
        x = c(popart.PadOp, x, value, lower=tuple(max(a, 0) for a in low), upper=tuple(max(b, 0) for b in high), mode="constant")
        low, high = tuple(min(a, 0) for a in low), tuple(min(b, 0) for b in high)
    return c(popart.PadOp, x, value, lower=tuple(low), upper=tuple(high), mode="constant")


def pad(c: Conversion, x: SSAValue, value: SSAValue) -> SSAValue:
    """Converts pad."""
    return padded(c, x, value, *(c.ints(name) for name in ("edge_padding_low", "edge_padding_high", "interior_padding")))


def dynamic_pad(c: Conversion) -> Value:
    """Converts dynamic_pad, whose pads are constants."""
    pads = [[int(v) for v in c.known(i)] for i in (2, 3, 4)]

    def one(c: Conversion, x: SSAValue, value: SSAValue) -> SSAValue:
        return padded(c, x, value, *pads)

    return apart(one)(c.of(2))


def concatenate(c: Conversion, *parts: SSAValue) -> SSAValue:
    """Converts concatenate."""
    return parts[0] if len(parts) == 1 else c(popart.ConcatOp, *parts, axis=c.get("dimension"))


def reverse(c: Conversion, x: SSAValue) -> SSAValue:
    """Converts reverse."""
    return c.slice(x, {d: (shape(x)[d] - 1, -1, -1) for d in c.ints("dimensions") if shape(x)[d] > 1})


def iota(c: Conversion) -> Value:
    """Converts iota: the index along a dimension. A complex one has zeros for its imaginary part."""
    import numpy as np

    d, to, dtype = int(c.get("iota_dimension")), c.shape(), dtype_of(c.element())
    line = np.arange(to[d]).astype(dtype).reshape([to[d] if e == d else 1 for e in range(len(to))])
    found = c.expand(c.constant(line), to)
    return Pair(found, c.filled(0, found)) if c.is_complex() else found


def bitcast_convert(c: Conversion) -> Value:
    """Converts bitcast_convert: a last dimension appears, or goes, where the widths differ. The low bits are first."""
    x, to = c.inputs[0], c.element()
    if isinstance(x, Pair) or c.is_complex():
        if isinstance(x, Pair) and c.is_complex():
            return x
        raise PopulusError("complex numbers have no bits here: their parts are two tensors")
    assert isinstance(x, SSAValue)
    if element(x) != to and any(t == i1 or is_packed(t) for t in (element(x), to)):
        raise PopulusError(f"{element(x)} to {to}: elements of less than a byte take one here, so their bits do not lie side by side")
    have, want = size_in_bytes(element(x)), size_in_bytes(to)
    if have == want:
        return c.bits(x, to)
    if c.lifted:
        raise PopulusError("it changes the width of elements in a region that combines them; bits of the same width are expected there")
    if have > want:
        raw, width = c.bits(x), 8 * want
        mask = c.scalar((1 << width) - 1, raw)
        parts = [c(popart.BitShiftOp, raw, c.scalar(width * i, raw), left=False) for i in range(have // want)]
        low = [c.bits(c.cast(c(popart.BitwiseAndOp, p, mask), BITS[want]), to) for p in parts]
        return c(popart.ConcatOp, *(c.reshape(p, (*shape(p), 1)) for p in low), axis=len(shape(x)))
    raw, rank = c.cast(c.bits(x), BITS[want]), len(shape(x)) - 1
    total: SSAValue | None = None
    for i in range(want // have):
        one = c.reshape(c.slice(raw, {rank: (i, i + 1, 1)}), shape(x)[:-1])
        one = c(popart.BitShiftOp, one, c.scalar(8 * have * i, one), left=True)
        total = one if total is None else c(popart.BitwiseOrOp, total, one)
    assert total is not None
    return c.bits(total, to)


def dimension_size(c: Conversion) -> Value:
    """Converts get_dimension_size of a static dimension."""
    import numpy as np

    return c.constant(np.array(shape(next(leaves(c.inputs)))[c.get("dimension")], np.int32))


def set_dimension_size(c: Conversion) -> Value:
    """Converts set_dimension_size to the size that the dimension has. Raises PopulusError for another size."""
    here, wanted = shape(next(leaves(c.inputs)))[int(c.get("dimension"))], int(c.known(1))
    if wanted != here:
        raise PopulusError(f"a dimension of {here} is set to {wanted}; sizes are static here")
    return c.inputs[0]


def sized(rule: Rule) -> Rule:
    """Makes the rule of a dynamic op whose result type is static: the operands that state sizes follow from it."""
    return lambda c: rule(c.of(1))


RULES: Rules = {
    "bitcast_convert": bitcast_convert,
    "broadcast": apart(broadcast),
    "broadcast_in_dim": apart(broadcast_in_dim),
    "concatenate": apart(concatenate),
    "constant": constant,
    "dynamic_broadcast_in_dim": sized(apart(broadcast_in_dim)),
    "dynamic_iota": iota,
    "dynamic_pad": dynamic_pad,
    "dynamic_reshape": sized(apart(reshape)),
    "get_dimension_size": dimension_size,
    "iota": iota,
    "pad": apart(pad),
    "real_dynamic_slice": real_dynamic_slice,
    "reshape": apart(reshape),
    "reverse": apart(reverse),
    "set_dimension_size": set_dimension_size,
    "slice": apart(slice_),
    "transpose": apart(transpose),
}
