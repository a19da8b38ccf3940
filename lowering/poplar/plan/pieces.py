"""Pieces of constant weights that wait in a mesh's DRAM: how large they are, by what then stays on the cores and what loads hide."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from xdsl.ir import Attribute

from populus.dialects.poplar.target import Target
from populus.lowering.poplar.plan.contraction import Contraction, as_planned, candidates_of, grains_of, options
from populus.runtime.cycles.mesh.steps import PACKET

SHARE = 0.95  # of a core that live bytes may reach
LEAST = 4 * PACKET  # bytes of a core: none is cut to less, whatever the memory, so that more of it has all choices of less
WORTH = 0.99  # of the cycles that larger pieces take: smaller ones are more program


@dataclass(frozen=True)
class Way:
    """The steps of a contraction, and the pieces of its weights. Of all steps: the cycles, and those that a load may move under.

    `working`: the bytes of a core that a step works on. `held`: the bytes of a piece on each core that has a part of it.
    """

    steps: int
    pieces: int
    cycles: float
    computing: float
    working: float
    held: float

    @staticmethod
    def of(step: Contraction, steps: int, pieces: int, element: Attribute, target: Target, traffic: float) -> Way:
        """Estimates `steps` steps of equal shape."""
        cycles, computing, working, held = _priced(step, element, target, traffic)
        return Way(steps, pieces, steps * cycles, steps * computing, working, held)


@lru_cache(8192)
def _priced(shape: Contraction, element: Attribute, target: Target, traffic: float) -> tuple[float, float, int, float]:
    """Returns the cycles of a contraction's plan, infinite if it does not fit, those of computing alone, the bytes of a core that it works
    on, and those of its weights.
    """
    best = options(shape, element, target, None, traffic)[0]
    p = best.plan
    parts = [np.array([n]) for n in (p.groups, p.batch, p.out_channels, p.in_channels, *p.windows, p.kernel)]
    own = candidates_of(shape, element, as_planned(target), parts)  # without what the planner adds for traffic
    exchange, launches = own.around(False)
    cycles = float(own.cycles(False)[0])
    readers, weights = p.batch * math.prod(p.windows), int(own.bytes()[1][0])
    working = int(own.working_bytes(True)[0]) + (weights if readers > 1 else 0)  # weights that one core reads lie there
    return cycles if best.fits else math.inf, max(cycles - float(exchange[0] + launches[0]), 0.0), working, weights / readers


@dataclass(frozen=True)
class Weights:
    """A contraction whose constant weights may wait outside. `bytes`: of them on each core, which has an equal share.

    `way`: that it has without a limit of pieces. `cut`: weights can be cut over channels out.
    """

    shape: Contraction
    element: Attribute
    bytes: float
    way: Way
    cut: bool

    def within(self, limit: float, most: int, target: Target, traffic: float) -> Way:
        """Gives the fewest steps whose weights have at most `limit` bytes of a core; those without a limit if none fits."""
        if self.bytes <= limit * self.way.pieces or not self.cut:
            return self.way
        n, grain = self.shape.out_channels, grains_of(self.shape, self.element, target)[0]
        steps = -(-n // (max(int(limit / self.bytes * n) // grain, 1) * grain))
        if not self.way.pieces < steps <= most:
            return self.way
        way = Way.of(replace(self.shape, out_channels=width_of_steps(n, steps, target)), steps, steps, self.element, target, traffic)
        return way if way.cycles < math.inf else self.way


def width_of_steps(n: int, steps: int, target: Target) -> int:
    """Computes the channels out of each step but the last, which may have fewer: on a mesh whole blocks, if as many steps remain."""
    grain = 1 if target.mesh is None else target.mesh.block[1]
    whole = -(-n // (steps * grain)) * grain
    return whole if -(-n // whole) == steps else -(-n // steps)


def in_pieces(all_weights: Sequence[Weights], most: int, target: Target, traffic: float) -> list[int]:
    """Chooses the steps over channels, at most `most`, of contractions whose constants exceed the cores of a mesh; 1: as they are.

    Smaller pieces leave more memory for constants that stay, and for the load of the next piece while one computes. They take more
    cycles to compute. Their bytes are a power of two, so that a core of more memory has the choices of one with less.
    """
    own = best = [w.way for w in all_weights]
    limit = 2.0 ** math.floor(math.log2(target.room / 2))
    while all_weights and limit >= LEAST and (exposed := _exposed(all_weights, best, target)) > 0:
        ways = [w.within(limit, most, target, traffic) for w in all_weights]
        computing, least = _computing(ways), WORTH * (_computing(best) + exposed)
        if computing >= least:
            break  # smaller pieces take longer still
        if computing + _exposed(all_weights, ways, target) < least:
            best = ways
        limit /= 2
    return [1 if way is before else way.steps for way, before in zip(best, own)]


def _computing(ways: Sequence[Way]) -> float:
    return sum(way.cycles for way in ways)


def _exposed(all_weights: Sequence[Weights], ways: Sequence[Way], target: Target) -> float:
    """Estimates the cycles of loads that no computing hides."""
    mesh = target.mesh
    assert mesh is not None, target.name
    total, held = sum(w.bytes for w in all_weights), sum(way.held * way.pieces for way in ways)
    working, largest = max(way.working for way in ways), max(way.held for way in ways)

    def loads(stay: float) -> float:
        """Estimates the cycles of loads of what does not stay."""
        share = 1 - max(min(stay, held), 0) / held
        return share * (total * target.tiles / mesh.load_bytes + mesh.dram_cycles * sum(way.pieces for way in ways))

    free = SHARE * target.room - working - largest
    exposed = loads(free)
    if mesh.buffers > 1 and free >= largest:
        moved = loads(free - largest)
        hidden = sum(min(moved * w.bytes / total, way.computing) for w, way in zip(all_weights, ways))
        exposed = min(exposed, moved - hidden * (1 - 1 / sum(way.pieces for way in ways)))
    return exposed
