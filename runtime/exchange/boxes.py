"""Boxes in a view's dimensions: the elements of a view that each vertex accesses, or that each tile owns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from populus.dialects.poplar.partition import Access, Domain, Grid
from populus.dialects.poplar.view import View
from populus.runtime.placement import Counts, placement


@dataclass(frozen=True, eq=False)
class Boxes:
    """The boxes of all vertices. Arrays have one dimension per split axis, of length 1 if they do not depend on it.

    `tile`: the tile of each vertex. `intervals`: (first, end) for each dimension of the view.
    """

    tile: Counts
    intervals: tuple[tuple[Counts, Counts], ...]


@lru_cache(1024)
def vertex_tiles(domain: Domain, tiles: int) -> Counts:
    """Gives the tile of each vertex, in row-major order over the split axes: [vertices]."""
    return vertex_boxes(domain, (), (), tiles).tile.ravel()


def vertex_boxes(domain: Domain, accesses: Sequence[Access], shape: Sequence[int], tiles: int) -> Boxes:
    """Gives the box of each vertex of a domain on a view of this shape."""
    cut = [a for a, s in domain.axes if s.parts > 1]
    number = {a: np.arange(domain[a].parts).reshape([-1 if a == b else 1 for b in cut]) for a in cut}
    tile = np.zeros([1] * len(cut), np.int64)
    for axis in domain.order:
        if axis in number:
            tile = tile * domain[axis].parts + number[axis]
    tile = (domain.start + tile) % tiles
    return Boxes(tile, tuple(_interval(domain, number, a, n) for a, n in zip(accesses, shape, strict=True)))


def _interval(domain: Domain, number: dict[str, Counts], access: Access, n: int) -> tuple[Counts, Counts]:
    """Computes `Access.interval` for all parts at once: (first, end)."""
    zero = np.zeros([1] * len(number), np.int64)
    if access.whole:
        return zero, zero + n
    if access.part:
        part = number.get(access.terms[0][0], zero)
        return part, part + 1
    low, high = zero + access.offset, zero + access.offset
    for axis, coefficient in access.terms:
        split = domain[axis]
        if split.parts == 1:
            high = high + coefficient * (split.n - 1)
        else:
            bounds = np.asarray(split.bounds())
            low = low + coefficient * bounds[number[axis]]
            high = high + coefficient * (bounds[number[axis] + 1] - 1)
    first = np.minimum(np.maximum(low, 0), n)
    return first, np.maximum(np.minimum(high + 1, n), first)


def owner_boxes(view: View, grid: Grid, tiles: int) -> Boxes | None:
    """Gives the elements of a view that each tile owns, as boxes in the view's dimensions; None if they are not boxes."""
    place = None if grid.copies > 1 else placement(view, grid)
    if place is None or place.spans or any(len(dim.shown) > 1 and dim.split.parts > 1 for dim in place.dims):
        return None
    shown = place.dims
    cut = [d for d, dim in enumerate(shown) if dim.split.parts > 1]
    intervals: list[tuple[Counts, Counts]] = [(np.zeros([1] * len(cut), np.int64), np.full([1] * len(cut), n)) for n in view.shape]
    parts: dict[int, Counts] = {}  # by split dimension, the parts that the view shows
    for i, d in enumerate(cut):
        dim, bounds = shown[d], np.asarray(shown[d].split.bounds())
        index, step = dim.shown[0] if dim.shown else (-1, 1)
        first, end = indices_within(bounds[:-1], bounds[1:], dim.offset, step, view.shape[index] if dim.shown else 1)
        (some,) = np.nonzero(end > first)
        along_it = [-1 if j == i else 1 for j in range(len(cut))]
        parts[d] = some.reshape(along_it)
        if dim.shown:
            intervals[index] = first[some].reshape(along_it), end[some].reshape(along_it)
    tile = np.zeros([1] * len(cut), np.int64)
    for d in sorted(cut, key=lambda d: shown[d].rank):
        tile = tile * shown[d].split.parts + parts[d]
    return Boxes((grid.start + tile) % tiles, tuple(intervals))


def indices_within(first: Any, end: Any, offset: int, step: int, n: int) -> tuple[Any, Any]:
    """Gives the interval of indices i in [0, n) of a view's dimension with first <= offset + step i < end."""
    low = np.clip(-(-(first - offset) // step), 0, n)
    return low, np.maximum(np.clip(-(-(end - offset) // step), 0, n), low)


def ascending(boxes: Boxes, view: View) -> tuple[Boxes, View]:
    """Gives the same elements in a view without negative strides, with the dimensions of negative stride reversed."""
    if all(s >= 0 for s in view.strides):
        return boxes, view
    offset = view.offset + sum(s * (n - 1) for n, s in zip(view.shape, view.strides) if s < 0 and n)
    intervals = tuple((n - b, n - a) if s < 0 else (a, b) for (a, b), n, s in zip(boxes.intervals, view.shape, view.strides))
    return Boxes(boxes.tile, intervals), View(view.base, offset, view.shape, tuple(map(abs, view.strides)))
