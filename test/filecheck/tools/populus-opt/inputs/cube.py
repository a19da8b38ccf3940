"""An op of a user, and a pass over it."""

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import FloatAttr, ModuleOp, f32
from xdsl.irdl import irdl_op_definition, prop_def
from xdsl.passes import ModulePass

from populus.dialects.expr import Expr
from populus.dialects.popart.base import UnaryOp


@irdl_op_definition
class CubeOp(UnaryOp):
    """`y = factor * x^3`."""

    name = "custom.cube"
    factor = prop_def(FloatAttr)

    def forward(self, x: Expr) -> Expr:
        return x * x * x * self.factor.value.data


@dataclass(frozen=True)
class CustomHalfPass(ModulePass):
    """Halves every factor."""

    name = "custom-half"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for cube in op.walk():
            if isinstance(cube, CubeOp):
                cube.factor = FloatAttr(cube.factor.value.data / 2, f32)
