"""`Implementation`: the record of a codelet, which joins its kernel, its cycles, its flops and its native form."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from populus.runtime.codelets.task import Run, Task
from populus.runtime.cycles.vertices import Sizes, Vertex

Kernel: TypeAlias = Callable[[Task], Run]
"""Binds a task when the program is loaded; see `runtime/codelets/task.py`."""

Cycles: TypeAlias = Callable[[Vertex, Sizes], Any]
"""Tile cycles of a vertex, from the sizes of its box. Sizes may be arrays, which broadcast."""

Flops: TypeAlias = Callable[[Vertex], int]
"""Floating-point operations of all vertices of a family together."""


def no_flops(vertex: Vertex) -> int:
    """Counts nothing, for a codelet that moves elements or computes on integers."""
    return 0


def flops_a_point(operations: int) -> Flops:
    """Counts the same number of operations at each point of the iteration space."""
    return lambda vertex: operations * vertex.points


@dataclass(frozen=True)
class Implementation:
    """The runtime's record of a codelet. `dialects/poplar/codelets.py` declares the codelet's fields.

    `kernel`: the NumPy kernel, which engines `numpy` and `strict` run. `cycles`, `flops`: for the cost model.
    `native`: the native form as `file.function` of `runtime/engine/native/kernels`. It is imported when a native
    program is loaded, because llvmlite must not load with the planner. Without it the native engine runs `kernel`.
    """

    kernel: Kernel
    cycles: Cycles
    flops: Flops = no_flops
    native: str = ""
