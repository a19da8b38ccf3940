"""The native kernels by codelet: from a task to the launches that run it, or None for a form that only NumPy's kernel has."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from populus.runtime.codelets.task import Task
from populus.runtime.engine.native.codegen.jit import Library
from populus.runtime.engine.native.kernels.elementwise import map
from populus.runtime.engine.native.kernels.f16 import through_f32
from populus.runtime.engine.native.kernels.launch import Launch
from populus.runtime.engine.native.kernels.pool_kernels import pool
from populus.runtime.engine.native.kernels.products import conv, matmul
from populus.runtime.engine.native.kernels.reduction import reduce
from populus.runtime.engine.native.kernels.rows import softmax, whiten
from populus.runtime.engine.native.kernels.tables import dynamic_update, fill, iota, multi_slice, multi_update

Native: TypeAlias = Callable[[Library, Task], "list[Launch] | None"]

NATIVE: dict[str, Native] = {
    "conv": through_f32(conv),
    "dynamic_update": dynamic_update,
    "fill": fill,
    "iota": iota,
    "map": map,
    "matmul": through_f32(matmul),
    "multi_slice": multi_slice,
    "multi_update": multi_update,
    "pool": through_f32(pool),
    "reduce": through_f32(reduce),
    "softmax": softmax,
    "whiten": through_f32(whiten),
}
