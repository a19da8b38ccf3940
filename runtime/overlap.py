"""Overlap of collectives with the steps after them: what links could do while tiles compute, and what must wait."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from xdsl.ir import Operation, SSAValue

from populus.dialects.poplar import CallOp, CollectiveOp, CopyOp, FamilyOp, OutsideOp, StorageOp, StreamInOp, TensorType
from populus.dialects.poplar.memory import storage_of


def waits(ops: Sequence[tuple[Operation, int]]) -> dict[CollectiveOp, int]:
    """Gives the cycles of each collective that no later step can hide.

    `ops`: the ops of a program in order, with the cycles of each. A collective starts when its operand is there and the links are
    free; it is over before the first op that touches its result, or writes its operand. Links carry one collective at a time.
    """
    found: dict[CollectiveOp, int] = {}
    under_way: list[tuple[CollectiveOp, int, Callable[[Operation], bool]]] = []  # with its end, and who waits for it
    now = free = 0
    for op, cycles in ops:
        for collective, end, waiting in list(under_way):
            if waiting(op):
                found[collective] = max(end - now, 0)
                now = max(now, end)
                under_way.remove((collective, end, waiting))
        if isinstance(op, CollectiveOp):
            free = max(now, free) + cycles
            under_way.append((op, free, _touches(op)))
        else:
            now += cycles
    return {**found, **{collective: max(end - now, 0) for collective, end, _ in under_way}}


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
