"""Cycles of vertices that write rows by index, and of those that sort. Arrays or numbers, as in `contraction`."""

from __future__ import annotations

from typing import Any

import numpy as np
from xdsl.ir import Attribute

from populus.dialects.poplar.target import Target
from populus.dialects.support.element_types import size_in_bytes
from populus.runtime.cycles.contraction import Count, ceil_div


def multi_update_cycles(rows: Count, indices: Count, updates: Count, element: Attribute, target: Target) -> Any:
    """A copy of the rows, a comparison for each index, and each element of an update once, as if all were for this vertex.

    Source: popops `MultiUpdateAdd` (its inner loop); our own bound for which rows are hit.
    """
    vector = max(1, target.vector_bytes // size_in_bytes(element))
    own = ceil_div(updates, target.workers)
    worker = 20 + 6 * ceil_div(indices, target.workers) + 5 * ceil_div(own, vector)
    return 30 + 2 * ceil_div(rows, vector) + target.workers * worker


def top_k_cycles(elements: Count, row: int, target: Target) -> Any:
    """A merge sort: each element is compared once for each doubling of the row, at 8 cycles. Our own."""
    steps = int(np.ceil(np.log2(max(row, 2))))
    return 30 + target.workers * (20 + 8 * steps * ceil_div(elements, target.workers))
