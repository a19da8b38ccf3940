"""Kernel of `packed_matmul`: a product by weights of 2, 4 or 8 bits, with a scale and a zero point for each block of a column.

    y[m, n] = sum over k of x[m, k] (code(n, k) - zero[n, k / block]) scale[n, k / block]

Some columns at a time become f32, and BLAS multiplies by them.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from populus.runtime.codelets.implementation import Implementation
from populus.runtime.codelets.task import Array, Run, Task, nothing
from populus.runtime.cycles import Products, contraction
from populus.runtime.cycles.vertices import Sizes, Vertex

AT_ONCE = 1 << 20  # weights in f32 at a time


def expanded(codes: Array, scale: Array, zero: Array, bits: int, k: int) -> Array:
    """Computes weights in f32: [n, k], from codes [n, blocks, bytes], scales and zero points [n, blocks]."""
    n, blocks, length = codes.shape
    apart = np.empty((n, blocks, length, 8 // bits), np.float32)
    for i in range(8 // bits):
        apart[..., i] = (codes >> (bits * i)) & (2**bits - 1)
    weights = apart.reshape(n, blocks, length * (8 // bits))
    weights -= zero[..., None]
    weights *= scale[..., None]
    return weights.reshape(n, math.prod(weights.shape[1:]))[:, :k]


def packed_matmul(task: Task) -> Run:
    """Computes `y = x w` in f32 by weights that are expanded some columns at a time."""
    x, codes, scale, zero, y = (task[f] for f in ("x", "codes", "scale", "zero", "y"))
    if y.size == 0:
        return nothing
    bits, k = int(task.number("bits")), x.shape[1]
    step = max(1, AT_ONCE // max(k, 1))

    def run() -> None:
        for n in range(0, y.shape[1], step):
            own = slice(n, n + step)
            y[:, own] = x @ expanded(codes[own], scale[own], zero[own], bits, k).T

    return run


def _cycles(v: Vertex, sizes: Sizes) -> Any:
    """Estimates the product, and four vector operations for each weight before it."""
    m, n, k = sizes["m"], sizes["n"], sizes["k"]
    weights = -(-(4 * n * k) // v.target.vector_width(v.element))
    return weights + contraction(Products(1, m, 1, n, k, 1, v.element, v.target))


def _flops(v: Vertex) -> int:
    return 2 * v.points


IMPLEMENTATIONS = {"packed_matmul": Implementation(packed_matmul, _cycles, _flops, native="packed_products.packed_matmul")}
