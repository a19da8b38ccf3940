"""Conversions of ONNX's `tensor` and `generator` categories: elements rearranged, selected and generated."""

from __future__ import annotations

import math
from collections.abc import Sequence

from xdsl.dialects.builtin import i64
from xdsl.ir import SSAValue

from populus.dialects import popart
from populus.dialects.onnx.attributes import filling
from populus.dialects.onnx.types import element_numbered
from populus.dialects.support import shapes
from populus.dialects.support.budget import check_constant
from populus.dialects.support.diagnostics import PopulusError
from populus.dialects.support.element_types import dtype_of
from populus.lowering.onnx.shape_arithmetic import equal_parts, range_length
from populus.lowering.onnx.to_popart.conversion import Conversion, Output, Rules, element, shape


def identity(c: Conversion) -> Output:
    """Converts Identity to its input."""
    return c.input(0)


def result_shape(c: Conversion) -> Output:
    """Converts Reshape, Squeeze or Unsqueeze to a reshape to the inferred shape of the result."""
    output = c.op.output(0)
    assert output is not None
    if c.has(1):
        c.trusted(1)
    return c.reshape(c.input(0), shape(output))


def reshape(c: Conversion) -> Output:
    """Converts Reshape. Before opset 5, the shape is an attribute, and ONNX has no inference for it.

    Raises PopulusError for a 0 beyond the dimensions of x.
    """
    stated = c.get("shape")
    if stated is None:
        return result_shape(c)
    x = c.input(0)
    if len(stated) > len(shape(x)) and 0 in stated[len(shape(x)) :]:
        raise PopulusError(f"shape is {list(stated)}; a 0 keeps a dimension of x, which is {shapes.text(shape(x))}")
    return c.reshape(x, shapes.reshape(shape(x), [int(n) or shape(x)[d] for d, n in enumerate(stated)]))


def squeeze(c: Conversion) -> Output:
    """Converts Squeeze. Before opset 11, ONNX's inference drops the wrong dimensions of unsorted axes.

    Raises PopulusError if a dropped dimension is not 1.
    """
    x, axes = c.input(0), c.list("axes")
    if not axes:
        return result_shape(c)
    dropped = shapes.axes([int(a) for a in axes], len(shape(x)))
    if any(shape(x)[d] != 1 for d in dropped):
        raise PopulusError(f"x is {shapes.text(shape(x))}, of which dimensions {axes} are not all 1")
    return c.reshape(x, shapes.reduced(shape(x), dropped, keep=False))


def transpose(c: Conversion) -> Output:
    """Converts Transpose; reverses the dimensions by default."""
    x = c.input(0)
    return c.transpose(x, c.get("perm") or list(reversed(range(len(shape(x))))))


def expand(c: Conversion) -> Output:
    """Converts Expand to a broadcast to the inferred or stated shape of the result."""
    output = c.op.output(0)
    assert output is not None
    c.trusted(1)
    return c.expand(c.input(0), shape(output))


def concat(c: Conversion) -> Output:
    """Converts Concat."""
    parts = [v for v in c.inputs if v is not None]
    axis = c.axis(len(shape(parts[0])), 1)  # Concat-1: axis = 1 by default
    return joined(c, parts, axis)


def joined(c: Conversion, parts: Sequence[SSAValue], axis: int) -> SSAValue:
    """Concatenates the parts along an axis."""
    return parts[0] if len(parts) == 1 else c.insert(popart.ConcatOp(*parts, axis=axis))


def sliced(c: Conversion, x: SSAValue, bounds: dict[int, tuple[int, int, int]]) -> SSAValue:
    """Slices the dimensions that `bounds` names, each by (begin, end, step)."""
    entries = [bounds.get(d, (0, n, 1)) for d, n in enumerate(shape(x))]
    if all(entry == (0, n, 1) for entry, n in zip(entries, shape(x))):
        return x
    begins, ends, steps = zip(*entries)
    return c.insert(popart.SliceOp(x, begins=begins, ends=ends, steps=steps))


def slice_(c: Conversion) -> Output:
    """Converts Slice, and clamps its bounds as Slice-13 defines.

    Raises PopulusError for lists of different length, or a step of 0.
    """
    x = c.input(0)
    begins, ends = c.ints(1, "starts") or [], c.ints(2, "ends") or []
    axes = c.ints(3, "axes")
    steps = c.ints(4, "steps") or [1] * len(begins)
    axes = list(range(len(begins))) if axes is None else [shapes.axis(a, len(shape(x))) for a in axes]
    if not len(begins) == len(ends) == len(axes) == len(steps):
        raise PopulusError(f"{len(begins)} starts, {len(ends)} ends, {len(axes)} axes and {len(steps)} steps; as many of each are expected")
    bounds: dict[int, tuple[int, int, int]] = {}
    for begin, end, axis, step in zip(begins, ends, axes, steps):
        if step == 0:
            raise PopulusError("a step is 0")
        n = shape(x)[axis]
        begin, end = (v + n if v < 0 else v for v in (begin, end))
        low, high = (0, n) if step > 0 else (-1, n - 1)
        begin, end = min(max(begin, 0 if step > 0 else low + 1), high), min(max(end, low), high)
        if shapes.count(begin, end, step) == 0:
            begin, end, step = 0, 0, 1
        bounds[axis] = (begin, end, step)
    return sliced(c, x, bounds)


