"""The ops inside of an op as a list: xDSL's `walk` resumes a generator of each level for each op."""

from __future__ import annotations

from xdsl.ir import Operation


def ops_of(op: Operation) -> list[Operation]:
    """Lists an op and all ops inside of it, in the order of the text."""
    found = [op]
    _add_inner(op, found)
    return found


def _add_inner(op: Operation, found: list[Operation]) -> None:
    for region in op.regions:
        for block in region.blocks:
            inner = block.first_op
            while inner is not None:
                found.append(inner)
                if inner.regions:
                    _add_inner(inner, found)
                inner = inner.next_op
