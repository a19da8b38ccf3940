"""Branches and loops of the `popart` and `popops` levels on whole arrays, given a function that runs a region."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from xdsl.ir import Region

from populus.dialects.base.control_flow import Branch, Control, Loop
from populus.dialects.support.element_types import dtype_of, element_type_of, shape_of

Array: TypeAlias = NDArray[Any]
RunRegion: TypeAlias = Callable[[Region, Sequence[Array]], list[Array]]
"""Runs a region with these arguments, and returns the operands of its terminator."""


def run_control(op: Control, arrays: Sequence[Array], run: RunRegion) -> list[Array]:
    """Computes the results of a branch or a loop for these operands."""
    if isinstance(op, Branch):
        return run(op.then if arrays[0].item() else op.otherwise, [])
    assert isinstance(op, Loop), op
    return _loop(op, list(arrays), run)


def _loop(op: Loop, arrays: list[Array], run: RunRegion) -> list[Array]:
    conditional, count, most = op.go is not None, len(op.carried), op.most
    going = bool(arrays.pop(0).item()) if conditional else True
    states, tables = arrays[:count], arrays[count:]
    collected = [np.zeros(shape_of(r.type), dtype_of(element_type_of(r.type))) for r in op.results[count:]]
    i = 0
    while going and (most is None or i < most):
        yielded = run(op.body, [np.array(i, np.int32), *states, *(table[i] for table in tables)])
        if conditional:
            going = bool(yielded.pop(0).item())
        states = yielded[:count]
        for rows, row in zip(collected, yielded[count:]):
            rows[i] = row
        i += 1
    return [*states, *collected]