def split(c: Conversion) -> Output | list[Output]:
    """Converts Split."""
    x = c.input(0)
    axis = c.axis(len(shape(x)))
    n = shape(x)[axis]
    sizes = c.ints(1, "split") or equal_parts(n, c.get("num_outputs") or len(c.op.outputs))
    return list(parts_of(c, x, axis, sizes))


def parts_of(c: Conversion, x: SSAValue, axis: int, sizes: Sequence[int]) -> list[SSAValue]:
    """Splits `x` along `axis` into parts of `sizes` elements. Raises PopulusError if their sum does not fit."""
    if sum(sizes) != shape(x)[axis]:
        raise PopulusError(f"the parts {list(sizes)} are {sum(sizes)} elements, dimension {axis} has {shape(x)[axis]}")
    parts: list[SSAValue] = []
    begin = 0
    for size in sizes:
        parts.append(sliced(c, x, {axis: (begin, begin + size, 1)}))
        begin += size
    return parts


def pad(c: Conversion) -> Output:
    """Converts Pad. Before opset 11, `pads` is an attribute (`paddings` in opset 1).

    `axes` came in opset 18, `wrap` in 19. Raises PopulusError for a wrong number of pads.
    """
    x, mode = c.input(0), c.get("mode") or "constant"
    rank = len(shape(x))
    pads = c.ints(1, "paddings" if c.version == 1 else "pads") or []
    axes = list(range(rank)) if not c.has(3) else [shapes.axis(a, rank) for a in c.ints(3, "axes") or []]
    if len(pads) != 2 * len(axes):
        raise PopulusError(f"there are {len(pads)} pads for {len(axes)} dimensions; twice as many are expected")
    lower, upper = [0] * rank, [0] * rank
    for i, axis in enumerate(axes):
        lower[axis], upper[axis] = pads[i], pads[len(axes) + i]
    if mode == "wrap":
        for d in range(rank):
            # A negative pad cuts first; the wrap repeats the rest.
            first, left = max(-lower[d], 0), shape(x)[d] - max(-lower[d], 0) - max(-upper[d], 0)
            size = max(lower[d], 0) + left + max(upper[d], 0)
            if left < 0 or (left == 0 and size):
                raise PopulusError(f"pads {lower[d]} and {upper[d]} leave nothing to repeat of the {shape(x)[d]} elements of a dimension")
            check_constant(size, "a dimension of its result")
            x = gathered(c, x, [first + i % left for i in range(-max(lower[d], 0), left + max(upper[d], 0))], d)
        return x
    value: SSAValue | None = None
    if mode == "constant":
        value = c.reshape(c.input(2), ()) if c.has(2) else None
        if c.version < 11 and c.get("value"):
            value = c.scalar(c.get("value"), x)
    if not any(lower) and not any(upper):
        return x
    return c.insert(popart.PadOp(x, value, lower=lower, upper=upper, mode=mode))


def gathered(c: Conversion, x: SSAValue, indices: Sequence[int], axis: int) -> SSAValue:
    """Gathers constant indices: x[.., indices, ..]."""
    import numpy as np

    if list(indices) == list(range(shape(x)[axis])):
        return x
    return c.insert(popart.GatherOp(x, c.constant(np.array(indices, np.int32)), axis=axis))


def tile(c: Conversion) -> Output:
    """Converts Tile. Before opset 6, it repeats one axis."""
    x = c.input(0)
    if c.version >= 6:
        return c.insert(popart.TileOp(x, repeats=[int(v) for v in c.known(1)]))
    repeats = [1] * len(shape(x))
    repeats[int(c.number(2))] = int(c.number(1))
    return c.insert(popart.TileOp(x, repeats=repeats))


def gather(c: Conversion) -> Output:
    """Converts Gather."""
    x = c.input(0)
    return c.insert(popart.GatherOp(x, c.input(1), axis=c.axis(len(shape(x)))))


