"""Elements that a launch touches: those that its arguments tell a kernel to read and to write.

Each kernel states them beside its code, from its arguments alone: addresses, sizes, strides and tables as they are handed over.
`run/launch_check.py` holds them to the accesses of the program.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[Any]
Table: TypeAlias = NDArray[np.int64]
Part: TypeAlias = "Table | tuple[int, int]"  # offsets in bytes; or a number of them, and the distance of two


@dataclass(frozen=True)
class Elements:
    """Elements of `item` bytes, at `base` and a sum of one offset of each table."""

    base: int
    item: int
    tables: tuple[Table, ...] = ()

    @staticmethod
    def at(base: Array | int, item: int, *parts: Part) -> Elements:
        """Makes elements at an address, or where an array begins."""
        address = base if isinstance(base, int) else address_of(base)
        return Elements(address, item, tuple(np.arange(p[0], dtype=np.int64) * p[1] if isinstance(p, tuple) else p for p in parts))

    @staticmethod
    def of(array: Array) -> Elements:
        """Makes those of an array."""
        return Elements.at(array, array.itemsize, *zip(array.shape, array.strides))

    @property
    def count(self) -> int:
        """Number of sums of offsets."""
        return int(np.prod([t.size for t in self.tables], dtype=np.int64))

    @property
    def span(self) -> tuple[int, int]:
        """First address, and the end; where there are no elements, an end before every address."""
        if self.count == 0:
            return self.base, -1
        low, high = (self.base + sum(int(f(t)) for t in self.tables) for f in (np.min, np.max))
        return low, high + self.item

    def pieces(self, most: int = 1 << 22) -> Iterator[Table]:
        """Yields all addresses, at most about `most` at a time."""
        if self.count == 0:
            return
        tables, last = sorted(self.tables, key=len), np.array([self.base], np.int64)
        while tables and last.size * tables[0].size <= most:
            last = np.add.outer(tables.pop(0), last).reshape(-1)
        if not tables:
            yield last
            return
        first, *rest = tables
        step = max(1, most // last.size)
        for begin in range(0, first.size, step):
            part = np.add.outer(first[begin : begin + step], last).reshape(-1)
            for others in Elements(0, 1, tuple(rest)).pieces(max(1, most // part.size)):
                yield np.add.outer(others, part).reshape(-1)


@dataclass(frozen=True)
class Touched:
    """Elements that a launch reads and writes.

    `again`: the kernel may write an element more than once. `unset`: what it reads in scratch memory may hold anything, as it is
    multiplied by 0.
    """

    reads: Sequence[Elements]
    writes: Sequence[Elements]
    again: bool = False
    unset: bool = False


Arguments: TypeAlias = "Sequence[Any]"
Touches: TypeAlias = Callable[[Arguments, int], Touched]  # of the arguments of a launch, and its number of units


def met(windows: tuple[int, int], stride: int, taps: int, before: int, n: int) -> Table:
    """Lists which of n elements some windows, first and end, meet; `before`: elements of padding before the first."""
    starts: Table = np.arange(*windows, dtype=np.int64) * stride - before
    at = np.add.outer(starts, np.arange(taps, dtype=np.int64))
    return np.unique(at[(at >= 0) & (at < n)])


def address_of(array: Array) -> int:
    """Gives the address of an array's first element."""
    return int(array.__array_interface__["data"][0])
