"""Kernels of `multi_slice` and `dynamic_update`: rows of a table by index."""

from __future__ import annotations

from typing import Any

import numpy as np
from xdsl.ir import Attribute

from populus.dialects.poplar.partition import ALL
from populus.dialects.poplar.target import Target
from populus.dialects.support.diagnostics import PopulusError
from populus.dialects.support.element_types import size_in_bytes
from populus.runtime.codelets.implementation import Implementation
from populus.runtime.codelets.task import Run, Task, nothing
from populus.runtime.cycles.counts import Count, ceil_div
from populus.runtime.cycles.vertices import Sizes, Vertex


def selected(task: Task) -> int:
    """Finds the dimension of `table` that indices select from: the one that is accessed whole."""
    return task.fields["table"].access.index(ALL)


def multi_slice(task: Task) -> Run:
    """Computes `y[t.., i.., t..] = table[t.., indices[i..], t..]`; the index applies to the whole dimension of the table.

    Raises PopulusError, when run, for an index outside the table.
    """
    table, indices, y, dim = task["table"], task["indices"], task["y"], selected(task)
    if y.size == 0:
        return nothing
    n = table.shape[dim]

    def run() -> None:
        low, high = int(indices.min()), int(indices.max())
        if low < 0 or high >= n:
            raise PopulusError(f"index {low if low < 0 else high} is outside 0..{n}")
        np.take(table, indices, dim, out=y, mode="clip")  # mode "raise" would copy through a buffer

    return run


def dynamic_update(task: Task) -> Run:
    """Computes `table[index] = row`; the other rows stay.

    Raises PopulusError, when run, for an index outside the table.
    """
    table, index, row = task["table"], task["index"], task["row"]
    if table.size == 0:
        return nothing
    n = table.shape[0]

    def run() -> None:
        i = int(index.item())
        if not 0 <= i < n:
            raise PopulusError(f"index {i} is outside 0..{n}")
        table[i] = row

    return run


def _multi_slice(v: Vertex, sizes: Sizes) -> Any:
    """Estimates MultiSlice: workers share the indices; a vector of a row takes 2 cycles, 3 for byte elements."""
    indices = v.elements(1, sizes)
    return multi_slice_cycles(indices, ceil_div(v.elements(v.output, sizes), np.maximum(indices, 1)), v.element, v.target)


def _dynamic_update(v: Vertex, sizes: Sizes) -> Any:
    """Estimates the update as a slice of one row."""
    return multi_slice_cycles(1, v.elements(2, sizes), v.element, v.target)


def multi_slice_cycles(indices: Count, row: Count, element: Attribute, target: Target) -> Any:
    """Estimates tile cycles of selecting `indices` rows of `row` elements."""
    size = size_in_bytes(element)
    vector, cycles = {1: (4, 3), 2: (2, 2)}.get(size, (max(1, 8 // size), 2))
    per_row = 19 + ceil_div(row, vector * max(1, target.vector_bytes // 8)) * cycles
    return target.workers * (30 + ceil_div(indices, target.workers) * per_row)


IMPLEMENTATIONS = {
    "multi_slice": Implementation(multi_slice, _multi_slice, native="tables.multi_slice"),
    "dynamic_update": Implementation(dynamic_update, _dynamic_update, native="tables.dynamic_update"),
}
