"""The arena: one block of memory for all variables of a program. Variables with disjoint live ranges share bytes."""

from __future__ import annotations

import contextlib
import mmap
from collections.abc import Hashable, Mapping, Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from populus.runtime.codelets.undefined import marked

HUGE = 2 << 20  # bytes: larger arenas request huge pages, for fewer page faults and TLB misses

K = TypeVar("K", bound=Hashable)

ALIGNMENT = 64  # bytes: a cache line, and the widest vector register


def memory(bytes: int) -> NDArray[np.uint8]:
    """Allocates zeroed memory of so many bytes, as untouched pages: [bytes]; in runs that check, all bits are set.

    Zeros make reads of unwritten elements the same in every run.
    """
    if bytes < HUGE or not hasattr(mmap, "MADV_HUGEPAGE"):
        return marked(np.zeros(bytes, np.uint8))
    pages = mmap.mmap(-1, bytes + HUGE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)  # shared memory would get small pages
    whole = np.frombuffer(pages, np.uint8)
    skipped = -whole.ctypes.data % HUGE
    with contextlib.suppress(OSError):  # a system without huge pages
        pages.madvise(mmap.MADV_HUGEPAGE, skipped, bytes // HUGE * HUGE)  # not the end, which needs only a part of one
    return marked(whole[skipped : skipped + bytes])


def give_back(arena: NDArray[np.uint8]) -> None:
    """Gives the pages of an arena of `memory` back to the system, where it can take them; they read as zeros then."""
    base = arena.base
    while base is not None and not isinstance(base, mmap.mmap):
        base = base.base if isinstance(base, np.ndarray) else getattr(base, "obj", None)
    if base is not None and hasattr(mmap, "MADV_DONTNEED"):
        base.madvise(mmap.MADV_DONTNEED)


def assign_offsets(sizes: Mapping[K, int], spans: Mapping[K, Sequence[tuple[int, int]]]) -> tuple[dict[K, int], int]:
    """Assigns each key the byte offset of its memory. Returns (offsets, total bytes).

    `sizes`: in bytes. `spans`: the live range of each key, as (first, last) steps in order. Keys whose spans do not
    meet may share bytes. Placement is first-fit by decreasing size.
    """
    offsets: dict[K, int] = {}
    order = sorted(sizes, key=lambda k: -sizes[k])
    # A column for each placed key, by begin: begin, end, first and last step, whether it has several spans, its number in `order`.
    placed = np.empty((6, len(order)), np.int64)
    total = 0
    for n, key in enumerate(order):
        size, own = -(-sizes[key] // ALIGNMENT) * ALIGNMENT, spans[key]
        begin, end, first, last, several, number = placed[:, :n]
        met = np.flatnonzero((first <= own[-1][1]) & (last >= own[0][0]))
        if len(own) > 1 or several[met].any():
            met = met[[_meet(own, spans[order[i]]) for i in number[met]]]
        at = np.maximum.accumulate(np.concatenate(([0], end[met])))  # before each of them, and after the last
        gaps = np.flatnonzero((end[met] > at[:-1]) & (begin[met] >= at[:-1] + size))
        offset = int(at[gaps[0] if gaps.size else -1])
        offsets[key] = offset
        place = int(np.searchsorted(begin, offset, "right"))
        placed[:, place + 1 : n + 1] = placed[:, place:n]
        placed[:, place] = offset, offset + size, own[0][0], own[-1][1], len(own) > 1, n
        total = max(total, offset + size)
    return offsets, total


def _meet(a: Sequence[tuple[int, int]], b: Sequence[tuple[int, int]]) -> bool:
    return any(first <= until and since <= last for first, last in a for since, until in b)
