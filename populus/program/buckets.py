"""The sizes that programs of open dimensions are compiled for: each serves a range, which ends at a bucket."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, cast


class _Shortened(tuple[int, ...]):
    """Sizes of which the first are shown, as the default of an option."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"({', '.join(map(str, self[:5]))}, ..)"


BUCKETS = _Shortened(
    (
        *(1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256),
        *(n << k for k in range(6, 29) for n in (5, 6, 7, 8)),
    )
)
"""Powers of two and one size between them; above 256 three, since more work is lost there. 18 up to 512."""


def bucket(size: int, buckets: Sequence[int] = BUCKETS) -> int | tuple[int, int]:
    """Gives the least and the greatest size of the bucket that holds a size, or the size if it has a bucket of its own.

    `buckets`: the greatest sizes, ascending. 0, and a size above the last, has a bucket of its own.
    """
    at = bisect_left(buckets, size)
    if size == 0 or at == len(buckets):
        return size
    low, high = (buckets[at - 1] + 1 if at else 1), buckets[at]
    return high if low == high else (low, high)


def check_buckets(buckets: Sequence[int]) -> None:
    """Raises PopulusError unless buckets are ascending sizes of at least 1."""
    from populus.dialects.support.diagnostics import PopulusError  # a kept program needs no xDSL

    given: Any = buckets  # of a user
    sizes = isinstance(given, list | tuple) and all(isinstance(n, int) for n in cast("list[Any]", given))
    if not sizes or not buckets or min(buckets) < 1 or any(a >= b for a, b in pairwise(buckets)):
        raise PopulusError(f"buckets = {given!r}; ascending sizes of at least 1 are expected, such as [64, 128, 512]")
