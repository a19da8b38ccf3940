"""Lowering of `gcl`: a collective is a step of the program, between the exchanges of its neighbours."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from xdsl.ir import SSAValue

from populus.dialects import gcl
from populus.dialects.base.tensor_op import TensorOp
from populus.dialects.poplar.outside import CollectiveOp
from populus.dialects.support.element_types import element_type_of, shape_of
from populus.lowering.poplar.graph import ToPoplarPass
from populus.lowering.poplar.tile_builder import TileBuilder


def collective(op: TensorOp, t: TileBuilder) -> Sequence[SSAValue]:
    """Lowers to one `poplar.collective` into a variable of its own."""
    (result,) = op.results
    shape, element = shape_of(result.type), element_type_of(result.type)
    params = {name: value for name, value in op.properties.items() if name not in ("shape", "element")}  # the result's view has them
    y = t.var(shape, element, t.linear(shape, element))
    t.insert(CollectiveOp(op.name.removeprefix("gcl."), [t.view(x) for x in op.operands], [y], params))
    return [y]


@dataclass(frozen=True)
class GclToPoplarPass(ToPoplarPass):
    """Lowers collectives of replicas to steps of the program. To rounding."""

    name = "gcl-to-poplar"
    RULES: ClassVar = dict.fromkeys(gcl.OPS, collective)
