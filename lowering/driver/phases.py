"""The four phases of a pipeline, and which pass may stand before which. Source: ONNC's TensorSel, TensorSched, MemAlloc, CodeEmit.

| phase | from | to |
|---|---|---|
| `select` | a model | library calls, each chosen for the target |
| `schedule` | library calls | steps of a tile program |
| `allocate` | steps | steps whose variables have tiles and addresses |
| `emit` | a program | the code of its vertices beside it |

A pass is of a phase by its name, which says its levels, unless its class states `PHASE`. A class may state `AFTER`, names of passes or
phases: where a pipeline has these, they stand before it.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.passes import ModulePass

from populus.dialects.support.diagnostics import PopulusError

PHASES = ("select", "schedule", "allocate", "emit")

LEVELS: dict[str, tuple[str, ...]] = {  # from the top, with the dialects of each
    "onnx": ("onnx",),
    "popart": ("popart",),
    "popops": ("popops", "poplin", "popnn", "poprand"),
    "poplar": ("poplar",),
}
_DEPTH = {dialect: depth for depth, dialects in enumerate(LEVELS.values()) for dialect in dialects}


def depths(p: ModulePass) -> list[int]:
    """How deep the levels are that a pass reads and writes, by its name; none for a pass of no level, such as `cse`."""
    source, to, destination = p.name.partition("-to-")
    parts = [source, destination] if to else [source.partition("-")[0]]
    return [_DEPTH[part] for part in parts if part in _DEPTH]


def phases_of(passes: Sequence[ModulePass]) -> list[str]:
    """The phase of each pass; one of no level (`cse`) is of that of the pass before it."""
    found: list[str] = []
    for p in passes:
        found.append(_phase(p) or (found[-1] if found else PHASES[0]))
    return found


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
    """Raises PopulusError for a pass that stands before one which makes what it works on, or before one that it states as `AFTER`."""
    names, phases = [p.name for p in passes], phases_of(passes)
    for i, p in enumerate(passes):
        for after in getattr(type(p), "AFTER", ()):
            late = [n for n, phase in zip(names[i + 1 :], phases[i + 1 :]) if after in (n, phase)]
            if late:
                what = f"the phase '{after}'" if after in PHASES else after
                raise PopulusError(f"{source}: {p.name} has to stand after {what}; put it behind {late[-1]}")
        level = depths(p)
        if not level:
            continue
        for later in passes[i + 1 :]:
            above = depths(later)
            if above and min(above) < min(level) and len(above) > 1:
                name = list(LEVELS)[min(level)]
                raise PopulusError(f"{source}: {p.name} works on {name}, which {later.name} makes; put it behind {later.name}")
