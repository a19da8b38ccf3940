"""The kernels of the codelets that `dialects/poplar/codelets.py` declares."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeAlias

from populus.dialects.poplar.codelets import CODELETS
from populus.runtime.codelets import tile_code
from populus.runtime.codelets.contraction import conv, matmul
from populus.runtime.codelets.fill import fill, iota, random
from populus.runtime.codelets.indexed import multi_update, top_k
from populus.runtime.codelets.map import map
from populus.runtime.codelets.pool import pool
from populus.runtime.codelets.reduce import reduce
from populus.runtime.codelets.rows import softmax, whiten
from populus.runtime.codelets.slices import dynamic_update, multi_slice
from populus.runtime.codelets.task import Piece, Run, Task, Workspace

Kernel: TypeAlias = Callable[[Task], Run]


class _Kernels(dict[str, Kernel]):
    """Those of this folder; of a codelet that was written in Python, what runs its source as it is now."""

    def __missing__(self, name: str) -> Kernel:
        code = CODELETS[name].code
        assert code is not None, name
        return partial(tile_code.bind, code)


KERNELS: dict[str, Kernel] = _Kernels(
    {
        "conv": conv,
        "dynamic_update": dynamic_update,
        "fill": fill,
        "iota": iota,
        "map": map,
        "matmul": matmul,
        "multi_slice": multi_slice,
        "multi_update": multi_update,
        "pool": pool,
        "random": random,
        "reduce": reduce,
        "softmax": softmax,
        "top_k": top_k,
        "whiten": whiten,
    }
)

__all__ = ["KERNELS", "Kernel", "Piece", "Run", "Task", "Workspace"]
