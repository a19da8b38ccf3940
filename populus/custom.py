"""Everything for an op or a pass of your own, under one name: `from populus.custom import *`, or the names that you need.

@irdl_op_definition
class CubeOp(UnaryOp):
    \"\"\"`y = x^3`. Source: a book.\"\"\"

    name = "acme.cube"

    def forward(self, x):
        return x * x * x
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp, TensorType, bf16, f16, f32, f64, i1, i8, i32, i64
from xdsl.ir import Operation, SSAValue
from xdsl.irdl import irdl_op_definition, operand_def, opt_operand_def, result_def, var_operand_def, var_result_def
from xdsl.passes import ModulePass
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern
from xdsl.rewriter import Rewriter

from populus.dialects import popart
from populus.dialects.expr import (
    Arg,
    Expr,
    absolute,
    cast,
    ceil,
    clamp,
    cos,
    equal,
    erf,
    exp,
    floor,
    log,
    maximum,
    minimum,
    rsqrt,
    select,
    sigmoid,
    sin,
    sqrt,
    tanh,
)
from populus.dialects.popart import NoGradient, calls
from populus.dialects.popart.array import array
from populus.dialects.popart.base import BinaryOp, ElementwiseOp, PopartOp, UnaryOp
from populus.dialects.popart.examples import Examples, Input
from populus.dialects.poplar.tile_code import BoolVector, IntVector, Vector, bools, codelet, floats, ints, random_bits, uniform
from populus.dialects.support.constraints import choice, elements, flag, number, numbers, tensors, text, texts, whole, wholes
from populus.dialects.support.diagnostics import PopulusError
from populus.dialects.support.element_types import element_type_of, shape_of, tensor, ui8, ui32
from populus.lowering.popart.rewriting import Pattern, Rewriting, made_by
from populus.write.builder import function_of

__all__ = [
    "Arg",
    "BinaryOp",
    "BoolVector",
    "ClassVar",
    "Context",
    "ElementwiseOp",
    "Examples",
    "Expr",
    "Input",
    "IntVector",
    "ModuleOp",
    "ModulePass",
    "NoGradient",
    "Operation",
    "Pattern",
    "PatternRewriter",
    "PopartOp",
    "PopulusError",
    "RewritePattern",
    "Rewriter",
    "Rewriting",
    "SSAValue",
    "Sequence",
    "TensorType",
    "UnaryOp",
    "Vector",
    "absolute",
    "array",
    "bf16",
    "bools",
    "calls",
    "cast",
    "ceil",
    "choice",
    "clamp",
    "codelet",
    "cos",
    "dataclass",
    "element_type_of",
    "elements",
    "equal",
    "erf",
    "exp",
    "f16",
    "f32",
    "f64",
    "flag",
    "floats",
    "floor",
    "function_of",
    "i1",
    "i8",
    "i32",
    "i64",
    "ints",
    "irdl_op_definition",
    "log",
    "made_by",
    "maximum",
    "minimum",
    "number",
    "numbers",
    "operand_def",
    "opt_operand_def",
    "popart",
    "random_bits",
    "result_def",
    "rsqrt",
    "select",
    "shape_of",
    "sigmoid",
    "sin",
    "sqrt",
    "tanh",
    "tensor",
    "tensors",
    "text",
    "texts",
    "ui8",
    "ui32",
    "uniform",
    "var_operand_def",
    "var_result_def",
    "whole",
    "wholes",
]
