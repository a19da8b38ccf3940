"""The default engine: native code, except for small programs, which NumPy finishes before their kernels are compiled."""

from __future__ import annotations

import math

from xdsl.ir import Block, Operation

from populus.dialects.poplar.compute import ExecuteOp
from populus.dialects.poplar.program import CallOp, FuncOp, GraphOp, RepeatOp, WhileOp
from populus.dialects.support.diagnostics import PopulusError


class NoMachineCodeError(PopulusError):
    """The compiler is missing, or does not support this CPU."""


SMALL = 1_000_000  # iteration points: about 1 ms on the numpy engine, while one kernel takes about 20 ms to compile
TURNS = 16  # assumed iterations of a while loop without a stated bound


def points(graph: GraphOp) -> int:
    """Counts the iteration points of all families in one run of the program; loops count each iteration."""
    return _block(graph.body.block)


def is_small(graph: GraphOp) -> bool:
    """Tells if one run has fewer than SMALL iteration points, so that compiling would take longer than many runs."""
    return points(graph) < SMALL


def _block(block: Block) -> int:
    return sum(_points(op) for op in block.ops if not isinstance(op, FuncOp))


def _points(op: Operation) -> int:
    match op:
        case ExecuteOp():
            return sum(math.prod(split.n for split in family.space.splits.values()) for family in op.families())
        case CallOp():
            return _block(op.target().body.block)
        case _:
            turns = op.count.value.data if isinstance(op, RepeatOp) else op.turns or TURNS if isinstance(op, WhileOp) else 1
            return turns * sum(_block(block) for region in op.regions for block in region.blocks)
