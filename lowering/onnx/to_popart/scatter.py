"""Conversions of ops that write, sort or reverse by index: Scatter, TopK, ReverseSequence, Col2Im, MaxUnpool."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from xdsl.dialects.builtin import i64
from xdsl.ir import SSAValue

from populus.dialects import popart
from populus.dialects.support import shapes
from populus.dialects.support.diagnostics import PopulusError, did_you_mean
from populus.dialects.support.element_types import dtype_of
from populus.lowering.onnx.to_popart.conversion import Conversion, Output, Rules, element, shape
from populus.lowering.onnx.to_popart.math import arg_index
from populus.lowering.onnx.to_popart.tensor import element_positions, row_positions, sliced

if TYPE_CHECKING:
    from numpy.typing import NDArray

REDUCTIONS = {"none": "set", "add": "add", "mul": "mul", "min": "min", "max": "max"}


def scatter(c: Conversion, x: SSAValue, positions: SSAValue, updates: SSAValue, reduction: str) -> SSAValue:
    """Combines rows of `x` with updates.

    x: [n, ..], positions: [p..], i64; updates: [p.., ..]. `reduction`: how a row and its update combine.
    """
    count = math.prod(shape(positions))
    rows = c.reshape(updates, (count, *shape(x)[1:]))
    return c.insert(popart.ScatterOp(x, c.reshape(positions, (count,)), rows, reduction=reduction))


def reduction(c: Conversion) -> str:
    """Gives the node's reduction as `popart.scatter` names it. Raises PopulusError for an unknown one."""
    name = c.get("reduction") or "none"
    if name not in REDUCTIONS:
        raise PopulusError(f"reduction is '{name}'{did_you_mean(name, REDUCTIONS)}")
    return REDUCTIONS[name]


def scatter_elements(c: Conversion) -> Output:
    """Converts ScatterElements: `y[indices[i, j], j] = updates[i, j]` (axis 0), on flattened x."""
    x, indices, updates = c.input(0), c.input(1), c.input(2)
    positions = element_positions(c, x, indices, c.axis(len(shape(x))))
    flat = scatter(c, c.reshape(x, (math.prod(shape(x)),)), positions, updates, reduction(c))
    return c.reshape(flat, shape(x))


def scatter_nd(c: Conversion) -> Output:
    """Converts ScatterND: `y[indices[i..]] = updates[i..]`, with the indexed dimensions of x merged."""
    x, indices, updates = c.input(0), c.input(1), c.input(2)
    depth = shape(indices)[-1]
    lead, inner = shape(x)[:depth], shape(x)[depth:]
    positions = row_positions(c, x, depth, indices, 0)
    return c.reshape(scatter(c, c.reshape(x, (math.prod(lead), *inner)), positions, updates, reduction(c)), shape(x))


def tensor_scatter(c: Conversion) -> Output:
    """Converts TensorScatter: writes an update into a cache, at `write_indices` along `axis` for each batch.

    Source: ONNX TensorScatter-24.
    """
    import numpy as np

    x, update, start = c.input(0), c.input(1), c.optional(2)
    rank = len(shape(x))
    axis = c.axis(rank, -2)
    order = [0, axis, *(d for d in range(1, rank) if d != axis)]
    cache, new = c.transpose(x, order), c.transpose(update, order)
    (batch, length, *rest), count = shape(cache), shape(new)[1]
    steps = c.constant(np.arange(count, dtype=np.int64).reshape(1, count))
    at = c.reshape(c.cast(start, i64), (batch, 1)) if start is not None else c.constant(np.zeros((batch, 1), np.int64))
    at = c.insert(popart.AddOp(at, steps))
    if c.get("mode") == "circular":
        at = c.insert(popart.ModOp(at, c.scalar(length, at), fmod=False))
    else:  # a write beyond the end would reach the next batch; the index after the last row drops it
        beyond = c.insert(popart.GreaterOrEqualOp(at, c.scalar(length, at)))
        at = c.insert(popart.WhereOp(beyond, c.scalar(batch * length, at), at))
    at = c.insert(popart.AddOp(at, c.constant(np.arange(batch, dtype=np.int64).reshape(batch, 1) * length)))
    written = scatter(c, c.reshape(cache, (batch * length, *rest)), at, new, "set")
    return c.transpose(c.reshape(written, shape(cache)), [order.index(d) for d in range(rank)])


