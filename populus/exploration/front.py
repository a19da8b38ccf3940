"""The Pareto front of points, and the hypervolume that it covers. Of every number less is better."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeAlias

Costs: TypeAlias = tuple[float, ...]


def dominates(a: Costs, b: Costs) -> bool:
    """Tells whether `a` is nowhere more than `b`, and somewhere less."""
    return all(x <= y for x, y in zip(a, b, strict=True)) and a != b


def front_of(costs: Sequence[Costs]) -> list[int]:
    """Finds the points that none dominates, in the order of their costs; of equal ones the first. O(points x front)."""
    found: list[int] = []
    for i in sorted(range(len(costs)), key=lambda i: (costs[i], i)):  # what dominates a point comes before it
        if not any(all(x <= y for x, y in zip(costs[j], costs[i], strict=True)) for j in found):
            found.append(i)
    return found


def hypervolume(costs: Sequence[Costs], reference: Costs) -> float:
    """Computes the volume between a front and a reference point that is worse in all numbers.

    By exclusion: a point's own box, less what later points cover of it. Source: While, Bradstreet, Barone, A fast way of calculating
    exact hypervolumes, 2012.
    """
    inside = [c for c in costs if all(x < r for x, r in zip(c, reference, strict=True))]
    points = [inside[i] for i in front_of(inside)]
    total = 0.0
    for i, point in enumerate(points):
        box = math.prod(r - x for x, r in zip(point, reference))
        limited = [tuple(max(x, y) for x, y in zip(point, other)) for other in points[i + 1 :]]
        total += box - (hypervolume(limited, reference) if limited else 0.0)
    return total