def gather_elements(c: Conversion) -> Output:
    """Converts GatherElements: `y[i, j] = x[indices[i, j], j]` (axis 0), on flattened x."""
    x, indices = c.input(0), c.input(1)
    positions = element_positions(c, x, indices, c.axis(len(shape(x))))
    return c.insert(popart.GatherOp(c.reshape(x, (math.prod(shape(x)),)), positions, axis=0))


def element_positions(c: Conversion, x: SSAValue, indices: SSAValue, axis: int) -> SSAValue:
    """Computes the position of elements in flattened `x`: i64.

    `indices` gives the index along `axis`; each element's own position gives the others.
    """
    import numpy as np

    size = shape(x)
    if len(shape(indices)) != len(size) or any(n > m for d, (n, m) in enumerate(zip(shape(indices), size)) if d != axis):
        raise PopulusError(f"indices are of shape {list(shape(indices))}, x of {list(size)}; expected the same rank, and no more elsewhere")
    strides = [math.prod(size[d + 1 :]) for d in range(len(size))]
    rest = np.zeros(shape(indices), np.int64)
    for d, n in enumerate(shape(indices)):
        if d != axis:
            rest = rest + (np.arange(n) * strides[d]).reshape([n if e == d else 1 for e in range(len(shape(indices)))])
    return c.insert(popart.AddOp(offset(c, indices, (x, axis), strides[axis], math.prod(size)), c.constant(rest)))


def from_front(c: Conversion, indices: SSAValue, n: SSAValue) -> SSAValue:
    """Adds n, an i64 scalar, to negative indices: i64."""
    indices = c.cast(indices, i64)
    negative = c.insert(popart.LessOp(indices, c.scalar(0, indices)))
    return c.insert(popart.WhereOp(negative, c.insert(popart.AddOp(indices, n)), indices))


def offset(c: Conversion, indices: SSAValue, of: tuple[SSAValue, int], stride: int, total: int) -> SSAValue:
    """Computes the offset, in a row of `total` elements, of indices into a dimension of a tensor (`of`).

    An index out of range gives `total`, which is out of range too; else it would address an element of another row, or, if it is below
    -n, be one that a gather counts from the end.
    """
    n = c.length(*of)
    front = from_front(c, indices, n)
    inside = scaled(c, front, stride)
    low = c.insert(popart.LessOp(front, c.scalar(0, front)))
    high = c.insert(popart.GreaterOrEqualOp(front, n))
    return c.insert(popart.WhereOp(c.insert(popart.OrOp(low, high)), c.scalar(total, front), inside))


def scaled(c: Conversion, indices: SSAValue, by: int) -> SSAValue:
    """Multiplies indices by a number."""
    return indices if by == 1 else c.insert(popart.MulOp(indices, c.scalar(by, indices)))


def gather_nd(c: Conversion) -> Output:
    """Converts GatherND: `y[i..] = x[indices[i.., 0], indices[i.., 1], .., :]`.

    The leading dimensions of x are merged, and their rows gathered by position.
    """
    x, indices = c.input(0), c.input(1)
    batch = c.get("batch_dims") or 0
    depth = shape(indices)[-1]
    lead, inner = shape(x)[: batch + depth], shape(x)[batch + depth :]
    positions = row_positions(c, x, batch + depth, indices, batch)
    return c.insert(popart.GatherOp(c.reshape(x, (math.prod(lead), *inner)), positions, axis=0))


def row_positions(c: Conversion, x: SSAValue, merged: int, indices: SSAValue, batch: int) -> SSAValue:
    """Computes the position of rows of `x` in its first dimensions, `merged` of them: i64.

    The last dimension of `indices` has one index for each dimension after the `batch` leading ones.
    """
    import numpy as np

    lead, depth = shape(x)[:merged], shape(indices)[-1]
    if batch + depth > len(shape(x)):
        raise PopulusError(f"an index has {depth} numbers for the {len(shape(x)) - batch} dimensions of {list(shape(x))} behind {batch}")
    strides = [math.prod(lead[d + 1 :]) for d in range(len(lead))]
    position: SSAValue | None = None
    last = len(shape(indices)) - 1
    for k in range(depth):
        one = c.reshape(sliced(c, indices, {last: (k, k + 1, 1)}), shape(indices)[:-1])
        part = offset(c, one, (x, batch + k), strides[batch + k], math.prod(lead))
        position = part if position is None else c.insert(popart.AddOp(position, part))
    assert position is not None, shape(indices)
    if batch:
        rest = np.zeros((1,) * (len(shape(indices)) - 1), np.int64)
        for d in range(batch):
            rest = rest + (np.arange(lead[d]) * strides[d]).reshape([lead[d] if e == d else 1 for e in range(last)])
        position = c.insert(popart.AddOp(position, c.constant(rest)))
    return position


