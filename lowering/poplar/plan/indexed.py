"""Lowering of indexed row updates and of sorted rows."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import i32
from xdsl.ir import SSAValue

from populus.dialects.poplar.partition import ALL, Domain, Grid, Split, along
from populus.dialects.poplar.types import TensorType
from populus.dialects.popops.indexed import MultiUpdateOp, TopKOp
from populus.lowering.poplar.tile_builder import TileBuilder


def multi_update(op: MultiUpdateOp, t: TileBuilder) -> Sequence[SSAValue]:
    """Spreads the table; every tile reads all indices, and the columns of the updates for its rows."""
    table, indices, updates = (t.view(o) for o in op.operands)
    assert isinstance(table.type, TensorType)
    shape, element = table.type.shape, table.type.element
    grid = t.linear(shape, element)
    y = t.var(shape, element, grid)
    names = [f"d{i}" for i in range(len(shape))]
    domain = Domain(tuple(zip(names, grid.splits)), tuple(names[d] for d in grid.order))
    fields = [
        ("in", "table", table, list(map(along, names))),
        ("in", "indices", indices, [ALL]),
        ("in", "updates", updates, [ALL, *map(along, names[1:])]),
        ("out", "y", y, list(map(along, names))),
    ]
    t.execute("multi_update", domain, fields, {"op": op.op})
    return [y]


def top_k(op: TopKOp, t: TileBuilder) -> Sequence[SSAValue]:
    """Spreads the rows; each row is on one tile."""
    x = t.view(op.x)
    assert isinstance(x.type, TensorType)
    *outer, _ = x.type.shape
    k = op.k
    rows = t.linear(outer, x.type.element)
    splits = (*rows.splits, Split(k))
    y = t.var((*outer, k), i32, Grid(splits, rows.order, rows.start))
    names = [*(f"d{i}" for i in range(len(outer))), "k"]
    domain = Domain(tuple(zip(names, splits)), tuple(names[d] for d in rows.order))
    lead = list(map(along, names[:-1]))
    t.execute("top_k", domain, [("in", "x", x, [*lead, ALL]), ("out", "y", y, [*lead, along("k")])], {"largest": op.properties["largest"]})
    return [y]
