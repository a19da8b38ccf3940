"""Graphs that are called at one place become part of their caller: then passes see what both compute, such as a forward pass twice."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import CallOp, FuncOp
from xdsl.rewriter import Rewriter

from populus.dialects.signature import return_of
from populus.dialects.support.diagnostics import PopulusError, where

if TYPE_CHECKING:
    from populus.popxl.graph import Graph


def check_calls(graphs: Sequence[Graph]) -> None:
    """Raises PopulusError for a call of a graph that has a further input since, which is not connected there."""
    named = {g.name: g for g in graphs}
    for op in (op for caller in graphs for op in caller._block.walk() if isinstance(op, CallOp)):  # pyright: ignore[reportPrivateUsage]
        graph, count = named.get(op.callee.root_reference.data), len(op.operands)
        if graph is not None and count < len(graph.slots):
            raise PopulusError(f"{where(op)}: graph '{graph.name}' has {graph.slots[count].id} since this call; connect it here too")


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
