"""Kernels of `multi_update` and `top_k`: rows written by index, and the order of elements."""

from __future__ import annotations

from typing import Any

import numpy as np
from xdsl.ir import Attribute

from populus.dialects.poplar.target import Target
from populus.dialects.support.diagnostics import PopulusError
from populus.dialects.support.element_types import size_in_bytes
from populus.runtime.codelets.implementation import Implementation
from populus.runtime.codelets.task import Array, Run, Task, arithmetic, nothing
from populus.runtime.cycles.counts import Count, ceil_div
from populus.runtime.cycles.vertices import Sizes, Vertex

COMBINE = {"add": np.add, "mul": np.multiply, "min": np.minimum, "max": np.maximum}


def multi_update(task: Task) -> Run:
    """Copies `table` to y and combines its rows (axis `d0`) at `indices` with `updates`, in order, by `op`.

    A task reads all indices and updates its own rows only. Raises PopulusError, when run, for an index outside 0 .. n.
    """
    table, indices, updates, y = task["table"], task["indices"], task["updates"], task["y"]
    if y.size == 0:
        return nothing
    first, end, _ = task.box["d0"]
    n, op = task.fields["table"].whole[0], task.text("op")

    def run() -> None:
        np.copyto(y, table)
        update(op, y, indices, updates, first, end, n)

    return run


def update(op: str, y: Array, indices: Array, updates: Array, first: int, end: int, n: int) -> None:
    """Combines rows `first` .. `end` (y) of a table of n rows with the updates whose index is among them.

    Raises PopulusError for an index outside the table.
    """
    if not indices.size:
        return
    low, high = int(indices.min()), int(indices.max())
    if low < 0 or high >= n:
        raise PopulusError(f"index {low if low < 0 else high} is outside 0..{n}")
    own = (indices >= first) & (indices < end)
    rows, values = indices[own].astype(np.int64) - first, updates[own]
    if op == "set":
        for row, value in _last(rows, values):
            y[row] = value
        return
    wide = arithmetic(y.dtype)
    total = y.astype(wide)
    with np.errstate(all="ignore"):
        COMBINE[op].at(total, rows, values.astype(wide))
        np.copyto(y, total, casting="unsafe")


def _last(rows: Array, values: Array) -> list[tuple[Array, Array]]:
    """Keeps the last update of each row."""
    _, back = np.unique(rows[::-1], return_index=True)
    last = len(rows) - 1 - back
    return [(rows[last], values[last])]


def top_k(task: Task) -> Run:
    """Finds the positions of the `k` largest (or smallest) elements of each row."""
    x, y, largest = task["x"], task["y"], bool(task.number("largest"))
    if y.size == 0:
        return nothing

    def run() -> None:
        np.copyto(y, order(x, largest)[..., : y.shape[-1]], casting="unsafe")

    return run


def order(x: Array, largest: bool) -> Array:
    """Sorts the positions of each row's elements by value; equal elements keep their order."""
    keys = x.astype(arithmetic(x.dtype), copy=False)
    if not largest:
        return np.argsort(keys, axis=-1, kind="stable")
    # Reversing an ascending stable sort would put the last of equal elements first, so the reversed rows are sorted.
    return x.shape[-1] - 1 - np.argsort(keys[..., ::-1], axis=-1, kind="stable")[..., ::-1]


def multi_update_cycles(rows: Count, indices: Count, updates: Count, element: Attribute, target: Target) -> Any:
    """Estimates a copy of the rows, a comparison per index, and one operation per element of `updates`.

    The estimate assumes that all updates fall in this vertex.
    Source: popops `MultiUpdateAdd` (its inner loop); our own upper bound on the rows that are updated.
    """
    vector = max(1, target.vector_bytes // size_in_bytes(element))
    own = ceil_div(updates, target.workers)
    worker = 20 + 6 * ceil_div(indices, target.workers) + 5 * ceil_div(own, vector)
    return 30 + 2 * ceil_div(rows, vector) + target.workers * worker


def top_k_cycles(elements: Count, row: int, target: Target) -> Any:
    """Estimates a merge sort: one comparison of 8 cycles per element and doubling of the row. Our own."""
    steps = int(np.ceil(np.log2(max(row, 2))))
    return 30 + target.workers * (20 + 8 * steps * ceil_div(elements, target.workers))


def _multi_update(v: Vertex, sizes: Sizes) -> Any:
    rows, indices, updates = (v.elements(i, sizes) for i in (v.output, 1, 2))
    return multi_update_cycles(rows, indices, updates, v.types[v.output].element, v.target)


def _top_k(v: Vertex, sizes: Sizes) -> Any:
    return top_k_cycles(v.elements(0, sizes), v.types[0].shape[-1], v.target)


IMPLEMENTATIONS = {
    "multi_update": Implementation(multi_update, _multi_update, native="tables.multi_update"),
    "top_k": Implementation(top_k, _top_k, native="orders.top_k"),
}
