"""Addresses: where on its tiles each variable and constant lies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from xdsl.context import Context
from xdsl.dialects.builtin import IntegerAttr, ModuleOp, i64
from xdsl.passes import ModulePass

from populus.dialects.poplar import ConstOp, GraphOp, GridAttr, StorageOp
from populus.dialects.poplar.target import KIB, Target
from populus.dialects.support.diagnostics import PopulusError, did_you_mean
from populus.lowering.poplar.map import spread
from populus.runtime.memory import ALIGNMENT, PEAK, Tenant, Usage, layout, tenants, usage

FITS = ("first", "best")
NAMED = 4  # of the largest tenants, in the message of a model that does not fit


@dataclass(frozen=True)
class PoplarAllocatePass(ModulePass):
    """Gives each variable and constant an address that is the same on all of its tiles.

    Two that are needed at one step and share a tile do not overlap; nor does what the step brings from other tiles. Constants
    first, then the largest; where that is too much, in the order of their first use. `fit`: `first`, the lowest gap that has room, or
    `best`, the smallest. Constants that lie on several tiles are spread where memory is short, the largest first.

    The highest address that is used, of the temporaries of a step too, stands on the graph as `peak_tile_bytes`.
    Raises PopulusError for a variable without layout, and for a model that does not fit.
    """

    name = "poplar-allocate"
    fit: str = "first"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for graph in op.body.block.ops:
            if isinstance(graph, GraphOp):
                allocate(graph, self.fit)


def allocate(graph: GraphOp, fit: str = "first") -> None:
    """Sets the addresses of a graph. Raises PopulusError where it does not fit the target, and for an unknown `fit`."""
    if fit not in FITS:
        raise PopulusError(f"fit = '{fit}'{did_you_mean(fit, FITS)}")
    target = graph.machine
    room = target.tile_bytes - target.reserved_bytes
    while True:
        found, steps = tenants(graph)
        used = usage(found, steps, target)
        placed = _placed(found, target, fit) if used.peak_bytes <= room else []
        top = _top(found, placed) if placed else used.peak_bytes
        if top <= room:
            break
        if not without_copies(found, target, top - room):
            last = max(range(len(placed)), key=lambda i: placed[i] + found[i].largest, default=None)
            tile = used.tile if last is None else (found[last].start + int(found[last].bytes.argmax())) % target.tiles
            raise PopulusError(_too_much(target, top, tile, used))
    graph.attributes[PEAK] = IntegerAttr(top, i64)
    for tenant, address in zip(found, placed):
        if isinstance(tenant.op, StorageOp):
            tenant.op.address = IntegerAttr(address, i64)


def _placed(found: Sequence[Tenant], target: Target, fit: str) -> list[int]:
    """An address for each tenant."""
    by_size = sorted(found, key=lambda t: (not t.is_constant, -t.largest))
    by_birth = sorted(found, key=lambda t: (not t.is_constant, t.first, -t.largest))
    best: list[int] = []
    for order in (by_size, by_birth):
        addresses = fitted(order, target.tiles, fit)
        placed = [addresses[tenant] for tenant in found]
        if not best or _top(found, placed) < _top(found, best):
            best = placed
        if _top(found, best) <= target.tile_bytes - target.reserved_bytes:
            break
    return best


def highest(found: Sequence[Tenant], target: Target) -> int:
    """The bytes of a tile up to the highest address of an allocation."""
    return _top(found, _placed(found, target, "first"))


def without_copies(found: Sequence[Tenant], target: Target, bytes: int) -> bool:
    """Spreads constants that lie on several tiles, the largest first, until some bytes of a tile are free; whether there were any."""
    several = [t for t in found if isinstance(t.op, ConstOp) and layout(t.op).copies > 1]
    for tenant in sorted(several, key=lambda t: -t.largest):
        if bytes <= 0:
            break
        assert isinstance(tenant.op, ConstOp), tenant
        tenant.op.grid = GridAttr(spread(tenant.op, target))
        bytes -= tenant.largest
    return bool(several)


def fitted(found: Sequence[Tenant], tiles: int, fit: str = "first") -> dict[Tenant, int]:
    """An address for each tenant, in this order, at which it overlaps none before it. O(tenants^2), whatever the tiles.

    `fit`: `first`, the lowest such; `best`, the smallest gap that has room, the lowest of several.
    """
    n = len(found)
    begin = np.cumsum([0, *(len(t.spans) for t in found)])  # of each tenant's spans among all
    first = np.array([first for t in found for first, _ in t.spans], np.int64)
    last = np.array([last for t in found for _, last in t.spans], np.int64)
    start = np.array([t.start for t in found], np.int64)
    cells = np.array([len(t.bytes) for t in found], np.int64)
    size = np.array([-(-t.largest // ALIGNMENT) * ALIGNMENT for t in found], np.int64)
    address: NDArray[np.int64] = np.zeros(n, np.int64)
    for i in range(n):
        before = int(begin[i])
        meets = np.zeros(before, bool)
        for since, until in found[i].spans:
            meets |= (first[:before] <= until) & (since <= last[:before])
        together = np.logical_or.reduceat(meets, begin[:i]) if i else np.zeros(0, bool)
        # Two runs of tiles round a ring meet where one begins inside the other.
        ahead, behind = (start[i] - start[:i]) % tiles, (start[:i] - start[i]) % tiles
        together &= ((ahead < cells[:i]) | (behind < cells[i])) & (size[:i] > 0)
        (others,) = np.nonzero(together)
        others = others[np.argsort(address[others], kind="stable")]
        ends = np.maximum.accumulate(np.concatenate([[0], address[others] + size[others]]))
        gaps = np.concatenate([address[others], [np.iinfo(np.int64).max]]) - ends
        room = gaps >= size[i]
        address[i] = ends[int(room.argmax() if fit == "first" else np.where(room, gaps, np.iinfo(np.int64).max).argmin())]
    return {tenant: int(a) for tenant, a in zip(found, address)}


def _top(found: Sequence[Tenant], addresses: Sequence[int]) -> int:
    return max((a + t.largest for a, t in zip(addresses, found)), default=0)


def _too_much(target: Target, needed: int, tile: int, used: Usage) -> str:
    largest = ", ".join(f"'{label}' {_kib(bytes)}" for label, bytes in used.largest[:NAMED])
    room = target.tile_bytes - target.reserved_bytes
    return (
        f"the model needs {_kib(needed)} on tile {tile} at step '{used.label}', {_kib(needed - room)} more than the {_kib(room)} of "
        f"{target.name}; largest: {largest}{', ...' if len(used.largest) > NAMED else ''}; use more tiles or a target with more memory"
    )


def _kib(bytes: int) -> str:
    return f"{-(-bytes // KIB)} KiB"
