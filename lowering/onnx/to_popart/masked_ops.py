"""Rules of `popart` ops for partly valid operands: what each reads beyond the valid part, and the valid part of its result.

An element-wise op and a permutation read each element for itself. An op that mixes elements along a padded axis reads its neutral
element there. A count, such as the divisor of a mean, is the number of valid elements.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from xdsl.dialects.builtin import bf16, f16, f32
from xdsl.ir import Operation, SSAValue

from populus.dialects import popart
from populus.dialects.base.tensor_op import ints
from populus.dialects.data import constant, constant_value
from populus.dialects.onnx.sizes import as_size
from populus.dialects.popart.base import ElementwiseOp, ReduceOp
from populus.dialects.support import shapes
from populus.dialects.support.diagnostics import PopulusError
from populus.dialects.support.element_types import dtype_of, is_float, is_unsigned
from populus.lowering.onnx.to_popart.conversion import element, shape
from populus.lowering.onnx.to_popart.masks import Masks, Place, Rule
from populus.lowering.onnx.valid_sizes import (
    Axes,
    Axis,
    bound_of,
    broadcast,
    described,
    dimensions,
    is_prefix,
    is_whole,
    prefix,
    reshaped,
    size_of,
    whole,
)


def refuse(m: Masks, op: Operation, why: str) -> PopulusError:
    """Makes the error of an op that cannot have a bounded dimension there."""
    return PopulusError(f"{why}; bind the dimension {dimensions(m.valid.axes, op.operands)} to one size")


def refilled(op: Operation, values: Mapping[int, SSAValue]) -> None:
    """Replaces operands by position."""
    op.operands = [values.get(i, v) for i, v in enumerate(op.operands)]


def put(m: Masks, c: Place, op: Operation, axes: Axes) -> SSAValue:
    """Inserts an op whose result has these axes."""
    return m.state(m.plain(c, op), axes)


def elementwise(m: Masks, c: Place, op: ElementwiseOp) -> SSAValue:
    """Inserts an element-wise op. Integers are not divided by what stands beyond the valid part."""
    axes = broadcast([m.valid.of(v) for v in op.operands])
    if isinstance(op, popart.DivOp | popart.ModOp) and not is_float(element(op.operands[1])):
        refilled(op, {1: m.filled(c, op.operands[1], None, "one")})
    return put(m, c, op, axes)


NEUTRAL: Mapping[type[ReduceOp], str] = {
    popart.ReduceL1Op: "zero",
    popart.ReduceL2Op: "zero",
    popart.ReduceLogSumExpOp: "lowest",
    popart.ReduceLogSumOp: "zero",
    popart.ReduceMaxOp: "lowest",
    popart.ReduceMinOp: "highest",
    popart.ReduceProdOp: "one",
    popart.ReduceSumOp: "zero",
    popart.ReduceSumSquareOp: "zero",
}


def reduction(m: Masks, c: Place, op: ReduceOp) -> SSAValue:
    """Reduces the neutral element beyond the valid part; a mean divides by the number of valid elements."""
    axes, dims = m.valid.of(op.x), op.dims()
    kept = tuple(() if d in dims else a for d, a in enumerate(axes) if op.keep or d not in dims)
    if all(is_whole(axes[d]) for d in dims):
        return put(m, c, op, kept)
    if isinstance(op, popart.ReduceMeanOp):
        return mean(m, c, op.x, dims, op.keep)
    neutral = NEUTRAL.get(type(op))
    if neutral is None:
        raise refuse(m, op, f"{op.name} reduces over a bounded dimension")
    refilled(op, {0: m.filled(c, op.x, dims, neutral)})
    return put(m, c, op, kept)


def mean(m: Masks, c: Place, x: SSAValue, dims: Sequence[int], keep: bool) -> SSAValue:
    """Builds the mean over `dims`: the sum of valid elements over their number, 16-bit floats in f32."""
    axes, kind = m.valid.of(x), element(x)
    wide = c.cast(x, f32) if kind in (f16, bf16) else x
    total = c.insert(popart.ReduceSumOp(wide, axes=tuple(dims), keep=keep))
    return c.cast(c.insert(popart.DivOp(total, m.count(c, axes, dims, element(wide)))), kind)


def rows(m: Masks, c: Place, op: popart.SoftmaxOp | popart.LogSoftmaxOp) -> SSAValue:
    """Fills the axis of a softmax with minus infinity."""
    axes = m.valid.of(op.x)
    refilled(op, {0: m.filled(c, op.x, (op.axis,), "lowest")})
    result = put(m, c, op, axes)
    if isinstance(op, popart.SoftmaxOp) and not m.zeroed:  # a mask also zeroes the gradient
        m.known(result, {op.axis: "zero"})
    return result


def matmul(m: Masks, c: Place, op: popart.IntegerMatMulOp | popart.MatMulOp) -> SSAValue:
    """Fills the summed axis of both operands with zeros: zero times NaN is NaN."""
    a, b = m.valid.of(op.a), m.valid.of(op.b)
    inner = (len(a) - 1, max(len(b) - 2, 0))
    if not is_whole(a[inner[0]]) or not is_whole(b[inner[1]]):
        if a[inner[0]] != b[inner[1]]:
            raise refuse(m, op, f"{described(a)} times {described(b)}: what is summed over is not of one size")
        refilled(op, {0: m.filled(c, op.a, (inner[0],), "zero"), 1: m.filled(c, op.b, (inner[1],), "zero")})
    left, right = (((), *a) if len(a) == 1 else a), ((*b, ()) if len(b) == 1 else b)
    outer = broadcast([left[:-2], right[:-2]])
    ends = (*([] if len(a) == 1 else [left[-2]]), *([] if len(b) == 1 else [right[-1]]))
    return put(m, c, op, (*outer, *ends))


def gemm(m: Masks, c: Place, op: popart.GemmOp) -> SSAValue:
    """Fills as `matmul`; c is added element by element."""
    a, b = m.valid.of(op.a), m.valid.of(op.b)
    outer, inner = (1, 0) if op.trans_a else (0, 1)
    right, summed = (0, 1) if op.trans_b else (1, 0)
    if not is_whole(a[inner]) or not is_whole(b[summed]):
        if a[inner] != b[summed]:
            raise refuse(m, op, f"{described(a)} times {described(b)}: what is summed over is not of one size")
        refilled(op, {0: m.filled(c, op.a, (inner,), "zero"), 1: m.filled(c, op.b, (summed,), "zero")})
    return put(m, c, op, (a[outer], b[right]))


def transpose(m: Masks, c: Place, op: popart.TransposeOp) -> SSAValue:
    """Moves axes with their valid parts, and with what is known to stand beyond those."""
    axes, order = m.valid.of(op.x), ints(op.permutation)
    result = put(m, c, op, tuple(axes[d] for d in order))
    m.known(result, {order.index(d): fill for d, fill in m.known_of(op.x).items()})
    return result


def reshape(m: Masks, c: Place, op: popart.ReshapeOp) -> SSAValue:
    """Reshapes axes: merged axes keep their factors; a split axis has to be one of those."""
    x, to = m.valid.of(op.x), shape(op.y)
    axes = reshaped(x, to)
    if axes is None:
        raise refuse(m, op, f"{described(x)} cannot be cut into {shapes.text(to)}")
    return put(m, c, op, axes)


def expand(m: Masks, c: Place, op: popart.ExpandOp) -> SSAValue:
    """Broadcasts: dimensions that stretch are valid as a whole."""
    return put(m, c, op, broadcast([m.valid.of(op.x), whole(ints(op.shape))]))


def concat(m: Masks, c: Place, op: popart.ConcatOp) -> SSAValue:
    """Joins parts, at run-time offsets if one in front is not valid as a whole."""
    parts, d = list(op.operands), op.axis
    axes = [m.valid.of(p) for p in parts]
    others = broadcast([(*a[:d], (), *a[d + 1 :]) for a in axes])
    along = [a[d] for a in axes]
    if not all(map(is_prefix, along)):
        raise refuse(m, op, f"{' and '.join(map(described, axes))} are joined along merged dimensions")
    total, most = sum((size_of(a) for a in along), as_size(0)), sum(map(bound_of, along))
    bound = min(most, m.valid.upper(total))
    final = (*others[:d], prefix(bound, total), *others[d + 1 :])
    if all(map(is_whole, along[:-1])) and bound == most:
        return put(m, c, op, final)
    if len(parts) == 2 and bound_of(along[1]) == 1:
        return m.state(appended(m, c, parts[0], parts[1], d, bound), final)
    joined = m.plain(c, op)
    numbers, source = m.iota(c, bound), m.iota(c, bound)
    start, offset = as_size(0), 0
    for a in along[:-1]:
        start, offset = start + size_of(a), offset + bound_of(a)
        begin = m.scalar(c, start)
        moved = m.plain(c, popart.AddOp(numbers, m.plain(c, popart.SubOp(m.scalar(c, as_size(offset)), begin))))
        after = m.plain(c, popart.GreaterOrEqualOp(numbers, begin))
        source = m.plain(c, popart.WhereOp(after, moved, source))
    return m.state(picked(m, c, joined, source, d), final)


def appended(m: Masks, c: Place, x: SSAValue, row: SSAValue, d: int, bound: int) -> SSAValue:
    """Appends one row to axis `d` of x, in a buffer of `bound` rows: a selection, which may overwrite x."""
    axes, size = m.valid.of(x), shape(x)
    if size[d] < bound:
        upper = [bound - n if e == d else 0 for e, n in enumerate(size)]
        x = m.plain(c, popart.PadOp(x, None, lower=[0] * len(size), upper=upper))
    elif size[d] > bound:
        ends = [bound if e == d else n for e, n in enumerate(size)]
        x = m.plain(c, popart.SliceOp(x, begins=[0] * len(size), ends=ends, steps=[1] * len(size)))
    before = m.mask(prefix(bound, size_of(axes[d])))
    form = [bound if e == d else 1 for e in range(len(size))]
    return m.plain(c, popart.WhereOp(m.plain(c, popart.ReshapeOp(before, shape=form)), x, row))


def picked(m: Masks, c: Place, x: SSAValue, indices: SSAValue, d: int) -> SSAValue:
    """Gathers along axis `d` at i32 indices; those out of range are clamped, as only invalid elements read them."""
    last = m.scalar(c, as_size(shape(x)[d] - 1))
    inside = m.plain(c, popart.MaxOp(m.plain(c, popart.MinOp(indices, last)), m.scalar(c, as_size(0))))
    return m.plain(c, popart.GatherOp(x, inside, axis=d))


def slices(m: Masks, c: Place, op: popart.SliceOp) -> SSAValue:
    """Slices a prefix, forwards only."""
    axes: list[Axis] = []
    for a, n, size, (begin, _, step) in zip(m.valid.of(op.x), shape(op.x), shape(op.y), op.bounds()):
        if is_whole(a):
            axes.append(prefix(size, size))
        elif begin == 0 and step == 1 and size == n:
            axes.append(a)
        elif step > 0 and is_prefix(a):
            left = (size_of(a) - begin).max(0).ceildiv(step).min(size)
            axes.append(prefix(size, left.decided(m.valid.bounds)))
        else:
            raise refuse(m, op, f"{described(m.valid.of(op.x))} is cut backwards, or across merged dimensions")
    return put(m, c, op, tuple(axes))


def pad(m: Masks, c: Place, op: popart.PadOp) -> SSAValue:
    """Pads: x is filled with the value, so that it stands beyond the valid part already."""
    x, lower, upper = m.valid.of(op.x), ints(op.lower_), ints(op.upper)
    axes: list[Axis] = []
    for a, low, high in zip(x, lower, upper):
        if low == high == 0:
            axes.append(a)
        elif is_whole(a):
            n = bound_of(a) + low + high
            axes.append(prefix(n, n))
        elif not is_prefix(a) or op.mode.data != "constant":
            raise refuse(m, op, f"{described(x)} is padded by {op.mode.data}, or across merged dimensions")
        else:
            axes.append(prefix(bound_of(a) + low + high, (size_of(a) + low + high).max(0).decided(m.valid.bounds)))
    padded = [d for d, high in enumerate(upper) if high > 0]
    refilled(op, {0: m.filled(c, op.x, padded, "zero" if op.value is None else op.value)})
    return put(m, c, op, tuple(axes))


def tile(m: Masks, c: Place, op: popart.TileOp) -> SSAValue:
    """Repeats axes that are valid as a whole."""
    x, repeats = m.valid.of(op.x), ints(op.repeats)
    if any(r != 1 and not is_whole(a) for a, r in zip(x, repeats)):
        raise refuse(m, op, f"{described(x)} is repeated along a bounded dimension")
    return put(m, c, op, tuple(a if r == 1 else prefix(bound_of(a) * r, bound_of(a) * r) for a, r in zip(x, repeats)))


def gather(m: Masks, c: Place, op: popart.GatherOp) -> SSAValue:
    """Gathers: invalid indices are 0, and negative indices count from the end of the valid part."""
    import numpy as np

    x, d = m.valid.of(op.x), op.axis
    indices = m.filled(c, op.indices, None, "zero")
    axes = (*x[:d], *m.valid.of(op.indices), *x[d + 1 :])
    known = constant_value(indices)
    signed = not is_unsigned(element(indices)) and (known is None or bool((known < 0).any()))
    if not is_whole(x[d]) and is_prefix(x[d]) and signed:
        count = m.scalar(c, size_of(x[d]), element(indices))
        below = m.plain(c, popart.LessOp(indices, m.plain(c, constant(np.array(0, dtype_of(element(indices)))))))
        indices = m.plain(c, popart.WhereOp(below, m.plain(c, popart.AddOp(indices, count)), indices))
    refilled(op, {1: indices})
    return put(m, c, op, axes)


def scatter(m: Masks, c: Place, op: popart.ScatterOp) -> SSAValue:
    """Scatters: invalid updates go to a row of their own after x, which is then cut off."""
    import numpy as np

    axes, n = m.valid.of(op.x), shape(op.x)[0]
    along = m.valid.of(op.indices)[0]
    rest = broadcast([axes[1:], m.valid.of(op.updates)[1:]])
    if is_whole(along):
        return put(m, c, op, (axes[0], *rest))
    rank = len(axes)
    more = m.plain(c, popart.PadOp(op.x, None, lower=(0,) * rank, upper=(1, *(0,) * (rank - 1)), mode="constant"))
    end = m.plain(c, constant(np.array(n, dtype_of(element(op.indices)))))
    refilled(op, {0: more, 1: m.filled(c, op.indices, None, end)})
    op = popart.ScatterOp(*op.operands, reduction=op.reduction)
    written = m.plain(c, op)
    cut = popart.SliceOp(written, begins=(0,) * rank, ends=(n, *shape(written)[1:]), steps=(1,) * rank)
    return put(m, c, cut, (axes[0], *rest))


def top_k(m: Masks, c: Place, op: popart.TopKOp) -> SSAValue:
    """Fills the sorted axis with the least number: of equals, the first is chosen."""
    x = m.valid.of(op.x)
    if not is_whole(x[-1]):
        if not is_prefix(x[-1]):
            raise refuse(m, op, f"{described(x)} is sorted across merged dimensions")
        refilled(op, {0: m.filled(c, op.x, (len(x) - 1,), "lowest" if op.largest else "highest")})
    k = size_of(x[-1]).min(op.k).decided(m.valid.bounds)
    return put(m, c, op, (*x[:-1], prefix(op.k, k)))


def whitening(m: Masks, c: Place, op: Any) -> SSAValue:
    """Normalises by the mean and the variance of valid elements."""
    x = m.valid.of(op.x)
    match op:
        case popart.LayerNormOp():
            dims = range(op.axis, len(x))
        case popart.InstanceNormOp():
            dims = range(2, len(x))
        case _:
            dims = range(1, len(x))
    if all(is_whole(x[d]) for d in dims):
        return put(m, c, op, x)
    if isinstance(op, popart.GroupNormOp):
        return grouped(m, c, op)
    return normalised(m, c, op, op.x, list(dims), shape(op.x))


def grouped(m: Masks, c: Place, op: popart.GroupNormOp) -> SSAValue:
    """Normalises groups of channels: [batch, groups, channels of a group, size..]."""
    n, channels, *size = shape(op.x)
    split = c.reshape(op.x, (n, op.groups, channels // op.groups, *size))
    return normalised(m, c, op, split, list(range(2, len(shape(split)))), shape(op.x))


def normalised(m: Masks, c: Place, op: Any, x: SSAValue, dims: Sequence[int], form: Sequence[int]) -> SSAValue:
    """Builds `(x - mean) / sqrt(variance + epsilon) scale + bias`, in f32 for 16-bit floats."""
    kind = element(x)
    x = c.cast(x, f32) if kind in (f16, bf16) else x
    centred = c.insert(popart.SubOp(x, mean(m, c, x, dims, keep=True)))
    variance = mean(m, c, c.insert(popart.MulOp(centred, centred)), dims, keep=True)
    deviation = c.insert(popart.SqrtOp(c.insert(popart.AddOp(variance, c.scalar(op.epsilon, variance)))))
    y = c.cast(c.reshape(c.insert(popart.DivOp(centred, deviation)), form), kind)
    across = isinstance(op, popart.LayerNormOp)
    for vector, kind_of in ((op.scale, popart.MulOp), (op.bias, popart.AddOp)):
        if vector is not None:
            v = vector if across else c.reshape(vector, (*shape(vector), *(1,) * (len(form) - 2)))
            y = c.insert(kind_of(y, c.cast(v, kind)))
    return y


def batch_norm(m: Masks, c: Place, op: popart.BatchNormOp) -> SSAValue:
    """Normalises by given statistics."""
    x = m.valid.of(op.x)
    if not is_whole(x[1]):
        raise refuse(m, op, "the channels of a batch norm are of a bounded dimension")
    return put(m, c, op, x)


def lrn(m: Masks, c: Place, op: popart.LrnOp) -> SSAValue:
    """Normalises over windows of channels."""
    x = m.valid.of(op.x)
    refilled(op, {0: m.filled(c, op.x, (1,), "zero")})
    return put(m, c, op, x)


RULES: Mapping[type[Operation], Rule] = {
    ElementwiseOp: elementwise,
    ReduceOp: reduction,
    popart.BatchNormOp: batch_norm,
    popart.ConcatOp: concat,
    popart.ExpandOp: expand,
    popart.GatherOp: gather,
    popart.GemmOp: gemm,
    popart.GroupNormOp: whitening,
    popart.InstanceNormOp: whitening,
    popart.IntegerMatMulOp: matmul,
    popart.LayerNormOp: whitening,
    popart.LogSoftmaxOp: rows,
    popart.LrnOp: lrn,
    popart.MatMulOp: matmul,
    popart.PadOp: pad,
    popart.ReshapeOp: reshape,
    popart.ScatterOp: scatter,
    popart.SliceOp: slices,
    popart.SoftmaxOp: rows,
    popart.TileOp: tile,
    popart.TopKOp: top_k,
    popart.TransposeOp: transpose,
}
