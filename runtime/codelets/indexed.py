"""The kernels of `multi_update` and `top_k`: rows written by index, and the order of elements."""

from __future__ import annotations

import numpy as np

from populus.dialects.support.diagnostics import PopulusError
from populus.runtime.codelets.task import Array, Run, Task, arithmetic, nothing

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
