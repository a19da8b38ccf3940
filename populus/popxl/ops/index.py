"""Ops that pick elements by index, sort, and count."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any, Literal

import numpy as np

from populus.popxl import dtypes
from populus.popxl.errors import WrongValue
from populus.popxl.internals.recording import also_given, recorded
from populus.popxl.ops.common import axes_of, axis_of, cast_to, emit, fixed, in_place
from populus.popxl.ops.elementwise import add, clip, equal, logical_and, mul, where
from populus.popxl.ops.shape import reshape, slice, transpose
from populus.popxl.tensor import Tensor, constant


def _signed(indices: Tensor) -> Tensor:
    return cast_to(indices, dtypes.int32)


@recorded("Gather")
def gather(t: Tensor, indices: Tensor, axis: int = 0, available_memory_proportion: float | None = None, zero_OOR: bool = False) -> Tensor:
    """Gives the rows of `indices` along an axis: `[*before, *indices, *after]`.

    `zero_OOR`: zeros for an index that there is not. `available_memory_proportion` is a hint that plans do without.
    """
    d, found = axis_of(t, axis), _signed(indices)
    if not zero_OOR:
        return emit("gather", t, found, axis=d)
    n = t.shape[d]
    there = logical_and(emit("greater_or_equal", found, fixed(0, found)), emit("less", found, fixed(n, found)))
    rows = emit("gather", t, clip(found, 0, n - 1), axis=d)
    return where(reshape(there, (*indices.shape, *(1 for _ in t.shape[d + 1 :]))), rows, fixed(0, rows))


@recorded("PopartTiedGather")
def tied_gather(
    t: Tensor, indices: Tensor, axis: int = 0, available_memory_proportion: float | None = None, zero_OOR: bool = False
) -> Tensor:
    """Computes `gather`; layouts are chosen without the tie."""
    return gather(t, indices, axis, available_memory_proportion, zero_OOR)


@recorded("Gather")
def groupedgather(
    t: Tensor,
    indices: Tensor,
    axis: int = 0,
    group_size: int | None = 1,
    available_memory_proportion: float | None = None,
    zero_OOR: bool = False,
) -> Tensor:
    """Gathers in each of `group_size` groups: dimension 0 of t and of the indices is the group; `axis` counts from after it.

    Raises ValueError where dimension 0 of one of them is not the number of groups.
    """
    groups = 1 if group_size is None else group_size
    if t.shape[:1] != (groups,) or indices.shape[:1] != (groups,):
        raise WrongValue(f"{t.id} is {list(t.shape)} and the indices {list(indices.shape)}; dimension 0 is the group, of {groups}")
    parts = [gather(_row(t, g), _row(indices, g), axis, available_memory_proportion, zero_OOR) for g in range(groups)]
    return emit("concat", *(reshape(p, (1, *p.shape)) for p in parts), axis=0)


def _row(t: Tensor, number: int) -> Tensor:
    return reshape(slice(t, number, number + 1), t.shape[1:])


def _flat(indices: Tensor, shape: Sequence[int], axis: int) -> Tensor:
    """Gives the row-major positions of the elements that `indices` name along an axis; the other coordinates are their own."""
    strides = [math.prod(shape[d + 1 :]) for d in range(len(shape))]
    n = fixed(shape[axis], indices)
    found = mul(where(emit("less", indices, fixed(0, indices)), add(indices, n), indices), strides[axis])
    for d, size in enumerate(indices.shape):
        if d != axis and size > 1:
            steps = (np.arange(size, dtype=np.int32) * strides[d]).reshape([size if k == d else 1 for k in range(len(shape))])
            found = add(found, constant(steps, dtypes.int32))
    return found


def picked(t: Tensor, indices: Tensor, axis: int) -> Tensor:
    """Gives the element that each index names along an axis, the other coordinates being the index's own."""
    d = axis_of(t, axis)
    return emit("gather", reshape(t, (t.nelms,)), _flat(_signed(indices), t.shape, d), axis=0)


def _scattered(t: Tensor, indices: Tensor, values: Tensor, axis: int, how: str) -> Tensor:
    d = axis_of(t, axis)
    places = reshape(_flat(_signed(indices), t.shape, d), (indices.nelms,))
    flat = emit("scatter", reshape(t, (t.nelms,)), places, reshape(values, (values.nelms,)), reduction=how)
    return reshape(flat, t.shape)


@recorded("Scatter")
def scatter(t: Tensor, indices: Tensor, values: Tensor, axis: int = 0, available_memory_proportion: float | None = None) -> Tensor:
    """Gives t with `values` at the elements that `indices`, of the same shape, name along an axis. Raises ValueError for other shapes."""
    if indices.shape != values.shape or indices.rank != t.rank:
        raise WrongValue(f"indices are {list(indices.shape)} and values {list(values.shape)}; of {list(t.shape)}, both are of its rank")
    return _scattered(t, indices, values, axis, "set")


