"""Partitions of elements: splits of one dimension, grids of several, and the iteration space of a family.

A `Split` cuts n elements into contiguous parts. A `Grid` gives every element of a variable an owner tile. A `Domain` is the
iteration space of a family: named axes that count elements, each with its split. An `Access` gives the elements of one
dimension of a view that a point of the space touches. All are closed forms: nothing here is O(tiles) or O(elements) but
`Split.bounds` (O(parts)) and the walk over boxes that engines make.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Split:
    """`n` elements in `parts` contiguous pieces, each a multiple of `grain` but the last. Text: `64 in 4 by 16`.

    With G = ceil(n / grain) grains, the first G mod parts pieces have one grain more than the others; so there are at most
    three sizes, in contiguous runs.
    """

    n: int
    parts: int = 1
    grain: int = 1

    def problem(self) -> str | None:
        """Returns the reason why this is not a valid split; None if it is."""
        if self.n < 0 or self.grain < 1:
            return f"{self.n} by {self.grain} is not a number of elements by a positive grain"
        if not 1 <= self.parts <= max(-(-self.n // self.grain), 1):
            return f"{self.n} elements by {self.grain} have {-(-self.n // self.grain)} grains, too few for {self.parts} parts"
        return None

    def bounds(self) -> tuple[int, ...]:
        """Lists the begin of each part, and the end: parts + 1 numbers."""
        return _bounds(self)

    @property
    def largest(self) -> int:
        """Elements of the largest part."""
        grains = -(-self.n // self.grain)
        return min(-(-grains // self.parts) * self.grain, self.n)

    def __str__(self) -> str:
        parts = f" in {self.parts}" if self.parts > 1 else ""
        return f"{self.n}{parts}" + (f" by {self.grain}" if self.grain > 1 else "")


@lru_cache(8192)
def _bounds(split: Split) -> tuple[int, ...]:
    assert split.problem() is None, split
    q, r = divmod(-(-split.n // split.grain), split.parts)
    return tuple(min((j * q + min(j, r)) * split.grain, split.n) for j in range(split.parts + 1))


@dataclass(frozen=True, slots=True)
class Grid:
    """The owner of each element of a variable: tile = start + mixed radix of part numbers in `order`, last fastest.

    Dimensions that are not in `order` are whole. Text: `[64 in 8 by 8, 56] order [0, 1] start 3`. A negative number -c in
    `order` is a digit that selects nothing: the cells lie on the tiles c times. A constant may, so that it is where it is
    read; of a variable each element has one owner. Text: `[64 in 8] order [4 copies, 0]`.
    """

    splits: tuple[Split, ...]
    order: tuple[int, ...]
    start: int = 0

    @property
    def copies(self) -> int:
        """The number of tiles that hold each element."""
        return math.prod(-d for d in self.order if d < 0)

    @property
    def cells(self) -> int:
        """The number of tiles that own elements."""
        return math.prod(s.parts for s in self.splits) * self.copies

    def problem(self, shape: tuple[int, ...], tiles: int | None = None) -> str | None:
        """Returns the reason why this is not a layout of a variable of `shape` on `tiles` tiles; None if it is."""
        if tuple(s.n for s in self.splits) != shape:
            return f"the grid is for {[s.n for s in self.splits]}, the variable is {list(shape)}"
        if found := next((p for s in self.splits if (p := s.problem())), None):
            return found
        cut = {d for d, s in enumerate(self.splits) if s.parts > 1}
        named = [d for d in self.order if d >= 0]
        if len(set(named)) < len(named) or not cut <= set(named) <= set(range(len(shape))):
            return f"order {list(self.order)} does not name each cut dimension of {[str(s) for s in self.splits]} once"
        if tiles is not None and self.cells > tiles:
            return f"{self.cells} cells on {tiles} tiles"
        return None

    def __str__(self) -> str:
        digits = ", ".join(f"{-d} copies" if d < 0 else str(d) for d in self.order)
        order = f" order [{digits}]" if self.order else ""
        return f"[{', '.join(map(str, self.splits))}]{order}" + (f" start {self.start}" if self.start else "")


MOST_POINTS = 1 << 52  # of an iteration space; a product of three dimensions of 65,536 has 2^48

Box: TypeAlias = "dict[str, tuple[int, int, int]]"
"""A part of an iteration space: axis -> (first element, end, part number)."""


@dataclass(frozen=True, slots=True)
class Domain:
    """A family's iteration space and where its parts run: tile = start + mixed radix of part numbers in `order`, last fastest.

    Text: `(oc = 64 in 8 by 8, oh = 56 in 7) on (oh, oc) start 5`. Axes not in `order` are whole.
    """

    axes: tuple[tuple[str, Split], ...]
    order: tuple[str, ...]
    start: int = 0

    def __getitem__(self, axis: str) -> Split:
        for name, split in self.axes:
            if name == axis:
                return split
        raise KeyError(axis)

    @property
    def splits(self) -> dict[str, Split]:
        """The split of each axis, by name."""
        return dict(self.axes)

    @property
    def vertices(self) -> int:
        """The number of vertices: the product of the axes' parts."""
        return math.prod(s.parts for _, s in self.axes)

    @property
    def cut(self) -> frozenset[str]:
        """The axes with more than one part."""
        return frozenset(a for a, s in self.axes if s.parts > 1)

    def problem(self) -> str | None:
        """Returns the reason why this is not a valid iteration space; None if it is."""
        names = [a for a, _ in self.axes]
        if len(set(names)) < len(names):
            return f"an axis is named twice in ({', '.join(names)})"
        if found := next((p for _, s in self.axes if (p := s.problem())), None):
            return found
        if len(set(self.order)) < len(self.order) or not self.cut <= set(self.order) <= set(names):
            return f"'on ({', '.join(self.order)})' does not name each cut axis of ({', '.join(names)}) once"
        if (points := math.prod(max(s.n, 1) for _, s in self.axes)) > MOST_POINTS:
            return f"the iteration space has {points} points; at most 2^{MOST_POINTS.bit_length() - 1} are run"
        return None

    def collapse(self, contracted: frozenset[str]) -> Domain:
        """Merges boxes for the same arithmetic: parallel axes have one part, contracted axes as the program states them.

        Any other cut of the parallel axes is equally valid, so threads and cache blocking are cuts too.
        """
        return Domain(tuple((a, s if a in contracted else Split(s.n, 1, s.grain)) for a, s in self.axes), self.order, self.start)

    def boxes(self) -> Iterator[Box]:
        """Yields one box per vertex, in row-major order over the axes as declared."""
        axes = [(a, s.bounds(), range(s.parts)) for a, s in self.axes]
        for index in itertools.product(*(parts for _, _, parts in axes)):
            yield {a: (b[i], b[i + 1], i) for (a, b, _), i in zip(axes, index)}

    def tile(self, box: Box, tiles: int) -> int:
        """Computes the tile on which the vertex of this box runs."""
        number = 0
        for axis in self.order:
            number = number * self[axis].parts + box[axis][2]
        return (self.start + number) % tiles

    def __str__(self) -> str:
        axes = ", ".join(f"{a} = {s}" for a, s in self.axes)
        order = f" on ({', '.join(self.order)})" if self.order else ""
        return f"({axes}){order}" + (f" start {self.start}" if self.start else "")


