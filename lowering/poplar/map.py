"""Mapping (`poplar-map`): layouts of variables and constants without one, such as a model's inputs and weights."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from zlib import crc32

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue
from xdsl.passes import ModulePass

from populus.dialects.poplar import CallOp, FamilyOp, Field, FuncOp, GraphOp, GridAttr, StorageOp, ViewOp
from populus.dialects.poplar.partition import Grid, linear
from populus.dialects.poplar.target import Target
from populus.lowering.poplar.plan.layout import as_accessed, shared


@dataclass(frozen=True)
class PoplarMapPass(ModulePass):
    """Gives a grid to every variable and constant without one.

    The grid is the cut of the family that works most on the variable, if that family's tiles have disjoint parts;
    the family then moves none of it. Otherwise the next family decides. If the tiles of all share parts, each part is cut
    among those that read it; `shared=false` leaves this out. At last, the variable is spread over the tiles. Bit for bit.
    """

    name = "poplar-map"
    shared: bool = True

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for graph in op.body.block.ops:
            if isinstance(graph, GraphOp):
                target = graph.machine
                functions = [op for op in graph.body.block.ops if isinstance(op, FuncOp)]
                for part in (*callees_first(functions), graph):  # parameters before arguments
                    for inner in part.walk():
                        if isinstance(inner, StorageOp) and inner.grid is None and inner.outside is None:
                            inner.grid = GridAttr(grid_for(inner, target, self.shared))


def callees_first(functions: Sequence[FuncOp]) -> list[FuncOp]:
    """Orders functions so that each comes after its callees."""
    done: dict[FuncOp, None] = {}

    def visit(function: FuncOp) -> None:
        """Visits a function after its callees."""
        if function not in done:
            for op in function.walk():
                if isinstance(op, CallOp):
                    visit(op.target())
            done[function] = None

    for function in functions:
        visit(function)
    return list(done)


def grid_for(op: StorageOp, target: Target, several: bool = True) -> Grid:
    """Chooses a layout: its parameter's, or that of its heaviest family with disjoint parts, or with shared parts if `several`, or
    else spread.
    """
    for use in op.result.uses:
        if isinstance(use.operation, CallOp):
            parameter = use.operation.target().parameters()[use.index]
            if parameter.grid is not None:
                return parameter.grid.data
    families = sorted(connections(op.result), key=lambda c: -math.prod(s.n for _, s in c[0].space.axes))
    for rule in (as_accessed, shared) if several else (as_accessed,):
        for family, field, value in families:
            grid = rule(family, field, value)
            if grid is not None and grid.problem(op.type.shape, target.tiles) is None:
                return grid
    return spread(op, target)


def connections(value: SSAValue) -> Iterator[tuple[FamilyOp, Field, SSAValue]]:
    """Yields the families with a variable as a field, directly or through views, in program order."""
    for use in value.uses:
        user = use.operation
        if isinstance(user, ViewOp):
            yield from connections(user.y)
        elif isinstance(user, FamilyOp):
            yield user, user.fields.data[use.index], value


def spread(op: StorageOp, target: Target) -> Grid:
    """Spreads a variable over the tiles. One that needs few starts at a tile derived from its label, not always at
    0.
    """
    shape = op.type.shape
    grid = linear(shape, target.tiles, target.grain(op.type.element))
    if grid.cells == target.tiles:
        return grid
    return Grid(grid.splits, grid.order, crc32(op.label.data.encode()) % target.tiles)
