"""The output formats of `populus-opt -t`: a module, and the code of its vertices as MLIR and as LLVM's text."""

from __future__ import annotations

from collections.abc import Callable
from io import StringIO
from typing import IO

from xdsl.context import Context
from xdsl.dialects import llvm
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.printer import Printer

from populus.dialects.poplar import GraphOp
from populus.dialects.support.diagnostics import PopulusError

TARGETS = {
    "mlir": "the module",
    "codelets": "the code of its vertices, in func, scf, arith, math and memref",
    "llvm": "the code of its vertices as LLVM's text (.ll)",
}


def codelets(module: ModuleOp) -> ModuleOp:
    """Collects the functions of a tile program's vertices, which `poplar-emit` writes, or of a module of such functions.

    Raises PopulusError for a module above the tile level, and for one without a function.
    """
    found = module.clone()
    graphs = [op for op in found.body.block.ops if isinstance(op, GraphOp)]
    if graphs and not _functions(found):
        from populus.lowering.poplar.emit import PoplarEmitPass

        PoplarEmitPass().apply(Context(), found)
    if any(op.name.partition(".")[0] in ABOVE for op in found.walk()):
        raise PopulusError("the module is above the tile level, and vertices have code on tiles; lower it, as --pipeline inference does")
    for graph in graphs:
        graph.detach()
        graph.erase()
    if not _functions(found):
        raise PopulusError("the module has no code of vertices: its families are codelets of the machine's library, or there are none")
    return found


ABOVE = frozenset({"onnx", "popart", "popops", "poplin", "popnn", "poprand", "gcl"})


def _functions(module: ModuleOp) -> list[FuncOp | llvm.FuncOp]:
    return [op for op in module.body.block.ops if isinstance(op, FuncOp | llvm.FuncOp)]


def write_codelets(module: ModuleOp, out: IO[str]) -> None:
    """Writes the code of the vertices as MLIR. Raises PopulusError if there is none."""
    printed = StringIO()
    Printer(printed).print_op(codelets(module))
    out.write(printed.getvalue() + "\n")


def write_llvm(module: ModuleOp, out: IO[str]) -> None:
    """Writes the code of the vertices as the text of an LLVM module without a target. Raises PopulusError if there is none.

    Functions of f32 that engines compute by formulas are expanded, so the text needs at most C's library.
    """
    from populus.runtime.engine.native.codegen.to_llvm import lower
    from populus.runtime.engine.native.kernels.formula_calls import expand

    try:
        from xdsl.backend.llvm.convert import convert_module
    except ImportError as error:
        raise PopulusError(f"-t llvm needs llvmlite: {error}") from error
    code = codelets(module)
    expand(code)
    lower(Context(), code)
    out.write(str(convert_module(code, fallback_target_triple="")).strip() + "\n")


WRITERS: dict[str, Callable[[ModuleOp, IO[str]], None]] = {"codelets": write_codelets, "llvm": write_llvm}
