"""The kernels of the codelets that `dialects/poplar/codelets.py` declares."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from populus.runtime.codelets.contraction import conv, matmul
from populus.runtime.codelets.fill import fill, iota, random
from populus.runtime.codelets.map import map
from populus.runtime.codelets.pool import pool
from populus.runtime.codelets.reduce import reduce
from populus.runtime.codelets.rows import softmax, whiten
from populus.runtime.codelets.slices import multi_slice
from populus.runtime.codelets.task import Piece, Run, Task, Workspace

Kernel: TypeAlias = Callable[[Task], Run]

KERNELS: dict[str, Kernel] = {
    "conv": conv,
    "fill": fill,
    "iota": iota,
    "map": map,
    "matmul": matmul,
    "multi_slice": multi_slice,
    "pool": pool,
    "random": random,
    "reduce": reduce,
    "softmax": softmax,
    "whiten": whiten,
}

__all__ = ["KERNELS", "Kernel", "Piece", "Run", "Task", "Workspace"]
