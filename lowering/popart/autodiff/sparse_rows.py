"""Gradients of weights that are only looked up: the rows that were, instead of a table that is zero elsewhere."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from xdsl.builder import Builder
from xdsl.dialects.builtin import i64
from xdsl.dialects.func import ReturnOp
from xdsl.ir import Block, SSAValue

from populus.dialects import popart
from populus.dialects.expr import Arg, cast, equal, select
from populus.dialects.popart import calls
from populus.dialects.popart.matmul import product
from populus.dialects.popops import MultiSliceOp, MultiUpdateOp
from populus.dialects.support.diagnostics import PopulusError


def lookups(name: str, weight: SSAValue) -> list[popart.GatherOp]:
    """The ops that look rows of a weight up. Raises PopulusError if something else reads it."""
    block, readers = weight.owner, {use.operation for use in weight.uses}
    assert isinstance(block, Block), weight
    for op in readers:
        looks_up = isinstance(op, popart.GatherOp) and op.axis == 0 and op.x is weight and op.parent is block
        if not looks_up and not isinstance(op, ReturnOp):
            raise PopulusError(f"'{name}' is read by {op.name} too, not only looked up by rows, so its gradient is not sparse")
    found = [op for op in block.ops if op in readers and isinstance(op, popart.GatherOp)]
    if not found:
        raise PopulusError(f"nothing looks up rows of '{name}', so its gradient is not sparse")
    return found


def rows_of(b: Builder, found: Sequence[popart.GatherOp], gradients: Sequence[SSAValue]) -> tuple[SSAValue, SSAValue]:
    """The numbers of all rows that were looked up, [m], i64, and the gradients of each, [m, ..]."""
    n, *rest = calls.shape(found[0].x)
    indices: list[SSAValue] = []
    rows: list[SSAValue] = []
    for op, gradient in zip(found, gradients):
        count = math.prod(calls.shape(op.indices))
        at = calls.map(b, cast(Arg(1), i64), op.indices) if calls.element(op.indices) != i64 else op.indices
        at = calls.map(b, select(Arg(1) + n, Arg(1), Arg(1) < 0), at)
        indices.append(calls.reshape(b, at, (count,)))
        rows.append(calls.reshape(b, gradient, (count, *rest)))
    return calls.concat(b, indices, 0), calls.concat(b, rows, 0)


def merged(b: Builder, indices: SSAValue, rows: SSAValue) -> tuple[SSAValue, SSAValue]:
    """For each row the sum of all of its number, so that those of one number are equal; and a matrix of 1 where two have one, [m, m]."""
    (m,) = calls.shape(indices)
    element = calls.element(rows)
    same = calls.map(b, cast(equal(Arg(1), Arg(2)), element), calls.reshape(b, indices, (m, 1)), calls.reshape(b, indices, (1, m)))
    total = product(b, same, calls.reshape(b, rows, (m, math.prod(calls.shape(rows)[1:]))))
    return calls.reshape(b, total, calls.shape(rows)), same


def updated_rows(
    b: Builder, indices: SSAValue, tables: Sequence[SSAValue], update: Callable[[Sequence[SSAValue]], Sequence[SSAValue]]
) -> list[SSAValue]:
    """Tables in which the rows of these numbers are what `update` makes of them. Scalars, which have no rows, are passed as they are."""
    picked = [calls.insert(b, MultiSliceOp(t, indices, dim=0)) if calls.shape(t) else t for t in tables]
    return [
        calls.insert(b, MultiUpdateOp(table, indices, new, op="set")) if calls.shape(table) else new
        for table, new in zip(tables, update(picked))
    ]
