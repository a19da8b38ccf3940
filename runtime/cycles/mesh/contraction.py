"""Cycles of a product in a core's memory: blocks of 32 x 32 through the matrix unit, a sub-block of output at a time."""

from __future__ import annotations

from typing import Any

import numpy as np

from populus.dialects.poplar.machine import Mesh
from populus.dialects.support.block_floats import bytes_an_element
from populus.dialects.support.element_types import size_in_bytes
from populus.runtime.cycles.counts import Count, ceil_div
from populus.runtime.cycles.mesh.steps import mesh_of
from populus.runtime.cycles.products import Products

# Rows and columns of a sub-block, the ones with most reuse first.
SUB_BLOCKS = (
    (4, 2), (2, 4), (8, 1), (1, 8), (7, 1), (1, 7), (3, 2), (2, 3), (6, 1), (1, 6), (5, 1), (1, 5), (2, 2), (4, 1), (1, 4), (3, 1), (1, 3),
    (2, 1), (1, 2), (1, 1),
)  # fmt: skip


def sub_block_cycles(mesh: Mesh, h: Count, w: Count, block_bytes: float, phases: int, second_bytes: float = 0.0) -> Any:
    """Computes the cycles of h x w blocks of output for one block of depth. `second_bytes`: of a block of the second operand, if others.

    The operand with fewer blocks stays in the registers while the other streams; multiplying and unpacking run together.
    """
    stays: Any = np.where(np.greater_equal(w, h), h, w)
    wide = np.greater_equal(w, h)
    first, second = np.where(wide, stays, h * w), np.where(wide, h * w, stays)
    unpack = second * (second_bytes or block_bytes) / mesh.unpack_bytes[0] + first * block_bytes / mesh.unpack_bytes[1]
    return np.maximum(h * w * mesh.multiply_cycles * phases + mesh.phase_cycles * phases, unpack)


def block_cycles(
    mesh: Mesh, rows: Count, columns: Count, depth: Count, block_bytes: float, phases: int, wide_sums: bool, second_bytes: float = 0.0
) -> Any:
    """Computes the cycles of rows x columns blocks of output over `depth` blocks, by the best sub-block."""
    room = mesh.sub_block // (2 if wide_sums else 1)
    cheapest: Any = np.inf
    for h, w in SUB_BLOCKS:
        if h * w <= room:
            calls = ceil_div(rows, h) * ceil_div(columns, w)
            each = sub_block_cycles(mesh, np.minimum(h, rows), np.minimum(w, columns), block_bytes, phases, second_bytes)
            cheapest = np.minimum(cheapest, calls * each)
    return depth * cheapest


def contraction(v: Products) -> Any:
    """Estimates a contraction vertex: each group as a product of blocks, a convolution with depth in_channels * taps.

    Elements of 32 bits are summed in 32 bits, which halves the sub-block; others in 16, as the vendor's benchmark has it.
    """
    mesh = mesh_of(v.target)
    side = mesh.block[0]
    wide = size_in_bytes(v.element) >= 4
    m, n, k = ceil_div(v.rows * v.cols, side), ceil_div(v.out_channels, mesh.block[1]), ceil_div(v.in_channels * v.taps, side)
    elements = side * mesh.block[1]
    block_bytes = elements * size_in_bytes(v.element)
    second_bytes = elements * bytes_an_element(v.block) if v.block else block_bytes
    cycles = block_cycles(mesh, m, n, k, block_bytes, mesh.phases_of(v.element), wide, second_bytes)
    pack = m * n * block_bytes / mesh.pack_bytes
    return np.ceil(v.groups * (cycles + pack))
