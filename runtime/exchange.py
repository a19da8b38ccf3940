"""What moves between tiles: elements received and sent by each, in closed form from layouts, views and accesses.

The boxes of all vertices are a product of intervals over the dimensions of the variable, and so are the cells that tiles
own; so everything here is a product over dimensions, O(vertices x rank + sum of dimensions), whatever the element count.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from populus.dialects.poplar.partition import Access, Domain, Grid
from populus.dialects.poplar.view import View, row_major
from populus.runtime.placement import Counts, Dim, Span, cell_bounds, part_of, placement

MEMBERS = 1 << 22
"""Largest table of (interval, index) or owner per element that is written out where an image is no box; above, a bound."""


@dataclass(frozen=True, eq=False)
class Moved:
    """Elements between the owners of a variable and the tiles that work on it.

    `away`: of each tile's box, the elements that others own; an input is received, an output sent. `home`: of the elements
    that each tile owns, those that other tiles work on, each once however many they are (a multicast); an input is sent, an
    output received. `exact`: counted; otherwise each vertex moves its whole box and each owner all that anyone touches.
    """

    away: Counts
    home: Counts
    exact: bool = True

    @property
    def nothing(self) -> bool:
        return not self.away.any() and not self.home.any()

    def received(self, kind: str) -> Counts:
        """Elements that each tile receives for a field of this kind: `in`, `out` or `inout`."""
        return {"in": self.away, "out": self.home, "inout": self.away + self.home}[kind]

    def sent(self, kind: str) -> Counts:
        return {"in": self.home, "out": self.away, "inout": self.away + self.home}[kind]


@lru_cache(1024)
def field_exchange(domain: Domain, accesses: tuple[Access, ...], view: View, grid: Grid, tiles: int) -> Moved:
    """What a field of a family moves: it accesses `view` of a variable which is laid out as `grid`.

    Exact but where an axis that is cut runs in two dimensions, or where the image in one dimension is neither an interval
    nor small enough to list; there it is an upper bound.
    """
    if _as_laid_out(domain, accesses, view, grid):
        return _still(tiles)
    return _moved(_boxes(domain, accesses, view.shape, tiles), view, grid, tiles)


@lru_cache(2048)
def shared_by_neighbours(domain: Domain, accesses: tuple[Access, ...]) -> int:
    """How many tiles that follow one another want the same elements of an input: the last digits that it does not depend on."""
    named = {a for access in accesses for a, _ in access.terms}
    run = 1
    for axis in reversed(domain.order):
        if axis in named and domain[axis].parts > 1:
            break
        run *= domain[axis].parts
    return run


@lru_cache(512)
def copy_exchange(source: View, source_grid: Grid, to: View, to_grid: Grid, tiles: int) -> Moved:
    """What a copy moves, as an `in` field of tiles that each work on the elements of `to` which they own."""
    if source.base == to.base and source == to and source_grid == to_grid:
        return _still(tiles)
    boxes = _boxes_of_owners(to, to_grid, tiles)
    moved = None if boxes is None else _moved(boxes, source, source_grid, tiles)
    if (moved is None or not moved.exact) and math.prod(to.shape) <= MEMBERS:
        return _counted(source, source_grid, to, to_grid, tiles)
    return moved or Moved(_owned(to_grid, tiles), _owned(source_grid, tiles), exact=False)


@lru_cache(64)
def _still(tiles: int) -> Moved:
    zeros = np.zeros(tiles, np.int64)
    return Moved(zeros, zeros)


# -- owners ----------------------------------------------------------------------------------------------------------


@lru_cache(1024)
def owned_elements(grid: Grid) -> Counts:
    """Elements in each cell of a grid: of tile `grid.start` and those that follow it, round the end. Not to be written."""
    elements = np.full(1, math.prod(s.n for s in grid.splits if s.parts == 1), np.int64)
    for d in grid.order:
        if d < 0:
            elements = np.multiply.outer(elements, np.ones(-d, np.int64)).ravel()
        elif grid.splits[d].parts > 1:
            elements = np.multiply.outer(elements, np.diff(grid.splits[d].bounds())).ravel()
    return elements


def _owned(grid: Grid, tiles: int) -> Counts:
    """Elements that each tile owns."""
    owned = np.zeros(tiles, np.int64)
    owned[(grid.start + np.arange(grid.cells)) % tiles] = owned_elements(grid)
    return owned


# -- boxes of vertices, in the view's dimensions ---------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Boxes:
    """The box of every vertex. All arrays have one dimension for each cut axis, of length 1 where they do not depend on it."""

    tile: Counts
    intervals: tuple[tuple[Counts, Counts], ...]  # (first, end) for each dimension of the view


def _boxes(domain: Domain, accesses: Sequence[Access], shape: Sequence[int], tiles: int) -> _Boxes:
    cut = [a for a, s in domain.axes if s.parts > 1]
    number = {a: np.arange(domain[a].parts).reshape([-1 if a == b else 1 for b in cut]) for a in cut}
    tile = np.zeros([1] * len(cut), np.int64)
    for axis in domain.order:
        if axis in number:
            tile = tile * domain[axis].parts + number[axis]
    tile = (domain.start + tile) % tiles
    return _Boxes(tile, tuple(_interval(domain, number, a, n) for a, n in zip(accesses, shape, strict=True)))


def _interval(domain: Domain, number: dict[str, Counts], access: Access, n: int) -> tuple[Counts, Counts]:
    """`Access.interval` of all parts at once."""
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


def _boxes_of_owners(view: View, grid: Grid, tiles: int) -> _Boxes | None:
    """What each owner has of a view, as boxes in the view's dimensions; None where that is no box."""
    found = None if grid.copies > 1 else placement(view, grid)
    if found is None or found.spans or any(len(dim.shown) > 1 and dim.split.parts > 1 for dim in found.dims):
        return None
    shown = found.dims
    cut = [d for d, dim in enumerate(shown) if dim.split.parts > 1]
    intervals: list[tuple[Counts, Counts]] = [(np.zeros([1] * len(cut), np.int64), np.full([1] * len(cut), n)) for n in view.shape]
    parts: dict[int, Counts] = {}  # of each cut dimension, those that the view shows
    for i, d in enumerate(cut):
        dim, bounds = shown[d], np.asarray(shown[d].split.bounds())
        index, step = dim.shown[0] if dim.shown else (-1, 1)
        first, end = _seen(bounds[:-1], bounds[1:], dim.offset, step, view.shape[index] if dim.shown else 1)
        (some,) = np.nonzero(end > first)
        along_it = [-1 if j == i else 1 for j in range(len(cut))]
        parts[d] = some.reshape(along_it)
        if dim.shown:
            intervals[index] = first[some].reshape(along_it), end[some].reshape(along_it)
    tile = np.zeros([1] * len(cut), np.int64)
    for d in sorted(cut, key=lambda d: shown[d].rank):
        tile = tile * shown[d].split.parts + parts[d]
    return _Boxes((grid.start + tile) % tiles, tuple(intervals))


