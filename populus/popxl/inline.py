"""Graphs that are called at one place become part of their caller: then passes see what both compute, such as a forward pass twice."""

from __future__ import annotations

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import CallOp, FuncOp
from xdsl.rewriter import Rewriter

from populus.dialects.signature import return_of


def inlined(module: ModuleOp) -> ModuleOp:
    """Gives the module with the functions that one op calls in place of those calls. A function that is called more often stays."""
    functions = {op.sym_name.data: op for op in module.body.block.ops if isinstance(op, FuncOp)}
    sites: dict[str, list[CallOp]] = {}
    for op in module.walk():
        if isinstance(op, CallOp):
            sites.setdefault(op.callee.root_reference.data, []).append(op)
    for name, calls in sites.items():
        if len(calls) == 1:
            _inline(calls[0], functions[name])
    return module


def _inline(site: CallOp, function: FuncOp) -> None:
    body, caller = function.body.block, site.parent_block()
    assert caller is not None, site
    for argument, operand in zip(body.args, site.operands, strict=True):
        argument.replace_all_uses_with(operand)
    end = return_of(function)
    for op in list(body.ops):
        if op is not end:
            op.detach()
            caller.insert_op_before(op, site)
    for result, value in zip(site.results, end.operands, strict=True):
        result.replace_all_uses_with(value)
    Rewriter.erase_op(site)
    Rewriter.erase_op(function)
