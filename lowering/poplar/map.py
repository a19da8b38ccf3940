"""Mapping (`poplar-map`): layouts of variables and constants without one, such as a model's inputs and weights."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from zlib import crc32

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue
from xdsl.passes import ModulePass

from populus.dialects.poplar import CallOp, FamilyOp, Field, FuncOp, GraphOp, GridAttr, SliceOp, StorageOp, StreamInOp, ViewOp
from populus.dialects.poplar.memory import view_of
from populus.dialects.poplar.partition import Grid, Split, linear
from populus.dialects.poplar.target import Target
from populus.lowering.poplar.plan.layout import as_accessed, shared


@dataclass(frozen=True)
class PoplarMapPass(ModulePass):
    """Gives a grid to every variable and constant without one.

    The grid is the cut of the family that works most on the variable, if that family's tiles have disjoint parts;
    the family then moves none of it. Otherwise the next family decides. If the tiles of all share parts, each part is cut
    among those that read it; a dimension whose slices are read in several steps is then not
    cut. `shared=false` leaves both out. At last, the variable is spread over the tiles. Bit for bit.
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
    stepped = _stepped(op) if several else None
    families = sorted(connections(op.result), key=lambda c: -math.prod(s.n for _, s in c[0].space.axes))
    for rule in (as_accessed, shared) if several else (as_accessed,):
        for family, field, value in families:
            grid = rule(family, field, value)
            if grid is None or grid.problem(op.type.shape, target.tiles) is not None:
                continue
            if stepped is None or grid.splits[stepped].parts == 1:
                return grid
    return spread(op, target, stepped)


def connections(value: SSAValue) -> Iterator[tuple[FamilyOp, Field, SSAValue]]:
    """Yields the families with a variable as a field, directly or through views, in program order."""
    for use in value.uses:
        user = use.operation
        if isinstance(user, ViewOp):
            yield from connections(user.y)
        elif isinstance(user, FamilyOp):
            yield user, user.fields.data[use.index], value


def spread(op: StorageOp, target: Target, stepped: int | None = None) -> Grid:
    """Spreads a variable over the tiles. One that needs few starts at a tile derived from its label, not always at
    0. `stepped`: the dimension whose slices steps read, each of which is spread if that takes most tiles.
    """
    shape, grain = op.type.shape, target.grain(op.type.element)
    grid = linear(shape, target.tiles, grain)
    for finer in (grain, 1) if stepped is not None else ():
        across = linear(tuple(1 if d == stepped else n for d, n in enumerate(shape)), target.tiles, finer)
        if 2 * across.cells > grid.cells:
            return replace(across, splits=tuple(Split(n) if d == stepped else s for d, (n, s) in enumerate(zip(shape, across.splits))))
    if grid.cells == target.tiles:
        return grid
    return Grid(grid.splits, grid.order, crc32(op.label.data.encode()) % target.tiles)


def _stepped(op: StorageOp) -> int | None:
    """Finds the dimension of which all readers see parts, as serial steps do, so that a cut of it keeps tiles idle; None if none."""
    seen: set[int] = set()
    readers = [use.operation for use in op.result.uses if not isinstance(use.operation, StreamInOp)]
    for reader in readers:
        if not isinstance(reader, SliceOp):
            return None
        seen |= {d for d, (n, m) in enumerate(zip(op.type.shape, view_of(reader.y).shape)) if m < n}
    return seen.pop() if len(readers) > 1 and len(seen) == 1 else None
