"""The values of `popart` ops on whole arrays, by NumPy's function or the definition's formula.

They are independent of the ops' `lower`, so that comparing the levels checks it. Element-wise ops have no row,
because their formula is evaluated. Ops that apply another op to other dimensions have none either; they run through
`lower`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from xdsl.ir import Operation

from populus.dialects import popart
from populus.dialects.base.tensor_op import ints
from populus.dialects.popart.base import ReduceOp
from populus.dialects.support.diagnostics import PopulusError, where
from populus.dialects.support.element_types import dtype_of, shape_of
from populus.dialects.support.shapes import reach
from populus.runtime.interpreter.poplin import convolution, product
from populus.runtime.interpreter.popnn import pool, softmax, whiten
from populus.runtime.interpreter.popops import reduce, slice_of, wide
from populus.runtime.poprand import draw

Array = NDArray[Any]

# -- reductions ------------------------------------------------------------------------------------------------------


def _mean(x: Array, dims: tuple[int, ...]) -> Array:
    n = math.prod(x.shape[d] for d in dims)
    if x.dtype.kind in "iu":
        return np.trunc(x.sum(dims, dtype=x.dtype) / n)
    return x.sum(dims) / x.dtype.type(n)


def _log_sum_exp(x: Array, dims: tuple[int, ...]) -> Array:
    largest = x.max(dims, keepdims=True, initial=-np.inf)
    largest = np.where(np.isfinite(largest), largest, 0).astype(x.dtype)
    return np.log(np.exp(x - largest).sum(dims)) + largest.reshape([n for d, n in enumerate(largest.shape) if d not in dims])


_REDUCTIONS: dict[type[Operation], Callable[[Array, tuple[int, ...]], Array]] = {
    popart.ReduceL1Op: lambda x, dims: np.abs(x).sum(dims),
    popart.ReduceL2Op: lambda x, dims: np.sqrt((x * x).sum(dims)),
    popart.ReduceLogSumOp: lambda x, dims: np.log(x.sum(dims)),
    popart.ReduceLogSumExpOp: _log_sum_exp,
    popart.ReduceMaxOp: lambda x, dims: reduce("max", x, dims),
    popart.ReduceMeanOp: _mean,
    popart.ReduceMinOp: lambda x, dims: reduce("min", x, dims),
    popart.ReduceProdOp: lambda x, dims: x.prod(dims),
    popart.ReduceSumOp: lambda x, dims: x.sum(dims),
    popart.ReduceSumSquareOp: lambda x, dims: (x * x).sum(dims),
}


def _reduce(op: ReduceOp, x: Array) -> list[Array]:
    dims = op.dims()
    inside = wide(x.dtype)
    if x.dtype.kind in "iu" and isinstance(op, popart.ReduceL2Op | popart.ReduceLogSumOp | popart.ReduceLogSumExpOp):
        inside = np.dtype(np.float64)
    with np.errstate(all="ignore"):
        y = _REDUCTIONS[type(op)](x.astype(inside), dims)
        return [np.asarray(y).astype(x.dtype).reshape(shape_of(op.y.type))]


# -- the same elements elsewhere -------------------------------------------------------------------------------------


def _reshape(op: popart.ReshapeOp, x: Array) -> list[Array]:
    return [x.reshape(shape_of(op.y.type))]


def _transpose(op: popart.TransposeOp, x: Array) -> list[Array]:
    return [x.transpose(ints(op.permutation))]


def _expand(op: popart.ExpandOp, x: Array) -> list[Array]:
    return [np.broadcast_to(x, shape_of(op.y.type))]


def _concat(op: popart.ConcatOp, *parts: Array) -> list[Array]:
    return [np.concatenate(parts, op.axis)]


def _slice(op: popart.SliceOp, x: Array) -> list[Array]:
    return [x[slice_of(ints(op.begins), ints(op.ends), ints(op.steps))]]


def _pad(op: popart.PadOp, x: Array, value: Array | None = None) -> list[Array]:
    lower, upper = ints(op.lower_), ints(op.upper)
    around = [(max(p, 0), max(q, 0)) for p, q in zip(lower, upper)]
    match op.mode.data:
        case "constant":
            y = np.pad(x, around, constant_values=0 if value is None else value)  # pyright: ignore[reportArgumentType]
        case "reflect":
            y = np.pad(x, around, mode="reflect")
        case _:
            y = np.pad(x, around, mode="edge")
    return [y[tuple(slice(max(-p, 0), n - max(-q, 0)) for p, q, n in zip(lower, upper, y.shape))]]


def _tile(op: popart.TileOp, x: Array) -> list[Array]:
    return [np.tile(x, ints(op.repeats))]


def _gather(op: popart.GatherOp, x: Array, indices: Array) -> list[Array]:
    axis = op.axis
    try:
        return [np.take(x, indices, axis)]
    except IndexError as error:
        raise PopulusError(f"{where(op)}: {op.name}: {error}; dimension {axis} of x has {x.shape[axis]} elements") from error


# -- products and windows --------------------------------------------------------------------------------------------


def _matmul(op: popart.MatMulOp, a: Array, b: Array) -> list[Array]:
    return [np.asarray(product(a, b))]


def _gemm(op: popart.GemmOp, a: Array, b: Array, c: Array | None = None) -> list[Array]:
    y = product(a.T if op.trans_a else a, b.T if op.trans_b else b)
    alpha, beta = op.alpha, op.beta
    y = y if alpha == 1 else y * y.dtype.type(alpha)
    return [y if c is None else y + (c if beta == 1 else c * c.dtype.type(beta))]


def _channels(bias: Array, rank: int) -> Array:
    return bias.reshape(-1, *(1,) * (rank - 2))


def _conv(op: popart.ConvOp, x: Array, w: Array, bias: Array | None = None) -> list[Array]:
    y = convolution(x, w, ints(op.strides), ints(op.pads), ints(op.dilations), op.group)
    return [y if bias is None else y + _channels(bias, y.ndim)]


def _conv_transpose(op: popart.ConvTransposeOp, x: Array, w: Array, bias: Array | None = None) -> list[Array]:
    """Adds to the result, for each element of x, its multiple of the kernel at its position; padding is cut off at the
    end.
    """
    strides, dilations, pads, group = ints(op.strides), ints(op.dilations), ints(op.pads), op.group
    batch, _, *size = x.shape
    inputs, out, *kernel = w.shape
    final = shape_of(op.y.type)[2:]
    extents: list[int] = list(map(reach, size, strides, kernel, dilations))
    shifts = [max(-p, 0) for p in pads]  # a negative pad is a border of zeros
    room = [max(p + s + n, s + extent) for p, s, n, extent in zip(pads, shifts, final, extents)]
    y = np.zeros((batch, group, out, *room), wide(x.dtype))
    a = x.astype(wide(x.dtype)).reshape(batch, group, inputs // group, *size)
    b = w.astype(wide(x.dtype)).reshape(group, inputs // group, out, *kernel)
    for position in itertools.product(*map(range, kernel)):
        places = tuple(
            slice(z + k * d, z + k * d + reach(i, s, 1, 1), s) for z, k, d, i, s in zip(shifts, position, dilations, size, strides)
        )
        y[(slice(None), slice(None), slice(None), *places)] += np.einsum("ngi...,gio->ngo...", a, b[(..., *position)])
    y = y.reshape(batch, group * out, *room)[(..., *(slice(p + s, p + s + n) for p, s, n in zip(pads, shifts, final)))].astype(x.dtype)
    return [y if bias is None else y + _channels(bias, y.ndim)]


def _pool(kind: str, op: popart.MaxPoolOp | popart.AveragePoolOp, x: Array) -> list[Array]:
    padding = isinstance(op, popart.AveragePoolOp) and op.count_padding
    counts = shape_of(op.y.type)[2:]
    return [pool(x, kind, ints(op.kernel), ints(op.strides), ints(op.pads), ints(op.dilations), counts, padding)]


def _lrn(op: popart.LrnOp, x: Array) -> list[Array]:
    size = op.size
    v = x.astype(wide(x.dtype))
    sums = np.zeros_like(v)
    for c in range(x.shape[1]):
        near = v[:, max(c - (size - 1) // 2, 0) : c + size // 2 + 1]
        sums[:, c] = (near * near).sum(1)
    f = v.dtype.type
    return [(v / (f(op.bias) + f(op.alpha / size) * sums) ** f(op.beta)).astype(x.dtype)]


# -- normalisation ---------------------------------------------------------------------------------------------------


def _batch_norm(op: popart.BatchNormOp, x: Array, *parameters: Array) -> list[Array]:
    inside = np.promote_types(wide(x.dtype), wide(parameters[2].dtype))
    scale, bias, mean, variance = (_channels(v.astype(inside), x.ndim) for v in parameters)
    with np.errstate(all="ignore"):
        y = (x.astype(inside) - mean) / np.sqrt(variance + inside.type(op.epsilon)) * scale + bias
    return [y.astype(x.dtype)]


def _batch_variance(op: popart.BatchVarianceOp, x: Array, mean: Array) -> list[Array]:
    centred = (x - _channels(mean, x.ndim)).astype(wide(x.dtype))
    return [(centred * centred).mean((0, *range(2, x.ndim))).astype(mean.dtype)]


def _scaled(x: Array, white: Array, scale: Array, bias: Array | None) -> list[Array]:
    y = white * scale.astype(x.dtype)
    return [y if bias is None else y + bias.astype(x.dtype)]


def _instance_norm(op: popart.InstanceNormOp, x: Array, scale: Array, bias: Array) -> list[Array]:
    white = whiten(x, tuple(range(2, x.ndim)), op.epsilon)
    return _scaled(x, white, _channels(scale, x.ndim), _channels(bias, x.ndim))


def _group_norm(op: popart.GroupNormOp, x: Array, scale: Array, bias: Array) -> list[Array]:
    grouped = x.reshape(x.shape[0], op.groups, -1)
    white = whiten(grouped, (2,), op.epsilon).reshape(x.shape)
    return _scaled(x, white, _channels(scale, x.ndim), _channels(bias, x.ndim))


def _layer_norm(op: popart.LayerNormOp, x: Array, scale: Array, bias: Array | None = None) -> list[Array]:
    return _scaled(x, whiten(x, tuple(range(op.axis, x.ndim)), op.epsilon), scale, bias)


def _softmax(log: bool, op: popart.SoftmaxOp | popart.LogSoftmaxOp, x: Array) -> list[Array]:
    return [softmax(x, op.axis, log)]


def _random(op: popart.RandomOp, seed: Array) -> list[Array]:
    shape = ints(op.shape)
    numbers = draw(seed, op.distribution.data, op.a, op.b, op.stream, 0, math.prod(shape))
    return [numbers.reshape(shape).astype(dtype_of(op.element))]


FUNCTIONS: dict[type[Operation], Callable[..., list[Array]]] = {
    **dict.fromkeys(_REDUCTIONS, _reduce),
    popart.AveragePoolOp: partial(_pool, "average"),
    popart.BatchNormOp: _batch_norm,
    popart.BatchVarianceOp: _batch_variance,
    popart.ConcatOp: _concat,
    popart.ConvOp: _conv,
    popart.ConvTransposeOp: _conv_transpose,
    popart.ExpandOp: _expand,
    popart.GatherOp: _gather,
    popart.GemmOp: _gemm,
    popart.GroupNormOp: _group_norm,
    popart.InstanceNormOp: _instance_norm,
    popart.LayerNormOp: _layer_norm,
    popart.LogSoftmaxOp: partial(_softmax, True),
    popart.LrnOp: _lrn,
    popart.MatMulOp: _matmul,
    popart.MaxPoolOp: partial(_pool, "max"),
    popart.PadOp: _pad,
    popart.RandomOp: _random,
    popart.ReshapeOp: _reshape,
    popart.SliceOp: _slice,
    popart.SoftmaxOp: partial(_softmax, False),
    popart.TileOp: _tile,
    popart.TransposeOp: _transpose,
}