def top_k(c: Conversion) -> list[Output]:
    """Converts TopK.

    Values and their positions. Before opset 10, `k` is an attribute; before 11, the largest are taken. Raises
    PopulusError if the dimension has fewer than k elements.
    """
    x = c.input(0)
    rank = len(shape(x))
    axis = c.axis(rank, -1)
    k = int(c.get("k") if c.version < 10 else c.number(1))
    order = [*(d for d in range(rank) if d != axis), axis]
    back = [order.index(d) for d in range(rank)]
    if k > shape(x)[axis]:
        raise PopulusError(f"k is {k}; dimension {axis} has {shape(x)[axis]} elements")
    largest = c.get("largest") != 0
    indices = c.transpose(c.insert(popart.TopKOp(c.transpose(x, order), k=k, largest=largest)), back)
    positions = element_positions(c, x, indices, axis)
    values = c.insert(popart.GatherOp(c.reshape(x, (math.prod(shape(x)),)), positions, axis=0))
    return [values, c.cast(indices, i64)]


def reverse_sequence(c: Conversion) -> Output:
    """Converts ReverseSequence: the first `sequence_lens[b]` steps reversed. Source: ONNX ReverseSequence-10."""
    import numpy as np

    x, lengths = c.input(0), c.cast(c.input(1), i64)
    rank = len(shape(x))
    batch, time = (shapes.axis(c.get(name), rank) for name in ("batch_axis", "time_axis"))
    order = [batch, time, *(d for d in range(rank) if d not in (batch, time))]
    rows = c.transpose(x, order)
    b, t, *rest = shape(rows)
    steps = c.constant(np.arange(t, dtype=np.int64).reshape(1, t))
    lengths = c.reshape(lengths, (b, 1))
    mirrored = c.insert(popart.SubOp(c.insert(popart.SubOp(lengths, c.scalar(1, lengths))), steps))
    at = c.insert(popart.WhereOp(c.insert(popart.LessOp(steps, lengths)), mirrored, steps))
    at = c.insert(popart.AddOp(at, c.constant(np.arange(b, dtype=np.int64).reshape(b, 1) * t)))
    short = c.insert(popart.LessOp(lengths, c.scalar(0, lengths)))
    long = c.insert(popart.GreaterOp(lengths, c.scalar(t, lengths)))
    # A length beyond the dimension would reach the next sequence, so its positions become out of range for the gather.
    at = c.insert(popart.WhereOp(c.insert(popart.OrOp(short, long)), c.scalar(b * t, at), at))
    reversed_rows = c.insert(popart.GatherOp(c.reshape(rows, (b * t, *rest)), at, axis=0))
    return c.transpose(reversed_rows, [order.index(d) for d in range(rank)])


@dataclass(frozen=True)
class PoolWindows:
    """Windows over spatial dimensions: their number, size and position, in elements. `pads`: those at the front."""

    out: Sequence[int]
    kernel: Sequence[int]
    strides: Sequence[int]
    pads: Sequence[int]
    dilations: Sequence[int]

    def places(self) -> Sequence[NDArray[Any]]:
        """Gives the index of each element of each window, one array [out.., kernel..] for each dimension.

        An index is outside the dimension where the window lies on padding.
        """
        import numpy as np

        rank = len(self.out)
        indices: list[NDArray[Any]] = []
        for d in range(rank):
            at = np.arange(self.out[d])[:, None] * self.strides[d] + np.arange(self.kernel[d]) * self.dilations[d] - self.pads[d]
            indices.append(at.reshape([self.out[d] if e == d else self.kernel[d] if e == d + rank else 1 for e in range(2 * rank)]))
        return np.broadcast_arrays(*indices)