@dataclass(frozen=True, slots=True)
class Access:
    """The elements of one dimension of a view that a point of the space touches.

    The sum of axes times coefficients plus an offset (`oh * 2 + ky - 3`, or just `3`); the number of the part along an axis
    (`at ic`); or all of them (`*`).
    """

    terms: tuple[tuple[str, int], ...] = ()
    offset: int = 0
    part: bool = False
    whole: bool = False

    def interval(self, size: int, box: Box) -> tuple[int, int, int, int]:
        """Computes (first, end, lower padding, upper padding) in a dimension of `size`; elements outside are padding."""
        if self.whole:
            return 0, size, 0, 0
        if self.part:
            j = box[self.terms[0][0]][2]
            return j, j + 1, 0, 0
        low = high = self.offset
        for axis, coefficient in self.terms:
            first, end, _ = box[axis]
            low += coefficient * first
            high += coefficient * (end - 1)
        high += 1
        return min(max(low, 0), size), max(min(high, size), 0), max(-low, 0), max(high - size, 0)

    def reach(self, domain: Domain) -> tuple[int, int]:
        """Computes (first, end) over the whole space; not for `*`."""
        if self.part:
            return 0, domain[self.terms[0][0]].parts
        return self.offset, self.offset + sum(c * (domain[a].n - 1) for a, c in self.terms) + 1

    def __str__(self) -> str:
        if self.whole:
            return "*"
        if self.part:
            return f"at {self.terms[0][0]}"
        if not self.terms:
            return str(self.offset)
        text = " + ".join(a if c == 1 else f"{a} * {c}" for a, c in self.terms)
        return text + (f" {'-' if self.offset < 0 else '+'} {abs(self.offset)}" if self.offset else "")


