"""Reductions over tiles: the cut of outputs and reduced elements, and the stages that sum partials."""

from __future__ import annotations

import math
from collections.abc import Sequence

from xdsl.dialects.builtin import StringAttr
from xdsl.ir import Attribute, SSAValue

from populus.dialects.poplar.partition import Domain, Grid, Split, along, at, linear
from populus.dialects.poplar.target import sum_type
from populus.dialects.poplar.types import TensorType
from populus.lowering.poplar.plan.contraction import stages
from populus.lowering.poplar.tile_builder import TileBuilder

SPLIT_WORTH = 64  # elements: a shorter row is reduced on one tile


def reduce_partials(t: TileBuilder, partials: SSAValue, leading: int, element: Attribute, op: str = "add") -> SSAValue:
    """Reduces the `leading` dimensions of a variable of partial results; every stage uses all tiles.

    partials: [parts.., outputs..]; the result [outputs..] has element type `element`.
    """
    assert isinstance(partials.type, TensorType), partials.type
    shape = partials.type.shape
    depth = math.prod(shape[:leading])
    count = int(stages(depth, math.prod(shape[leading:]), t.target))
    x = partials
    if count > 1:
        x, leading = t.reshape(x, (depth, *shape[leading:])), 1
    for stage in range(count, 1, -1):
        fan_out = round(depth ** ((stage - 1) / stage))
        x = _stage(t, x, leading, fan_out, partials.type.element, op, f".reduce{stage}")
        depth = fan_out
    return _stage(t, x, leading, 1, element, op, ".reduce")


def _stage(t: TileBuilder, x: SSAValue, leading: int, fan_out: int, element: Attribute, op: str, suffix: str) -> SSAValue:
    """Reduces [depth, outputs..] to [fan_out, outputs..], or [parts.., outputs..] to [outputs..] if `fan_out` is 1."""
    assert isinstance(x.type, TensorType), x.type
    parts, outputs = x.type.shape[:leading], x.type.shape[leading:]
    dims, rows = [f"d{i}" for i in range(len(outputs))], [f"r{i}" for i in range(leading)]
    grid = linear(outputs, max(t.target.tiles // fan_out, 1), t.target.grain(element))
    axes = {**{r: Split(n) for r, n in zip(rows, parts)}, **dict(zip(dims, grid.splits))}
    order, access = tuple(dims[d] for d in grid.order), list(map(along, dims))
    if fan_out > 1:
        axes["r0"] = Split(parts[0], fan_out)
        grid = Grid((Split(fan_out, fan_out), *grid.splits), (0, *(d + 1 for d in grid.order)))
        order, access, outputs = ("r0", *order), [at("r0"), *access], (fan_out, *outputs)
    y = t.var(outputs, element, grid, suffix if fan_out > 1 else "")
    fields = [("in", "x", x, list(map(along, [*rows, *dims]))), ("out", "y", y, access)]
    t.execute("reduce", Domain(tuple(axes.items()), order), fields, {"op": StringAttr(op)}, suffix)
    return y


def reduce(t: TileBuilder, x: SSAValue, dims: Sequence[int], op: str, element: Attribute) -> SSAValue:
    """Reduces the dimensions `dims` of a view to `element`; the result does not have them.

    Outputs are cut first. If they are fewer than the tiles and rows are long, rows are cut too: each tile reduces
    its part, and then the partial results are reduced.
    """
    assert isinstance(x.type, TensorType), x.type
    shape = x.type.shape
    remaining = [d for d in range(len(shape)) if d not in dims]
    outputs = tuple(shape[d] for d in remaining)
    grid = t.linear(outputs, element)
    row = math.prod(shape[d] for d in dims)
    free = t.target.tiles // grid.cells
    rows = _row_splits([shape[d] for d in dims], min(free, row // SPLIT_WORTH))
    names = {d: f"d{i}" for i, d in enumerate(remaining)} | {d: f"r{i}" for i, d in enumerate(dims)}
    splits = dict(zip(remaining, grid.splits)) | dict(zip(dims, rows))
    axes = tuple((names[d], splits[d]) for d in range(len(shape)))
    cut = [d for d in dims if splits[d].parts > 1]
    order = (*(names[d] for d in cut), *(names[remaining[d]] for d in grid.order))
    access = [along(names[d]) for d in range(len(shape))]
    result = [along(names[d]) for d in remaining]
    params: dict[str, Attribute] = {"op": StringAttr(op)}
    if not cut:
        y = t.var(outputs, element, grid)
        t.execute("reduce", Domain(axes, order), [("in", "x", x, access), ("out", "y", y, result)], params)
        return y
    parts = [splits[d].parts for d in cut]
    leading = len(cut)
    layout = Grid((*(Split(p, p) for p in parts), *grid.splits), (*range(leading), *(leading + d for d in grid.order)))
    y = t.var((*parts, *outputs), sum_type(element), layout, ".partials")
    result = [*(at(names[d]) for d in cut), *result]
    t.execute("reduce", Domain(axes, order), [("in", "x", x, access), ("out", "y", y, result)], params, ".partials")
    return reduce_partials(t, y, leading, element, "add" if op == "square_add" else op)


def _row_splits(sizes: Sequence[int], tiles: int) -> list[Split]:
    """Cuts the reduced dimensions into at most `tiles` parts, outer ones first."""
    return list(linear(tuple(sizes), max(tiles, 1)).splits)
