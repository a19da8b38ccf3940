"""Ops that follow from constants alone."""

from __future__ import annotations

from collections.abc import Iterable

from xdsl.ir import Operation

from populus.dialects.data import ConstantOp


def free_of(ops: Iterable[Operation]) -> set[Operation]:
    """Finds constants and what follows from them alone: each chip has its own, and nothing is computed when a program runs."""
    found: set[Operation] = set()
    for op in ops:
        if isinstance(op, ConstantOp) or (op.operands and not op.regions and all(v.owner in found for v in op.operands)):
            found.add(op)
    return found
