"""The placement of a view in its variable: the dimensions that its own dimensions index, and the grid parts they reach."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from populus.dialects.poplar.partition import Grid, Split, along
from populus.dialects.poplar.view import View, row_major

Counts: TypeAlias = NDArray[np.int64]


@dataclass(frozen=True)
class Dim:
    """A dimension of the variable: its split, its rank in the grid's order (-1: none), and the view's dimensions along
    it.

    `shown`: pairs (view dimension, step). Index i_v of each view dimension v reaches index `offset` + sum of step x
    i_v.
    """

    split: Split
    rank: int
    shown: tuple[tuple[int, int], ...]
    offset: int


@dataclass(frozen=True)
class SpanningDim:
    """Dimension `index` of a view, which spans several dimensions of the variable; no other view dimension indexes
    these.

    `pieces`: (variable dimension, divisor, n). Index i of the view is index (i // divisor) % n of that dimension.
    """

    index: int
    pieces: tuple[tuple[int, int, int], ...]


@dataclass(frozen=True)
class Placement:
    """The placement of a view: the variable's dimensions, and the view's dimensions that span several of them."""

    dims: tuple[Dim, ...]
    spans: tuple[SpanningDim, ...] = ()


@lru_cache(2048)
def placement(view: View, grid: Grid) -> Placement | None:
    """Places a view without negative strides in a variable with the layout `grid`; None if its strides fit no
    dimensions.
    """
    for base, splits, order in _forms(view.base, grid):
        same = View(base, view.offset, view.shape, view.strides)
        dims = _dimensions(same, splits, order)
        if dims is not None:
            return Placement(dims)
    fine, pieces = _refined(view)
    dims = _dimensions(fine, grid.splits, grid.order)
    return None if dims is None else _with_spans(dims, pieces, fine.shape)


def _dimensions(view: View, splits: Sequence[Split], order: Sequence[int]) -> tuple[Dim, ...] | None:
    accesses = view.through(tuple(along(str(d)) for d in range(len(view.shape))))
    if accesses is None:
        return None
    return tuple(
        Dim(split, order.index(d) if d in order else -1, tuple((int(a), c) for a, c in access.terms), access.offset)
        for d, (split, access) in enumerate(zip(splits, accesses))
    )


def _refined(view: View) -> tuple[View, list[tuple[int, int]]]:
    """Splits each view dimension that spans several dimensions of the variable.

    Returns the new view, and the (original dimension, divisor) of each of its dimensions.
    """
    strides = row_major(view.base)
    shape: list[int] = []
    steps: list[int] = []
    pieces: list[tuple[int, int]] = []
    for index, (n, step) in enumerate(zip(view.shape, view.strides)):
        factors: list[tuple[int, int, int]] = []  # (size, step, divisor), innermost first
        divisor = 1
        while n > 1 and step:
            at = next((d for d, s in enumerate(strides) if s <= step and view.base[d] > 1 and step % s == 0), None)
            inner = 0 if at is None else view.base[at] // (step // strides[at])
            if at is None or inner < 2 or n <= inner or n % inner or inner * step != view.base[at] * strides[at]:
                break
            factors.append((inner, step, divisor))
            n, step, divisor = n // inner, step * inner, divisor * inner
        for size, stride, below in reversed([*factors, (n, step, divisor)]):
            shape.append(size)
            steps.append(stride)
            pieces.append((index, below))
    return View(view.base, view.offset, tuple(shape), tuple(steps)), pieces


def _with_spans(dims: Sequence[Dim], pieces: Sequence[tuple[int, int]], shape: Sequence[int]) -> Placement | None:
    """Expresses `dims`, which refer to pieces of view dimensions, by the view's own dimensions; None if that fails."""
    runs_along: dict[int, list[tuple[int, int, int]]] = {}
    for d, dim in enumerate(dims):
        for piece, _ in dim.shown:
            index, divisor = pieces[piece]
            runs_along.setdefault(index, []).append((d, divisor, shape[piece]))
    spans = [SpanningDim(index, tuple(along_it)) for index, along_it in runs_along.items() if len(along_it) > 1]
    spanned = {d for span in spans for d, _, _ in span.pieces}
    if any(len(dims[d].shown) > 1 for d in spanned):
        return None
    own = tuple(
        dim if d in spanned else Dim(dim.split, dim.rank, tuple((pieces[i][0], c) for i, c in dim.shown), dim.offset)
        for d, dim in enumerate(dims)
    )
    return Placement(own, tuple(spans))


def _forms(base: tuple[int, ...], grid: Grid) -> list[tuple[tuple[int, ...], tuple[Split, ...], tuple[int, ...]]]:
    """Gives (shape, splits, order) of a variable as it is, and with each unsplit dimension merged into the one before."""
    runs: list[list[int]] = []
    for d in range(len(base)):
        if runs and grid.splits[d].parts == 1:
            runs[-1].append(d)
        else:
            runs.append([d])
    merged: list[Split] = []
    for run in runs:
        inner = math.prod(base[d] for d in run[1:])
        outer = grid.splits[run[0]]
        merged.append(Split(outer.n * inner, outer.parts, max(outer.grain * inner, 1)))
    order = tuple(i for d in grid.order for i, run in enumerate(runs) if run[0] == d)
    plain = (base, grid.splits, grid.order)
    return [plain, (tuple(s.n for s in merged), tuple(merged), order)] if len(runs) < len(base) else [plain]


def cell_bounds(dim: Dim, dims: Sequence[Dim], rank: Counts) -> tuple[Counts, Counts]:
    """Gives (first, end) of each tile's cell along a dimension of the variable; empty if the tile owns no cell.

    `rank`: the cell of each tile in the grid's order, -1 for none.
    """
    part = part_of(dim, dims, np.maximum(rank, 0))
    bounds = np.asarray(dim.split.bounds())
    return bounds[part], np.where(rank >= 0, bounds[part + 1], bounds[part])


def part_of(dim: Dim, dims: Sequence[Dim], rank: Counts) -> Counts:
    """Gives the part of a dimension that the cell of each rank has."""
    return rank // math.prod(other.split.parts for other in dims if other.rank > dim.rank) % dim.split.parts
