"""Constants that wait outside are kept on the tiles from one reader to the next, where memory between them is free."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from xdsl.rewriter import Rewriter

from populus.dialects.poplar import ConstOp, CopyOp, GraphOp, StorageOp, VarOp
from populus.lowering.poplar.allocate import highest
from populus.lowering.poplar.schedule import Arrival, Schedule
from populus.runtime.liveness import Span
from populus.runtime.memory import Tenant, tenants, usage

SHARES = (0.95, 0.8, 0.0)  # of a tile that live bytes may reach, until an allocation holds them; with 0 only neighbours share a load


@dataclass(eq=False)
class Load:
    """A constant outside, the copy that loads it, and the variable on the tiles, which nothing else writes."""

    constant: ConstOp
    copy: CopyOp
    variable: VarOp


@dataclass
class _Kept:
    """Loads that are one: the first of them, those that it replaces, and their common live ranges."""

    first: Load
    tenant: Tenant
    replaced: list[Load]

    def until(self, later: _Kept) -> list[Span]:
        """Lists the steps between the two, for each run of their block; a range may be empty."""
        return [(a[1] + 1, b[0] - 1) for a, b in zip(self.tenant.spans, later.tenant.spans, strict=True)]


def keep_loaded(graph: GraphOp, loads: Sequence[Load], room: int) -> None:
    """Replaces later loads of a constant by the first, and all loads of one by the constant itself, as far as memory allows.

    The loads with the fewest steps in between are the first to be joined. Constants that fit for the whole program return to the
    tiles last, for their bytes are then there in each step. Of a few limits, and with room for one load ahead or without, the choice whose
    loads on a mesh are the least exposed is taken. An allocation checks that the tiles hold it.
    """
    if not loads:
        return
    all_tenants, steps = tenants(graph)
    used = usage(all_tenants, steps, graph.machine)
    by_op = {t.op: t for t in all_tenants if isinstance(t.op, StorageOp)}
    others = [t for t in all_tenants if t.op not in {load.variable for load in loads}]
    schedule = Schedule(steps, graph.machine) if graph.machine.mesh is not None else None
    largest = max((by_op[load.variable].largest for load in loads if load.variable in by_op), default=0)
    choices: list[tuple[int, list[Tenant], list[_Kept], dict[ConstOp, Tenant]]] = []
    for share in SHARES if schedule is None else (1.0, *SHARES):
        limit = int(share * room)
        for reserved in (0, largest) if schedule is not None and schedule.ahead else (0,):
            bytes = np.array(used.bytes_by_step)
            kept = _joined([_Kept(load, by_op[load.variable], []) for load in loads if load.variable in by_op], bytes, limit - reserved)
            returned = _returned(kept, bytes, limit - reserved)
            left = [k for k in kept if k.first.constant not in returned]
            cycles, moved = 0, [k.tenant for k in left]
            if schedule is not None:
                cycles, _, moved = schedule.moved([Arrival(k.first.copy, k.tenant) for k in left], bytes, limit)
            choices.append((cycles, moved, kept, returned))
    for _, moved, kept, returned in sorted(choices, key=lambda c: c[0]):
        if used.peak_bytes > room or highest([*others, *moved, *returned.values()], graph.machine) <= room:
            for k in kept:
                _apply(k, k.first.constant in returned)
            return


def _joined(kept: Iterable[_Kept], bytes: NDArray[np.int64], limit: int) -> list[_Kept]:
    """Joins neighbouring loads of each constant in one block, while `bytes` of each step, which grow, stay within the limit."""
    places: dict[tuple[object, object], list[_Kept]] = {}
    for one in kept:
        places.setdefault((one.first.constant, one.first.copy.parent), []).append(one)
    pairs: list[tuple[int, int, list[_Kept], int]] = []
    for group in places.values():
        group.sort(key=lambda k: k.tenant.first)
        for i in range(len(group) - 1):
            gap = sum(end - begin + 1 for begin, end in group[i].until(group[i + 1]))
            pairs.append((gap, -group[i].tenant.largest, group, i))
    joined: set[tuple[int, int]] = set()  # a group and the position in it of a load that the one before replaces
    for _, _, group, i in sorted(pairs, key=lambda p: p[:2]):
        if _taken(group[i].until(group[i + 1]), group[i].tenant.largest, bytes, limit):
            joined.add((id(group), i + 1))
    result: list[_Kept] = []
    for group in places.values():
        for i, one in enumerate(group):
            if (id(group), i) in joined:
                last = result[-1]
                spans = tuple((a[0], b[1]) for a, b in zip(last.tenant.spans, one.tenant.spans, strict=True))
                last.tenant = replace(last.tenant, spans=spans)
                last.replaced.append(one.first)
            else:
                result.append(one)
    return result


def _returned(kept: Iterable[_Kept], bytes: NDArray[np.int64], limit: int) -> dict[ConstOp, Tenant]:
    """Chooses the constants that are on the tiles throughout: those with the most loads for each step in which they take memory.

    Of about equals, the first, which has no step before it, and then those far from each other: a load hides under what lies between.
    """
    groups: dict[ConstOp, list[_Kept]] = {}
    for one in kept:
        groups.setdefault(one.first.constant, []).append(one)
    choices: list[tuple[int, int, ConstOp, Tenant, list[Span]]] = []
    last = len(bytes) - 1
    for constant, group in sorted(groups.items(), key=lambda g: g[1][0].tenant.first):
        begins = [0, *(end + 1 for k in group for _, end in k.tenant.spans)]
        ends = [*(begin - 1 for k in group for begin, _ in k.tenant.spans), last]
        free = list(zip(sorted(begins), sorted(ends), strict=True))
        tenant = replace(group[0].tenant, label=constant.label.data, op=constant, spans=((0, last),))
        loads = sum(len(k.tenant.spans) for k in group)
        steps = max(1, sum(end - begin + 1 for begin, end in free))
        choices.append((-round(10 * math.log(loads * last / steps)), len(choices), constant, tenant, free))
    order = {number: i for i, number in enumerate(sorted(range(len(choices)), key=_reversed_bits))}  # those that are left are apart
    choices.sort(key=lambda c: (c[0], order[c[1]]))
    return {c: tenant for *_, c, tenant, free in choices if _taken(free, tenant.largest, bytes, limit)}


def _reversed_bits(n: int) -> float:
    """Reads the bits of a number after the point, the last first: numbers in order of it are apart."""
    return float(int(f"{n:b}"[::-1], 2)) / 2 ** n.bit_length()


def _taken(ranges: Sequence[Span], largest: int, bytes: NDArray[np.int64], limit: int) -> bool:
    """Adds bytes of each tile to ranges of steps if the sums stay within the limit; tells whether they did."""
    parts = [bytes[begin : end + 1] for begin, end in ranges]
    if max((int(part.max(initial=0)) for part in parts if part.size), default=-math.inf) + largest > limit:
        return False
    for part in parts:
        part += largest
    return True


def _apply(kept: _Kept, returned: bool) -> None:
    """Makes the readers of loads read the first load, or the constant on the tiles."""
    new = kept.first
    if returned:
        new.constant.outside, new.constant.grid = None, new.variable.grid
    for old in [new, *kept.replaced] if returned else kept.replaced:
        Rewriter.erase_op(old.copy)
        old.variable.result.replace_all_uses_with(new.constant.result if returned else new.variable.result)
        Rewriter.erase_op(old.variable)