REDUCTIONS = {"sum": ("add", 0.0), "max": ("max", -math.inf), "min": ("min", math.inf), "mul": ("mul", 1.0), "none": ("set", 0.0)}


@recorded("ScatterReduce")
def scatter_reduce(
    data: Tensor,
    indices: Tensor,
    reduction: Literal["sum", "max", "min", "mul", "none"],
    initial_values: Tensor | None = None,
    axis: int = 0,
    axis_size: int | None = None,
    enable_index_broadcast: bool = True,
    available_memory_proportion: float | None = None,
) -> Tensor:
    """Combines the elements of `data` that have one index along an axis: their sum, the largest, the smallest or the product.

    The result has `axis_size` rows there, or those of `initial_values`, with which it begins; without these, sums and `none` begin
    with 0 and products with 1. Indices of one dimension are of whole rows.
    Raises ValueError for another reduction, and for `max` and `min` without initial values.
    """
    if reduction not in REDUCTIONS:
        raise WrongValue(f"reduction is one of {', '.join(REDUCTIONS)}, not '{reduction}'")
    d = axis_of(data, axis)
    how, start = REDUCTIONS[reduction]
    if initial_values is None:
        if axis_size is None or not math.isfinite(start):
            raise WrongValue("scatter_reduce needs initial_values" + (" or axis_size" if math.isfinite(start) else f" for {reduction}"))
        shape = tuple(axis_size if k == d else n for k, n in enumerate(data.shape))
        initial_values = emit("expand", fixed(start, data), shape=shape)
    found = _signed(indices)
    if indices.shape != data.shape:
        if not enable_index_broadcast:
            raise WrongValue(f"indices are {list(indices.shape)}; the data is {list(data.shape)}")
        if indices.rank == 1:
            found = reshape(found, [indices.nelms if k == d else 1 for k in range(data.rank)])
        found = emit("expand", found, shape=data.shape)
    return _scattered(initial_values, found, data, d, how)


@recorded("OneHot")
def onehot(t: Tensor, num_classes: int | Tensor, values: Tensor, axis: int) -> Tensor:
    """Gives `values[1]` where the class along a new axis is t's element, and `values[0]` elsewhere.

    `num_classes` is a number or a constant. Raises ValueError for another tensor.
    """
    count = num_classes if isinstance(num_classes, int) else _known(num_classes)
    d = axis % (t.rank + 1)
    classes = constant(np.arange(count, dtype=np.int32).reshape([count if k == d else 1 for k in range(t.rank + 1)]))
    found = equal(reshape(_signed(t), (*t.shape[:d], 1, *t.shape[d:])), classes)
    off, on = (reshape(slice(values, k, k + 1), ()) for k in (0, 1))
    return where(found, on, off)


def _known(t: Tensor) -> int:
    data = getattr(t, "data", None)
    if data is None or np.size(data) != 1:
        raise WrongValue(f"{t.id} is no known number; give one, or a popxl.constant of it")
    return int(np.reshape(data, ()))


@recorded("TopK")
def topk(
    t: Tensor, k: int, axis: int, largest: bool, sorted: bool, available_memory_proportion: float | None = None
) -> tuple[Tensor, Tensor]:
    """Gives the k largest or smallest elements along an axis, in order, and their int32 indices, whether `sorted` or not."""
    indices = _ranked(t, k, axis_of(t, axis), largest)
    return picked(t, indices, axis), indices


def _ranked(t: Tensor, k: int, d: int, largest: bool) -> Tensor:
    """Gives the positions of the first k of an order along dimension d."""
    order = [*(i for i in range(t.rank) if i != d), d]
    found = emit("top_k", transpose(t, order) if t.rank > 1 else t, k=k, largest=largest)
    return transpose(found, [int(i) for i in np.argsort(order)]) if t.rank > 1 else found


def _first(t: Tensor, dim: int | None, keepdim: bool | None, largest: bool) -> Tensor:
    whole = reshape(t, (t.nelms,)) if dim is None else t
    d = axis_of(whole, dim or 0)
    found = _ranked(whole, 1, d, largest)
    return found if keepdim else reshape(found, [n for k, n in enumerate(found.shape) if k != d])


@recorded("ArgMax")
def argmax(t: Tensor, dim: int | None = 0, keepdim: bool | None = False) -> Tensor:
    """Gives the int32 index of the largest element along a dimension, the first of equals."""
    return _first(t, dim, keepdim, largest=True)


