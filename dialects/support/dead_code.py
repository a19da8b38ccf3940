"""Dead code: ops that have no effect, and whose results none reads."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from xdsl.ir import Block, Operation
from xdsl.traits import Pure


def is_pure(op: Operation) -> bool:
    """Tells whether an op has no effect but its results."""
    return _has_none(type(op))


@cache
def _has_none(kind: type[Operation]) -> bool:
    return kind.has_trait(Pure)


def erase_dead(
    block: Block, removable: Callable[[Operation], bool] = is_pure, *, inside: bool = False, after: Operation | None = None
) -> None:
    """Erases the removable ops of a block whose results none reads, and what only these read. Source: PopART's `Prune`.

    An op without results stays. `inside`: also in the regions of its ops. `after`: ops up to this one stay.
    """
    op = block.last_op
    while op is not None and op is not after:
        before = op.prev_op
        if inside:
            for region in op.regions:
                for inner in region.blocks:
                    erase_dead(inner, removable, inside=True)
        if op.results and all(r.first_use is None for r in op.results) and removable(op):
            op.detach()
            op.erase()
        op = before
