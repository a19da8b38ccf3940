"""One piece of memory for all variables of a program; those that are never needed at one time share bytes."""

from __future__ import annotations

from bisect import insort
from collections.abc import Hashable, Mapping
from typing import TypeVar

K = TypeVar("K", bound=Hashable)

ALIGNMENT = 64  # a cache line, and the widest vector


def place(sizes: Mapping[K, int], spans: Mapping[K, tuple[int, int]]) -> tuple[dict[K, int], int]:
    """Where each begins, and the bytes that all take. `spans`: first and last step at which each is needed.

    Largest first, each at the lowest place that is free throughout its span.
    """
    offsets: dict[K, int] = {}
    placed: list[tuple[int, int, int, int]] = []  # (begin, end, first step, last step), by begin
    total = 0
    for key in sorted(sizes, key=lambda k: -sizes[k]):
        first, last = spans[key]
        size = -(-sizes[key] // ALIGNMENT) * ALIGNMENT
        at = 0
        for begin, end, since, until in placed:
            if since <= last and first <= until and end > at:
                if begin >= at + size:
                    break
                at = end
        offsets[key] = at
        insort(placed, (at, at + size, first, last))
        total = max(total, at + size)
    return offsets, total
