"""Lowering of `popops`: maps, reductions and gathers become families; rearrangements become views, or copies."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import cast

from xdsl.dialects.builtin import IntegerAttr
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.rewriter import Rewriter

from populus.dialects.base.tensor_op import INPLACE, ints
from populus.dialects.poplar import GraphOp
from populus.dialects.poplar.codelets import CODELETS
from populus.dialects.poplar.declared import declare
from populus.dialects.poplar.memory import ConstOp, root_of, view_of
from populus.dialects.poplar.partition import ALL, Access, Domain, Grid, Split, along, linear
from populus.dialects.poplar.types import TensorType
from populus.dialects.popops import (
    BroadcastOp,
    CodeletOp,
    ConcatOp,
    DimShuffleOp,
    IfOp,
    IotaOp,
    LoopOp,
    MapOp,
    MultiSliceOp,
    MultiUpdateOp,
    PadOp,
    ReduceOp,
    ReshapeOp,
    SliceOp,
    TopKOp,
    YieldOp,
)
from populus.dialects.support.diagnostics import PopulusError, where
from populus.dialects.support.element_types import element_type_of, shape_of
from populus.dialects.support.shapes import axes
from populus.lowering.poplar.control_flow import branch, end_of_region, loop
from populus.lowering.poplar.graph import Rule, ToPoplarPass
from populus.lowering.poplar.plan.channels import channels_last, follow, has_channels_last, variable
from populus.lowering.poplar.plan.indexed import multi_update, top_k
from populus.lowering.poplar.plan.reduction import reduce as plan_reduce
from populus.lowering.poplar.tile_builder import Connection, TileBuilder


def map_(op: MapOp, t: TileBuilder) -> Sequence[SSAValue]:
    """Lowers to one family in the layout of its output.

    In place, the output is an operand without later reads: the marked one, or else the first. Otherwise the
    output is a new variable with the layout of the largest operand, and channels last if all large operands have them so.
    """
    shape, element = op.y.type.get_shape(), op.y.type.element_type
    operands = [_aligned(t, t.view(o), len(shape)) for o in op.operands]
    inplace = _overwritten(t, operands, shape, element, op.attributes.get(INPLACE))
    grid = _followed(t, operands if inplace is None else [operands[inplace]], shape, element)
    y = variable(t, shape, element, grid, follow(operands, shape)) if inplace is None else operands[inplace]
    names = [f"d{i}" for i in range(len(shape))]
    fields: list[Connection] = []
    for i, x in enumerate(operands):
        assert isinstance(x.type, TensorType)
        access = [along(a) if n == m else Access() for a, n, m in zip(names, x.type.shape, shape)]
        fields.append(("inout" if i == inplace else "in", f"x{i + 1}", x, access))
    if inplace is None:
        fields.append(("out", "y", y, list(map(along, names))))
    domain = Domain(tuple(zip(names, grid.splits)), tuple(names[d] for d in grid.order), grid.start)
    t.execute("map", domain, fields, {"expr": op.expr})
    return [y]


def _aligned(t: TileBuilder, x: SSAValue, rank: int) -> SSAValue:
    """Adds leading dimensions of 1 to x, to align it with the result's dimensions."""
    assert isinstance(x.type, TensorType)
    return t.reshape(x, (1,) * (rank - len(x.type.shape)) + x.type.shape)


def _overwritten(
    t: TileBuilder, operands: Sequence[SSAValue], shape: Sequence[int], element: Attribute, mark: Attribute | None
) -> int | None:
    """Returns the number of the operand to overwrite: the marked one, or else the first possible one; None if there
    is none.
    """
    marked = mark.value.data if isinstance(mark, IntegerAttr) else None
    if marked is not None and marked < 0:
        return None
    for i, x in sorted(enumerate(operands), key=lambda numbered: numbered[0] != marked):
        if x.type != TensorType.of(shape, element) or not t.overwritable(x):
            continue
        same = [o for o in operands if root_of(o) is root_of(x)]
        if all(o.type == x.type and view_of(o) == view_of(x) for o in same):
            return i
    return None


def _followed(t: TileBuilder, operands: Sequence[SSAValue], shape: Sequence[int], element: Attribute) -> Grid:
    """Returns the layout of the largest operand that is spread widely enough; else a linear one."""
    spread = t.linear(shape, element)
    for x in operands:
        assert isinstance(x.type, TensorType)
        grid = t.layout_of(x) if x.type.shape == tuple(shape) else None
        if grid is not None and 2 * grid.cells >= spread.cells:
            return grid
    return spread


