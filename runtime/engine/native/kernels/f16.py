"""Adapter of f32 kernels to 16-bit floats: widens inputs first and rounds outputs afterwards, exactly as the numpy
engine does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import wraps
from typing import Any, TypeAlias

import numpy as np

from populus.dialects.expr import Arg, cast
from populus.dialects.support.element_types import element_of
from populus.runtime.codelets.task import Array, Piece, Task
from populus.runtime.engine.native.codegen.jit import Library
from populus.runtime.engine.native.kernels.elementwise import formula
from populus.runtime.engine.native.kernels.launch import Launch
from populus.runtime.engine.native.kernels.native_support import HALVES
from populus.runtime.engine.native.kernels.operands import Formula

Native: TypeAlias = Callable[..., "list[Launch] | None"]
F32 = np.dtype(np.float32)


def through_f32(kernel: Native) -> Native:
    """Extends a kernel to fields of 16-bit floats. Its outputs are the writable fields."""

    @wraps(kernel)
    def native(library: Library, task: Task, *more: Any) -> list[Launch] | None:
        if not any(piece.array.dtype.name in HALVES for piece in task.fields.values()):
            return kernel(library, task, *more)
        if any(isinstance(x, Formula) for x in more):
            return None  # it reads sums that are rounded
        before: list[Launch] = []
        after: list[Launch] = []
        fields: dict[str, Piece] = {}
        for name, piece in task.fields.items():
            array = piece.array
            if array.dtype.name not in HALVES:
                fields[name] = piece
            elif piece.constant:
                fields[name] = replace(piece, array=array.astype(F32))
            else:
                order = sorted(range(array.ndim), key=lambda d: -array.strides[d])  # of memory, as channels may be last
                wide = task.scratch([array.shape[d] for d in order], F32).transpose(np.argsort(order))
                fields[name] = replace(piece, array=wide)
                if array.flags.writeable:
                    made = _converted(library, wide, array)
                    if made is not None:
                        after += made
                else:
                    made = _converted(library, array, wide)
                    if made is not None:
                        before += made
                if made is None:
                    return None
        inner = Task(task.params, task.box, fields, task.workspace, task.used, task.packed, task.constants)
        launches = kernel(library, inner, *more)
        return None if launches is None else [*before, *launches, *after]

    return native


def _converted(library: Library, source: Array, target: Array) -> list[Launch] | None:
    return formula(library, cast(Arg(1), element_of(target.dtype)), [source], target)
