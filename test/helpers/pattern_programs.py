"""The programs of the patterns' FileCheck tests, and a pattern that is wrong."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import SSAValue

from populus.dialects import popart
from populus.dialects.data import ConstantOp
from populus.dialects.support.element_types import element_type_of, is_float
from populus.dialects.table import context
from populus.lowering.driver.files import parse_text
from populus.lowering.popart.patterns import PATTERNS
from populus.lowering.popart.rewriting import BlockRewriter

FOLDER = Path(__file__).parents[1] / "filecheck" / "lowering" / "popart-fuse"


def programs() -> list[ModuleOp]:
    """Reads the programs of the patterns' FileCheck tests; the first function of each becomes @main."""
    found: list[ModuleOp] = []
    for path in sorted(FOLDER.glob("*.mlir")):
        if "invalid" not in path.name:
            found += [parse_text(context(), part, path.name) for part in path.read_text().split("// -----")]
    return [main for module in found for op in module.body.block.ops if isinstance(op, FuncOp) for main in [alone(module, op)]]


def alone(module: ModuleOp, function: FuncOp) -> ModuleOp:
    copy = function.clone()
    copy.properties["sym_name"] = type(function.sym_name)("main")
    return ModuleOp([copy])


PROGRAMS = programs()


def negated(r: Any, value: SSAValue) -> SSAValue:
    return r.insert(popart.NegOp(value))


Change = Callable[[Any, SSAValue], SSAValue]


def plant(patch: pytest.MonkeyPatch, name: str, change: Change) -> list[int]:
    """Makes a pattern change a float that it gives, once in each walk of a block; counts the changes."""
    pattern, here, total = PATTERNS[name](), [0], [0]
    right, run = pattern.rewrite, BlockRewriter.run

    def rewrite(self: Any, op: Any, r: Any) -> Any:
        values = right(self, op, r)
        if not values or here[0] or isinstance(values[0].owner, ConstantOp) or not is_float(element_type_of(values[0].type)):
            return values
        here[0] += 1
        total[0] += 1
        return [change(r, values[0]), *values[1:]]

    def walk(self: BlockRewriter) -> Any:
        here[0] = 0
        return run(self)

    patch.setattr(pattern, "rewrite", rewrite)
    patch.setattr(BlockRewriter, "run", walk)
    return total


NEGATED = (
    *("OpToIdentity", "CastOfWiderCast", "ViewSimplify", "TransposeToIdentityOrReshape", "TransposeThroughElementwise", "SliceOfSlice"),
    *("SliceOfConcat", "ConcatOfSlices", "ConcatOfConcat", "ExpandCast", "Softmax", "LogOfSoftmax", "NormScale", "LayerNorm", "RmsNorm"),
    *("Activation", "Attention", "PadIntoConv", "BatchNormIntoConv", "FactorIntoConv", "TermIntoConv", "FactorIntoBatchNorm"),
    "TermIntoBatchNorm",
)
"""Patterns that give floats other than constants, and need no other pattern before them."""