def reduce(op: ReduceOp, t: TileBuilder) -> Sequence[SSAValue]:
    """Lowers to a planned reduction."""
    x, rank = t.view(op.x), len(shape_of(op.x.type))
    if len(ints(op.dims)) == rank and has_channels_last(x):
        x = t.dim_shuffle(x, channels_last(rank))  # a tile then reduces neighbours
    return [plan_reduce(t, x, axes(ints(op.dims), rank), op.op.data, element_type_of(op.y.type))]


def reshape(op: ReshapeOp, t: TileBuilder) -> Sequence[SSAValue]:
    """Lowers to a view. If strides cannot express it, the producer writes in the result's order; else to a copy."""
    x, shape = t.view(op.x), op.y.type.get_shape()
    assert isinstance(x.type, TensorType)
    if view_of(x).reshape(shape) is None:
        y = t.first(shape, x.type.element, t.linear(shape, x.type.element))
        if t.move(x, y):
            return [y]
        Rewriter.erase_op(y.op)
    return [t.reshape(x, shape)]


def dim_shuffle(op: DimShuffleOp, t: TileBuilder) -> Sequence[SSAValue]:
    """Lowers to a view with permuted strides."""
    return [t.dim_shuffle(t.view(op.x), ints(op.permutation))]


def broadcast(op: BroadcastOp, t: TileBuilder) -> Sequence[SSAValue]:
    """Lowers to a view with strides of 0."""
    return [t.broadcast(t.view(op.x), ints(op.shape))]


def slice_(op: SliceOp, t: TileBuilder) -> Sequence[SSAValue]:
    """Lowers to a view of part of the variable."""
    return [t.slice(t.view(op.x), ints(op.begins), ints(op.ends), ints(op.steps))]


def concat(op: ConcatOp, t: TileBuilder, stacks: bool) -> Sequence[SSAValue]:
    """Lowers to a variable into which the producers write their slices; a slice whose producer cannot is copied."""
    shape, element, dim = op.y.type.get_shape(), op.y.type.element_type, op.dim
    if len(op.operands) == 1:
        return [t.view(op.operands[0])]
    last = all(has_channels_last(t.view(part)) for part in op.operands)
    order = channels_last(len(shape)) if last else list(range(len(shape)))
    back = [order.index(d) for d in range(len(order))]
    if stacks:  # with channels last too, in their order: their producers and the readers would else go across memory
        turned = [t.dim_shuffle(t.view(part), order) if last else t.view(part) for part in op.operands]
        stacked = stack(t, turned, [shape[d] for d in order], order.index(dim))
        if stacked is not None:
            return [t.dim_shuffle(stacked, back) if last else stacked]
    home = t.first([shape[d] for d in order], element, t.linear([shape[d] for d in order], element))
    begin = 0
    for part in op.operands:
        x = t.dim_shuffle(t.view(part), order)  # as it is now: a part before may have been the same value
        assert isinstance(x.type, TensorType)
        begins = [begin if d == dim else 0 for d in order]
        ends = [b + n for b, n in zip(begins, x.type.shape)]
        begin += x.type.shape[order.index(dim)]
        if not t.move(x, home, begins):
            t.copy(x, t.slice(home, begins, ends, [1] * len(shape)))
    return [t.dim_shuffle(home, back)]


def stack(t: TileBuilder, parts: Sequence[SSAValue], shape: Sequence[int], dim: int) -> SSAValue | None:
    """Concatenates variables of one shape and one layout, each of which keeps its tiles; returns None for others.

    The last of several may be shorter. The result is a view of a variable with a dimension of parts before `dim`, which is whole on
    each tile.
    """
    types = [cast("TensorType", x.type) for x in parts]
    element, most = types[0].element, types[0].shape[dim]
    same = parts[:-1] if len(parts) > 2 and types[-1].shape[dim] < most else parts
    grids = {t.layout_of(x) for x in same}
    grid = next(iter(grids))
    if len(grids) > 1 or grid is None or len({root_of(x) for x in parts}) < len(parts) or len({x.type for x in same}) > 1:
        return None
    inner = (*shape[:dim], len(parts), most, *shape[dim + 1 :])
    splits = (*grid.splits[:dim], Split(len(parts)), *grid.splits[dim:])
    home = t.first(inner, element, Grid(splits, tuple(d + (d >= dim) for d in grid.order), grid.start))
    for i, x in enumerate(parts):
        begins = [i if d == dim else 0 for d in range(len(inner))]
        own = types[i].shape[dim]
        ends = [i + 1 if d == dim else own if d == dim + 1 else n for d, n in enumerate(inner)]
        x = t.reshape(x, [1 if d == dim else own if d == dim + 1 else n for d, n in enumerate(inner)])
        if not t.move(x, home, begins):
            t.copy(x, t.slice(home, begins, ends, [1] * len(inner)))
    whole = t.reshape(home, [len(parts) * most if d == dim else n for d, n in enumerate(shape)])
    return whole if same is parts else t.slice(whole, [0] * len(shape), shape, [1] * len(shape))


