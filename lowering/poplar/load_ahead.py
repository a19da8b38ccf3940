"""Loads of a mesh that move under the steps before their reader: the next weights come while the present ones are multiplied."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from xdsl.dialects.builtin import IntegerAttr, i64
from xdsl.ir import Block, Operation
from xdsl.rewriter import InsertPoint, Rewriter

from populus.dialects.poplar import CopyOp, ExecuteOp, GraphOp, StorageOp, VarOp, ViewOp
from populus.dialects.poplar.memory import storage_of
from populus.lowering.poplar.allocate import highest
from populus.lowering.poplar.keep_loaded import SHARES
from populus.runtime.memory import Tenant, tenants, usage


@dataclass(frozen=True)
class _Ahead:
    """A load, the steps before it that it may move under, and the live range of its variable then."""

    copy: CopyOp
    under: Sequence[Operation]
    tenant: Tenant


def load_ahead(graph: GraphOp, room: int) -> None:
    """Moves loads up over the steps before them, as far as `room` bytes of a tile hold what is loaded, and at most to the load before.

    DRAM carries one load after the other, so a load that began earlier would only wait. A machine with one buffer is left alone. An
    allocation checks that the tiles hold all.
    """
    if graph.machine.mesh is None or graph.machine.mesh.buffers < 2:
        return
    all_tenants, steps = tenants(graph)
    used = usage(all_tenants, steps, graph.machine)
    by_op, at = {t.op: t for t in all_tenants}, {step: i for i, step in enumerate(steps)}
    for share in SHARES[:2]:
        bytes = np.array(used.bytes_by_step)
        moved = [found for block in _blocks(graph) for found in _moved(block, by_op, at, bytes, int(share * room))]
        new = {found.tenant.op: found.tenant for found in moved}
        if used.peak_bytes > room or highest([new.get(t.op, t) for t in all_tenants], graph.machine) <= room:
            for found in moved:
                _apply(found)
            return


def _blocks(graph: GraphOp) -> list[Block]:
    loads = (op for op in graph.walk() if isinstance(op, CopyOp) and _is_load(op))
    return list(dict.fromkeys(block for op in loads if (block := op.parent) is not None))


def _is_load(op: CopyOp) -> bool:
    return all(isinstance(v.owner, StorageOp) for v in op.operands) and storage_of(op.src).outside is not None


def _moved(
    block: Block, by_op: dict[Operation, Tenant], at: dict[Operation, int], bytes: NDArray[np.int64], limit: int
) -> Iterator[_Ahead]:
    """Yields the loads of a block that move, while `bytes` of each step, which grow, stay within the limit."""
    before: list[Operation] = []  # executes and copies since the last load, the latest last
    for op in block.ops:
        if isinstance(op, StorageOp | ViewOp):
            continue
        if isinstance(op, CopyOp) and any(storage_of(v).outside is not None for v in op.operands):
            tenant = by_op.get(storage_of(op.dst))
            if tenant is not None and isinstance(tenant.op, VarOp) and _is_load(op) and len(tenant.spans) == 1 and tenant.first == at[op]:
                begin = len(before)
                while begin and bytes[at[before[begin - 1]]] + tenant.largest <= limit:
                    begin -= 1
                    bytes[at[before[begin]]] += tenant.largest
                if under := before[begin:]:
                    yield _Ahead(op, under, replace(tenant, spans=((at[under[0]], tenant.last),)))
            before = []
        elif isinstance(op, ExecuteOp | CopyOp):
            before.append(op)
        else:
            before = []


def _apply(found: _Ahead) -> None:
    """Moves a load, and its variable, before the first step that it moves under."""
    variable = storage_of(found.copy.dst)
    found.copy.under = IntegerAttr(len(found.under), i64)
    for op in (variable, found.copy):
        op.detach()
        Rewriter.insert_op(op, InsertPoint.before(found.under[0]))
