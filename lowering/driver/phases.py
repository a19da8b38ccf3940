"""Phases of a pipeline, and the order that they impose. Source: ONNC's TensorSel, TensorSched, MemAlloc,
CodeEmit.

| phase | from | to |
|---|---|---|
| `select` | a model | library calls, each chosen for the target |
| `schedule` | library calls | steps of a tile program |
| `allocate` | steps | steps whose variables have tiles and addresses |
| `emit` | a program | the program with the code of its vertices |

A pass's name says its levels, and so its phase, unless its class states `PHASE`. A class may state `AFTER`:
names of passes or phases. Where a pipeline has these, they come before the pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from xdsl.passes import ModulePass

from populus.dialects.support.diagnostics import PopulusError

PHASES = ("select", "schedule", "allocate", "emit")

LEVELS: dict[str, tuple[str, ...]] = {  # levels from the top, with the dialects of each
    "onnx": ("onnx",),
    "popart": ("popart", "train"),
    "popops": ("popops", "poplin", "popnn", "poprand", "gcl"),
    "poplar": ("poplar",),
}
_DEPTH = {dialect: depth for depth, dialects in enumerate(LEVELS.values()) for dialect in dialects}


def depths(p: ModulePass) -> list[int]:
    """Returns the depths of the levels that a pass reads and writes, from its name; [] for a pass of no level
    (`cse`).
    """
    return list(_depths(p.name))


@lru_cache
def _depths(name: str) -> tuple[int, ...]:
    source, to, destination = name.partition("-to-")
    parts = [source, destination] if to else [source.partition("-")[0]]
    return tuple(_DEPTH[part] for part in parts if part in _DEPTH)


def phases_of(passes: Sequence[ModulePass]) -> list[str]:
    """Returns the phase of each pass. A pass of no level, such as `cse`, has the phase of its predecessor.

    Raises PopulusError if a pass states a `PHASE` that does not exist.
    """
    phases: list[str] = []
    for p in passes:
        phases.append(_phase(p) or (phases[-1] if phases else PHASES[0]))
    return phases


def _phase(p: ModulePass) -> str | None:
    stated = getattr(type(p), "PHASE", None)
    if stated is not None:
        if stated not in PHASES:
            raise PopulusError(f"pass {p.name}: PHASE is '{stated}'; it is one of {', '.join(PHASES)}")
        return stated
    if p.name.startswith("codelet-"):
        return "emit"
    match depths(p):
        case [*_, 3] if "-to-" in p.name:
            return "schedule"
        case [3]:
            return "allocate"
        case []:
            return None
        case _:
            return "select"


def check_order(passes: Sequence[ModulePass], source: str) -> None:
    """Checks that each pass comes after its producers and after the passes and phases that it states as `AFTER`.

    Raises PopulusError naming `source`, the pass and its first misplaced predecessor.
    """
    names, phases = [p.name for p in passes], phases_of(passes)
    for i, p in enumerate(passes):
        for after in getattr(type(p), "AFTER", ()):
            late = [n for n, phase in zip(names[i + 1 :], phases[i + 1 :]) if after in (n, phase)]
            if late:
                predecessor = f"the phase '{after}'" if after in PHASES else after
                raise PopulusError(f"{source}: {p.name} has to stand after {predecessor}; put it after {late[-1]}")
        level = depths(p)
        if not level:
            continue
        for later in passes[i + 1 :]:
            above = depths(later)
            if above and min(above) < min(level) and len(above) > 1:
                name = list(LEVELS)[min(level)]
                raise PopulusError(f"{source}: {p.name} works on {name}, which {later.name} makes; put it after {later.name}")
