"""Lowering of codelets to LLVM (`codelet-to-llvm`): functions on the elements of one tile become ops of the `llvm`
dialect.
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass
from xdsl.rewriter import InsertPoint, Rewriter


@dataclass(frozen=True)
class CodeletToLlvmPass(ModulePass):
    """Lowers `func`, `arith`, `math`, `scf` and `memref` to `llvm`, as the native engine does with each formula.

    Pointer arguments never overlap. No op is reordered or fused, so results are those of the ops as written.
    The tile program, next to which `poplar-emit` writes the functions, stays as it is.
    """

    name = "codelet-to-llvm"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        from populus.dialects.poplar import CodeletOp, GraphOp
        from populus.runtime.engine.native.codegen.to_llvm import lower

        graphs = [inner for inner in op.body.block.ops if isinstance(inner, GraphOp | CodeletOp)]
        for graph in graphs:
            graph.detach()
        try:
            lower(ctx, op)
        finally:
            for graph in reversed(graphs):
                Rewriter.insert_op(graph, InsertPoint.at_start(op.body.block))
