"""Repeated stretches of a sequence of numbers: its suffixes in order, and every stretch that occurs twice and cannot be longer.

What a suffix tree's inner nodes stand for, from a suffix array and the lengths that neighbours in it share.
Source: Abouelhoda, Kurtz, Ohlebusch, "Replacing suffix trees with enhanced suffix arrays", 2004; Kasai et al., 2001.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray


def suffixes(letters: NDArray[np.int64]) -> NDArray[np.int64]:
    """Where the suffixes of a sequence begin, in their order. O(n log^2 n)."""
    n = len(letters)
    rank = np.unique(letters, return_inverse=True)[1]
    order = np.argsort(rank, kind="stable")
    step = 1
    while step < n:
        behind = np.full(n, -1, np.int64)
        behind[: n - step] = rank[step:]
        order = np.lexsort((behind, rank))
        changes = (rank[order][1:] != rank[order][:-1]) | (behind[order][1:] != behind[order][:-1])
        rank = np.empty(n, np.int64)
        rank[order] = np.concatenate([[0], np.cumsum(changes)])
        if rank[order[-1]] == n - 1:
            break
        step *= 2
    return order


def shared(letters: Sequence[int], order: NDArray[np.int64]) -> list[int]:
    """How many letters each suffix shares with the one before it in the order; 0 for the first. O(n)."""
    n = len(letters)
    place, found, before = [0] * n, [0] * n, order.tolist()
    for i, suffix in enumerate(before):
        place[suffix] = i
    length = 0
    for suffix in range(n):
        i = place[suffix]
        if i == 0:
            length = 0
            continue
        other = before[i - 1]
        while max(suffix, other) + length < n and letters[suffix + length] == letters[other + length]:
            length += 1
        found[i] = length
        length = max(length - 1, 0)
    return found


def repeats(letters: Sequence[int]) -> Iterator[tuple[int, list[int]]]:
    """(length, where it begins, in order) of each stretch that occurs at least twice and does so less often if it is any longer.

    Occurrences may overlap.
    """
    if len(letters) < 2:
        return
    order = suffixes(np.asarray(letters, np.int64))
    lengths = [*shared(letters, order), 0]
    open: list[tuple[int, int]] = [(0, 0)]  # (length, first place in the order), growing
    for i in range(1, len(lengths)):
        first = i - 1
        while lengths[i] < open[-1][0]:
            length, first = open.pop()
            yield length, sorted(order[first:i].tolist())
        if lengths[i] > open[-1][0]:
            open.append((lengths[i], first))


def apart(begins: Sequence[int], length: int) -> list[int]:
    """Of ascending places, those that a walk from the front takes so that no two are nearer than `length`."""
    taken: list[int] = []
    for begin in begins:
        if not taken or begin - taken[-1] >= length:
            taken.append(begin)
    return taken