@recorded("ArgMin")
def argmin(t: Tensor, dim: int | None = 0, keepdim: bool | None = False) -> Tensor:
    """Gives the int32 index of the smallest element along a dimension, the first of equals."""
    return _first(t, dim, keepdim, largest=False)


@recorded("ReduceMedian")
def median(t: Tensor, axis: int | Iterable[int] | None = None, keepdims: bool = False) -> Tensor:
    """Gives the middle element over the dimensions of `axis`, by default all; of an even number the lower one."""
    axes = axes_of(t, axis)
    rest = [d for d in range(t.rank) if d not in axes]
    n = math.prod(t.shape[d] for d in axes)
    lined = reshape(transpose(t, [*rest, *axes]) if t.rank > 1 else t, [*(t.shape[d] for d in rest), n])
    order = _ranked(lined, (n - 1) // 2 + 1, len(rest), largest=False)
    middle = picked(lined, also_given(slice(order, -1, None, None, len(rest))), len(rest))
    return reshape(middle, [1 if d in axes else m for d, m in enumerate(t.shape) if keepdims or d not in axes])


@recorded("CumSum")
def cumsum(t: Tensor, dim: int | None = 0) -> Tensor:
    """Computes the sums of the elements up to each one along a dimension."""
    d = axis_of(t, dim or 0)
    order = [*(k for k in range(t.rank) if k != d), d]
    n = t.shape[d]
    upper = constant(np.triu(np.ones((n, n), np.float32)), t.dtype)
    sums = emit("matmul", reshape(transpose(t, order), (t.nelms // n, n)), upper)
    return transpose(reshape(sums, [t.shape[k] for k in order]), [int(k) for k in np.argsort(order)])


def _start(t: Tensor, index: Tensor, axes: Sequence[int], sizes: Sequence[int]) -> dict[int, Tensor]:
    if len(axes) != len(sizes) or index.shape != (len(axes),):
        raise WrongValue(f"a slice has an index of {list(index.shape)}, {len(axes)} axes and {len(sizes)} sizes; they are of one length")
    found = _signed(index)
    return {
        axis_of(t, a): add(slice(found, k, k + 1), constant(np.arange(size, dtype=np.int32)))
        for k, (a, size) in enumerate(zip(axes, sizes))
    }


@recorded("DynamicSlice")
def dynamic_slice(t: Tensor, index: Tensor, axes: Iterable[int], sizes: Iterable[int], no_overlap: bool = True) -> Tensor:
    """Gives `sizes[k]` elements of dimension `axes[k]` from `index[k]` on. Raises ValueError for lists of other lengths."""
    for d, rows in _start(t, index, list(axes), list(sizes)).items():
        t = emit("gather", t, rows, axis=d)
    return t


@recorded("DynamicUpdate")
def dynamic_update(
    t: Tensor, index: Tensor, t_update: Tensor, axes: Iterable[int], sizes: Iterable[int], no_overlap: bool = True
) -> Tensor:
    """Gives t with `t_update` in place of what `dynamic_slice` would give. Raises ValueError for lists of other lengths."""
    return _updated(t, t_update, list(_start(t, index, list(axes), list(sizes)).items()))


def _updated(t: Tensor, new: Tensor, places: list[tuple[int, Tensor]]) -> Tensor:
    if not places:
        return new
    (d, rows), rest = places[0], places[1:]
    if rest:
        new = _updated(emit("gather", t, rows, axis=d), new, rest)
    order = [d, *(k for k in range(t.rank) if k != d)]
    found = emit("scatter", transpose(t, order), rows, transpose(new, order), reduction="set")
    return transpose(found, [int(k) for k in np.argsort(order)])


dynamic_update_ = in_place("DynamicUpdateInplace", dynamic_update)


@recorded("Histogram")
def histogram(t: Tensor, levels: Sequence[float], absolute_of_input: bool) -> Tensor:
    """Counts the elements below `levels[0]`, from each level to the next, and from the last on: uint32 [len(levels) + 1].

    Raises ValueError for levels that do not rise.
    """
    bounds = [float(v) for v in levels]
    if not bounds or any(b <= a for a, b in pairwise(bounds)):
        raise WrongValue(f"levels rise from one to the next, which {bounds} do not")
    x = reshape(emit("abs", t) if absolute_of_input else t, (1, t.nelms))
    above = emit("greater_or_equal", x, constant(np.array(bounds).reshape(-1, 1), t.dtype))
    counts = emit("reduce_sum", cast_to(above, dtypes.int32), axes=(1,), keep=False)
    total: Any = constant(np.array([t.nelms], np.int32))
    ends = emit("concat", total, counts, axis=0)
    following = emit("concat", counts, constant(np.zeros(1, np.int32)), axis=0)
    return cast_to(emit("sub", ends, following), dtypes.uint32)
