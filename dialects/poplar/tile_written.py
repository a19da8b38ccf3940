"""Elements of a codelet's outputs that are certainly written, as patterns of indices.

A pattern has an entry for each dimension: a number, the variable of a loop around, ALL, or From(k), all elements from number k on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from populus.dialects.poplar.tile_program import Apply, For, Name, Number, Size, TileCode, Value, leaves


@dataclass(frozen=True)
class From:
    """All elements of a dimension from number `first` on."""

    first: int


ALL = From(0)
Entry: TypeAlias = "From | Number | Name"
Pattern: TypeAlias = "tuple[str, tuple[Entry, ...]]"  # the vector, then an entry for each dimension


@dataclass(frozen=True)
class Written:
    """The patterns of what is written at a point of a program."""

    patterns: frozenset[Pattern] = frozenset()

    def store(self, vector: str, index: Iterable[Value], loops: Iterable[str]) -> Written:
        """Adds an element, if its index consists of numbers and of variables of loops."""
        entries = tuple(i for i in index if (isinstance(i, Number) and i.value >= 0) or (isinstance(i, Name) and i.name in loops))
        if len(entries) < len(tuple(index)):
            return self
        return Written(_merged(self.patterns | {(vector, entries)}))

    def has(self, vector: str, index: Iterable[Value]) -> bool:
        """Tells whether an element is written."""
        at = tuple(index)
        return any(v == vector and all(_within(i, e) for i, e in zip(at, entries, strict=True)) for v, entries in self.patterns)

    def has_all(self, vector: str, sizes: Mapping[int, int] | None = None) -> bool:
        """Tells whether all elements of a vector are written. `sizes`: of its dimensions, if they are known."""
        patterns = self.patterns if sizes is None else _merged(frozenset(p for p in self.patterns if p[0] == vector), sizes)
        return any(v == vector and all(e == ALL for e in entries) for v, entries in patterns)

    def after(self, loop: For, inner: Written, axes: Mapping[str, tuple[str, ...]]) -> Written:
        """Adds what a loop certainly writes, given what is written at the end of each of its turns."""
        span = None if leaves(loop.body, ("break", "return")) else _span(loop)
        if span is None:
            return self
        axis, first = axes[span[0].vector][span[0].dim], From(span[1])
        found = set(self.patterns)
        for vector, entries in inner.patterns:
            mine = [isinstance(e, Name) and e.name == loop.var for e in entries]
            if sum(mine) == 1 and axes.get(vector, ())[mine.index(True) : mine.index(True) + 1] == (axis,):
                found.add((vector, tuple(first if m else e for m, e in zip(mine, entries))))
        return Written(_merged(frozenset(found)))

    def meet(self, other: Written) -> Written:
        """Keeps what is written on both ways."""
        return Written(self.patterns & other.patterns)


def _within(index: Value, entry: Entry) -> bool:
    if isinstance(entry, From):
        return entry == ALL or (isinstance(index, Number) and index.value >= entry.first)
    return index == entry


def _span(loop: For) -> tuple[Size, int] | None:
    """Returns the dimension that a loop runs over up to its end, and the first index; None for other loops."""
    match loop:
        case For(_, Number(first, "int"), Size() as size, 1) if first >= 0:
            return size, int(first)
        case For(_, Apply("sub", (Size() as size, Number(1))), Number(last, "int"), -1) if last >= -1:
            return size, int(last) + 1
        case _:
            return None


def _merged(patterns: frozenset[Pattern], sizes: Mapping[int, int] | None = None) -> frozenset[Pattern]:
    """Joins numbers that lead up to a From, or to the dimension's size, with it."""
    found = set(patterns)
    changed = True
    while changed:
        changed = False
        for vector, entries in tuple(found):
            for d, entry in enumerate(entries):
                lowest = entry.first if isinstance(entry, From) else sizes.get(d, -1) if sizes is not None else -1
                if entry == ALL or lowest < 0 or lowest > len(found):
                    continue
                others = [(vector, (*entries[:d], Number(n, "int"), *entries[d + 1 :])) for n in range(lowest)]
                whole = (vector, (*entries[:d], ALL, *entries[d + 1 :]))
                if whole not in found and all(o in found for o in others):
                    found.add(whole)
                    changed = True
    return frozenset(found)


def tracked_at(code: TileCode, shapes: Mapping[str, Sequence[int]]) -> frozenset[str]:
    """Finds the outputs whose written elements are recorded in a run: nothing proves that all are, and before they are read."""

    def proved(vector: str, patterns: frozenset[Pattern] | None) -> bool:
        return patterns is not None and Written(patterns).has_all(vector, dict(enumerate(shapes[vector])))

    return frozenset(v for v, patterns in code.tracked.items() if not proved(v, patterns))
