"""The check of addresses against live ranges: variables that are live at the same time share no bytes of a tile."""

from __future__ import annotations

import itertools

from populus.dialects.poplar import GraphOp, StorageOp
from populus.dialects.support.diagnostics import PopulusError
from populus.runtime.memory import Tenant, tenants


def check_addresses(graph: GraphOp) -> None:
    """Raises PopulusError if two variables overlap on a tile at a step at which both are live.

    Variables without an address are not checked.
    """
    if all(op.address is None for op in graph.walk() if isinstance(op, StorageOp)):
        return
    addressed = [t for t in tenants(graph)[0] if isinstance(t.op, StorageOp) and t.op.address is not None]
    placed = sorted(((_address(t), t) for t in addressed), key=lambda p: p[0])
    reaching: list[tuple[int, Tenant]] = []  # (end, tenant) of those that extend past the current address
    for at, tenant in placed:
        reaching = [(end, other) for end, other in reaching if end > at]
        for _, other in reaching:
            if (step := _both_needed(tenant, other)) is not None and _share_bytes(tenant, other, graph.machine.tiles):
                raise PopulusError(
                    f"'{tenant.label}' and '{other.label}' have bytes of a tile in common at step {step}, when both are needed; "
                    f"allocate the program again (poplar-allocate)"
                )
        reaching.append((at + tenant.largest, tenant))


def _address(t: Tenant) -> int:
    address = t.op.address if isinstance(t.op, StorageOp) else None
    assert address is not None, t
    return address.value.data


def _both_needed(a: Tenant, b: Tenant) -> int | None:
    """Gives the first step at which both are live, or None."""
    meet = [max(p, r) for (p, q), (r, s) in itertools.product(a.spans, b.spans) if max(p, r) <= min(q, s)]
    return min(meet, default=None)


def _share_bytes(a: Tenant, b: Tenant, tiles: int) -> bool:
    for i, size in enumerate(a.bytes):
        tile = (a.start + i) % tiles
        other = b.on(tile, tiles)
        if size and other and _address(a) < _address(b) + other and _address(b) < _address(a) + int(size):
            return True
    return False
