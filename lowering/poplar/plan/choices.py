"""Minimum of a sum of tables over discrete variables, by variable elimination.

least([2, 2], [Table((0,), lambda p: p[0]), Table((0, 1), lambda p: p[0] != p[1])])    # [0, 0]
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TypeAlias

WIDEST = 12  # variables in one table; beyond this, one of them is decided by its least possible cost

Costs: TypeAlias = "dict[tuple[int, ...], float]"


@dataclass(frozen=True)
class Table:
    """Cost of the joint picks of some variables. `cost` takes the picks in the order of `of`; at most 12 variables."""

    of: tuple[int, ...]
    cost: Callable[[tuple[int, ...]], float]


def least(sizes: Sequence[int], tables: Sequence[Table]) -> list[int]:
    """Finds for each variable, with `sizes` picks each, the pick of least total cost; the first of equals.

    Exact while at most 12 variables meet at once. Source: bucket elimination (Dechter 1999), the variable that
    meets the fewest others first.
    """
    left: list[tuple[tuple[int, ...], Costs]] = [
        (t.of, {picks: t.cost(picks) for picks in product(*(range(sizes[v]) for v in t.of))}) for t in tables
    ]
    solved: list[tuple[int, tuple[int, ...], Mapping[tuple[int, ...], int]]] = []
    open = set(range(len(sizes)))
    while open:
        met = {v: {u for of, _ in left if v in of for u in of} - {v} for v in open}
        v = min(open, key=lambda v: (len(met[v]), v))
        mine, left = [t for t in left if v in t[0]], [t for t in left if v not in t[0]]
        others = tuple(sorted(met[v])) if len(met[v]) < WIDEST else ()
        if others or not met[v]:
            costs, picks = _without(v, sizes, others, mine)
            if others:
                left.append((others, costs))
        else:
            pick = min(range(sizes[v]), key=lambda p: sum(min(c for k, c in table.items() if k[of.index(v)] == p) for of, table in mine))
            picks = {(): pick}
            left += [_given(v, pick, of, table) for of, table in mine if len(of) > 1]
        solved.append((v, others, picks))
        open.remove(v)
    chosen: dict[int, int] = {}
    for v, others, picks in reversed(solved):
        chosen[v] = picks[tuple(chosen[u] for u in others)]
    return [chosen[v] for v in range(len(sizes))]


def _without(
    v: int, sizes: Sequence[int], others: tuple[int, ...], tables: Sequence[tuple[tuple[int, ...], Costs]]
) -> tuple[Costs, dict[tuple[int, ...], int]]:
    """Computes, for all picks of the others, the cost of the best pick of `v`, and that pick."""
    costs: Costs = {}
    picks: dict[tuple[int, ...], int] = {}
    for around in product(*(range(sizes[u]) for u in others)):
        at = dict(zip(others, around))
        sums = [sum(table[tuple(p if u == v else at[u] for u in of)] for of, table in tables) for p in range(sizes[v])]
        costs[around] = min(sums)
        picks[around] = sums.index(costs[around])
    return costs, picks


def _given(v: int, pick: int, of: tuple[int, ...], table: Costs) -> tuple[tuple[int, ...], Costs]:
    """Fixes the variable at its pick; returns the table without it."""
    at = of.index(v)
    return of[:at] + of[at + 1 :], {k[:at] + k[at + 1 :]: c for k, c in table.items() if k[at] == pick}
