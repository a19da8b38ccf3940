"""The best plans of a contraction, beside the one that the planner chooses: a search tries them together in one memory."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from xdsl.ir import Attribute

from populus.dialects.poplar.target import Target
from populus.lowering.poplar.plan.contraction import Contraction, Plan, fitting

Alternative = tuple[Plan, bool]
"""A plan, and whether constant weights are resident."""


@dataclass(frozen=True)
class Problem:
    """A contraction that is planned. `constant`: its weights may be resident."""

    shape: Contraction
    element: Attribute
    target: Target
    traffic: float
    constant: bool


def best_plans(problem: Problem, most: int) -> list[Alternative]:
    """Lists at most `most` plans by their cycles, of those of which none else has both fewer cycles and fewer bytes on a tile.

    Bytes are those that a tile holds while the contraction runs, with resident weights. So the list goes from the fastest plan to ones that
    leave more memory for others; the one of the fewest bytes is always there, as the last.
    """
    found = [entry for resident in (False, True)[: 1 + problem.constant] for entry in _costed(problem, resident)]
    found.sort(key=lambda entry: entry[:2])
    front: list[tuple[float, int, Alternative]] = []
    for entry in found:
        if not front or entry[1] < front[-1][1]:
            front.append(entry)
    chosen = front if len(front) <= most else [*front[: most - 1], front[-1]]
    return [entry[2] for entry in chosen]


def _costed(problem: Problem, resident: bool) -> Iterator[tuple[float, int, Alternative]]:
    """Yields the candidates that no other beats, with cycles and bytes, by cycles."""
    some = fitting(problem.shape, problem.element, problem.target, None, problem.traffic)
    cycles, bytes = some.cycles(resident), some.working_bytes(resident) + (some.bytes()[1] if resident else 0)
    fewest = math.inf
    for i in np.lexsort((*some.parts, bytes, cycles)).tolist():
        if bytes[i] < fewest:
            fewest = float(bytes[i])
            yield float(cycles[i]), int(bytes[i]), (some.plan(i, resident), resident)