ALL = Access(whole=True)


def along(*terms: tuple[str, int] | str, offset: int = 0) -> Access:
    """Makes the access to a sum of axes, each a name or (name, coefficient)."""
    return Access(tuple((t, 1) if isinstance(t, str) else t for t in terms), offset)


def at(axis: str) -> Access:
    """Makes the access to the number of the part along `axis`."""
    return Access(((axis, 1),), part=True)


def injective(access: Access, domain: Domain) -> bool:
    """Tells whether different axis indices give different positions: the coefficients form a mixed radix."""
    if access.part:
        return True
    span = 1
    for axis, coefficient in sorted(access.terms, key=lambda t: t[1]):
        if coefficient < span:
            return False
        span += coefficient * (domain[axis].n - 1)
    return True


def race(domain: Domain, accesses: tuple[Access, ...]) -> str | None:
    """Returns the reason why two vertices may write one element of an output with these accesses; None if they cannot. O(rank).

    Sufficient: every cut axis occurs in the access, and each dimension's coefficients form a mixed radix. Exact where each
    dimension names at most one axis.
    """
    for access in accesses:
        if not access.whole and not injective(access, domain):
            return f"the parts of [{access}] overlap"
    if missing := domain.cut - {a for access in accesses for a, _ in access.terms}:
        return f"{', '.join(sorted(missing))} has parts but selects no part of it"
    return None


def bounds_problem(domain: Domain, accesses: tuple[Access, ...], shape: tuple[int, ...]) -> str | None:
    """Returns the place where an access leaves its view; None if it does not."""
    for access, n in zip(accesses, shape, strict=True):
        if not access.whole:
            low, high = access.reach(domain)
            if (low < 0 or high > n) and not (high <= low):
                return f"[{access}] reaches {low}..{high} of 0..{n}"
    return None


@lru_cache(8192)
def linear(shape: tuple[int, ...], tiles: int, grain: int = 1, start: int = 0) -> Grid:
    """Chooses the grid that spreads a variable most evenly: least elements on the fullest tile, then outer cuts, then few tiles.

    The innermost dimension is cut by `grain`. The counterpart of mapTensorLinearly (PopLibs: poputil/TileMapping) for grids,
    whose shares are boxes.
    """
    grains = [-(-n // (grain if d == len(shape) - 1 else 1)) for d, n in enumerate(shape)]
    counts = [[1] if g <= 1 or 0 in shape else _part_counts(g) for g in grains]  # nothing to spread: one tile, however long a row would be

    elements = [math.prod(grains[d:]) for d in range(len(shape))]

    @lru_cache(None)
    def best(d: int, free: int) -> tuple[int, int, tuple[int, ...]]:
        """Finds the best (elements of the largest share, tiles used, parts) of the dimensions from d on, on `free` tiles."""
        if d == len(shape):
            return 1, 1, ()
        found: tuple[int, int, tuple[int, ...]] | None = None
        for parts in reversed(counts[d]):  # most parts first: ties go to outer cuts
            if parts > free:
                continue
            inner, used, rest = best(d + 1, free // parts)
            largest = -(-grains[d] // parts) * inner
            if found is None or (largest, parts * used) < found[:2]:
                found = (largest, parts * used, (parts, *rest))
                if largest == -(-elements[d] // free):  # as even as can be
                    break
        assert found is not None, (shape, free)
        return found

    parts = best(0, max(tiles, 1))[2]
    splits = tuple(Split(n, p, grain if d == len(shape) - 1 else 1) for d, (n, p) in enumerate(zip(shape, parts)))
    return Grid(splits, tuple(d for d, s in enumerate(splits) if s.parts > 1), start)


@lru_cache(4096)
def _part_counts(grains: int) -> list[int]:
    """Lists part counts that differ in their largest part, fewest parts for each, ascending: about 2 sqrt(grains) of them."""
    counts = [1]
    while (size := -(-grains // counts[-1])) > 1:
        counts.append(-(-grains // (size - 1)))
    return counts
