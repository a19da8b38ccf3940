"""Smaller machines on which a program still fits, larger ones on which it would, and the largest consumers of memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import cache

from populus.dialects.poplar import GraphOp, StorageOp
from populus.dialects.poplar.target import KIB, Spec, Target
from populus.dialects.support.diagnostics import PopulusError
from populus.dialects.support.element_types import size_in_bytes
from populus.lowering.driver.pipeline import Pipeline
from populus.program.program import Program
from populus.runtime.memory import Tenant, summary, tenants
from populus.runtime.profile import profile
from populus.tools.report.record import graph_of

MOST_KIB, MOST_TILES = 64 * KIB * KIB, 1 << 16  # no machine larger than these is tried


@dataclass(frozen=True)
class Machine:
    """A machine on which the program fits: a size of it, the estimated cycles, and the bytes from and to memory outside the tiles."""

    size: int
    cycles: int
    streamed: int

    @staticmethod
    def of(size: int, graph: GraphOp) -> Machine:
        found = profile(graph)
        streamed = sum(step.host_bytes * step.count for step in found.steps if step.kind in ("copy", "call"))
        return Machine(size, int(found.summary["cycles"]), streamed)


@dataclass(frozen=True)
class WhatIf:
    """The result of `what_if`.

    `itself`: the target, if it suffices. `tile_bytes`: that with the smallest tile memory and the same number of tiles.
    `tiles`: that with the fewest tiles and the same memory each. None if no machine that was tried suffices.
    `reasons`: (consumer, bytes), the consumers of the fullest tile at the peak and the savings that are possible.
    """

    itself: Machine | None
    tile_bytes: Machine | None
    tiles: Machine | None
    reasons: tuple[tuple[str, int], ...]


def what_if(program: Program, spec: Spec) -> WhatIf:
    """Compiles a program for other machines, from its library calls down, by bisection.

    Plans depend on the machine, so fitting at one size does not prove fitting at larger ones. The reported sizes did fit.
    Takes 20 to 30 times as long as the passes below `popops`. Raises PopulusError for a model that is already a tile program.
    """
    machine = spec.target()
    made = _machines(program, spec)

    def with_kib(kib: int) -> bool:
        return kib * KIB > machine.reserved_bytes and made(tile_bytes=kib * KIB) is not None

    def machine_of(size: int | None, **changed: int) -> Machine | None:
        graph = None if size is None else made(**changed)
        return None if graph is None or size is None else Machine.of(size, graph)

    itself = made()
    kib = smallest(machine.tile_bytes // KIB, MOST_KIB, with_kib)
    tiles, changed = _fewest_tiles(machine, made)
    graph = itself or (made(tile_bytes=kib * KIB) if kib is not None else None)
    return WhatIf(
        machine_of(machine.tiles),
        machine_of(kib and kib * KIB, tile_bytes=(kib or 0) * KIB),
        machine_of(tiles, **changed),
        () if graph is None else reasons(graph),
    )


def tiles_that_suffice(program: Program, spec: Spec) -> tuple[int, str] | None:
    """Finds a machine with as few tiles as the program needs: their number, and the text of the target; None if none was found.

    Raises PopulusError for a model that is already a tile program.
    """
    tiles, changed = _fewest_tiles(spec.target(), _machines(program, spec))
    overrides = {**dict(spec.overrides), **changed}
    return None if tiles is None else (tiles, ", ".join([spec.name, *(f"{name}={value}" for name, value in overrides.items())]))


def _machines(program: Program, spec: Spec) -> Callable[..., GraphOp | None]:
    """Gives a function that compiles the program for the machine with other numbers; None where it does not fit. It keeps results."""
    if "popops" not in program.levels:
        raise PopulusError("the model is already a tile program, with fixed plans; give it at a higher level")

    @cache
    def made(**changed: int) -> GraphOp | None:
        return _compiled(program, Spec(spec.name, tuple({**dict(spec.overrides), **changed}.items())))

    return made


def _fewest_tiles(machine: Target, made: Callable[..., GraphOp | None]) -> tuple[int | None, dict[str, int]]:
    """Finds the fewest tiles that hold a program, and the field that says so: a mesh loses whole rows of its grid."""
    field, together = ("tiles", 1) if machine.mesh is None else ("rows", machine.mesh.grid[0])
    found = smallest(machine.tiles // together, MOST_TILES // together, lambda n: made(**{field: n}) is not None)
    return found and found * together, {field: found or 0}


def smallest(start: int, most: int, holds: Callable[[int], bool]) -> int | None:
    """Finds the smallest number up to `most` for which `holds` is true, if it is monotonic; None if it is false for `most`.

    Doubles from `start` until it holds, then bisects.
    """
    low, high = 0, start
    while not holds(high):
        if high >= most:
            return None
        low, high = high, min(2 * high, most)
    while high - low > max(1, high // 256):
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def reasons(graph: GraphOp) -> tuple[tuple[str, int], ...]:
    """Lists the consumers of the fullest tile at the program's peak, and the possible savings; largest first."""
    usage, tiles = summary(graph), graph.machine.tiles
    found = [t for t in tenants(graph)[0] if t.at(usage.step) and t.on(usage.tile, tiles)]

    def total(chosen: list[Tenant]) -> int:
        return sum(t.on(usage.tile, tiles) for t in chosen)

    wide = [t for t in found if isinstance(t.op, StorageOp) and size_in_bytes(t.op.type.element) >= 4]
    waiting = [t for t in found if isinstance(t.op, StorageOp) and not t.is_constant and any(a < usage.step < b for a, b in t.spans)]
    brought = [t for t in found if not isinstance(t.op, StorageOp)]
    mean = sum(int(t.bytes.sum()) for t in tenants(graph)[0] if t.at(usage.step)) // tiles
    rows = [
        ("weights and other constants, which are there all the time", total([t for t in found if t.is_constant])),
        ("what half precision would save", total(wide) // 2),
        (f"what '{usage.label}' brings from other tiles; in slices it would bring less at once", total(brought)),
        (f"variables that only wait while '{usage.label}' runs; recomputed later, or kept elsewhere, they would not", total(waiting)),
        ("above the mean of all tiles, which a perfectly even layout would save", usage.peak_bytes - mean),
    ]
    return tuple(sorted(((text, bytes) for text, bytes in rows if bytes > 0), key=lambda row: -row[1]))


def _compiled(program: Program, spec: Spec) -> GraphOp | None:
    """Compiles the program for another machine; None if it does not fit there."""
    module = program.module("popops").clone()
    text = ", ".join([spec.name, *(f"{name}={value}" for name, value in spec.overrides)])
    options = {"target": text, "tiles": None}
    passes = program.pipeline.from_level("popops").passes
    changed = [replace(p, **{f.name: options[f.name] for f in fields(p) if f.name in options}) for p in passes]
    try:
        Pipeline(tuple(changed)).run(program.source.context(), module)
    except PopulusError:
        return None
    return graph_of(module)
