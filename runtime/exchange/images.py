"""Images along one dimension: how many indices each vertex accesses, how many of them are local, and how many only it
reads.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from populus.dialects.poplar.view import View
from populus.runtime.exchange.boxes import Boxes, indices_within
from populus.runtime.placement import Counts, Dim, SpanningDim, part_of

MEMBERS = 1 << 22
"""Largest table of (interval, index), or of owners by element, that is written out. Above it, an upper bound is given."""


@dataclass(frozen=True, eq=False)
class DimImage:
    """The indices that vertices access along one dimension of the variable, counted.

    For each vertex: `size`, all indices; `local`, those in the cell of its tile; `mine`, local ones that no other
    vertex accesses along this dimension. For each tile: `read`, indices of its cell that any vertex accesses.
    """

    size: Counts
    local: Counts
    mine: Counts
    read: Counts


def dim_image(boxes: Boxes, dim: Dim, view: View, cell_first: Counts, cell_end: Counts) -> DimImage | None:
    """Counts the indices accessed along `dim`; None if they are neither an interval nor few enough to list.

    `cell_first`, `cell_end`: the bounds of each tile's cell, [tiles].
    """
    if len(dim.shown) <= 1:
        (index, step) = dim.shown[0] if dim.shown else (-1, 1)
        size = view.shape[index] if dim.shown else 1
        zero = np.zeros([1] * boxes.tile.ndim, np.int64)
        first, end = boxes.intervals[index] if dim.shown else (zero, zero + 1)
        return _interval_image(first, end, size, boxes.tile, *indices_within(cell_first, cell_end, dim.offset, step, size))
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
        # Windows wholly in padding are empty, and their bounds may lie beyond the dimension.
        low, high = np.where(some, low, 0), np.where(some, high, -1)
        return _interval_image(low, high + 1, dim.split.n, boxes.tile, cell_first, cell_end)
    shape = np.broadcast_shapes(*(first.shape for _, first, _ in spans))
    if math.prod(shape) * dim.split.n > MEMBERS:
        return None
    touched = np.ones((*shape, 1), bool)  # offsets reached by the steps so far, finest first
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


def spanning_image(boxes: Boxes, span: SpanningDim, dims: Sequence[Dim], view: View, rank: Counts) -> DimImage | None:
    """Counts the indices accessed along a view dimension that spans several dimensions of the variable; None if they are cut too often.

    Each index belongs to one part of each of those dimensions; together they are its label, which names its cells. Indices between
    which nothing begins or ends are one. Sorted by (label, index), those of one label within an interval are contiguous.
    """
    n = view.shape[span.index]
    first, end = boxes.intervals[span.index]
    cuts = [_cuts(dims[d], divisor, size) for d, divisor, size in span.pieces]
    if sum(len(places) * -(-n // (divisor * size)) for places, (_, divisor, size) in zip(cuts, span.pieces)) > MEMBERS:
        return None
    periods = [np.arange(0, n, divisor * size)[:, None] + places for places, (_, divisor, size) in zip(cuts, span.pieces) if len(places)]
    index = np.unique(np.concatenate([[0, n], first.ravel(), end.ravel(), *(p[p < n] for p in periods)]))
    index, lengths = index[:-1], np.diff(index)
    labels, own = np.zeros_like(index), np.zeros_like(rank)
    for d, divisor, size in span.pieces:
        dim = dims[d]
        at = dim.offset + (dim.shown[0][1] if dim.shown else 0) * (index // divisor % size)
        labels = labels * dim.split.parts + np.searchsorted(np.asarray(dim.split.bounds()), at, "right") - 1
        own = own * dim.split.parts + part_of(dim, dims, np.maximum(rank, 0))
    own = np.where(rank >= 0, own, -1)
    step = np.zeros(len(index) + 1, np.int64)
    np.add.at(step, np.searchsorted(index, first.ravel()), 1)
    np.add.at(step, np.searchsorted(index, end.ravel()), -1)
    readers = np.cumsum(step[:-1])
    keys = labels * (n + 1) + index
    order = np.argsort(keys)
    keys, readers, lengths = keys[order], readers[order], lengths[order]
    some, one, all_of = (_prefix(counted * lengths) for counted in (readers >= 1, readers == 1, 1))
    label = own[boxes.tile] * (n + 1)
    a, b = np.searchsorted(keys, label + first), np.searchsorted(keys, label + end)
    low, high = np.searchsorted(keys, own * (n + 1)), np.searchsorted(keys, own * (n + 1) + n)
    return DimImage(end - first, all_of[b] - all_of[a], one[b] - one[a], some[high] - some[low])


def _cuts(dim: Dim, divisor: int, size: int) -> Counts:
    """Lists where another part of a dimension begins, in indices of one period of a view dimension that spans it; none if it is whole."""
    if dim.split.parts == 1 or not dim.shown:
        return np.zeros(0, np.int64)
    begins = -((dim.offset - np.asarray(dim.split.bounds()[1:-1])) // dim.shown[0][1])
    return np.array([0, *begins[(begins > 0) & (begins < size)]], np.int64) * divisor


def _interval_image(first: Counts, end: Counts, n: int, tile: Counts, cell_first: Counts, cell_end: Counts) -> DimImage:
    size, a = end - first, np.maximum(first, cell_first[tile])
    b = np.maximum(np.minimum(end, cell_end[tile]), a)
    local, lengths = b - a, 1
    a, b = np.minimum(a, n), np.minimum(b, n)
    if n > MEMBERS:  # indices between which nothing begins or ends are one
        places = (first, end, a, b, cell_first, cell_end)
        at = np.unique(np.concatenate([p.ravel() for p in places]))
        first, end, a, b, cell_first, cell_end = (np.searchsorted(at, p) for p in places)
        lengths, n = np.diff(at), len(at) - 1
    step = np.zeros(n + 1, np.int64)
    np.add.at(step, first.ravel(), 1)
    np.add.at(step, end.ravel(), -1)
    readers = np.cumsum(step[:-1])
    some, one = _prefix((readers >= 1) * lengths), _prefix((readers == 1) * lengths)
    return DimImage(size, local, one[b] - one[a], some[cell_end] - some[cell_first])


def _listed_image(member: NDArray[np.bool_], tile: Counts, cell_first: Counts, cell_end: Counts) -> DimImage:
    shape, n = member.shape[:-1], member.shape[-1]
    member = member.reshape(-1, n)
    readers = member.sum(0)
    which = np.arange(len(member)).reshape(shape)
    inside, alone = _prefix(member), _prefix(member & (readers == 1))
    a, b = cell_first[tile], cell_end[tile]
    some = _prefix(readers >= 1)
    return DimImage(
        inside[which, n],
        inside[which, b] - inside[which, a],
        alone[which, b] - alone[which, a],
        some[cell_end] - some[cell_first],
    )


def _prefix(marks: NDArray[np.bool_] | Counts) -> Counts:
    """Adds the marks before each position along the last dimension, and before the end: [.., n + 1]."""
    result = np.zeros((*marks.shape[:-1], marks.shape[-1] + 1), np.int64)
    np.cumsum(marks, axis=-1, out=result[..., 1:])
    return result
