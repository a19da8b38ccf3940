"""Predicted: BERT-base trained in data parallel on up to 64 Bow, sequence 128, in 16 bits, and what limits it.

python -m benchmarks.replica_costs
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass

from benchmarks.models import half, transformer
from populus.dialects.poplar.target import PRESETS
from populus.runtime.gcl import cost
from populus.training.session import TrainingSession

PUBLISHED = 16_391  # sequences a second on 16 Bow, PopART, SDK 3.1; Graphcore's table of results
BATCH = 8  # sequences of a step on one chip
GLOBAL = 65_536  # sequences of an update in that table
BUCKET = 25_000_000


@dataclass(frozen=True)
class Step:
    """Cycles of a step's program on one chip: in all, and of its exchange and barriers; and the bytes of its gradients."""

    cycles: int
    unsure: int
    gradient_bytes: int


def step() -> Step:
    """Profiles a step of the twelve layers: forward, backward, and the update."""
    session = TrainingSession(half(transformer(layers=12, batch=BATCH)), loss="mean_squared_error", optimizer="sgd", target="bow")
    found = session.program.profile().summary
    weights = sum(a.nbytes for a in session.weights.values())
    return Step(int(found["cycles"]), int(found["exchange_cycles"] + found["sync_cycles"]), weights)


def meeting(bytes: int, chips: int) -> int:
    """Gives the cycles of an all-reduce of gradients, bucket by bucket."""
    bow = PRESETS["bow"]
    whole, rest = divmod(bytes, BUCKET)
    return sum(cost("all_reduce", b, chips, bow.link_bytes, bow.link_cycles) for b in [BUCKET] * whole + [rest] * bool(rest))


def main() -> None:
    """Prints the table: sequences a second for updates after one step, and after as many as make a batch of 65,536."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    own, clock = step(), PRESETS["bow"].clock_hz
    print("| chips | each step: sequences/s | of linear | all-reduce | batch of 65,536: sequences/s | from .. to | limited by |")
    print("|---|---|---|---|---|---|---|")
    for chips in (1, 2, 4, 8, 16, 32, 64):
        meet = meeting(own.gradient_bytes, chips)
        steps = max(GLOBAL // (BATCH * chips), 1)

        def rate(cycles: float, chips: int = chips, steps: int = steps, meet: int = meet) -> float:
            return chips * BATCH * steps * clock / (cycles * steps + meet)

        each = chips * BATCH * clock / (own.cycles + meet)
        low, high = rate(own.cycles + own.unsure), rate(own.cycles - own.unsure)
        of_step, of_update = meet / (own.cycles + meet), meet / (own.cycles * steps + meet)
        limit = f"links: {of_step:.0%} of a step, {of_update:.2%} of an update" if chips > 1 else ""
        share = each / (chips * BATCH * clock / own.cycles)
        milliseconds = f"{1e3 * meet / clock:.2f} ms"
        print(f"| {chips} | {each:,.0f} | {share:.0%} | {milliseconds} | {rate(own.cycles):,.0f} | {low:,.0f} .. {high:,.0f} | {limit} |")
    print(f"\npublished, 16 chips: {PUBLISHED:,} sequences/s")


if __name__ == "__main__":
    main()
