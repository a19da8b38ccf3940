"""Functions in codelets that native kernels compute by formulas: `exp`, `log`, `tanh` and `erf` of f32, and 16-bit floats."""

from __future__ import annotations

import numpy as np
from xdsl.builder import Builder
from xdsl.dialects import func, math
from xdsl.dialects.builtin import ModuleOp, bf16, f16, f32
from xdsl.ir import Operation, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from populus.dialects.expr import Arg, erf
from populus.dialects.support.element_types import dtype_of
from populus.runtime.engine.native.kernels.formulas import Formula
from populus.runtime.engine.native.kernels.native_support import HALVES
from populus.runtime.tape import tape_of

WIDEN, NARROW = "widen_", "narrow_"  # before the name of a 16-bit type: functions from its bits to f32, and back
_F32 = np.dtype(np.float32)


def expand(module: ModuleOp) -> None:
    """Replaces these functions by the ops of their formulas."""
    for op in [op for op in module.walk() if op is not module]:
        value = _expanded(op)
        if value is not None:
            Rewriter.replace_op(op, [], [value])
    for op in list(module.body.block.ops):
        if isinstance(op, func.FuncOp) and op.sym_name.data.startswith((WIDEN, NARROW)):
            Rewriter.erase_op(op)


def _expanded(op: Operation) -> SSAValue | None:
    formula = Formula(Builder(InsertPoint.before(op)).insert)
    match op:
        case math.ExpOp() if op.result.type == f32:
            return formula.exp(op.operand)
        case math.LogOp() if op.result.type == f32:
            return formula.log(op.operand)
        case math.TanhOp() if op.result.type == f32:
            return formula.tanh(op.operand)
        case math.ErfOp() if op.result.type == f32:
            return formula.run(tape_of(erf(Arg(1)), (_F32,)), [op.operand])
        case func.CallOp():
            name = op.callee.string_value()
            for half in HALVES:
                dtype = dtype_of(f16 if half == "float16" else bf16)
                if name == f"{WIDEN}{half}":
                    return formula.widened(op.operands[0], dtype)
                if name == f"{NARROW}{half}":
                    return formula.narrowed(op.operands[0], dtype)
            return None
        case _:
            return None
