"""Loads of a mesh that move under the steps before their reader: the next weights come while the present ones are multiplied."""

from __future__ import annotations

import numpy as np
from xdsl.dialects.builtin import IntegerAttr, i64
from xdsl.ir import Operation
from xdsl.rewriter import InsertPoint, Rewriter

from populus.dialects.poplar import CopyOp, GraphOp, StorageOp, VarOp, ViewOp
from populus.dialects.poplar.memory import storage_of
from populus.lowering.poplar.allocate import highest
from populus.lowering.poplar.schedule import Ahead, Arrival, Schedule
from populus.runtime.memory import tenants, usage

SHARES = (1.0, 0.95, 0.9, 0.85, 0.8)  # of a tile that live bytes may reach, until an allocation holds them


def load_ahead(graph: GraphOp, room: int) -> None:
    """Moves loads up over the steps before them until these hide them, as far as `room` bytes of a tile hold what is loaded.

    DRAM carries one load after the other, so none moves beyond the load before. A machine with one buffer is left alone, and a program
    that does not fit. If no allocation holds what is loaded then, the loads move less far.
    """
    all_tenants, steps = tenants(graph)
    used, schedule = usage(all_tenants, steps, graph.machine), Schedule(steps, graph.machine)
    if used.peak_bytes > room or not schedule.ahead:
        return
    by_op, at = {t.op: t for t in all_tenants}, {step: i for i, step in enumerate(steps)}
    loads = [
        Arrival(op, tenant)
        for op in steps
        if isinstance(op, CopyOp) and _is_load(op) and (tenant := by_op.get(storage_of(op.dst))) and tenant.first == at[op]
    ]
    for share in SHARES:
        _, moved, _ = schedule.moved(loads, np.array(used.bytes_by_step), int(share * room))
        places = [_apply(found) for found in moved]
        for found in moved:
            found.copy.under = IntegerAttr(_steps_to(found), i64)
        if not moved or highest(tenants(graph)[0], graph.machine) <= room:
            return
        for found, place in zip(reversed(moved), reversed(places)):
            _undo(found, place)


def _is_load(op: CopyOp) -> bool:
    return (
        all(isinstance(v.owner, StorageOp) for v in op.operands)
        and storage_of(op.src).outside is not None
        and isinstance(op.dst.owner, VarOp)
    )


def _steps_to(found: Ahead) -> int:
    """Counts the steps from a load to the last that it moves under; loads that moved there too are among them."""
    op, count = found.copy.next_op, 0
    while op is not None:
        count += not isinstance(op, StorageOp | ViewOp)
        if op is found.last:
            break
        op = op.next_op
    return count


def _apply(found: Ahead) -> tuple[Operation | None, Operation | None]:
    """Moves a load, and its variable, before the first step that it moves under. Returns the ops that came after the two."""
    variable = storage_of(found.copy.dst)
    places = variable.next_op, found.copy.next_op
    for op in (variable, found.copy):
        op.detach()
        Rewriter.insert_op(op, InsertPoint.before(found.first))
    return places


def _undo(found: Ahead, places: tuple[Operation | None, Operation | None]) -> None:
    """Moves a load, and its variable, back before the ops that came after them."""
    found.copy.under = None
    for op, place in ((found.copy, places[1]), (storage_of(found.copy.dst), places[0])):
        op.detach()
        assert place is not None, op
        Rewriter.insert_op(op, InsertPoint.before(place))
