"""Cycles of a whole product on a mesh, from a plan in space and time: operands that stream, and results that are stored.

The first operand goes along rows of the grid and the second along columns, each sent by one core to the others. Blocks of depth arrive in
two buffers under the computing of the block before. Counts may be arrays: a planner weighs all its candidates at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from populus.dialects.poplar.machine import Mesh
from populus.runtime.cycles.counts import Count, ceil_div
from populus.runtime.cycles.mesh.contraction import sub_block_cycles
from populus.runtime.cycles.mesh.steps import PACKET


@dataclass(frozen=True)
class Streamed:
    """A plan, in blocks of elements: what one core holds at once, and how often it does so."""

    rows: Count  # of an output block
    columns: Count
    inner: Count  # depth of a step
    sub_rows: Count  # of the output that the registers hold
    sub_columns: Count
    steps: Count  # of an output block: its depth, in steps
    outputs: Count  # output blocks of a core
    columns_of_grid: Count  # cores in a row, which share the first operand
    rows_of_grid: Count

    def bytes(self, block_bytes: float, sum_bytes: float) -> Any:
        """Computes what a core holds: two buffers of each operand, the result, and its sums."""
        operands = 2 * self.inner * (self.rows + self.columns) * block_bytes
        return operands + self.rows * self.columns * (block_bytes + np.where(np.greater(self.steps, 1), sum_bytes, 0))


class Places(NamedTuple):
    """The place of each operand and of the result: DRAM if true, else the cores' memory."""

    first: bool = True
    second: bool = True
    result: bool = True


class Cycles(NamedTuple):
    """Cycles of a product: until the last sum, of the store after it, and of what one step computes and moves."""

    until_summed: Any
    store: Any
    compute: Any
    move: Any

    @property
    def all(self) -> Any:
        """Cycles until the result is stored."""
        return self.until_summed + self.store


def product_cycles(mesh: Mesh, plan: Streamed, block_bytes: float, phases: int, places: Places) -> Cycles:
    """Estimates a product by a plan.

    A step takes the most of computing and moving; the first one moves before anything is computed. A sender reads its block, waits for
    all of it, then sends it on. `dram_cycles` has the time of its packet in it, so that is taken off. Multicasts are linked, one path
    for all steps: each waits for a signal that its buffers are free. Each output block starts anew, after the part of the store before
    it that no computing hides.
    """
    subs = ceil_div(plan.rows, plan.sub_rows) * ceil_div(plan.columns, plan.sub_columns)
    compute = subs * plan.inner * sub_block_cycles(mesh, plan.sub_rows, plan.sub_columns, block_bytes, phases)
    tiles = plan.rows * plan.inner, plan.columns * plan.inner
    senders = np.where(places.first, tiles[0] * plan.rows_of_grid, 0) + np.where(places.second, tiles[1] * plan.columns_of_grid, 0)
    share = senders * block_bytes / mesh.dram_stream_bytes if mesh.dram_size else 0.0
    moves: list[Any] = []
    first = max(0.0, mesh.dram_cycles - PACKET / mesh.dram_tile_bytes) if mesh.dram_size else 0.0
    for blocks, dram, rate, others in (
        (tiles[0], places.first, mesh.row_bytes, plan.columns_of_grid),
        (tiles[1], places.second, mesh.column_bytes, plan.rows_of_grid),
    ):
        sent = np.where(np.greater(others, 1), blocks * block_bytes / rate, 0.0)
        if dram:
            request = max(mesh.issue_cycles, mesh.reader_cycles)
            read = np.maximum(np.maximum(blocks * request, blocks * block_bytes / mesh.dram_tile_bytes), share)
            sent = first + (np.maximum(read, sent) if mesh.reads_while_sending else read + sent)
        moves.append(mesh.signal_cycles + sent)
    move = np.maximum(*moves)
    stored = plan.rows * plan.columns * block_bytes * plan.columns_of_grid * plan.rows_of_grid
    store = stored / mesh.dram_write_bytes if places.result else np.zeros_like(stored)
    tail = np.maximum(0.0, store - compute * (1 - 1 / subs))
    step = np.maximum(compute, move) if mesh.buffers > 1 else compute + move
    once = move + (plan.steps - 1) * step + compute + plan.steps * mesh.step_cycles
    return Cycles(plan.outputs * once + (plan.outputs - 1) * tail, tail, compute, move)
