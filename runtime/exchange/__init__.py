"""Elements that each tile receives and sends, in closed form from layouts, views and accesses.

The box of each vertex is a product of intervals over the variable's dimensions, and so is the cell of each tile.
Counts are therefore products over dimensions. They take O(vertices x rank + sum of dimensions), independent of the
number of elements.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from populus.dialects.poplar.partition import Access, Domain, Grid
from populus.dialects.poplar.view import View, row_major
from populus.runtime.exchange.boxes import Boxes, ascending, owner_boxes, vertex_boxes
from populus.runtime.exchange.images import MEMBERS, dim_image, spanning_image
from populus.runtime.placement import Counts, Dim, cell_bounds, placement


@dataclass(frozen=True, eq=False)
class Moved:
    """Elements that move between the owners of a variable and the tiles whose vertices access it.

    `away`: [tiles], elements of each tile's boxes that other tiles own; received for an input, sent for an output.
    `home`: [tiles], elements that each tile owns and other tiles access; sent for an input, received for an output.
    An element counts once, however many tiles access it (a multicast). `exact`: false if the counts are upper bounds:
    whole boxes, and all elements of an owner that any vertex accesses.
    """

    away: Counts
    home: Counts
    exact: bool = True

    @property
    def nothing(self) -> bool:
        """True if no element moves."""
        return not self.away.any() and not self.home.any()

    def received(self, kind: str) -> Counts:
        """Gives the elements that each tile receives for a field of this kind (`in`, `out` or `inout`): [tiles]."""
        return {"in": self.away, "out": self.home, "inout": self.away + self.home}[kind]

    def sent(self, kind: str) -> Counts:
        """Gives the elements that each tile sends for a field of this kind (`in`, `out` or `inout`): [tiles]."""
        return {"in": self.home, "out": self.away, "inout": self.away + self.home}[kind]


@lru_cache(1024)
def field_exchange(domain: Domain, accesses: tuple[Access, ...], view: View, grid: Grid, tiles: int) -> Moved:
    """Counts the elements that a field of a family moves. It accesses `view` of a variable with the layout `grid`.

    The result is an upper bound in two cases. A split axis appears in two dimensions, or the image in one dimension
    is neither an interval nor small enough to list.
    """
    if _as_laid_out(domain, accesses, view, grid):
        return _still(tiles)
    return _moved(vertex_boxes(domain, accesses, view.shape, tiles), view, grid, tiles)


@lru_cache(2048)
def shared_by_neighbours(domain: Domain, accesses: tuple[Access, ...]) -> int:
    """Counts the consecutive tiles that read the same elements of an input.

    It is the product of the parts of the innermost axes of the order that the accesses do not name.
    """
    named = {a for access in accesses for a, _ in access.terms}
    run = 1
    for axis in reversed(domain.order):
        if axis in named and domain[axis].parts > 1:
            break
        run *= domain[axis].parts
    return run


@lru_cache(512)
def copy_exchange(source: View, source_grid: Grid, to: View, to_grid: Grid, tiles: int) -> Moved:
    """Counts the elements that a copy moves: each owner of elements of `to` receives them, as for an `in` field."""
    if source.base == to.base and source == to and source_grid == to_grid:
        return _still(tiles)
    boxes = owner_boxes(to, to_grid, tiles)
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
    """Counts the elements in each cell of a grid: [cells], from tile `grid.start` on, cyclically.

    The result is cached, so the caller must not write to it.
    """
    elements = np.full(1, math.prod(s.n for s in grid.splits if s.parts == 1), np.int64)
    for d in grid.order:
        if d < 0:
            elements = np.multiply.outer(elements, np.ones(-d, np.int64)).ravel()
        elif grid.splits[d].parts > 1:
            elements = np.multiply.outer(elements, np.diff(grid.splits[d].bounds())).ravel()
    return elements


def _owned(grid: Grid, tiles: int) -> Counts:
    """Counts the elements that each tile owns: [tiles]."""
    owned = np.zeros(tiles, np.int64)
    owned[(grid.start + np.arange(grid.cells)) % tiles] = owned_elements(grid)
    return owned


def _as_laid_out(domain: Domain, accesses: Sequence[Access], view: View, grid: Grid) -> bool:
    """Tells, from the attributes alone, if each vertex accesses only elements of its own tile.

    It does if domain and grid have equal splits in equal order from the same first tile.
    """
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


def _moved(boxes: Boxes, view: View, grid: Grid, tiles: int) -> Moved:
    """Computes away = |box| - |box & own cell| and home = |cell elements any vertex accesses| - |those only this tile's
    accesses|.

    Each of the four is a product over dimensions. Only one vertex accesses an element if, in every dimension, exactly
    one interval covers its index, and if the field depends on every split axis.
    """
    if 0 in view.shape:
        return _still(tiles)
    boxes, view = ascending(boxes, view)
    shape, tile = boxes.tile.shape, boxes.tile
    place = None if grid.copies > 1 else placement(view, grid)
    if place is None:
        return _bound(boxes, view, grid, tiles)
    rank = np.full(tiles, -1, np.int64)  # of the cell that a tile owns
    rank[(grid.start + np.arange(grid.cells)) % tiles] = np.arange(grid.cells)
    own = (rank[tile] >= 0).astype(np.int64)
    box, local, mine = np.ones(shape, np.int64), own, own
    read = np.ones(tiles, np.int64)
    exact, named, visible = True, set[int](), {span.index for span in place.spans}
    spanning = [spanning_image(boxes, span, place.dims, view, rank) for span in place.spans]
    images = [image for image in spanning if image is not None]
    if len(images) < len(spanning):
        return _bound(boxes, view, grid, tiles)
    spanned = {d for span in place.spans for d, _, _ in span.pieces}
    for dim in (dim for d, dim in enumerate(place.dims) if d not in spanned):
        visible.update(index for index, _ in dim.shown)
        if (all_touch := _same_for_all(boxes, dim)) is not None:
            box, local, mine, read = (n * all_touch for n in (box, local, mine, read))
            continue
        image = dim_image(boxes, dim, view, *cell_bounds(dim, place.dims, rank))
        if image is None:
            return _bound(boxes, view, grid, tiles)
        images.append(image)
    for image in images:
        box, local, mine, read = box * image.size, local * image.local, mine * image.mine, read * image.read
        axes = {i for i, n in enumerate(image.size.shape) if n > 1}
        exact &= not axes & named  # otherwise the intervals of two dimensions do not combine freely
        named |= axes
    for index in set(range(len(view.shape))) - visible:
        first, end = boxes.intervals[index]  # one element, or one repeated: its count is 0 or 1
        if not (end > first).all():
            box, local, exact = box * (end > first), local * (end > first), False
    away = np.zeros(tiles, np.int64)
    away[tile.ravel()] = (box - local).ravel()
    if exact and all(n == 1 or i in named for i, n in enumerate(shape)):
        read[tile.ravel()] -= mine.ravel()
    return Moved(away, np.where(rank >= 0, read, 0), exact)


def _same_for_all(boxes: Boxes, dim: Dim) -> int | None:
    """Counts the indices of an unsplit dimension that every vertex accesses; None if vertices may differ."""
    if dim.split.parts > 1 or len(dim.shown) > 1:
        return None
    if not dim.shown:
        return 1
    first, end = boxes.intervals[dim.shown[0][0]]
    return int((end - first).item()) if first.size == 1 else None


def _bound(boxes: Boxes, view: View, grid: Grid, tiles: int) -> Moved:
    """Gives the upper bound: every vertex moves its whole box, and every owner all of its elements."""
    away = np.zeros(tiles, np.int64)
    box = np.ones(boxes.tile.shape, np.int64)
    for (first, end), stride in zip(boxes.intervals, view.strides):
        box = box * (end - first if stride else np.minimum(end - first, 1))
    away[boxes.tile.ravel()] = box.ravel()
    return Moved(away, _owned(grid, tiles), exact=False)


# -- element by element ----------------------------------------------------------------------------------------------


def _counted(source: View, source_grid: Grid, to: View, to_grid: Grid, tiles: int) -> Moved:
    """Counts a copy element by element, for views whose elements on one tile do not form a box."""
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
    """Numbers the elements of a view: their row-major index in the variable, in the view's order."""
    index = np.full([1] * len(view.shape), view.offset, np.int64)
    for d, (n, stride) in enumerate(zip(view.shape, view.strides)):
        index = index + stride * np.arange(n).reshape([-1 if e == d else 1 for e in range(len(view.shape))])
    return index.ravel()


def _owners(index: Counts, base: Sequence[int], grid: Grid, tiles: int) -> Counts:
    """Gives the tile that owns each element; `index` holds row-major indices in a variable of shape `base`."""
    owner = np.zeros_like(index)
    strides = row_major(base)
    for d in grid.order:
        if d < 0:
            owner = owner * -d  # the first of several copies
        elif grid.splits[d].parts > 1:
            at = index // strides[d] % base[d]
            owner = owner * grid.splits[d].parts + np.searchsorted(np.asarray(grid.splits[d].bounds()), at, "right") - 1
    return (grid.start + owner) % tiles
