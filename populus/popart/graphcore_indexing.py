"""Ops of `ai.graphcore` that read and write by index, written as ONNX ops."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from populus.dialects.support.diagnostics import PopulusError
from populus.popart.translation import Body

_ADDED = {"Sum": "add", "Max": "max", "Min": "min", "Mul": "mul", "NoReduction": "none"}
# What a place holds that no index names.
_EMPTY = {"add": 0.0, "mul": 1.0, "max": 0.0, "min": 0.0, "none": 0.0}


def _begins(b: Body, index: str, count: int) -> list[str]:
    """Computes the first position along each sliced axis."""
    import numpy as np

    flat = b.reshape(b.cast(index, np.int64), [count])
    return [b("Gather", flat, b.ints([d])) for d in range(count)]


def _span(b: Body, begin: str, size: int) -> str:
    """Computes positions from `begin` on."""
    return b("Add", begin, b.ints(range(size)))


def dynamic_slice(b: Body, x: str, index: str, like: str | None = None) -> str:
    """Computes the part of x of `sizes` along `axes` that begins at `index`."""
    axes, sizes = b.attr("axes"), b.attr("sizes")
    y, shape = x, list(b.shape())
    for axis, size, begin in zip(axes, sizes, _begins(b, index, len(axes))):
        y = b("Gather", y, _span(b, begin, size), axis=axis)
        shape[axis] = size
    return y if like is None or b.shape(2) == tuple(shape) else b.reshape(y, b.shape(2))


def _places(b: Body, index: str) -> tuple[str, list[int]]:
    """Computes the positions in x, as one row, of a part of `sizes` along `axes`; and the part's shape."""
    import numpy as np

    axes, sizes, shape = b.attr("axes"), b.attr("sizes"), b.shape()
    part = list(shape)
    for axis, size in zip(axes, sizes):
        part[axis] = size
    strides = [math.prod(shape[d + 1 :]) for d in range(len(shape))]
    spans: Any = np.ogrid[tuple(slice(0, n * s, s) for n, s in zip(part, strides))] if part else [0]
    at = b.const(sum(spans), np.int64)
    for axis, begin in zip(axes, _begins(b, index, len(axes))):
        at = b("Add", at, b("Mul", begin, b.ints([strides[int(axis)]])))
    return b.reshape(at, [math.prod(part)]), part


def _written(b: Body, x: str, index: str, update: str | None, reduction: str) -> str:
    at, part = _places(b, index)
    n = math.prod(part)
    values = b("Expand", b.like(0), b.ints([n])) if update is None else b.reshape(update, [n])
    flat = b.reshape(x, [math.prod(b.shape())])
    return b.reshape(b("ScatterElements", flat, at, values, axis=0, reduction=reduction), b.shape())


def dynamic_update(b: Body, x: str, index: str, update: str, *, reduction: str = "none") -> str:
    """Computes x with a part, which begins at `index`, replaced by `update`, or added to it."""
    return _written(b, x, index, update, reduction)


def dynamic_zero(b: Body, x: str, index: str) -> str:
    """Computes x with a part, which begins at `index`, made 0."""
    return _written(b, x, index, None, "none")


def sequence_slice(b: Body, source: str, target: str, count: str, begin: str, at: str) -> str:
    """Computes rows of `source` copied to rows of `target`: sequence i is `count[i]` rows from `begin[i]` to `at[i]`."""
    import numpy as np

    rows, number = b.shape(1)[0], b.shape(2)[0]
    n, s, d = (b.reshape(b.cast(v, np.int64), [number, 1]) for v in (count, begin, at))
    row = b.ints(range(rows))
    inside = b("And", b("GreaterOrEqual", row, d), b("Less", row, b("Add", d, n)))
    offset = b("Where", inside, b("Add", b("Sub", row, d), s), b.const(-1, np.int64))
    taken = b("ReduceMax", offset, b.ints([0]), keepdims=0)  # -1 where no sequence writes
    copied = b("Gather", source, b("Max", taken, b.const(0, np.int64)), axis=0)
    used = b.reshape(b("GreaterOrEqual", taken, b.const(0, np.int64)), [rows, *(1,) * (len(b.shape(1)) - 1)])
    rest = b("Mul", target, b.like(0)) if b.attr("zeroUnused", 0) else target
    return b("Where", used, copied, rest)


