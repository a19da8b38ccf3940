"""The kernels of `multi_update` and `top_k`: rows written by index, and the order of elements."""

from __future__ import annotations

from typing import Any

import numpy as np
from xdsl.ir import Attribute

from populus.dialects.poplar.target import Target
from populus.dialects.support.diagnostics import PopulusError
from populus.dialects.support.element_types import size_in_bytes
from populus.runtime.codelets.implementation import Implementation
from populus.runtime.codelets.task import Array, Run, Task, arithmetic, nothing
from populus.runtime.cycles.contraction import Count, ceil_div
from populus.runtime.cycles.vertices import Sizes, Vertex

COMBINE = {"add": np.add, "mul": np.multiply, "min": np.minimum, "max": np.maximum}


def multi_update(task: Task) -> Run:
    """`y = table`, its rows (axis `d0`) at `indices` combined with `updates`, one after the other, as `op` says.

    A task sees all indices and acts on those of its own rows. Raises PopulusError, when run, for an index outside 0 .. n.
    """
    table, indices, updates, y = task["table"], task["indices"], task["updates"], task["y"]
    if y.size == 0:
        return nothing
    first, end, _ = task.box["d0"]
    n, op = int(task.number("n")), task.text("op")

    def run() -> None:
        np.copyto(y, table)
        update(op, y, indices, updates, first, end, n)

    return run


def update(op: str, y: Array, indices: Array, updates: Array, first: int, end: int, n: int) -> None:
    """Combines the rows `first` .. `end` of a table of n, which are y, with those updates that are for them.

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
    """The rows, each once, with the last of its values."""
    _, back = np.unique(rows[::-1], return_index=True)
    last = len(rows) - 1 - back
    return [(rows[last], values[last])]


def top_k(task: Task) -> Run:
    """Where the `k` largest (or smallest) elements of each row stand."""
    x, y, largest = task["x"], task["y"], bool(task.number("largest"))
    if y.size == 0:
        return nothing

    def run() -> None:
        np.copyto(y, order(x, largest)[..., : y.shape[-1]], casting="unsafe")

    return run


def order(x: Array, largest: bool) -> Array:
    """The positions of each row's elements, sorted by them; of equal ones the first comes first."""
    keys = x.astype(arithmetic(x.dtype), copy=False)
    if not largest:
        return np.argsort(keys, axis=-1, kind="stable")
    # Backwards, the last of equal ones comes first; so the rows are sorted from the back.
    return x.shape[-1] - 1 - np.argsort(keys[..., ::-1], axis=-1, kind="stable")[..., ::-1]


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


def _multi_update(v: Vertex, sizes: Sizes) -> Any:
    rows, indices, updates = (v.elements(i, sizes) for i in (v.output, 1, 2))
    return multi_update_cycles(rows, indices, updates, v.types[v.output].element, v.target)


def _top_k(v: Vertex, sizes: Sizes) -> Any:
    return top_k_cycles(v.elements(0, sizes), v.types[0].shape[-1], v.target)


IMPLEMENTATIONS = {
    "multi_update": Implementation(multi_update, _multi_update, native="tables.multi_update"),
    "top_k": Implementation(top_k, _top_k),
}
