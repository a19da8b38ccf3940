"""The values of `popnn` ops on whole arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from xdsl.ir import Operation

from populus.dialects import popnn
from populus.dialects.base.tensor_op import ints
from populus.dialects.support.element_types import shape_of
from populus.dialects.support.shapes import reach
from populus.runtime.interpreter.poplin import windows
from populus.runtime.interpreter.popops import lowest, reduce, wide

Array = NDArray[Any]


def softmax(x: Array, axis: int, log: bool) -> Array:
    """Computes softmax, or with `log` its logarithm, along `axis`. Narrow floats are computed in float32.

    A softmax of narrow floats is rounded after each step, as ONNX's expansion into ops does.
    """

    def rounded(v: Array) -> Array:
        return v if log else v.astype(x.dtype).astype(v.dtype)

    with np.errstate(all="ignore"):
        v = x.astype(wide(x.dtype))
        v = rounded(v - v.max(axis, keepdims=True, initial=-np.inf))
        exponentials = rounded(np.exp(v))
        total = rounded(exponentials.sum(axis, keepdims=True))
        return (v - np.log(total) if log else exponentials / total).astype(x.dtype)


def whiten(x: Array, axes: tuple[int, ...], epsilon: float) -> Array:
    """Computes (x - mean) / sqrt(variance + epsilon) over `axes`; narrow floats are computed in float32."""
    with np.errstate(all="ignore"):
        v = x.astype(wide(x.dtype))
        v = v - v.mean(axes, keepdims=True)
        return (v / np.sqrt((v * v).mean(axes, keepdims=True) + v.dtype.type(epsilon))).astype(x.dtype)


def pool(
    x: Array,
    kind: str,
    kernel: tuple[int, ...],
    strides: tuple[int, ...],
    pads: tuple[int, ...],
    dilations: tuple[int, ...],
    counts: tuple[int, ...],
    count_padding: bool,
) -> Array:
    """Computes `popnn.PoolOp` of x [batch, channels, size..]; `counts`: the number of windows in each spatial dimension."""
    spatial = len(kernel)
    dims = tuple(range(-spatial, 0))
    # With `ceil`, windows may extend past the padding; the elements beyond it never count in an average.
    last = list(map(reach, counts, strides, kernel, dilations))
    over = [max(end - n - p - q, 0) for end, n, p, q in zip(last, x.shape[2:], pads[:spatial], pads[spatial:])]
    around = [(p, q + o) for p, q, o in zip(pads[:spatial], pads[spatial:], over)]

    def view(v: Array, outside: float) -> Array:
        return windows(np.pad(v, [(0, 0), (0, 0), *around], constant_values=outside), kernel, strides, dilations, counts)

    if kind == "max":
        return np.asarray(reduce("max", view(x, lowest(x.dtype)), tuple(d % (x.ndim + spatial) for d in dims)))
    v = x.astype(wide(x.dtype))
    if kind == "square_sum":
        v = v * v
    total = view(v, 0).sum(dims, dtype=v.dtype)
    if kind in ("sum", "square_sum"):
        return total.astype(x.dtype)
    inside = np.ones((1, 1, *x.shape[2:]), v.dtype)
    if count_padding:
        inside = np.pad(inside, [(0, 0), (0, 0), *zip(pads[:spatial], pads[spatial:])], constant_values=1)
        around = [(0, o) for o in over]
    with np.errstate(all="ignore"):
        return (total / view(inside, 0).sum(dims)).astype(x.dtype)


def _pool(op: popnn.PoolOp, x: Array) -> list[Array]:
    counts = shape_of(op.y.type)[2:]
    padding = op.count_padding
    return [pool(x, op.kind.data, ints(op.kernel), ints(op.strides), ints(op.pads), ints(op.dilations), counts, padding)]


def _softmax(op: popnn.SoftmaxOp, x: Array) -> list[Array]:
    return [softmax(x, -1, op.log)]


def _whiten(op: popnn.WhitenOp, x: Array) -> list[Array]:
    return [whiten(x, (-1,), op.epsilon)]


FUNCTIONS: dict[type[Operation], Callable[..., list[Array]]] = {
    popnn.PoolOp: _pool,
    popnn.SoftmaxOp: _softmax,
    popnn.WhitenOp: _whiten,
}
