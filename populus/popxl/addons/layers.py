"""Layers of popxl_addons: rotary embeddings, packed weights, sparse products, and scales for 8-bit floats."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from populus.popxl import dtypes
from populus.popxl.internals.recording import recorded
from populus.popxl.ops.common import cast_to, emit, fixed
from populus.popxl.ops.elementwise import add, div, equal, mul, sub
from populus.popxl.ops.index import argmin, histogram
from populus.popxl.ops.neural import matmul
from populus.popxl.ops.reduce import min as smallest
from populus.popxl.ops.reduce import sum as total
from populus.popxl.ops.shape import concat, flatten, identity, reshape
from populus.popxl.ops.shape import slice as part
from populus.popxl.tensor import Tensor, constant


@recorded("RotaryPosEmbed")
def rotary_pos_embed(t: Tensor, sin: Tensor, cos: Tensor, rotary_dim: int) -> Tensor:
    """Computes t [batch, rows, heads, features] with neighbours (x, y) of the first `rotary_dim` features turned by the row's angle.

    `x' = x cos - y sin` and `y' = y cos + x sin`. Source: popxl_addons, rotary_pos_embed.
    """
    return _turned(t, sin, cos, rotary_dim, 4)


@recorded("RotaryPosEmbed")
def rotary_halves(t: Tensor, sin: Tensor, cos: Tensor, rotary_dim: int) -> Tensor:
    """Computes the same with x of the first half of those features, and y of the second. Source: examples, nlp/dolly and nlp/llama."""
    return _turned(t, sin, cos, rotary_dim, 3)


def _turned(t: Tensor, sin: Tensor, cos: Tensor, rotary_dim: int, axis: int) -> Tensor:
    """Turns pairs; `axis` is where a pair's two lie once the features are [features / 2, 2], or [2, features / 2]."""
    turned = part(t, 0, rotary_dim, 1, 3) if rotary_dim < t.shape[3] else t
    sizes = [rotary_dim // 2, rotary_dim // 2]
    sizes[axis - 3] = 2
    pairs = reshape(turned, (*turned.shape[:3], *sizes))
    x, y = (part(pairs, k, k + 1, 1, axis) for k in (0, 1))
    last = (sin.shape[-1], 1) if axis == 4 else (1, sin.shape[-1])
    sines, cosines = (reshape(a, (*a.shape[:-1], *(1 for _ in range(5 - a.rank - 1)), *last)) for a in (sin, cos))
    found = concat([sub(mul(x, cosines), mul(y, sines)), add(mul(y, cosines), mul(x, sines))], axis)
    found = reshape(found, turned.shape)
    return concat([found, part(t, rotary_dim, None, 1, 3)], 3) if rotary_dim < t.shape[3] else found


@recorded("GradReduceSquareAdd")
def grad_reduce_square_add(t: Tensor, scale: Tensor) -> Tensor:
    """Computes `scale sum of t^2`, in f32."""
    wide = flatten(cast_to(t, dtypes.float32))
    return mul(total(mul(wide, wide)), cast_to(scale, dtypes.float32))


@recorded("GroupQuantizeDecompress")
def group_quantize_decompress(t: Tensor, scale: Tensor, bias: Tensor) -> Tensor:
    """Gives weights [rows, groups 4 words] of words [rows, groups, words] that hold four numbers of 4 bits each, the high ones first.

    A number is multiplied by the scale of its group, and the group's bias is added. Source: popxl_addons, group_quantize_decompress.
    """
    words = cast_to(t, dtypes.uint32)
    shifts = constant(np.array([12, 8, 4, 0], np.uint32))
    numbers = emit("bit_shift", reshape(words, (*t.shape, 1)), shifts, left=False)
    numbers = emit("bitwise_and", numbers, constant(np.array(15, np.uint32)))
    rows, groups, count = t.shape
    grouped = reshape(cast_to(cast_to(numbers, dtypes.int32), scale.dtype), (rows, groups, count * 4))
    return reshape(add(mul(grouped, scale), bias), (rows, groups * count * 4))


@dataclass(frozen=True)
class LinearLayoutParams:
    """The batch size of a layout."""

    bs: int


@recorded("LinearLayout")
def linear_layout(t: Tensor, params: LinearLayoutParams) -> Tensor:
    """Gives the tensor: the planner lays tensors out."""
    return identity(t, "linear_layout")


@dataclass(frozen=True)
class DenseSparseMatMulParams:
    """A sparse matrix by rows: its values, their columns, and where each row begins."""

    data: np.ndarray
    indices: np.ndarray
    indptr: np.ndarray
    output_cols: int


@recorded("DenseSparseMatMul")
def dense_sparse_matmul(lhs: Tensor, params: DenseSparseMatMulParams) -> Tensor:
    """Computes the product with a constant sparse matrix, which is a dense constant of lhs's element type here."""
    counts = np.diff(np.asarray(params.indptr, np.int64))
    dense = np.zeros((len(counts), params.output_cols), np.float32)
    dense[np.repeat(np.arange(len(counts)), counts), np.asarray(params.indices, np.int64)] = params.data
    return matmul(lhs, constant(dense, lhs.dtype))


@dataclass(frozen=True)
class Fp8ScalingBiasParams:
    """The exponents of f32 that an 8-bit float reaches, and the square of its relative error."""

    min_fp32_exp_index: int
    quantisation_error: float
    format_span: int


FIRST, BINS, BIASES = -126, 254, 62  # the least exponent of f32, its exponents, and the scales that are tried


@recorded("Fp8Scale")
def fp8_scale(src: Tensor, params: Fp8ScalingBiasParams) -> Tensor:
    """Gives the exponent by which data are scaled, of those from -30 to 31, so that an 8-bit float has the least mean square error.

    The share of data of each exponent has the error of what is too small, within, or too large. Of equal errors the middle one counts.
    Source: popxl_addons, fp8_mse_scale.
    """
    bins = np.exp2(np.arange(FIRST, FIRST + BINS, dtype=np.float64))
    levels = constant(bins.astype(np.float32))
    counts = part(histogram(flatten(cast_to(src, dtypes.float32)), bins.tolist(), True), 1, BINS + 1)
    shares = div(cast_to(counts, dtypes.float32), fixed(src.nelms, levels))
    low = params.min_fp32_exp_index + np.arange(BIASES)[:, None]
    high, at = low + params.format_span, np.arange(BINS)[None, :]
    beyond = (1 - np.exp2(np.minimum(high - 1.0 - at, 0))) ** 2
    weights = np.where(at < low, 1.0, np.where(at < high, params.quantisation_error, beyond)).astype(np.float32)
    errors = flatten(matmul(constant(weights), reshape(mul(mul(shares, levels), levels), (BINS, 1))))
    equals = total(cast_to(equal(errors, smallest(errors)), dtypes.int32))
    best = cast_to(reshape(argmin(errors), ()), dtypes.int32)
    return sub(constant(31, dtypes.int32), add(best, div(equals, constant(2, dtypes.int32))))
