"""Random graphs proved and run: `make fuzz FUZZERS=proofs`. Where a proof and a run disagree, one of them is wrong.

Each pass of a seed's graph is proved, and the compiled program is run against onnxruntime. A refuted pass is an alarm: of the compiler, if
the run is wrong too, else of the prover. A run that is wrong though every pass is proved is one as well.
"""

from __future__ import annotations

import populus
from fuzz.children import Outcome
from fuzz.graphs import graph
from fuzz.judging import judged
from populus.dialects.support.diagnostics import PopulusError
from populus.proof.passes import Prover, proving
from populus.proof.report import REFUTED, UNDECIDED

TILES = (4, 1, 16)
"""How many tiles: a seed has the number at its own."""


def judge(seed: int) -> Outcome:
    """Judges a seed: `proved`, `undecided` with the pass and the reason, `refused`, or `disagree`."""
    model, tiles = graph(seed), TILES[seed % len(TILES)]
    prover: Prover | None = None
    try:
        with proving(run=False) as prover:
            populus.compile(model, tiles=tiles, engine="numpy")
    except PopulusError as error:
        if prover is None or not any(row.verdict == REFUTED for row in prover.rows):
            return "refused", str(error)
        ran = judged(model, seed, "numpy", "host", tiles)
        return "disagree", f"{error}; the run {ran.outcome} {ran.reason}"
    ran = judged(model, seed, "numpy", "host", tiles)
    open_ = [f"{row.passes}: {row.why}" for row in prover.rows if row.verdict == UNDECIDED]
    if open_:
        return "undecided", open_[0]
    return ("disagree", f"all is proved, but the run is {ran.outcome}: {ran.reason}") if ran.found else ("proved", ran.outcome)
