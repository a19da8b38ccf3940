"""Rows of softmax and whitening: whether they stay whole, or are cut because there are fewer of them than tiles."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from xdsl.ir import Attribute

from populus.dialects.expr import Arg, Expr, exp, sqrt
from populus.dialects.expr import log as logarithm
from populus.dialects.poplar.partition import Grid, linear
from populus.dialects.poplar.sums import narrowed, widened
from populus.dialects.poplar.target import Target, sum_type
from populus.dialects.support.element_types import size_in_bytes
from populus.lowering.poplar.plan.reduction import SPLIT_WORTH
from populus.runtime.cycles import family, map_cycles, reduce_cycles
from populus.runtime.cycles.rows import softmax_cycles, whiten_cycles

LONGEST_ROW = 8192  # elements of a row that one tile may have: 32 KiB of floats, twice

_1, _2, _3 = Arg(1), Arg(2), Arg(3)

WHOLE: dict[str, Callable[[Target, Attribute, int, int], Any]] = {"softmax": softmax_cycles, "whiten": whiten_cycles}


class Map(NamedTuple):
    """A map of a row that is cut. `wide`: for each operand, whether it has the type of sums; last, whether the result has it."""

    formula: Expr
    wide: tuple[bool, ...]


def softmax_maps(own: Attribute, log: bool = False) -> tuple[Map, Map]:
    """Builds the maps of a softmax whose rows are cut: `e^(x - m)`, and the result from x, the largest m and the sum."""
    below = widened(_1, own) - widened(_2, own)
    y = below - logarithm(_3) if log else exp(below) / _3
    return Map(exp(below), (False, False, True)), Map(narrowed(y, own), (False, False, True, False))


def whiten_maps(own: Attribute, elements: float, epsilon: float) -> tuple[Map, Map, Map]:
    """Builds the maps of rows that are cut and whitened: mean, distance, and the result from distance and sum of squares."""
    y = narrowed(_1 / sqrt(_2 / elements + epsilon), own)
    mean, distance = Map(_1 / elements, (True, True)), Map(widened(_1, own) - _2, (False, True, True))
    return mean, distance, Map(y, (True, True, False))


def stay_whole(kind: str, shape: Sequence[int], element: Attribute, layout: Grid | None, target: Target) -> bool:
    """Tells whether the rows of `softmax` or `whiten` stay on one tile each: if they are short, many, or cheaper so.

    shape: [.., row]. `layout`: that of the operand, if it is known. A cut row takes two sums in two steps each, and maps.
    """
    *outer, row = shape
    if row > LONGEST_ROW:
        return False
    rows = math.prod(outer)
    if rows == 0 or 2 * rows > target.tiles or row < 2 * SPLIT_WORTH:
        return True
    return whole_cycles(kind, shape, element, layout, target) <= cut_cycles(kind, shape, element, target)


def whole_cycles(kind: str, shape: Sequence[int], element: Attribute, layout: Grid | None, target: Target) -> float:
    """Estimates a step of vertices over whole rows, which are received where the operand has a layout with other parts."""
    *outer, row = shape
    rows = -(-math.prod(outer) // target.tiles)
    there = layout is None or (layout.splits[-1].parts == 1 and layout.cells * rows >= math.prod(outer))
    return _step(target, float(WHOLE[kind](target, element, rows, row)), 0 if there else rows * row * size_in_bytes(element))


def cut_cycles(kind: str, shape: Sequence[int], element: Attribute, target: Target) -> float:
    """Estimates the steps over rows that are cut: each sum as partial sums and their sum, each map on all tiles."""
    *outer, row = shape
    sums = sum_type(element)
    wide = size_in_bytes(sums)
    grid = linear(tuple(outer), target.tiles, target.grain(element))
    rows = -(-math.prod(outer) // grid.cells)  # of a tile
    parts = max(min(target.tiles // grid.cells, row // SPLIT_WORTH), 1)
    own, share = -(-row // parts), -(-math.prod(shape) // target.tiles)
    partial = sum(_step(target, float(reduce_cycles(rows, own, e, target, True)), rows * own * size_in_bytes(e)) for e in (element, sums))
    total = _step(target, float(reduce_cycles(rows, parts, sums, target)), rows * parts * wide)
    cycles = partial + 2 * total
    for e, is_wide in softmax_maps(element) if kind == "softmax" else whiten_maps(element, 2.0, 1.0):
        *operands, result = [sums if w else element for w in is_wide]
        vectors, three = operands[1:], (operands * 3)[:3]
        mapped = map_cycles(share if vectors else rows, e, three, [False, True, True], result, target, False)
        cycles += _step(target, float(mapped), sum(rows * size_in_bytes(v) for v in vectors))
    return cycles


def _step(target: Target, compute: float, received: int) -> float:
    """Estimates a superstep in which a tile receives some bytes."""
    of = family(target)
    exchange = target.exchange_setup_cycles + received / target.exchange_bytes if received else 0
    return exchange + of.launch(received > 0, target) + compute + of.start(False, target)
