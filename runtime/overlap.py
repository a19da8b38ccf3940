"""Overlap with the steps after: what links could do while tiles compute, what must wait, and what loads hide."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from xdsl.ir import Operation, SSAValue

from populus.dialects.poplar import CallOp, CollectiveOp, CopyOp, FamilyOp, OutsideOp, StorageOp, StreamInOp, TensorType
from populus.dialects.poplar.memory import storage_of


def hidden_copies(steps: Sequence[tuple[Operation, int, int]]) -> dict[Operation, int]:
    """Gives the cycles that each copy of a block hides under the steps after it (`under`).

    `steps`: with the cycles that each moves, and those that it computes and that hide nothing of its own. Copies take them in turn.
    """
    left, found = {op: free for op, _, free in steps}, dict[Operation, int]()
    for op, moved, _ in steps:
        if isinstance(op, CopyOp) and op.under is not None:
            exposed = moved
            for step in op.steps_under():
                taken = min(exposed, left[step])
                exposed, left[step] = exposed - taken, left[step] - taken
            found[op] = moved - exposed
    return found


def waits(ops: Sequence[tuple[Operation, int]]) -> dict[CollectiveOp, int]:
    """Gives the cycles of each collective that no later step can hide.

    `ops`: the ops of a program in order, with the cycles of each. A collective starts when its operand is there and the links are
    free; it is over before the first op that touches its result, or writes its operand. Links carry one collective at a time.
    """
    found: dict[CollectiveOp, int] = {}
    under_way: list[_Running] = []
    now = free = 0

    def wait(end: int) -> int:
        """Adds the cycles up to `end`, in which nothing else happens, to the waits of the collectives that have the links then."""
        for c in under_way:
            found[c.op] += max(min(end, c.end) - max(now, c.begin), 0)
        return max(now, end)

    for op, cycles in ops:
        for running in list(under_way):
            if running.awaited(op):
                now = wait(running.end)
                under_way.remove(running)
        if isinstance(op, CollectiveOp):
            begin = max(now, free)
            free, found[op] = begin + cycles, 0
            under_way.append(_Running(op, begin, free, _touches(op)))
        else:
            now += cycles
    wait(free)
    return found


@dataclass(frozen=True)
class _Running:
    """A collective with the cycles at which the links are its own, and the test of who waits for it."""

    op: CollectiveOp
    begin: int
    end: int
    awaited: Callable[[Operation], bool]


def _touches(collective: CollectiveOp) -> Callable[[Operation], bool]:
    """Gives a test of whether an op touches a collective's result, or writes what it reads."""
    count = collective.inputs.value.data
    read, made = (_storages(views) for views in (collective.views[:count], collective.views[count:]))
    return lambda op: bool(made & _storages(v for inner in op.walk() for v in inner.operands) or read & _storages(_written(op)))


def _storages(values: Iterable[SSAValue]) -> set[StorageOp]:
    return {storage_of(v) for v in values if isinstance(v.type, TensorType)}


def _written(op: Operation) -> Iterator[SSAValue]:
    """Yields the views that an op may write: all of a call's, and those that the others state."""
    for inner in op.walk():
        match inner:
            case FamilyOp():
                yield from (value for _, value in inner.written())
            case CopyOp() | StreamInOp():
                yield inner.dst
            case OutsideOp():
                yield from inner.views[inner.inputs.value.data :]
            case CallOp():
                yield from inner.operands
            case _:
                pass
