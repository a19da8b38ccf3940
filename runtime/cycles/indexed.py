"""Cycles of vertices that write rows by index, and of those that sort."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from populus.dialects.element_types import size_in_bytes
from populus.runtime.cycles.contraction import Count, ceil_div

if TYPE_CHECKING:
    from populus.runtime.cycles.vertices import Vertex


def multi_update_cycles(v: Vertex, sizes: Mapping[str, Count]) -> Any:
    """A copy of the rows, a comparison for each index, and each element of an update once, as if all were for this vertex.

    Source: popops `MultiUpdateAdd` (its inner loop); our own bound for which rows are hit.
    """
    rows, indices = v.elements(v.output, sizes), v.elements(1, sizes)
    vector = max(1, v.target.vector_bytes // size_in_bytes(v.types[v.output].element))
    updates = ceil_div(v.elements(2, sizes), v.target.workers)
    return 30 + 2 * ceil_div(rows, vector) + v.target.workers * (20 + 6 * ceil_div(indices, v.target.workers) + 5 * ceil_div(updates, vector))


def top_k_cycles(v: Vertex, sizes: Mapping[str, Count]) -> Any:
    """A merge sort: each element is compared once for each doubling of the row, at 8 cycles. Our own."""
    elements = v.elements(0, sizes)
    row = v.types[0].shape[-1]
    steps = int(np.ceil(np.log2(max(row, 2))))
    return 30 + v.target.workers * (20 + 8 * steps * ceil_div(elements, v.target.workers))
