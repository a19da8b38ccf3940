"""The values of `poplin` ops on whole arrays."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray
from xdsl.ir import Operation

from populus.dialects import poplin
from populus.dialects.base.tensor_op import ints
from populus.dialects.support.element_types import shape_of
from populus.dialects.support.shapes import reach
from populus.runtime.interpreter.popops import wide

Array = NDArray[Any]


def windows(x: Array, kernel: tuple[int, ...], strides: tuple[int, ...], dilations: tuple[int, ...], counts: tuple[int, ...]) -> Array:
    """Gives a view [.., windows.., kernel..] of the padded x [.., size..], with `counts` windows in each spatial
    dimension.
    """
    reaches = tuple(reach(1, 1, k, d) for k, d in zip(kernel, dilations))
    spatial = len(kernel)
    lead = (slice(None),) * (x.ndim - spatial)
    view = sliding_window_view(x, reaches, tuple(range(x.ndim - spatial, x.ndim)))
    starts = tuple(slice(0, reach(n, s, 1, 1), s) for n, s in zip(counts, strides))
    return view[(*lead, *starts, *(slice(None, None, d) for d in dilations))]


def product(a: Array, b: Array) -> Array:
    """Computes NumPy's matmul: [.., m, k] times [.., k, n]. Narrow floats are computed in float32; integers wrap around,
    and those of 8 bits give 32.
    """
    if a.dtype.name in ("int8", "uint8") and b.dtype.name in ("int8", "uint8"):
        return np.matmul(a.astype(np.int32), b.astype(np.int32))
    with np.errstate(all="ignore"):
        return np.matmul(a.astype(wide(a.dtype)), b.astype(wide(b.dtype))).astype(a.dtype)


def convolution(x: Array, w: Array, strides: tuple[int, ...], pads: tuple[int, ...], dilations: tuple[int, ...], groups: int) -> Array:
    """Computes `poplin.ConvolutionOp`: x [batch, channels, size..], w [out, channels / groups, kernel..].

    A negative pad crops x. For each group, the windows are the rows of a matrix, which is multiplied by the weights as columns.
    """
    spatial = x.ndim - 2
    kernel = w.shape[2:]
    x = x[(..., *(slice(max(-p, 0), n - max(-q, 0)) for p, q, n in zip(pads[:spatial], pads[spatial:], x.shape[2:])))]
    x = np.pad(x, [(0, 0), (0, 0), *((max(p, 0), max(q, 0)) for p, q in zip(pads[:spatial], pads[spatial:]))])
    counts = tuple((n - reach(1, s, k, d)) // s + 1 for n, k, d, s in zip(x.shape[2:], kernel, dilations, strides))
    view = windows(x, kernel, strides, dilations, counts)  # [batch, channels, windows.., kernel..]
    batch, channels, out = x.shape[0], w.shape[1], w.shape[0] // groups
    parts: list[Array] = []
    for g in range(groups):
        mine = view[:, g * channels : (g + 1) * channels]
        rows = np.moveaxis(mine, 1, 1 + spatial).reshape(batch * math.prod(counts), channels * math.prod(kernel))  # of no rows too
        columns = w[g * out : (g + 1) * out].reshape(out, -1).T
        parts.append(np.moveaxis(product(rows, columns).reshape(batch, *counts, out), -1, 1))
    return np.concatenate(parts, 1)


def _matmul(op: poplin.MatMulOp, a: Array, b: Array) -> list[Array]:
    return [product(a, b)]


def _convolution(op: poplin.ConvolutionOp, x: Array, w: Array) -> list[Array]:
    y = convolution(x, w, ints(op.strides), ints(op.pads), ints(op.dilations), op.groups)
    assert y.shape == shape_of(op.y.type), (y.shape, op.y.type)
    return [y]


def packed_product(x: Array, codes: Array, scale: Array, zero: Array, bits: int) -> Array:
    """Computes `poplin.PackedMatMulOp`: x [m, k], codes [n, blocks, bytes], scales and zero points [n, blocks]."""
    amounts = np.arange(0, 8, bits, dtype=np.uint8)
    apart = np.bitwise_and(np.right_shift(codes[..., None], amounts), 2**bits - 1)
    blocks = apart.reshape(*codes.shape[:2], codes.shape[2] * (8 // bits)).astype(np.float32)
    with np.errstate(all="ignore"):
        w = (blocks - zero.astype(np.float32)[..., None]) * scale[..., None]
        return np.matmul(x, w.reshape(len(codes), math.prod(w.shape[1:]))[:, : x.shape[1]].T)


def _packed_matmul(op: poplin.PackedMatMulOp, x: Array, codes: Array, scale: Array, zero: Array) -> list[Array]:
    return [packed_product(x, codes, scale, zero, op.bits)]


FUNCTIONS: dict[type[Operation], Callable[..., list[Array]]] = {
    poplin.ConvolutionOp: _convolution,
    poplin.MatMulOp: _matmul,
    poplin.PackedMatMulOp: _packed_matmul,
}