def one_hot(c: Conversion) -> Output:
    """Converts OneHot. `values` is [off, on]; the new dimension of `depth` elements stands at `axis`.

    Source: ONNX OneHot-11.
    """
    import numpy as np

    indices, values = c.input(0), c.input(2)
    depth = int(c.number(1))
    rank = len(shape(indices)) + 1
    check_constant(depth, "its new dimension")
    axis = c.axis(rank, -1)
    index = from_front(c, indices, c.constant(np.array(depth, np.int64)))
    index = c.reshape(index, (*shape(indices)[:axis], 1, *shape(indices)[axis:]))
    positions = c.constant(np.arange(depth).reshape([depth if d == axis else 1 for d in range(rank)]))
    off, on = (c.reshape(sliced(c, values, {0: (i, i + 1, 1)}), ()) for i in (0, 1))
    return c.insert(popart.WhereOp(c.insert(popart.EqualOp(index, positions)), on, off))


def trilu(c: Conversion) -> Output:
    """Converts Trilu to a selection by a constant mask. Raises PopulusError if the mask is too large."""
    import numpy as np

    x = c.input(0)
    k = int(c.number(1)) if c.has(1) else 0
    check_constant(math.prod(shape(x)[-2:]), "its mask")
    ones = np.ones(shape(x)[-2:], np.bool_)
    k = max(-len(ones) - 1, min(k, ones.shape[1] + 1))  # farther diagonals are outside too
    triangle = np.triu(ones, k) if c.get("upper") != 0 else np.tril(ones, k)
    return c.insert(popart.WhereOp(c.constant(triangle), x, c.scalar(0, x)))


def depth_to_space(c: Conversion) -> Output:
    """Converts DepthToSpace. Source: ONNX DepthToSpace-13."""
    x, b = c.input(0), int(c.get("blocksize"))
    n, channels, *size = shape(x)
    h, w = size
    if c.get("mode") == "CRD":
        split_, order = (n, channels // (b * b), b, b, h, w), (0, 1, 4, 2, 5, 3)
    else:
        split_, order = (n, b, b, channels // (b * b), h, w), (0, 3, 4, 1, 5, 2)
    return c.reshape(c.transpose(c.reshape(x, split_), order), (n, channels // (b * b), h * b, w * b))


def space_to_depth(c: Conversion) -> Output:
    """Converts SpaceToDepth. Source: ONNX SpaceToDepth-13."""
    x, b = c.input(0), int(c.get("blocksize"))
    n, channels, h, w = shape(x)
    order = (0, 1, 3, 5, 2, 4) if c.get("mode") == "CRD" else (0, 3, 5, 1, 2, 4)
    blocks = c.transpose(c.reshape(x, (n, channels, h // b, b, w // b, b)), order)
    return c.reshape(blocks, (n, channels * b * b, h // b, w // b))


def eye_like(c: Conversion) -> Output:
    """Converts EyeLike to a constant. Raises PopulusError if it is too large."""
    import numpy as np

    x, dtype = c.input(0), c.get("dtype")
    target = element(x) if dtype is None else element_numbered(dtype)
    assert target is not None, dtype
    rows, columns = shape(x)
    check_constant(rows * columns, "its result")
    k = max(-rows - 1, min(int(c.get("k") or 0), columns + 1))  # farther diagonals are outside too
    return c.constant(np.eye(rows, columns, k, dtype_of(target)))


def constant_of_shape(c: Conversion) -> Output:
    """Converts ConstantOfShape to a constant."""
    import numpy as np

    return c.constant(np.broadcast_to(filling(c.get("value")), [int(n) for n in c.known(0)]))


def range_(c: Conversion) -> Output:
    """Converts Range to a constant. Raises PopulusError if delta is 0 or the range is too long."""
    import numpy as np

    start, limit, delta = (c.known(i).reshape(-1)[0] for i in range(3))
    if delta == 0:
        raise PopulusError("delta is 0")
    count = range_length(start.item(), limit.item(), delta.item())
    check_constant(count, "the range")
    return c.constant((start + np.arange(count) * delta).astype(start.dtype))


RULES: Rules = {
    "Concat": concat,
    "ConstantOfShape": constant_of_shape,
    "DepthToSpace": depth_to_space,
    "Expand": expand,
    "EyeLike": eye_like,
    "Gather": gather,
    "GatherElements": gather_elements,
    "GatherND": gather_nd,
    "Identity": identity,
    "OneHot": one_hot,
    "Pad": pad,
    "Range": range_,
    "Reshape": reshape,
    "Slice": slice_,
    "SpaceToDepth": space_to_depth,
    "Split": split,
    "Squeeze": squeeze,
    "Tile": tile,
    "Transpose": transpose,
    "Trilu": trilu,
    "Unsqueeze": result_shape,
}
