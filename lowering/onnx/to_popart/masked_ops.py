"""Rules of `popart` ops for what no class says of partly valid operands: positions that move, counts of valid elements, sizes of results.

All other ops have the rule of `declared.py`.
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
from populus.dialects.popart.base import ElementwiseOp, PopartOp
from populus.dialects.support import shapes
from populus.dialects.support.element_types import dtype_of, is_unsigned
from populus.lowering.onnx.to_popart.conversion import element, shape
from populus.lowering.onnx.to_popart.declared import declared, kept, links_of, put, read, refilled, refuse
from populus.lowering.onnx.to_popart.masks import Masks, Place, Rule
from populus.lowering.onnx.valid_sizes import (
    Axis,
    bound_of,
    broadcast,
    described,
    is_prefix,
    is_whole,
    prefix,
    reshaped,
    size_of,
    whole,
)


def elementwise(m: Masks, c: Place, op: ElementwiseOp) -> SSAValue:
    """Inserts an element-wise op, which keeps all dimensions apart."""
    axes = broadcast([m.valid.of(v) for v in op.operands])
    read(m, c, op)
    return put(m, c, op, axes)


def reduce_mean(m: Masks, c: Place, op: popart.ReduceMeanOp) -> SSAValue:
    """Divides by the number of valid elements."""
    axes, dims = m.valid.of(op.x), op.dims()
    return declared(m, c, op) if all(is_whole(axes[d]) for d in dims) else mean(m, c, op.x, dims, op.keep)


def mean(m: Masks, c: Place, x: SSAValue, dims: Sequence[int], keep: bool) -> SSAValue:
    """Builds the mean over `dims`: the sum of valid elements over their number, 16-bit floats in f32."""
    axes, kind = m.valid.of(x), element(x)
    wide = c.cast(x, f32) if kind in (f16, bf16) else x
    total = c.insert(popart.ReduceSumOp(wide, axes=tuple(dims), keep=keep))
    return c.cast(c.insert(popart.DivOp(total, m.count(c, axes, dims, element(wide)))), kind)


def softmax(m: Masks, c: Place, op: popart.SoftmaxOp) -> SSAValue:
    """Records that a softmax is zero where it reads minus infinity."""
    result = declared(m, c, op)
    if not m.zeroed:  # a mask also zeroes the gradient
        m.known(result, {op.axis: "zero"})
    return result


def transpose(m: Masks, c: Place, op: popart.TransposeOp) -> SSAValue:
    """Moves what is known to stand beyond valid parts along with the axes."""
    order, known = ints(op.permutation), m.known_of(op.x)
    result = declared(m, c, op)
    m.known(result, {order.index(d): fill for d, fill in known.items()})
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


def gather(m: Masks, c: Place, op: popart.GatherOp) -> SSAValue:
    """Gathers: negative indices count from the end of the valid part."""
    import numpy as np

    (axes,) = kept(m, op, {(0, op.axis)})
    read(m, c, op)
    along, indices = m.valid.of(op.x)[op.axis], op.indices
    known = constant_value(indices)
    signed = not is_unsigned(element(indices)) and (known is None or bool((known < 0).any()))
    if not is_whole(along) and is_prefix(along) and signed:
        count = m.scalar(c, size_of(along), element(indices))
        below = m.plain(c, popart.LessOp(indices, m.plain(c, constant(np.array(0, dtype_of(element(indices)))))))
        refilled(op, {1: m.plain(c, popart.WhereOp(below, m.plain(c, popart.AddOp(indices, count)), indices))})
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
    """Gives at most as many places as elements are valid: of equals, the first is chosen."""
    x = m.valid.of(op.x)
    if not is_prefix(x[-1]):
        raise refuse(m, op, f"{described(x)} is sorted across merged dimensions")
    (axes,) = kept(m, op)
    read(m, c, op)
    return put(m, c, op, (*axes[:-1], prefix(op.k, size_of(x[-1]).min(op.k).decided(m.valid.bounds))))


def whitening(m: Masks, c: Place, op: popart.GroupNormOp | popart.InstanceNormOp | popart.LayerNormOp) -> SSAValue:
    """Normalises by the mean and the variance of valid elements, over the dimensions that the op does not keep apart."""
    x, apart = m.valid.of(op.x), {d for operand, d, *_ in links_of(op) if operand == 0}
    dims = [d for d in range(len(x)) if d not in apart]
    if all(is_whole(x[d]) for d in dims):
        return declared(m, c, op)
    if isinstance(op, popart.GroupNormOp):
        return grouped(m, c, op)
    return normalised(m, c, op, op.x, dims, shape(op.x))


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


RULES: Mapping[type[Operation], Rule] = {
    ElementwiseOp: elementwise,
    PopartOp: declared,
    popart.ConcatOp: concat,
    popart.ExpandOp: expand,
    popart.GatherOp: gather,
    popart.GroupNormOp: whitening,
    popart.InstanceNormOp: whitening,
    popart.LayerNormOp: whitening,
    popart.PadOp: pad,
    popart.ReduceMeanOp: reduce_mean,
    popart.ReshapeOp: reshape,
    popart.ScatterOp: scatter,
    popart.SliceOp: slices,
    popart.SoftmaxOp: softmax,
    popart.TopKOp: top_k,
    popart.TransposeOp: transpose,
}
