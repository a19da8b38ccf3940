"""One piece of memory for all variables of a program; those that are never needed at one time share bytes."""

from __future__ import annotations

import contextlib
import mmap
from bisect import insort
from collections.abc import Hashable, Mapping, Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

HUGE = 2 << 20  # bytes from which huge pages are asked for, where the system has them: fewer faults, fewer misses

K = TypeVar("K", bound=Hashable)

ALIGNMENT = 64  # a cache line, and the widest vector


def memory(bytes: int) -> NDArray[np.uint8]:
    """So many zeros, as untouched pages: what nothing wrote is at least the same in every run."""
    if bytes < HUGE or not hasattr(mmap, "MADV_HUGEPAGE"):
        return np.zeros(bytes, np.uint8)
    pages = mmap.mmap(-1, bytes + HUGE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)  # shared memory has small pages
    with contextlib.suppress(OSError):  # a system without them
        pages.madvise(mmap.MADV_HUGEPAGE)
    whole = np.frombuffer(pages, np.uint8)
    skipped = -whole.ctypes.data % HUGE
    return whole[skipped : skipped + bytes]


def place(sizes: Mapping[K, int], spans: Mapping[K, Sequence[tuple[int, int]]]) -> tuple[dict[K, int], int]:
    """Where each begins, and the bytes that all take. `spans`: first and last step of each time that it is needed, in order.

    Largest first, each at the lowest place that is free throughout its spans.
    """
    offsets: dict[K, int] = {}
    placed: list[tuple[int, int, int, K]] = []  # (begin, end, number, key), by begin
    total = 0
    for number, key in enumerate(sorted(sizes, key=lambda k: -sizes[k])):
        size = -(-sizes[key] // ALIGNMENT) * ALIGNMENT
        at = 0
        for begin, end, _, other in placed:
            if end > at and _meet(spans[key], spans[other]):
                if begin >= at + size:
                    break
                at = end
        offsets[key] = at
        insort(placed, (at, at + size, number, key), key=lambda entry: entry[:3])
        total = max(total, at + size)
    return offsets, total


def _meet(a: Sequence[tuple[int, int]], b: Sequence[tuple[int, int]]) -> bool:
    if a[-1][1] < b[0][0] or b[-1][1] < a[0][0]:
        return False
    return len(a) == len(b) == 1 or any(first <= until and since <= last for first, last in a for since, until in b)
