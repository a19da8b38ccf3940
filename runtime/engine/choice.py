"""Which engine runs a program where none is named: native code, but for small programs, which would be done before it is compiled."""

from __future__ import annotations

import math

from xdsl.ir import Block, Operation

from populus.dialects.poplar.compute import ExecuteOp
from populus.dialects.poplar.program import CallOp, FuncOp, GraphOp, RepeatOp, WhileOp
from populus.dialects.support.diagnostics import PopulusError


class NoMachineCodeError(PopulusError):
    """There is no compiler here, or none for this CPU."""


SMALL = 1_000_000  # points of iteration: about a millisecond on the numpy engine; a kernel takes some 20 ms to compile
TURNS = 16  # how often a while is taken to run


def points(graph: GraphOp) -> int:
    """How many points the families' iteration spaces have in one run, each as often as it is gone through."""
    return _block(graph.body.block)


def is_small(graph: GraphOp) -> bool:
    """Whether compiling the program's kernels would take longer than hundreds of its runs."""
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
