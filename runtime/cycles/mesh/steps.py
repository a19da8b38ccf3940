"""Cycles of a program on a mesh besides its computing: launch, network, DRAM, and what of it is hidden."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from populus.dialects.poplar.machine import Mesh
from populus.dialects.poplar.target import Target

PACKET = 2048  # bytes of a request: a block of 16-bit elements


def mesh_of(target: Target) -> Mesh:
    """Returns the numbers of a mesh."""
    assert target.mesh is not None, target.name
    return target.mesh


def launch(exchanges: int, target: Target) -> int:
    """Returns the cycles of a program's launch, whatever it moves: nothing inside it is a barrier of all cores."""
    return math.ceil(mesh_of(target).launch_cycles)


def start(is_product: bool, target: Target) -> int:
    """Returns the cycles that a core takes to fill its units: a signal from the core that reads for it."""
    return math.ceil(mesh_of(target).signal_cycles)


def transfer(bytes: int, target: Target, many: bool = False) -> int:
    """Computes the cycles of bytes from one core to another, or with `many` to several of a row; 0 if none move."""
    m = mesh_of(target)
    if not bytes:
        return 0
    requests, rate = math.ceil(bytes / PACKET), m.row_bytes if many else m.unicast_bytes
    return math.ceil((m.multicast_cycles if many else m.signal_cycles) + max(bytes / rate, requests * m.issue_cycles))


def outside(bytes: int, target: Target, written: bool = False) -> int:
    """Computes the cycles in which all cores read or write bytes of DRAM.

    Each core reads its own, or the cores beside the banks read for all and send on, while they read more: whichever is faster.
    """
    m = mesh_of(target)
    if not bytes or not m.dram_size:
        return 0
    moved = bytes / (m.dram_write_bytes if written else m.dram_read_bytes)
    if m.banks and not written:
        moved = min(moved, m.signal_cycles + bytes / m.bank_rate(math.ceil(bytes / PACKET)))
    return math.ceil(m.dram_cycles + moved)


def local_copy(bytes: int, target: Target) -> int:
    """Computes the cycles of a copy in a core's memory, by its link to the network."""
    m = mesh_of(target)
    return math.ceil(m.signal_cycles + bytes / m.unicast_bytes)


def hidden(compute: Any, exchange: Any, blocks: Any, target: Target) -> Any:
    """Computes the cycles of moving that run under computing, if a step may come in up to `blocks` equal blocks.

    The first of n blocks is moved before anything is computed; from then on the next one moves under it. Each further block has the
    latency again, in `exchange` too:
    cycles = exchange / n + (n - 1) max(exchange, compute) / n + compute / n. The best n of 1, 2, 4, .. is taken.
    """
    m = mesh_of(target)
    if m.buffers < 2:
        return np.zeros_like(compute)
    best: Any = np.zeros_like(np.asarray(compute, float))
    for n in (2, 4, 8, 16, 32, 64):
        later = (n - 1) * (m.multicast_cycles + m.signal_cycles)
        saved = np.minimum(compute, exchange + later) * (n - 1) / n - later
        best = np.maximum(best, np.where(np.less_equal(n, blocks) & np.greater(exchange, 0), saved, 0))
    return np.floor(best)
