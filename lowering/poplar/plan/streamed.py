"""Plan of a product on a mesh in space and time: blocks of output, blocks of depth that stream, sub-blocks in the registers.

Rows of the product go to the grid's rows, and its columns to the grid's columns. All distinct ceiling divisions are weighed at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from populus.dialects.poplar.machine import Mesh
from populus.dialects.poplar.target import Target
from populus.lowering.poplar.plan.contraction import Counts, part_counts
from populus.runtime.cycles.mesh.contraction import SUB_BLOCKS, sub_block_cycles
from populus.runtime.cycles.mesh.product import Places, Streamed, product_cycles

SUM_BYTES = 2048  # of a block of sums in a core's memory, between steps


@dataclass(frozen=True)
class Blocks:
    """A product in blocks of elements: [rows, depth] x [depth, columns], each block of so many bytes."""

    rows: int
    depth: int
    columns: int
    bytes: float
    phases: int


@lru_cache(1024)
def streamed(product: Blocks, target: Target, places: Places) -> tuple[Streamed, float] | None:
    """Finds the plan of fewest cycles whose buffers fit a core; None if none does. Ties go to fewer bytes."""
    mesh = target.mesh
    assert mesh is not None, target.name
    across, down = mesh.grid
    own_rows, own_columns = -(-product.rows // down), -(-product.columns // across)
    rows, columns, inner = (_shares(n) for n in (own_rows, own_columns, product.depth))
    h, w = _sub_blocks(mesh, rows, columns, product)
    plan = Streamed(
        rows[:, None, None], columns[None, :, None], inner[None, None, :], h[:, :, None], w[:, :, None],
        steps=-(-product.depth // inner)[None, None, :],
        outputs=-(-own_rows // rows)[:, None, None] * -(-own_columns // columns)[None, :, None],
        columns_of_grid=across, rows_of_grid=down,
    )  # fmt: skip
    bytes = plan.bytes(product.bytes, SUM_BYTES if product.bytes != SUM_BYTES else 0)  # sums of 16 bits lie where the result will
    if not places.first:  # the whole of a core's share lies in its memory
        bytes = bytes + own_rows * -(-product.depth // across) * product.bytes
    if not places.result:
        bytes = bytes + (own_rows * own_columns - plan.rows * plan.columns) * product.bytes
    fits = bytes <= target.room
    if not fits.any():
        return None
    cycles = np.where(fits, product_cycles(mesh, plan, product.bytes, product.phases, places).all, np.inf)
    best = np.unravel_index(int(np.lexsort((np.ravel(bytes), np.ravel(cycles)))[0]), cycles.shape)
    i, j, k = (int(n) for n in best)
    found = Streamed(
        int(rows[i]), int(columns[j]), int(inner[k]), int(h[i, j]), int(w[i, j]), int(-(-product.depth // inner[k])),
        int(-(-own_rows // rows[i]) * -(-own_columns // columns[j])), across, down,
    )  # fmt: skip
    return found, float(cycles[best])


def _shares(n: int) -> Counts:
    """Lists the distinct largest parts of n blocks."""
    return -(-n // part_counts(n))


def _sub_blocks(mesh: Mesh, rows: Counts, columns: Counts, product: Blocks) -> tuple[Counts, Counts]:
    """Chooses the sub-block of each pair of rows and columns: [rows, columns]."""
    shape = len(rows), len(columns)
    best, h, w = np.full(shape, np.inf), np.ones(shape, np.int64), np.ones(shape, np.int64)
    for high, wide in SUB_BLOCKS:
        if high * wide <= mesh.sub_block:
            each = float(sub_block_cycles(mesh, high, wide, product.bytes, product.phases))
            cycles = (-(-rows // high))[:, None] * (-(-columns // wide))[None, :] * each
            better = cycles < best
            best, h, w = np.where(better, cycles, best), np.where(better, high, h), np.where(better, wide, w)
    return h, w