def grouped_gather(b: Body, x: str, indices: str) -> str:
    """Computes `Gather` in each of `group_size` groups, which are the first dimension of both.

    Raises PopulusError for axis 0 of several.
    """
    import numpy as np

    axis, groups = int(b.attr("axis", 0)), int(b.attr("group_size", 1))
    shape, wanted = b.shape(), b.shape(1)
    axis %= len(shape)
    indices = b.cast(indices, np.int64)
    if groups == 1 and (axis == 0 or shape[0] != 1 or wanted[:1] != (1,)):
        return b("Gather", x, indices, axis=axis)
    if axis == 0:
        raise PopulusError("axis = 0 is the groups' own dimension; 1 or more is expected")
    if shape[0] != groups or wanted[0] != groups:
        raise PopulusError(f"group_size = {groups}; the inputs are of {shape[0]} and {wanted[0]} groups")
    order = [0, axis, *(d for d in range(1, len(shape)) if d != axis)]
    rows = b.reshape(b("Transpose", x, perm=order), [groups * shape[axis], *(shape[d] for d in order[2:])])
    number = math.prod(wanted[1:])
    at = b("Add", b.reshape(indices, [groups, number]), b.const([[g * shape[axis]] for g in range(groups)], np.int64))
    found = b("Gather", rows, at, axis=0)  # groups, number, the rest of x
    before, after = shape[1:axis], shape[axis + 1 :]
    k = len(before)
    moved = b("Transpose", found, perm=[0, *range(2, 2 + k), 1, *range(2 + k, 2 + k + len(after))])
    return b.reshape(moved, [groups, *before, *wanted[1:], *after])


def _scattered(b: Body, axis: int) -> tuple[list[int], bool]:
    """Gives the shape in which indices are given, of x's rank, and whether they are broadcast to x.

    Raises PopulusError for indices that do not fit.
    """
    shape, given = b.shape(), list(b.shape(1))
    if given == list(shape):
        return given, False
    if len(given) > len(shape):
        raise PopulusError(f"Invalid rank for indices input. They are {given}, x is {list(shape)}")
    grouped = b.attr("group_size", 1) > 1
    if len(given) == 1 + grouped and len(shape) > len(given):  # a row of indices along the axis
        wide = [given[-1] if d == axis else given[0] if grouped and d == 0 else 1 for d in range(len(shape))]
    else:
        wide = [*given, *(1,) * (len(shape) - len(given))]
    if not b.attr("enable_index_broadcast", 1):
        return wide, False
    if any(n not in (1, m) for n, m in zip(wide, shape)):
        raise PopulusError(f"Failed to expand 'indices' shape {given} to x, {list(shape)}, along axis {axis}")
    if [d for d, n in enumerate(wide) if n != 1 and not (grouped and d == 0)] != [axis]:
        raise PopulusError(f"Partial broadcasting of indices is not currently supported: they are {given}, x is {list(shape)}")
    return wide, True


def scatter_reduce(b: Body, x: str, indices: str, initial: str | None = None) -> str:
    """Combines `x[i, j]` into `y[indices[i, j], j]` by `reduction`; `axis_size` rows. Rows that no index names are 0, or 1 of a product.

    Indices along the axis alone are for all of x. With `enable_index_broadcast` 0, only the part of x of their shape is combined.
    Raises PopulusError for an axis or shapes that do not fit.
    """
    import numpy as np

    shape, size, axis = b.shape(), b.attr("axis_size"), b.attr("axis", -1)
    if not -len(shape) <= axis < len(shape):
        raise PopulusError(f"axis = {axis} is outside the acceptable range [{-len(shape)}, {len(shape) - 1}]")
    if size < 1:
        raise PopulusError(f"axis_size = {size} is not valid; 1 or more is expected")
    axis %= len(shape)
    reduction = _ADDED[b.attr("reduction", "Sum")]
    wide, spread = _scattered(b, axis)
    at = b.reshape(b.cast(indices, np.int64), wide)
    if spread:
        at, wide = b("Expand", at, b.ints(shape)), list(shape)
    if wide != list(shape):
        x = b("Slice", x, b.ints([0] * len(shape)), b.ints(wide))
    out = [size if d == axis else n for d, n in enumerate(wide)]
    if initial is None and reduction in ("max", "min"):
        info = np.finfo(b.dtype()) if b.dtype().kind == "f" else np.iinfo(b.dtype())
        lowest = b("Expand", b.like(info.min if reduction == "max" else info.max), b.ints(out))
        found = b("ScatterElements", lowest, at, x, axis=axis, reduction=reduction)
        ones = b("Expand", b.const(1, np.int32), b.ints(wide))
        named = b("ScatterElements", b("Expand", b.const(0, np.int32), b.ints(out)), at, ones, axis=axis)
        return b("Where", b("Greater", named, b.const(0, np.int32)), found, b.like(0))
    base = initial or b("Expand", b.like(_EMPTY[reduction]), b.ints(out))
    return b("ScatterElements", base, at, x, axis=axis, reduction=reduction)


OPS: Mapping[str, Callable[..., str | Sequence[str]]] = {
    "DynamicAdd": partial(dynamic_update, reduction="add"),
    "DynamicSlice": dynamic_slice,
    "DynamicUpdate": dynamic_update,
    "DynamicZero": dynamic_zero,
    "GroupedGather": grouped_gather,
    "ScatterReduce": scatter_reduce,
    "SequenceSlice": sequence_slice,
}