def col2im(c: Conversion) -> Output:
    """Converts Col2Im.

    Adds up overlapping blocks. Raises PopulusError for sizes that do not fit. Source: ONNX Col2Im-18.
    """
    import numpy as np

    x = c.input(0)
    size, block = ([int(v) for v in c.known(i)] for i in (1, 2))
    rank = len(size)
    strides, dilations = (list(c.get(name) or [1] * rank) for name in ("strides", "dilations"))
    pads = list(c.get("pads") or [0] * 2 * rank)
    out = [(n + pads[d] + pads[d + rank] - shapes.reach(1, 1, block[d], dilations[d])) // strides[d] + 1 for d, n in enumerate(size)]
    n, lines, columns = shape(x)
    if columns != math.prod(out) or lines % math.prod(block):
        raise PopulusError(f"{lines}x{columns} columns are no {shapes.text(block)} blocks at {shapes.text(out)} positions")
    padded = [s + pads[d] + pads[d + rank] for d, s in enumerate(size)]
    at = PoolWindows(out, block, strides, [0] * rank, dilations).places()
    flat = np.ravel_multi_index(at, padded).reshape(math.prod(out), math.prod(block)).T
    channels = lines // math.prod(block)
    rows = c.transpose(c.reshape(x, (n, channels, math.prod(block), columns)), (2, 3, 0, 1))
    zeros = c.constant(np.zeros((math.prod(padded), n, channels), dtype_of(element(x))))
    image = scatter(c, zeros, c.constant(flat.astype(np.int64)), rows, "add")
    image = c.reshape(c.transpose(image, (1, 2, 0)), (n, channels, *padded))
    return sliced(c, image, {d + 2: (pads[d], pads[d] + s, 1) for d, s in enumerate(size)})


def max_unpool(c: Conversion) -> Output:
    """Converts MaxUnpool: moves elements back to the indices that MaxPool gave; others are 0.

    Raises PopulusError for an `output_shape` that is too small. Source: ONNX MaxUnpool-22.
    """
    import numpy as np

    x, indices = c.input(0), c.input(1)
    n, channels, *size = shape(x)
    rank = len(size)
    kernel = list(c.get("kernel_shape"))
    strides, pads = list(c.get("strides") or [1] * rank), list(c.get("pads") or [0] * 2 * rank)
    inferred = [shapes.reach(s, strides[d], kernel[d], 1) - pads[d] - pads[d + rank] for d, s in enumerate(size)]
    zeros = c.constant(np.zeros((n * channels * math.prod(inferred),), dtype_of(element(x))))
    y = c.reshape(scatter(c, zeros, c.cast(indices, i64), x, "set"), (n, channels, *inferred))
    if not c.has(2):
        return y
    stated = [int(v) for v in c.known(2)]
    missing = [a - b for a, b in zip(stated, shape(y))]
    if min(missing) < 0:
        raise PopulusError(f"output_shape is {stated}, less than {list(shape(y))}")
    return c.insert(popart.PadOp(y, None, lower=(0,) * len(stated), upper=tuple(missing), mode="constant")) if any(missing) else y


def pool_indices(c: Conversion, x: SSAValue, w: PoolWindows) -> SSAValue:
    """Computes the index in flattened `x` of each window's largest element: i64.

    With `storage_order` 1, the spatial dimensions count by columns. Source: ONNX MaxPool-22.
    """
    import numpy as np

    n, channels, *size = shape(x)
    at = w.places()
    cells, width = math.prod(w.out), math.prod(w.kernel)
    inside = np.logical_and.reduce([(a >= 0) & (a < s) for a, s in zip(at, size)]).reshape(cells, width)
    clipped = [np.clip(a, 0, s - 1) for a, s in zip(at, size)]
    # In the place of padding is the window's first element once more: no number is lower than all elements, which may be the lowest.
    own = np.where(inside, np.arange(width), inside.argmax(1)[:, None])
    flat, stated = (
        np.take_along_axis(np.ravel_multi_index(clipped, size, order=order).reshape(cells, width), own, 1)
        for order in ("C", "F" if c.get("storage_order") else "C")
    )
    row = c.reshape(x, (n, channels, math.prod(size)))
    seen = c.insert(popart.GatherOp(row, c.constant(flat.astype(np.int32)), axis=2))
    best = arg_index(c, seen, 3, largest=True, last=False)
    here = c.insert(popart.EqualOp(best, c.constant(np.arange(width, dtype=np.int64))))
    stated_at = c.insert(popart.WhereOp(here, c.constant(stated.astype(np.int64)), c.scalar(0, best)))
    within = c.insert(popart.ReduceSumOp(stated_at, axes=(3,), keep=False))
    offsets = np.arange(n * channels, dtype=np.int64).reshape(n, channels, 1) * math.prod(size)
    return c.reshape(c.insert(popart.AddOp(within, c.constant(offsets))), (n, channels, *w.out))


RULES: Rules = {
    "Col2Im": col2im,
    "MaxUnpool": max_unpool,
    "ReverseSequence": reverse_sequence,
    "Scatter": scatter_elements,
    "ScatterElements": scatter_elements,
    "ScatterND": scatter_nd,
    "TensorScatter": tensor_scatter,
    "TopK": top_k,
}
