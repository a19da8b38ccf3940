"""Branches and loops of library calls: PopLibs' `countedLoop`, poplar's `If` and `RepeatWhileTrue`."""

from __future__ import annotations

from xdsl.irdl import irdl_op_definition

from populus.dialects.base.control_flow import Branch, Loop, Yield


@irdl_op_definition
class YieldOp(Yield):
    """The terminator of a region of `popops.if` or `popops.loop`: passes the region's results to the op."""

    name = "popops.yield"


@irdl_op_definition
class IfOp(Branch):
    """One of two regions, by a condition."""

    name = "popops.if"


@irdl_op_definition
class LoopOp(Loop):
    """A region run again and again: values carried on, rows of tables read, rows of tables made."""

    name = "popops.loop"
