"""The native kernels by codelet: from a task to the launches that run it, or None for a form that only NumPy's kernel has."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from populus.runtime.codelets.task import Task
from populus.runtime.engine.native.elementwise import map
from populus.runtime.engine.native.jit import Library
from populus.runtime.engine.native.launch import Launch
from populus.runtime.engine.native.products import conv, matmul

Native: TypeAlias = Callable[[Library, Task], "list[Launch] | None"]

NATIVE: dict[str, Native] = {
    "conv": conv,
    "map": map,
    "matmul": matmul,
}
