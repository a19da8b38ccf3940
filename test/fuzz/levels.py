"""Every level of random graphs compared with the one above: `python test/fuzz/levels.py --start 0 --count 2000`.

What differs is an alarm: either a pass is wrong, or the comparison.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import populus
from fuzz.graphs import graph, inputs
from populus.dialects.support.diagnostics import PopulusError
from populus.levels import compare_levels

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
        found = list(compare_levels(program, inputs(model, seed)))
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


def main() -> int:
    """0 if nothing was found."""
    parser = argparse.ArgumentParser(prog="python test/fuzz/levels.py")
    parser.add_argument("--start", type=int, default=0, help="the first seed")
    parser.add_argument("--count", type=int, default=2000, help="how many seeds")
    parser.add_argument("--seconds", type=float, default=None, help="stop after this long")
    options = parser.parse_args()
    begun, outcomes, places = time.monotonic(), Counter[str](), 0
    for seed in range(options.start, options.start + options.count):
        if options.seconds is not None and time.monotonic() - begun > options.seconds:
            break
        outcome = compared(seed)
        outcomes[outcome.kind] += 1
        places += outcome.places
        if outcome.kind in ("alarm", "failed"):
            print(f"seed {seed}: {outcome.kind}: {outcome.reason}", flush=True)
    counted = ", ".join(f"{n} {kind}" for kind, n in outcomes.most_common())
    print(f"{outcomes.total()} graphs, {places} places in {time.monotonic() - begun:.0f} s: {counted}")
    return int(outcomes["alarm"] + outcomes["failed"] > 0)


if __name__ == "__main__":
    sys.exit(main())
