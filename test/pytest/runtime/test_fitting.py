"""Addresses in one memory: those that a comparison with everything placed before gives, without that comparison."""

from __future__ import annotations

import random

import numpy as np
import pytest

from populus.runtime import fitting
from populus.runtime.fitting import Fitting


def meet(a, b, tiles):
    """Tells if two things live at the same time on the same tile."""
    (_, spans, start, cells), (_, others, other, more) = a, b
    return any(x[0] <= y[1] and y[0] <= x[1] for x in spans for y in others) and bool(
        {(start + i) % tiles for i in range(min(cells, tiles))} & {(other + i) % tiles for i in range(min(more, tiles))}
    )


def compared(things, tiles, best):
    """Gives each thing the address that a comparison with all before it finds."""
    placed = []
    for n, thing in enumerate(things):
        taken = sorted((a, a + other[0]) for a, other in zip(placed, things[:n]) if other[0] and meet(thing, other, tiles))
        top, gaps = 0, []
        for begin, end in taken:
            if begin - top >= thing[0]:
                gaps.append((begin - top, top))
            top = max(top, end)
        placed.append((min(gaps)[1] if best else gaps[0][1]) if gaps and thing[0] else top if thing[0] else 0)
    return placed


def drawn(rng, tiles, n):
    """Draws things: constants, short lives, lives in several spans, some of no bytes, on all tiles or an arc of them."""
    for _ in range(n):
        kind = rng.random()
        begins = [0] if kind < 0.3 else sorted(rng.sample(range(0, 60, 11), rng.randint(1, 3 if kind > 0.8 else 1)))
        spans = [(a, 60 if kind < 0.3 else a + rng.randint(0, 10)) for a in begins]
        yield 8 * rng.randint(0, 9), spans, rng.randrange(tiles), tiles if rng.random() < 0.5 else rng.randint(1, tiles)


@pytest.mark.parametrize("best", [False, True], ids=["first", "best"])
@pytest.mark.parametrize("tiles", [1, 7])
def test_addresses_are_those_of_a_comparison_with_all_placed_before(tiles, best, monkeypatch):
    monkeypatch.setattr(fitting, "CHUNK", 4)
    for seed in range(12):
        things = list(drawn(random.Random(seed), tiles, 80))
        given = Fitting(tiles, best)
        assert [given.place(*thing) for thing in things] == compared(things, tiles, best), seed


@pytest.mark.parametrize("tiles", [1, 16])
@pytest.mark.parametrize("kind", ["constants", "results", "chain"])
def test_few_of_those_placed_before_are_compared_one_by_one(kind, tiles, monkeypatch):
    """Counts the things that `met` compares: at most two chunks of them, however many were placed."""
    monkeypatch.setattr(fitting, "CHUNK", 32)
    looked, met = 0, Fitting.met

    def counted(self, chunk, spans, start, cells):
        nonlocal looked
        looked += chunk.count
        return met(self, chunk, spans, start, cells)

    monkeypatch.setattr(Fitting, "met", counted)
    n = 3000
    spans = {"constants": [(0, n)] * n, "results": [(i, n + i) for i in range(n)], "chain": [(i, i + 1) for i in range(n)]}[kind]
    given = Fitting(tiles)
    addresses = [given.place(16, [span], tiles - 1, 1 + i % 3) for i, span in enumerate(spans)]  # small ones lie on one tile, or a few
    assert addresses == ([16 * (i % 2) for i in range(n)] if kind == "chain" else [16 * i for i in range(n)])
    assert looked <= 2 * 64 * n, f"{looked / n:.0f} for each thing"
    assert int(np.sum([chunk.count for chunk in given.chunks])) == n
