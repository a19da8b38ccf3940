"""Cycles of a bulk-synchronous step besides its vertices: barriers, exchange, copies."""

from __future__ import annotations

from typing import Any

import numpy as np

from populus.dialects.poplar.target import Target

COPY_CYCLES = 20  # for each region that a tile copies locally


def launch(exchanges: int, target: Target) -> int:
    """Computes the cycles of the barriers of all tiles: one, and one for each exchange."""
    return target.sync_cycles * (1 + exchanges)


def start(is_product: bool, target: Target) -> int:
    """Returns the cycles that a vertex takes beyond its estimate. Products run on the supervisor."""
    return target.product_start_cycles if is_product else target.vertex_start_cycles


def transfer(bytes: int, target: Target, many: bool = False) -> int:
    """Computes the cycles of an exchange in which no tile receives or sends more than `bytes`; 0 if none move.

    `many`: the same bytes go to several tiles, which the exchange does at no cost.
    """
    return target.exchange_setup_cycles - (-bytes // target.exchange_bytes) if bytes else 0


def outside(bytes: int, target: Target, written: bool = False) -> int:
    """Computes the cycles of bytes to or from the memory outside, whose rate all tiles share."""
    return target.exchange_setup_cycles - (-bytes // target.outside_bytes) if bytes else 0


def local_copy(bytes: int, target: Target) -> int:
    """Computes the cycles of a copy on a tile."""
    return COPY_CYCLES - (-bytes // target.copy_bytes)


def hidden(compute: Any, exchange: Any, blocks: Any, target: Target) -> Any:
    """Returns the cycles of exchange under computing: none, for the phases of a step are apart."""
    return np.zeros_like(compute)