def pad(op: PadOp, t: TileBuilder) -> Sequence[SSAValue]:
    """Fills the result with the value, then copies x into its place."""
    x, value = t.view(op.x), t.view(op.value)
    assert isinstance(x.type, TensorType)
    shape, element = op.y.type.get_shape(), x.type.element
    y = variable(t, shape, element, t.linear(shape, element), has_channels_last(x))
    constant = root_of(value).owner
    if isinstance(constant, ConstOp):
        t.fill(y, constant.scalar())
    else:
        t.copy(t.broadcast(value, shape), y)
    lower, interior = ints(op.lower), ints(op.interior)
    ends = [a + (n - 1) * (1 + c) + 1 if n else a for a, n, c in zip(lower, x.type.shape, interior)]
    t.copy(x, t.slice(y, lower, ends, [1 + c for c in interior]))
    return [y]


def multi_slice(op: MultiSliceOp, t: TileBuilder) -> Sequence[SSAValue]:
    """Gathers rows by index; each tile that gathers has the sliced dimension of its columns whole."""
    table, indices = t.view(op.table), t.view(op.indices)
    assert isinstance(table.type, TensorType)
    assert isinstance(indices.type, TensorType)
    dim, shape = op.dim, op.y.type.get_shape()
    rank, picked = len(table.type.shape), len(indices.type.shape)
    grid = t.linear(shape, table.type.element)
    names = [f"d{i}" for i in range(len(shape))]
    outer, inner, index = names[:dim], names[dim + picked :], names[dim : dim + picked]
    y = t.var(shape, table.type.element, grid)
    assert len(outer) + 1 + len(inner) == rank, (names, rank)
    domain = Domain(tuple(zip(names, grid.splits)), tuple(names[d] for d in grid.order))
    t.execute(
        "multi_slice",
        domain,
        [
            ("in", "table", table, [*map(along, outer), ALL, *map(along, inner)]),
            ("in", "indices", indices, list(map(along, index))),
            ("out", "y", y, list(map(along, names))),
        ],
    )
    return [y]


def codelet(op: CodeletOp, t: TileBuilder) -> Sequence[SSAValue]:
    """Lowers to one family whose vertices share out the outputs along the codelet's parallel axes."""
    code, views = op.code, [t.view(x) for x in op.operands]
    grid = _forced(op, t) or _unwound(op, t, views) or _shared(op, t)
    first = code.axes[code.outputs[0]]
    order = tuple(first[d] for d in grid.order)
    sizes = {a: n for v, x in zip(code.inputs, op.operands) for a, n in zip(code.axes[v], shape_of(x.type))}
    sizes |= {a: n for v, type in zip(code.outputs, op.types()) for a, n in zip(code.axes[v], shape_of(type))}
    splits = {**{a: Split(n) for a, n in sizes.items()}, **dict(zip(first, grid.splits))}
    fields: list[Connection] = [("in", v, x, list(map(along, code.axes[v]))) for v, x in zip(code.inputs, views)]
    results: list[SSAValue] = []
    for v, type in zip(code.outputs, op.types()):
        axes = code.axes[v]
        # All outputs have the axes that are cut.
        own = Grid(tuple(splits[a] for a in axes), tuple(axes.index(a) for a in order), grid.start)
        results.append(t.var(shape_of(type), element_type_of(type), own))
        fields.append(("out", v, results[-1], list(map(along, axes))))
    declare(op, CODELETS[code.symbol])
    t.execute(code.symbol, Domain(tuple(splits.items()), order, grid.start), fields, dict(op.params.data))
    return results


