"""Allocation (`poplar-allocate`): the address of each variable and constant on its tiles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import IntegerAttr, ModuleOp, i64
from xdsl.passes import ModulePass

from populus.dialects.poplar import ConstOp, GraphOp, GridAttr, ParamOp, StorageOp
from populus.dialects.poplar.target import KIB, PRESETS, Target
from populus.dialects.support.diagnostics import PopulusError, did_you_mean
from populus.dialects.support.walk import ops_of
from populus.lowering.poplar.map import spread
from populus.runtime.fitting import Fitting
from populus.runtime.memory import PEAK, Tenant, Usage, aligned, layout, tenants, usage

FITS = ("first", "best")
NAMED = 4  # largest tenants that the message of a model that does not fit names


@dataclass(frozen=True)
class PoplarAllocatePass(ModulePass):
    """Gives each variable and constant one address, the same on all of its tiles.

    Tenants that share a tile do not overlap if their live ranges do, nor do they overlap data that a step
    receives. Constants are placed first, then the largest; if that fails, the order of first use is tried. `fit`:
    `first`, the lowest gap that is large enough, or `best`, the smallest. If memory is short, constants
    replicated on several tiles are spread, as few bytes as suffice. `beyond`: a program that does not fit has addresses
    beyond the memory, so that its profile can be seen.

    The highest address in use, including a step's temporaries, is the graph's attribute `peak_tile_bytes`. Raises
    PopulusError for a variable without layout, and for a model that does not fit. Bit for bit.
    """

    name = "poplar-allocate"
    fit: str = "first"
    beyond: bool = False

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for graph in op.body.block.ops:
            if isinstance(graph, GraphOp):
                allocate(graph, self.fit, self.beyond)


class TooLargeError(PopulusError):
    """A program that the memory of the tiles does not hold."""


def allocate(graph: GraphOp, fit: str = "first", beyond: bool = False) -> None:
    """Sets the addresses of a graph. Raises PopulusError for an unknown `fit`, and without `beyond` if it does not fit its target."""
    if fit not in FITS:
        raise PopulusError(f"fit = '{fit}'{did_you_mean(fit, FITS)}")
    target = graph.machine
    room = target.room
    while True:
        all_tenants, steps = tenants(graph)
        used = usage(all_tenants, steps, target)
        placed = _placed(all_tenants, target, fit) if used.peak_bytes <= room else []
        top = _top(all_tenants, placed) if placed else used.peak_bytes
        if top <= room:
            break
        if not without_copies(all_tenants, target, top - room):
            if beyond:
                placed = placed or _placed(all_tenants, target, fit)
                top = _top(all_tenants, placed)
                break
            last = max(range(len(placed)), key=lambda i: placed[i] + all_tenants[i].largest, default=None)
            tile = used.tile
            if last is not None:
                tenant = all_tenants[last]
                tile = (tenant.start + int(tenant.bytes.argmax())) % target.tiles
            raise TooLargeError(_too_much(target, top, tile, used))
    if (why := _too_much_outside(graph, target)) and not beyond:
        raise TooLargeError(why)
    graph.attributes[PEAK] = IntegerAttr(top, i64)
    for tenant, address in zip(all_tenants, placed):
        if isinstance(tenant.op, StorageOp):
            tenant.op.address = IntegerAttr(address, i64)


def _placed(all_tenants: Sequence[Tenant], target: Target, fit: str) -> list[int]:
    """Computes an address for each tenant."""
    by_size = sorted(all_tenants, key=lambda t: (not t.is_constant, -t.largest))
    by_birth = sorted(all_tenants, key=lambda t: (not t.is_constant, t.first, -t.largest))
    best: list[int] = []
    for order in (by_size, by_birth):
        addresses = fitted(order, target.tiles, fit)
        placed = [addresses[tenant] for tenant in all_tenants]
        if not best or _top(all_tenants, placed) < _top(all_tenants, best):
            best = placed
        if _top(all_tenants, best) <= target.room:
            break
    return best


def highest(all_tenants: Sequence[Tenant], target: Target) -> int:
    """Computes the bytes of a tile up to the highest address of an allocation."""
    return _top(all_tenants, _placed(all_tenants, target, "first"))


def without_copies(all_tenants: Sequence[Tenant], target: Target, bytes: int) -> bool:
    """Spreads replicated constants and parameters until `bytes` of a tile are free. Returns False if there are none.

    The next is the smallest that suffices, or else the largest: what is freed must be sent to its readers in each run.
    """
    several = [t for t in all_tenants if isinstance(t.op, ConstOp | ParamOp) and layout(t.op).copies > 1]
    left = sorted(several, key=lambda t: t.largest)
    while left and bytes > 0:
        tenant = left.pop(next((i for i, t in enumerate(left) if t.largest >= bytes), -1))
        assert isinstance(tenant.op, ConstOp | ParamOp), tenant
        tenant.op.grid = GridAttr(spread(tenant.op, target))
        bytes -= tenant.largest
    return bool(several)


def fitted(ordered: Sequence[Tenant], tiles: int, fit: str = "first") -> dict[Tenant, int]:
    """Computes for each tenant, in this order, an address at which it overlaps no earlier one.

    `fit`: `first`, the lowest such address; `best`, the smallest gap that is large enough, the lowest of equals.
    Independent of the number of tiles.
    """
    fitting = Fitting(tiles, fit == "best")
    return {t: fitting.place(aligned(t.largest), t.spans, t.start, len(t.bytes)) for t in ordered}


def _top(all_tenants: Sequence[Tenant], addresses: Sequence[int]) -> int:
    return max((a + t.largest for a, t in zip(addresses, all_tenants)), default=0)


def _too_much(target: Target, needed: int, tile: int, used: Usage) -> str:
    largest = ", ".join(f"{_first(label)} {_kib(bytes)}" for label, bytes in used.largest[:NAMED])
    room, preset = target.room, PRESETS.get(target.name)
    advice = "populus profile MODEL --what-if finds the machine that suffices"
    if preset is not None and target.tiles < preset.tiles:
        advice = f"use more of its {preset.tiles:,} tiles"
    return (
        f"the model needs {_kib(needed)} on tile {tile} at step {_first(used.label)}, {_kib(needed - room)} more than the {_kib(room)} of "
        f"{target.name}; largest: {largest}{', ...' if len(used.largest) > NAMED else ''}; {advice}"
    )


def _first(label: str) -> str:
    """Formats the first of the names that a label joins, and counts the others: the message has several labels in one line."""
    first, *others = label.split(" + ")
    return f"'{first.strip(chr(39))}'" + (f" + {len(others)} more" if others else "")


def _too_much_outside(graph: GraphOp, target: Target) -> str | None:
    """Says that what waits outside the tiles exceeds the machine's DRAM; None if it does not, or no size is known."""
    waiting = [op for op in ops_of(graph) if isinstance(op, StorageOp) and op.outside is not None]
    needed = sum(op.type.bytes for op in waiting)
    if target.mesh is None or needed <= target.mesh.dram_size:
        return None
    largest = max(waiting, key=lambda op: op.type.bytes)
    more, room = needed - target.mesh.dram_size, target.mesh.dram_size
    return (
        f"the model keeps {_kib(needed)} in DRAM, {_kib(more)} more than the {_kib(room)} of {target.name}; largest: "
        f"'{largest.label.data}' {_kib(largest.type.bytes)}; use a target with more DRAM"
    )


def _kib(bytes: int) -> str:
    return f"{-(-bytes // KIB)} KiB"
