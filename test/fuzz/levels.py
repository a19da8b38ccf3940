"""Every level of random graphs compared with the one above, and the native engine with numpy: `make fuzz FUZZERS=levels`.

What differs is an alarm: either a pass is wrong, or the comparison.
"""

from __future__ import annotations

from dataclasses import dataclass

import populus
from fuzz.graphs import graph, inputs
from populus.compare.engines import compare_engines
from populus.compare.levels import compare_levels
from populus.dialects.support.diagnostics import PopulusError

TILES = (4, 1, 16)
"""How many tiles: a seed has the number at its own."""


@dataclass(frozen=True)
class Outcome:
    """How a seed ended: `agrees`; `below onnx`, where ONNX's reference does not run the model; `refused`; `alarm`; `failed`; and why."""

    seed: int
    kind: str
    reason: str = ""
    places: int = 0


def compared(seed: int) -> Outcome:
    """The levels of a seed's graph, compared. An error that is not ours to report is `failed`."""
    model = graph(seed)
    try:
        program = populus.compile(model, tiles=TILES[seed % len(TILES)])
        arrays = inputs(model, seed)
        found = [*compare_levels(program, arrays), compare_engines(program, arrays)]
    except PopulusError as error:
        return Outcome(seed, "refused", str(error))
    except Exception as error:
        return Outcome(seed, "failed", f"{type(error).__name__}: {' '.join(str(error).split())}")
    places = sum(c.places for c in found)
    if wrong := [str(c) for c in found if c.first is not None]:
        return Outcome(seed, "alarm", "; ".join(wrong), places)
    if skipped := [str(c) for c in found if c.skipped is not None]:
        return Outcome(seed, "below onnx", skipped[0], places)
    return Outcome(seed, "agrees", "", places)
