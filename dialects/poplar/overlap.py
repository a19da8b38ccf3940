"""Overlap of fields and views: common elements of two views, and fields that meet on one tile only."""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections.abc import Hashable, Iterable, Iterator
from functools import lru_cache
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from populus.dialects.poplar.partition import Access, Domain, along
from populus.dialects.poplar.view import View

T = TypeVar("T")

MOST_RUNS = 4096  # of a view, whose elements are compared one run after the other


@lru_cache(8192)
def image(domain: Domain, accesses: tuple[Access, ...], view: View) -> Hashable | None:
    """Computes the elements of a variable that each tile's vertex touches; equal results mean equal elements on every tile.

    The result has the parts that number the tiles and, per dimension of the variable, its terms: axes are identified by their cut
    and their place among the digits of the tile's number. None if the access has no such form.
    """
    through = view.through(accesses)
    if through is None:
        return None
    cut = [a for a in domain.order if domain[a].parts > 1]
    digit = {a: i for i, a in enumerate(cut)}

    def term(axis: str, coefficient: int, part: bool) -> tuple[int, ...]:
        split = domain[axis]
        if split.parts == 1:
            return coefficient, split.n
        if part:
            return coefficient, split.parts, split.parts, 1, digit[axis]
        even = split.n % (split.grain * split.parts) == 0  # then the grain makes no difference
        return coefficient, split.n, split.parts, 1 if even else split.grain, digit[axis]

    dims: list[Hashable] = []
    for access, n in zip(through, view.base):
        if access.whole:
            dims.append((((1, n),) if n > 1 else (), 0))
        elif access.part:
            axis = access.terms[0][0]
            dims.append(((term(axis, 1, True),) if domain[axis].parts > 1 else (), 0))
        else:
            dims.append((tuple(sorted(term(a, c, False) for a, c in access.terms if domain[a].n > 1)), access.offset))
    return tuple(domain[a].parts for a in cut), domain.start, tuple(dims)


@lru_cache(8192)
def disjoint(a: View, b: View) -> bool:
    """Tells whether two views of one variable share no element. Sufficient: compares bounding boxes, then residues of strides."""
    if 0 in a.shape or 0 in b.shape:
        return True
    first_a, end_a = reach(a)
    first_b, end_b = reach(b)
    if end_a <= first_b or end_b <= first_a:
        return True
    box_a, box_b = _box(a), _box(b)
    if box_a is None or box_b is None:
        return False
    return any(
        high_a < low_b or high_b < low_a or (step_a == step_b and step_a > 1 and low_a % step_a != low_b % step_b)
        for (low_a, high_a, step_a), (low_b, high_b, step_b) in zip(box_a, box_b)
    )


@lru_cache(8192)
def same_elements(a: View, b: View) -> bool:
    """Tells whether two views of one variable show the same elements, in any order. Sufficient: compares boxes."""
    return 0 not in a.shape and _runs(a) == _runs(b)


def covered(view: View, pieces: Iterable[View]) -> bool:
    """Tells whether pieces of one variable have every element that a view shows. Sufficient: none may have more than MOST_RUNS runs."""
    needed, *there = (_intervals(v) for v in (view, *pieces))
    if needed is None or not there or any(some is None for some in there):
        return False
    begins, ends = np.concatenate([some for some in there if some is not None]).T
    order = np.argsort(begins)
    begins, ends = begins[order], np.maximum.accumulate(ends[order])
    new = np.concatenate([[True], begins[1:] > ends[:-1]])  # what follows without a gap is one interval
    begins, ends = begins[new], ends[np.append(np.nonzero(new)[0][1:] - 1, len(ends) - 1)]
    at = np.searchsorted(begins, needed[:, 0], side="right") - 1
    return bool((at >= 0).all() and (needed[:, 1] <= ends[at]).all())


@lru_cache(8192)
def _intervals(view: View) -> NDArray[np.int64] | None:
    """Lists the runs of elements of a view in its variable: [runs, (first, end)]; None if they are more than MOST_RUNS."""
    first, runs = _runs(view)
    inner = runs[0][0] if runs and runs[0][1] == 1 else 1
    outer = runs[1:] if inner > 1 else runs
    if 0 in view.shape or math.prod(n for n, _ in outer) > MOST_RUNS:
        return None
    begins = np.array([first])
    for n, step in outer:
        begins = (begins[:, None] + step * np.arange(n)).reshape(-1)
    return np.stack([begins, begins + inner], axis=1)


def covers(domain: Domain, accesses: tuple[Access, ...], shape: tuple[int, ...]) -> bool:
    """Tells whether a field of a family reaches every element of its view, of this shape, if it reaches none twice.

    Vertices never write the same element, so it is enough to compare the number of indices in each dimension.
    """
    for access, n in zip(accesses, shape, strict=True):
        if access.whole:
            continue
        if (domain[access.terms[0][0]].parts if access.part else math.prod(domain[a].n for a, _ in access.terms)) != n:
            return False
    return True


def _runs(view: View) -> tuple[int, list[tuple[int, int]]]:
    """Gives the first element, and (elements, distance) of the view's dimensions in the order of memory, joined where they can be."""
    runs: list[tuple[int, int]] = []
    for step, n in sorted((abs(s), n) for n, s in zip(view.shape, view.strides) if n > 1 and s):
        if runs and step == runs[-1][0] * runs[-1][1]:
            runs[-1] = runs[-1][0] * n, runs[-1][1]
        else:
            runs.append((n, step))
    return reach(view)[0], runs


def reach(view: View) -> tuple[int, int]:
    """Computes the first element of its variable that a view shows, and the one after the last."""
    reach = [s * (n - 1) for n, s in zip(view.shape, view.strides)]
    return view.offset + sum(min(r, 0) for r in reach), view.offset + sum(max(r, 0) for r in reach) + 1


class Ranges(Generic[T]):
    """Views of one variable, with a tag each, kept by the size of their range and in order of first elements.

    A view is compared with those near it. So n views of n parts take n log n steps and not n squared.
    """

    def __init__(self) -> None:
        self.tags: list[T] = []
        self._kept: dict[int, list[tuple[int, int, int]]] = {}  # (first, end, number), by the bits of the size

    def add(self, view: View, tag: T) -> None:
        """Adds a view. One without elements meets none, so it is left out."""
        if 0 not in view.shape:
            first, end = reach(view)
            insort(self._kept.setdefault((end - first).bit_length(), []), (first, end, len(self.tags)))
            self.tags.append(tag)

    def near(self, view: View) -> Iterator[T]:
        """Yields the tags of the views whose range meets that of this one; `disjoint` tells whether they share an element."""
        first, end = (0, 0) if 0 in view.shape else reach(view)
        for bits, kept in self._kept.items():
            for _, after, number in kept[bisect_left(kept, (first - 2**bits,)) : bisect_left(kept, (end,))]:
                if after > first:
                    yield self.tags[number]


def _box(view: View) -> list[tuple[int, int, int]] | None:
    """Computes (lowest, highest index, step) per dimension of the variable; None if a dimension of the view spans two of them."""
    access = view.through(tuple(along(f"i{d}") for d in range(len(view.shape))))
    if access is None:
        return None
    sizes = {f"i{d}": n for d, n in enumerate(view.shape)}
    box: list[tuple[int, int, int]] = []
    for a in access:
        high = a.offset + sum(c * (sizes[axis] - 1) for axis, c in a.terms)
        box.append((a.offset, high, a.terms[0][1] if len(a.terms) == 1 else 1))
    return box
