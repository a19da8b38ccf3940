"""`codelet-to-llvm`: functions on the elements of one tile become LLVM's dialect."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass


@dataclass(frozen=True)
class CodeletToLlvmPass(ModulePass):
    """Lowers `func`, `arith`, `math`, `scf` and `memref` to `llvm`, as the native engine does with each formula.

    Pointer arguments never overlap. Nothing is reordered or fused, so results stay those of the ops as written.
    """

    name = "codelet-to-llvm"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        from populus.runtime.engine.native.codegen.to_llvm import lower

        lower(ctx, op)
