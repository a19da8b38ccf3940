"""The values of `popops` ops on whole arrays: simple NumPy code, which all lower levels are compared with."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from xdsl.ir import Operation

from populus.dialects import popops
from populus.dialects.base.tensor_op import ints
from populus.dialects.support.diagnostics import PopulusError, where
from populus.dialects.support.element_types import dtype_of, element_type_of, shape_of
from populus.runtime.codelets.indexed import order, update
from populus.runtime.codelets.tile_code import run as run_tile_code
from populus.runtime.expr import evaluate
from populus.runtime.views import params_of

Array = NDArray[Any]


def wide(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Gives the element type in which sums of `dtype` are accumulated: float32 for narrower floats, else `dtype`."""
    return np.dtype(np.float32) if dtype.kind not in "biu" and dtype.itemsize < 4 else dtype


def reduce(op: str, x: Array, dims: tuple[int, ...]) -> Array:
    """Reduces x over `dims` by one of `popops.REDUCTIONS`; the result of no elements is the neutral element."""
    dtype = x.dtype
    with np.errstate(all="ignore"):
        match op:
            case "add":
                return x.astype(wide(dtype)).sum(dims, dtype=wide(dtype)).astype(dtype)
            case "square_add":
                v = x.astype(wide(dtype))
                return (v * v).sum(dims, dtype=wide(dtype)).astype(dtype)
            case "mul":
                return x.astype(wide(dtype)).prod(dims, dtype=wide(dtype)).astype(dtype)
            case "max":
                return x.astype(wide(dtype)).max(dims, initial=lowest(wide(dtype))).astype(dtype)
            case "min":
                return x.astype(wide(dtype)).min(dims, initial=highest(wide(dtype))).astype(dtype)
            case "and":
                return np.asarray(x.all(dims))
            case "or":
                return np.asarray(x.any(dims))
            case _:
                raise AssertionError(op)


def lowest(dtype: np.dtype[Any]) -> float | int | bool:
    """Gives the neutral element of `max`."""
    if dtype.kind == "b":
        return False
    return int(np.iinfo(dtype).min) if dtype.kind in "iu" else -math.inf


def highest(dtype: np.dtype[Any]) -> float | int | bool:
    """Gives the neutral element of `min`."""
    if dtype.kind == "b":
        return True
    return int(np.iinfo(dtype).max) if dtype.kind in "iu" else math.inf


def slice_of(begins: Sequence[int], ends: Sequence[int], steps: Sequence[int]) -> tuple[slice, ...]:
    """Gives the NumPy index of a slice. With a negative step, an end of -1 is the position before the first element."""
    return tuple(slice(b, None if s < 0 and e < 0 else e, s) for b, e, s in zip(begins, ends, steps))


def _map(op: popops.MapOp, *xs: Array) -> list[Array]:
    return [evaluate(op.expr.data, xs)]


def _reduce(op: popops.ReduceOp, x: Array) -> list[Array]:
    wide = x if op.to is None else x.astype(dtype_of(op.to))
    return [np.asarray(reduce(op.op.data, wide, ints(op.dims)))]


def _reshape(op: popops.ReshapeOp, x: Array) -> list[Array]:
    return [x.reshape(shape_of(op.y.type))]


def _dim_shuffle(op: popops.DimShuffleOp, x: Array) -> list[Array]:
    return [x.transpose(ints(op.permutation))]


def _broadcast(op: popops.BroadcastOp, x: Array) -> list[Array]:
    return [np.broadcast_to(x, ints(op.shape))]


def _slice(op: popops.SliceOp, x: Array) -> list[Array]:
    return [x[slice_of(ints(op.begins), ints(op.ends), ints(op.steps))]]


def _concat(op: popops.ConcatOp, *xs: Array) -> list[Array]:
    return [np.concatenate(xs, op.dim)]


def _pad(op: popops.PadOp, x: Array, value: Array) -> list[Array]:
    y = np.full(shape_of(op.y.type), value, x.dtype)
    spans = zip(x.shape, ints(op.lower), ints(op.interior))
    y[tuple(slice(low, low + n + gap * max(n - 1, 0), gap + 1) for n, low, gap in spans)] = x
    return [y]


def _multi_slice(op: popops.MultiSliceOp, table: Array, indices: Array) -> list[Array]:
    dim = op.dim
    n = table.shape[dim]
    if indices.size and not (0 <= indices.min() and indices.max() < n):
        wrong = indices.min() if indices.min() < 0 else indices.max()
        raise PopulusError(f"{where(op)}: {op.name}: index {wrong} is outside the {n} elements of dimension {dim}")
    return [np.take(table, indices, dim)]


def _multi_update(op: popops.MultiUpdateOp, table: Array, indices: Array, updates: Array) -> list[Array]:
    y = table.copy()
    try:
        update(op.op.data, y, indices, updates, 0, len(y), len(y))
    except PopulusError as error:
        raise PopulusError(f"{where(op)}: {op.name}: {error}") from error
    return [y]


def _top_k(op: popops.TopKOp, x: Array) -> list[Array]:
    return [order(x, op.largest)[..., : op.k].astype(np.int32)]


def _iota(op: popops.IotaOp) -> list[Array]:
    dtype = dtype_of(op.element)
    start, step = op.start.value.data, op.step.value.data
    return [(np.arange(op.count) * step + start).astype(dtype)]


def _codelet(op: popops.CodeletOp, *xs: Array) -> list[Array]:
    ys = [np.zeros(shape_of(t), dtype_of(element_type_of(t))) for t in op.types()]
    scalars = {name: value for name, value in params_of(op.params).items() if isinstance(value, bool | int | float)}
    run_tile_code(op.code, {**dict(zip(op.code.inputs, xs)), **dict(zip(op.code.outputs, ys))}, scalars)
    return ys


FUNCTIONS: dict[type[Operation], Callable[..., list[Array]]] = {
    popops.BroadcastOp: _broadcast,
    popops.CodeletOp: _codelet,
    popops.ConcatOp: _concat,
    popops.DimShuffleOp: _dim_shuffle,
    popops.IotaOp: _iota,
    popops.MapOp: _map,
    popops.MultiSliceOp: _multi_slice,
    popops.MultiUpdateOp: _multi_update,
    popops.PadOp: _pad,
    popops.ReduceOp: _reduce,
    popops.ReshapeOp: _reshape,
    popops.SliceOp: _slice,
    popops.TopKOp: _top_k,
}
