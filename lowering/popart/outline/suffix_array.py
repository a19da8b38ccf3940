"""Suffix array: the sorted suffixes of a number sequence, and every repeated stretch that cannot be longer.

The stretches are the inner nodes of a suffix tree, computed from a suffix array and common-prefix lengths.
Source: Abouelhoda, Kurtz, Ohlebusch, "Replacing suffix trees with enhanced suffix arrays", 2004; Kasai et al.,
2001.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

DENSE = 2  # a stretch at more than DENSE * n / length places overlaps itself by half, somewhere


def suffixes(letters: NDArray[np.int64]) -> NDArray[np.int64]:
    """Sorts the suffixes of a sequence; returns their first positions. O(n log^2 n)."""
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
    """Computes the length of the prefix that each suffix shares with its predecessor in order; 0 for the first.
    O(n).
    """
    n = len(letters)
    place, lengths, before = [0] * n, [0] * n, order.tolist()
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
        lengths[i] = length
        length = max(length - 1, 0)
    return lengths


def repeats(letters: Sequence[int]) -> Iterator[tuple[int, list[int]]]:
    """Yields (length, ascending first positions) of repeated stretches that would occur less often if they were longer.

    Occurrences may overlap. A stretch that has to overlap itself, since its places and its length exceed `DENSE` times the
    sequence, holds a shorter one several times: of these, only the first beyond each power of two is yielded.
    So n equal letters give O(n log n) positions, and any n letters O(n sqrt(n)).
    """
    n = len(letters)
    if n < 2:
        return
    order = suffixes(np.asarray(letters, np.int64))
    lengths = [*shared(letters, order), 0]
    open: list[tuple[int, int]] = [(0, 0)]  # (length, first index in the order), ascending
    for i in range(1, len(lengths)):
        first = i - 1
        while lengths[i] < open[-1][0]:
            length, first = open.pop()
            shorter = max(lengths[i], open[-1][0])
            if (i - first) * length <= DENSE * n or length.bit_length() > shorter.bit_length():
                yield length, sorted(order[first:i].tolist())
        if lengths[i] > open[-1][0]:
            open.append((lengths[i], first))


def apart(begins: Sequence[int], length: int) -> list[int]:
    """Selects from ascending positions, greedily from the front, those at least `length` apart."""
    taken: list[int] = []
    for begin in begins:
        if not taken or begin - taken[-1] >= length:
            taken.append(begin)
    return taken
