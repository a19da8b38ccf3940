"""A sample of what `make fuzz FUZZERS=levels` compares: every level of random graphs with the one above."""

from __future__ import annotations

from collections import Counter

from fuzz.levels import compared

SEEDS = range(20)


def test_the_levels_of_random_graphs_agree():
    found = [compared(seed) for seed in SEEDS]
    assert not [outcome for outcome in found if outcome.kind in ("alarm", "failed")]
    counts = Counter(outcome.kind for outcome in found)
    assert counts["agrees"] > len(SEEDS) / 2, counts
    assert sum(outcome.places for outcome in found) > 10 * counts["agrees"]
