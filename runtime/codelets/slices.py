"""The kernels of `multi_slice` and `dynamic_update`: rows of a table by index."""

from __future__ import annotations

import numpy as np

from populus.dialects.support.diagnostics import PopulusError
from populus.runtime.codelets.task import Run, Task, nothing


def multi_slice(task: Task) -> Run:
    """`y[t.., i.., t..] = table[t.., indices[i..], t..]`, the index being along dimension `dim` of the table.

    Raises PopulusError, when run, for an index outside the table.
    """
    table, indices, y, dim = task["table"], task["indices"], task["y"], int(task.number("dim"))
    if y.size == 0:
        return nothing
    n = table.shape[dim]

    def run() -> None:
        low, high = int(indices.min()), int(indices.max())
        if low < 0 or high >= n:
            raise PopulusError(f"index {low if low < 0 else high} is outside 0..{n}")
        np.take(table, indices, dim, out=y, mode="clip")  # "raise" would take through a buffer

    return run


def dynamic_update(task: Task) -> Run:
    """`table[index] = row`; the other rows stay.

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
