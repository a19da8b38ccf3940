"""A `popart.loop` in a conversion, with a body that a Python function builds."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from xdsl.builder import Builder
from xdsl.dialects.builtin import UnknownLoc
from xdsl.ir import Block, Region, SSAValue
from xdsl.rewriter import InsertPoint

from populus.dialects import popart
from populus.dialects.base.control_flow import INDEX
from populus.lowering.onnx.to_popart.conversion import Conversion

Body = Callable[[Conversion, SSAValue, "list[SSAValue]"], "list[SSAValue]"]


def loop(c: Conversion, carried: Sequence[SSAValue], trips: int, body: Body) -> list[SSAValue]:
    """Inserts a loop of `trips` iterations, and gives the carried values after the last.

    `body`: computes the next carried values from a conversion inside the loop, the iteration number and the
    present values.
    """
    block = Block(arg_types=[INDEX, *(v.type for v in carried)])
    inner = c.at(Builder(InsertPoint.at_end(block)))
    index, *states = block.args
    end = popart.YieldOp(*body(inner, index, list(states)))
    end.location = c.op.location
    block.add_op(end)
    op = popart.LoopOp(carried, Region(block), trips=trips)
    assert isinstance(op.location, UnknownLoc), op
    op.location = c.op.location
    return list(c.builder.insert(op).results)
