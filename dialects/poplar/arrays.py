"""Maps of integers as arrays: the numbers of a map at many indices, and the strides by which it goes through its range."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, TypeAlias

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from populus.dialects.poplar.affine import box, names, reshape_map
from populus.dialects.poplar.integer_sets import Map, Set, isl, read_map

Array: TypeAlias = NDArray[Any]


@dataclass(frozen=True)
class Strides:
    """A map of 0 <= i < n to places: `first` plus strides by the digits of i, which is a place in row-major order of `shape`."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    first: int

    def of(self, flat: Array) -> Array:
        """Shows the elements of a flat array that the map names, under `shape`, without a copy. They are inside of the array."""
        reach = [s * (n - 1) for n, s in zip(self.shape, self.strides)]
        low, high = (self.first + sum(pick(r, 0) for r in reach) for pick in (min, max))
        assert 0 <= low <= high < flat.size, (self, flat.size)
        return as_strided(flat[self.first :], self.shape, [s * flat.itemsize for s in self.strides], writeable=False)


def strides(at: Map, size: int) -> Strides | None:
    """Finds the strides of a map of 0 <= i < size to one coordinate; None if it has none, or other indices.

    They are guessed from some elements, and the map that they make is shown to be the same.
    """
    if not at.domain().is_equal(box((size,))) or not at.is_single_valued():
        return None
    divisors = [d for d in range(1, math.isqrt(size) + 1) if size % d == 0]
    divisors = sorted({*divisors, *(size // d for d in divisors)})
    ends = values(at, [np.array([0, *(d - 1 for d in divisors), *(d for d in divisors if d < size)])]).tolist()
    last = dict(zip((d - 1 for d in divisors), ends[1:]))
    begin = dict(zip(divisors, ends[1 + len(divisors) :]))
    shape, found, done = list[int](), list[int](), 1
    while done < size:
        step = begin[done] - ends[0]
        longer = (d for d in divisors if d > done and d % done == 0)
        reached = list(takewhile(lambda d: last[d - 1] == last[done - 1] + step * (d // done - 1), longer))  # noqa: B023
        if not reached:
            return None
        shape.append(reached[-1] // done)
        found.append(step)
        done = reached[-1]
    guess = Strides(tuple(shape[::-1]), tuple(found[::-1]), ends[0])
    i = names("i", len(shape))
    place = " + ".join([*(f"{s}*{v}" for s, v in zip(guess.strides, i)), str(guess.first)])
    made = reshape_map((size,), guess.shape).apply_range(read_map(f"{{ [{', '.join(i)}] -> [{place}] }}"))
    return guess if made.is_equal(at) else None


def values(at: Map, columns: Sequence[Array]) -> Array:
    """Computes a map to one coordinate at many indices: `columns` has the indices' coordinates. -1 where the map is not defined.

    Raises AssertionError for a map of several coordinates; the caller has shown that it is single-valued.
    """
    size = np.broadcast_shapes(*(c.shape for c in columns)) if columns else ()
    found = np.full(size, -1, np.int64)

    context = box([int(c.max(initial=0)) + 1 for c in columns])  # which needs no test

    pieces: list[tuple[Set, isl.MultiAff]] = []
    isl.PwMultiAff.from_map(at).foreach_piece(lambda where, image: pieces.append((where, image)))
    for where, image in pieces:  # not in isl's loop, which turns an exception into one of its own
        where = where.gist(context)
        if where.plain_is_universe():
            found[...] = np.broadcast_to(_value(image.get_aff(0), columns), size)
            continue
        inside = np.zeros(size, bool)
        for part in where.get_basic_sets():
            holds = np.ones(size, bool)
            for constraint in part.get_constraints():
                value = _value(constraint.get_aff(), columns)
                holds &= value == 0 if constraint.is_equality() else value >= 0
            inside |= holds
        if inside.any():
            found[inside] = np.broadcast_to(_value(image.get_aff(0), columns), size)[inside]
    return found


def ends(at: Map, shape: tuple[int, ...]) -> Array:
    """Lists the places that a map has for the first and the last index of a shape."""
    return values(at, [np.array([0, n - 1]) for n in shape]) if shape else np.repeat(values(at, []), 2)


def places(at: Map, whole: Sequence[range], along: Sequence[int]) -> Array:
    """Lists the places that a map has in a box of its domain, in row-major order of the dimensions `along`; it depends on no others."""
    grid = dict(zip(along, np.meshgrid(*(np.arange(whole[d].start, whole[d].stop) for d in along), indexing="ij", sparse=True)))
    found = values(at, [grid.get(d, np.asarray(r.start)) for d, r in enumerate(whole)])
    found = np.broadcast_to(found, [len(whole[d]) for d in along]).reshape(-1)
    assert (found >= 0).all(), at
    return found


def _value(aff: isl.Aff, columns: Sequence[Array]) -> Array:
    """Computes an affine expression, with divisions rounded down, at many indices."""
    denominator = int(aff.get_denominator_val().to_python())
    total: Array = np.int64(_numerator(aff.get_constant_val(), denominator)) * np.ones((), np.int64)
    for d, column in enumerate(columns):
        if factor := _numerator(aff.get_coefficient_val(isl.dim_type.in_, d), denominator):
            total = total + factor * column
    for d in range(aff.dim(isl.dim_type.div)):
        if factor := _numerator(aff.get_coefficient_val(isl.dim_type.div, d), denominator):
            total = total + factor * _value(aff.get_div(d), columns)
    return total // denominator


def _numerator(value: isl.Val, denominator: int) -> int:
    return int(value.mul(isl.Val(denominator)).to_python())