def _seen(first: Any, end: Any, offset: int, step: int, n: int) -> tuple[Any, Any]:
    """The indices i of a view's dimension with first <= offset + step i < end."""
    low = np.clip(-(-(first - offset) // step), 0, n)
    return low, np.maximum(np.clip(-(-(end - offset) // step), 0, n), low)


def _forwards(boxes: _Boxes, view: View) -> tuple[_Boxes, View]:
    """The same elements in a view without negative strides: dimensions that walk backwards are turned round."""
    if all(s >= 0 for s in view.strides):
        return boxes, view
    offset = view.offset + sum(s * (n - 1) for n, s in zip(view.shape, view.strides) if s < 0 and n)
    intervals = tuple((n - b, n - a) if s < 0 else (a, b) for (a, b), n, s in zip(boxes.intervals, view.shape, view.strides))
    return _Boxes(boxes.tile, intervals), View(view.base, offset, view.shape, tuple(map(abs, view.strides)))


def _as_laid_out(domain: Domain, accesses: Sequence[Access], view: View, grid: Grid) -> bool:
    """Whether each vertex touches just what its tile owns, told from the text: equal cuts in equal order on equal tiles."""
    through = view.through(accesses) if view.is_whole else None
    if through is None:
        return False
    axis_of: dict[int, str] = {}
    for d, (access, split) in enumerate(zip(through, grid.splits)):
        if split.parts == 1:
            continue
        if access.whole or access.offset or len(access.terms) != 1 or access.terms[0][1] != 1:
            return False
        axis = access.terms[0][0]
        cut = domain[axis]
        same = split.n == split.parts == cut.parts if access.part else cut == split
        if not same or axis in axis_of.values():
            return False
        axis_of[d] = axis
    order = [d if d < 0 else axis_of[d] for d in grid.order if d < 0 or d in axis_of]
    placed = set(axis_of.values())
    return order == [a if a in placed else -domain[a].parts for a in domain.order if domain[a].parts > 1] and domain.start == grid.start


# -- counting --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Image:
    """What vertices touch along one dimension of the variable.

    `size`, `local` (of them in the tile's own cell), `mine` (of those, touched by no other vertex as far as this dimension
    goes) are for each vertex; `read` (indices of the cell that anyone touches) is for each tile.
    """

    size: Counts
    local: Counts
    mine: Counts
    read: Counts


def _moved(boxes: _Boxes, view: View, grid: Grid, tiles: int) -> Moved:
    """away = |box| - |box & own cell|, home = |touched by any in the cell| - |touched by this tile's vertex alone|.

    Each of the four is a product over dimensions. For the last: an element is touched by this vertex alone where in every
    dimension one interval only covers its index, and no cut axis is absent from the field.
    """
    if 0 in view.shape:
        return _still(tiles)
    boxes, view = _forwards(boxes, view)
    shape, tile = boxes.tile.shape, boxes.tile
    found = None if grid.copies > 1 else placement(view, grid)
    if found is None:
        return _bound(boxes, view, grid, tiles)
    rank = np.full(tiles, -1, np.int64)  # of the cell that a tile owns
    rank[(grid.start + np.arange(grid.cells)) % tiles] = np.arange(grid.cells)
    own = (rank[tile] >= 0).astype(np.int64)
    box, local, mine = np.ones(shape, np.int64), own, own
    read = np.ones(tiles, np.int64)
    exact, named, visible = True, set[int](), {span.index for span in found.spans}
    images = [_span_image(boxes, span, found.dims, view, rank) for span in found.spans]
    spanned = {d for span in found.spans for d, _, _ in span.pieces}
    for dim in (dim for d, dim in enumerate(found.dims) if d not in spanned):
        visible.update(index for index, _ in dim.shown)
        if (all_touch := _same_for_all(boxes, dim)) is not None:
            box, local, mine, read = (n * all_touch for n in (box, local, mine, read))
            continue
        image = _image(boxes, dim, view, *cell_bounds(dim, found.dims, rank))
        if image is None:
            return _bound(boxes, view, grid, tiles)
        images.append(image)
    for image in images:
        box, local, mine, read = box * image.size, local * image.local, mine * image.mine, read * image.read
        axes = {i for i, n in enumerate(image.size.shape) if n > 1}
        exact &= not axes & named  # the intervals of two dimensions then do not combine freely
        named |= axes
    for index in set(range(len(view.shape))) - visible:
        first, end = boxes.intervals[index]  # one element, or one many times over: only whether it is touched matters
        if not (end > first).all():
            box, local, exact = box * (end > first), local * (end > first), False
    away = np.zeros(tiles, np.int64)
    away[tile.ravel()] = (box - local).ravel()
    if exact and all(n == 1 or i in named for i, n in enumerate(shape)):
        read[tile.ravel()] -= mine.ravel()
    return Moved(away, np.where(rank >= 0, read, 0), exact)


def _same_for_all(boxes: _Boxes, dim: Dim) -> int | None:
    """How much of a dimension that is not cut every vertex touches, where all touch the same; None where they may not."""
    if dim.split.parts > 1 or len(dim.shown) > 1:
        return None
    if not dim.shown:
        return 1
    first, end = boxes.intervals[dim.shown[0][0]]
    return int((end - first).item()) if first.size == 1 else None


def _bound(boxes: _Boxes, view: View, grid: Grid, tiles: int) -> Moved:
    """Every vertex moves its whole box, every owner all that it has."""
    away = np.zeros(tiles, np.int64)
    box = np.ones(boxes.tile.shape, np.int64)
    for (first, end), stride in zip(boxes.intervals, view.strides):
        box = box * (end - first if stride else np.minimum(end - first, 1))
    away[boxes.tile.ravel()] = box.ravel()
    return Moved(away, _owned(grid, tiles), exact=False)


def _image(boxes: _Boxes, dim: Dim, view: View, cell_first: Counts, cell_end: Counts) -> _Image | None:
    """What vertices touch along `dim`; None where it is no interval and too much to list."""
    if len(dim.shown) <= 1:
        (index, step) = dim.shown[0] if dim.shown else (-1, 1)
        size = view.shape[index] if dim.shown else 1
        zero = np.zeros([1] * boxes.tile.ndim, np.int64)
        first, end = boxes.intervals[index] if dim.shown else (zero, zero + 1)
        return _interval_image(first, end, size, boxes.tile, *_seen(cell_first, cell_end, dim.offset, step, size))
    spans = [(step, *boxes.intervals[index]) for index, step in sorted(dim.shown, key=lambda t: t[1])]
    reach, gapless = 1, True
    low = high = np.full([1] * boxes.tile.ndim, dim.offset)
    some = np.ones([1] * boxes.tile.ndim, bool)
    for step, first, end in spans:
        gapless &= bool(((end - first <= 1) | (step <= reach)).all())
        reach = reach + step * np.maximum(end - first - 1, 0)
        low, high = low + step * first, high + step * (end - 1)
        some = some & (end > first)
    if gapless:
        return _interval_image(low, np.where(some, high + 1, low), dim.split.n, boxes.tile, cell_first, cell_end)
    shape = np.broadcast_shapes(*(first.shape for _, first, _ in spans))
    if math.prod(shape) * dim.split.n > MEMBERS:
        return None
    touched = np.ones((*shape, 1), bool)  # offsets reached so far, of coarser and coarser steps
    for step, first, end in spans:
        wider = np.zeros((*shape, touched.shape[-1] + step * (view_size := int(end.max()))), bool)
        for i in range(view_size):
            inside = (first <= i) & (i < end)
            wider[..., step * i : step * i + touched.shape[-1]] |= touched & inside[..., None]
        touched = wider
    member = np.zeros((*shape, dim.split.n), bool)
    count = min(touched.shape[-1], dim.split.n - dim.offset)
    member[..., dim.offset : dim.offset + count] = touched[..., :count]
    return _listed_image(member, boxes.tile, cell_first, cell_end)


def _span_image(boxes: _Boxes, span: Span, dims: Sequence[Dim], view: View, rank: Counts) -> _Image:
    """What vertices touch along a dimension of the view that spans several of the variable.

    An index of it belongs to the cells with certain parts of those dimensions: its label. Sorted by (label, index), what an
    interval has of a label stands together.
    """
    n = view.shape[span.index]
    index = np.arange(n)
    labels, own = np.zeros(n, np.int64), np.zeros_like(rank)
    for d, divisor, size in span.pieces:
        dim = dims[d]
        at = dim.offset + (dim.shown[0][1] if dim.shown else 0) * (index // divisor % size)
        labels = labels * dim.split.parts + np.searchsorted(np.asarray(dim.split.bounds()), at, "right") - 1
        own = own * dim.split.parts + part_of(dim, dims, np.maximum(rank, 0))
    own = np.where(rank >= 0, own, -1)
    first, end = boxes.intervals[span.index]
    step = np.zeros(n + 1, np.int64)
    np.add.at(step, first.ravel(), 1)
    np.add.at(step, end.ravel(), -1)
    readers = np.cumsum(step[:-1])
    keys = labels * (n + 1) + index
    order = np.argsort(keys)
    keys, readers = keys[order], readers[order]
    some, one = _prefix(readers >= 1), _prefix(readers == 1)
    label = own[boxes.tile] * (n + 1)
    a, b = np.searchsorted(keys, label + first), np.searchsorted(keys, label + end)
    low, high = np.searchsorted(keys, own * (n + 1)), np.searchsorted(keys, own * (n + 1) + n)
    return _Image(end - first, b - a, one[b] - one[a], some[high] - some[low])


def _interval_image(first: Counts, end: Counts, n: int, tile: Counts, cell_first: Counts, cell_end: Counts) -> _Image:
    step = np.zeros(n + 1, np.int64)
    np.add.at(step, first.ravel(), 1)
    np.add.at(step, end.ravel(), -1)
    readers = np.cumsum(step[:-1])
    a = np.maximum(first, cell_first[tile])
    b = np.maximum(np.minimum(end, cell_end[tile]), a)
    some, one = _prefix(readers >= 1), _prefix(readers == 1)
    return _Image(end - first, b - a, one[np.minimum(b, n)] - one[np.minimum(a, n)], some[cell_end] - some[cell_first])


def _listed_image(member: NDArray[np.bool_], tile: Counts, cell_first: Counts, cell_end: Counts) -> _Image:
    shape, n = member.shape[:-1], member.shape[-1]
    member = member.reshape(-1, n)
    readers = member.sum(0)
    which = np.arange(len(member)).reshape(shape)
    inside, alone = _prefix(member), _prefix(member & (readers == 1))
    a, b = cell_first[tile], cell_end[tile]
    some = _prefix(readers >= 1)
    return _Image(
        inside[which, n],
        inside[which, b] - inside[which, a],
        alone[which, b] - alone[which, a],
        some[cell_end] - some[cell_first],
    )


def _prefix(marks: NDArray[np.bool_]) -> Counts:
    """How many marks stand before each place along the last dimension, and before the end."""
    result = np.zeros((*marks.shape[:-1], marks.shape[-1] + 1), np.int64)
    np.cumsum(marks, axis=-1, out=result[..., 1:])
    return result


# -- element by element ----------------------------------------------------------------------------------------------


def _counted(source: View, source_grid: Grid, to: View, to_grid: Grid, tiles: int) -> Moved:
    """The copy counted element by element, for views whose owners are no boxes."""
    index = _elements(source)
    senders, receivers = _owners(index, source.base, source_grid, tiles), _owners(_elements(to), to.base, to_grid, tiles)
    far = senders != receivers
    if source.repeats:
        once = np.unique(np.stack([index[far], receivers[far]]), axis=1)
        away = np.bincount(once[1], minlength=tiles)
    else:
        away = np.bincount(receivers[far], minlength=tiles)
    home = np.bincount(_owners(np.unique(index[far]), source.base, source_grid, tiles), minlength=tiles)
    return Moved(away, home)


def _elements(view: View) -> Counts:
    """The row-major number in the variable of each element of a view, in the view's order."""
    index = np.full([1] * len(view.shape), view.offset, np.int64)
    for d, (n, stride) in enumerate(zip(view.shape, view.strides)):
        index = index + stride * np.arange(n).reshape([-1 if e == d else 1 for e in range(len(view.shape))])
    return index.ravel()


def _owners(index: Counts, base: Sequence[int], grid: Grid, tiles: int) -> Counts:
    """The tile that owns each element of a variable, elements by row-major number."""
    owner = np.zeros_like(index)
    strides = row_major(base)
    for d in grid.order:
        if d < 0:
            owner = owner * -d  # of several copies, the first
        elif grid.splits[d].parts > 1:
            at = index // strides[d] % base[d]
            owner = owner * grid.splits[d].parts + np.searchsorted(np.asarray(grid.splits[d].bounds()), at, "right") - 1
    return (grid.start + owner) % tiles
