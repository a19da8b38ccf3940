"""Declarations (`poplar-declare`): all codelets of a tile program as symbols of its module, for a text that travels."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from populus.dialects.poplar import FamilyOp
from populus.dialects.poplar.declared import declare


@dataclass(frozen=True)
class PoplarDeclarePass(ModulePass):
    """Adds the contract of each codelet of ours that families name. Codelets in Python are symbols from their lowering on.

    Another version that has another contract for one refuses the text.
    """

    name = "poplar-declare"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        named = {family.codelet.data: family.declaration for family in op.walk() if isinstance(family, FamilyOp)}
        for name in sorted(named, reverse=True):
            declare(op, named[name])