def _first(op: CodeletOp) -> tuple[tuple[str, ...], tuple[int, ...], Attribute]:
    """Returns axes, shape and element type of a codelet's first output, by which its vertices are laid out."""
    type = op.types()[0]
    return op.code.axes[op.code.outputs[0]], shape_of(type), element_type_of(type)


def _shared(op: CodeletOp, t: TileBuilder) -> Grid:
    """Spreads the codelet's parallel axes of the outputs over all tiles."""
    axes, shape, element = _first(op)
    cut = [d for d, a in enumerate(axes) if a in op.code.lanes]
    # The grain holds for the innermost dimension only.
    grain = t.target.grain(element) if cut and cut[-1] == len(shape) - 1 else 1
    shares = dict(zip(cut, linear(tuple(shape[d] for d in cut), t.target.tiles, grain).splits))
    return Grid(tuple(shares.get(d, Split(n)) for d, n in enumerate(shape)), tuple(d for d in cut if shares[d].parts > 1))


def _forced(op: CodeletOp, t: TileBuilder) -> Grid | None:
    """Returns the output's layout from `parts`; None without. Raises PopulusError for axes that cannot be cut, or
    too many parts.
    """
    if op.parts is None:
        return None
    if why := op.cut_problem():
        raise PopulusError(f"{where(op)}: {why}")
    axes, shape, _ = _first(op)
    splits = tuple(Split(n, op.cut.get(a, 1)) for a, n in zip(axes, shape))
    if (total := math.prod(s.parts for s in splits)) > t.target.tiles:
        cuts = " x ".join(f"{n} parts of axis {axis}" for axis, n in op.cut.items())
        tiles = f"{t.target.name} has {t.target.tiles} tiles, each of which runs one"
        raise PopulusError(f"{where(op)}: codelet {op.code.name} is to have {cuts}, {total} in all; {tiles}")
    return Grid(splits, tuple(d for d, s in enumerate(splits) if s.parts > 1))


def _unwound(op: CodeletOp, t: TileBuilder, views: Sequence[SSAValue]) -> Grid | None:
    """Returns the output's layout in which vertices work where the largest suitable operand is; None if there is
    none.
    """
    code, (axes, shape, _), spread = op.code, _first(op), _shared(op, t)
    by_size = sorted(zip(code.inputs, views), key=lambda pair: -math.prod(view_of(pair[1]).shape))
    for vector, x in by_size:
        grid = t.layout_of(x)
        if grid is None or 2 * grid.cells < spread.cells:
            continue
        order = [d for d in grid.order if grid.splits[d].parts > 1]
        cut = {code.axes[vector][d]: grid.splits[d] for d in order}
        if len(cut) == len(order) and all(a in code.lanes and a in axes for a in cut):
            splits = tuple(cut.get(a, Split(n)) for a, n in zip(axes, shape))
            return Grid(splits, tuple(axes.index(a) for a in cut), grid.start)
    return None


def iota(op: IotaOp, t: TileBuilder) -> Sequence[SSAValue]:
    """Lowers to one family; each element is computed from its index."""
    shape, element = op.y.type.get_shape(), element_type_of(op.y.type)
    grid = t.linear(shape, element)
    y = t.var(shape, element, grid)
    domain = Domain((("d0", grid.splits[0]),), ("d0",) if grid.order else ())
    t.execute("iota", domain, [("out", "y", y, [along("d0")])], {"start": op.start, "step": op.step})
    return [y]


@dataclass(frozen=True)
class PopopsToPoplarPass(ToPoplarPass):
    """Lowers maps, reductions, gathers and rearrangements to families, views and copies.

    `stack`: concatenated parts of one shape and one layout keep it; otherwise each part moves to where its place in the result
    is when the result is spread over the tiles. To rounding.
    """

    name = "popops-to-poplar"
    stack: bool = True
    RULES = {
        BroadcastOp: broadcast,
        CodeletOp: codelet,
        DimShuffleOp: dim_shuffle,
        IfOp: branch,
        IotaOp: iota,
        LoopOp: loop,
        MapOp: map_,
        MultiSliceOp: multi_slice,
        MultiUpdateOp: multi_update,
        PadOp: pad,
        ReduceOp: reduce,
        ReshapeOp: reshape,
        SliceOp: slice_,
        TopKOp: top_k,
        YieldOp: end_of_region,
    }

    def rules(self, graph: GraphOp) -> Mapping[type[Operation], Rule]:
        return {**self.RULES, ConcatOp: partial(concat, stacks=self.stack)}
