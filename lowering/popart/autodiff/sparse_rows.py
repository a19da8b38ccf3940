"""Sparse gradients of weights that are only looked up: gradients of the rows read, not of the whole table."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from xdsl.builder import Builder
from xdsl.dialects.builtin import f32, i64
from xdsl.dialects.func import ReturnOp
from xdsl.ir import Block, SSAValue

from populus.dialects import popart
from populus.dialects.expr import Arg, cast, select
from populus.dialects.popart import calls
from populus.dialects.popart.sparse import first_places
from populus.dialects.popops import MultiSliceOp, MultiUpdateOp
from populus.dialects.support.diagnostics import PopulusError


def lookups(name: str, weight: SSAValue) -> list[popart.GatherOp]:
    """Lists the ops that look up rows of a weight. Raises PopulusError if another op reads it, or none looks it up."""
    block, readers = weight.owner, {use.operation for use in weight.uses}
    assert isinstance(block, Block), weight
    for op in readers:
        looks_up = isinstance(op, popart.GatherOp) and op.axis == 0 and op.x is weight and op.parent is block
        if not looks_up and not isinstance(op, ReturnOp):
            raise PopulusError(f"'{name}' is read by {op.name} too, not only looked up by rows, so its gradient is not sparse")
    gathers = [op for op in block.ops if op in readers and isinstance(op, popart.GatherOp)]
    if not gathers:
        raise PopulusError(f"nothing looks up rows of '{name}', so its gradient is not sparse")
    return gathers


def rows_of(b: Builder, gathers: Sequence[popart.GatherOp], gradients: Sequence[SSAValue]) -> tuple[SSAValue, SSAValue]:
    """Concatenates the numbers of all rows looked up, [m], i64, and their gradients, [m, ..]."""
    n, *rest = calls.shape(gathers[0].x)
    indices: list[SSAValue] = []
    rows: list[SSAValue] = []
    for op, gradient in zip(gathers, gradients):
        count = math.prod(calls.shape(op.indices))
        at = calls.map(b, cast(Arg(1), i64), op.indices) if calls.element(op.indices) != i64 else op.indices
        at = calls.map(b, select(Arg(1) + n, Arg(1), Arg(1) < 0), at)
        indices.append(calls.reshape(b, at, (count,)))
        rows.append(calls.reshape(b, gradient, (count, *rest)))
    return calls.concat(b, indices, 0), calls.concat(b, rows, 0)


def merged(b: Builder, indices: SSAValue, rows: SSAValue, size: int) -> tuple[SSAValue, SSAValue]:
    """Replaces each row by the sum of the rows of equal number; also returns where the first of these stands, [m].

    `size`: the rows of the table, which the numbers are below.
    """
    place = first_places(b, indices, size)
    return _summed(b, place, rows), place


def occurrences(b: Builder, place: SSAValue) -> SSAValue:
    """Counts the rows of equal number for each row, from where the first of these stands: [m], f32."""
    return _summed(b, place, calls.fill(b, 1, f32, calls.shape(place)))


def _summed(b: Builder, place: SSAValue, rows: SSAValue) -> SSAValue:
    return calls.insert(b, MultiSliceOp(calls.added_rows(b, calls.shape(rows)[0], place, rows), place, dim=0))


def updated_rows(
    b: Builder, indices: SSAValue, tables: Sequence[SSAValue], update: Callable[[Sequence[SSAValue]], Sequence[SSAValue]]
) -> list[SSAValue]:
    """Replaces the rows of these numbers in each table by the results of `update`. Scalars have no rows and stay
    whole.
    """
    picked = [calls.insert(b, MultiSliceOp(t, indices, dim=0)) if calls.shape(t) else t for t in tables]
    return [
        calls.insert(b, MultiUpdateOp(table, indices, new, op="set")) if calls.shape(table) else new
        for table, new in zip(tables, update(picked))
    ]
