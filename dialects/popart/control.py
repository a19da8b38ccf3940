"""Branches and loops of a model: `popart.if` and `popart.loop`, whose regions hold ops of this level."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.builder import Builder
from xdsl.ir import Region, SSAValue
from xdsl.irdl import irdl_op_definition

from populus.dialects import popops
from populus.dialects.control import Branch, Control, Loop, Yield
from populus.dialects.popart import calls
from populus.dialects.popart.base import PopartOp


@irdl_op_definition
class YieldOp(Yield):
    """What a region gives to its `popart.if` or `popart.loop`."""

    name = "popart.yield"


class ControlOp(Control, PopartOp):
    """What `popart.if` and `popart.loop` share."""

    def lowered(self, region: Region) -> Region:
        """A region for the op of the level below; what is in it is lowered there."""
        block = region.block
        end = block.last_op
        assert isinstance(end, Yield), end
        new = popops.YieldOp(*end.operands)
        new.location = end.location
        block.insert_op_before(new, end)
        end.detach()
        end.erase()
        moved = Region()
        region.move_blocks(moved)
        return moved


@irdl_op_definition
class IfOp(Branch, ControlOp):
    """One of two regions, by a condition; only the one that is taken is computed. Source: ONNX If-25."""

    name = "popart.if"

    def lower(self, b: Builder) -> Sequence[SSAValue]:
        return b.insert(popops.IfOp(self.condition, self.lowered(self.then), self.lowered(self.otherwise))).results


@irdl_op_definition
class LoopOp(Loop, ControlOp):
    """A region run again and again: values carried on, rows of tables read, rows of tables made. Source: ONNX Loop-25, Scan-25."""

    name = "popart.loop"

    def lower(self, b: Builder) -> Sequence[SSAValue]:
        if self.most == 0:
            rows = self.results[len(self.carried) :]
            return [*self.carried, *(calls.fill(b, 0, calls.element(r), calls.shape(r)) for r in rows)]
        body = self.lowered(self.body)
        return b.insert(popops.LoopOp(self.carried, body, trips=self.most, scanned=self.tables, go=self.go)).results
