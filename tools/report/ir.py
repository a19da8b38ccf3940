"""The ops of every level that come from one op of the model."""

from __future__ import annotations

from collections.abc import Iterator
from io import StringIO
from typing import TYPE_CHECKING

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import CallOp, FuncOp
from xdsl.ir import Operation
from xdsl.printer import Printer

from populus.dialects.poplar import CallOp as TileCallOp
from populus.dialects.poplar import ConstOp, GraphOp
from populus.dialects.poplar import FuncOp as TileFuncOp
from populus.dialects.support.call_places import names_in, places_of
from populus.tools.report.record_types import Shared

if TYPE_CHECKING:
    from populus.program.program import Program

LONGEST = 4000  # characters of one op's text; longer texts are cut

ByLevel = dict[str, list[str]]


def ir_by_place(program: Program) -> tuple[dict[str, ByLevel], dict[str, Shared]]:
    """Lists, for each op of the model (`conv1`), the text of its ops at each level; and the ops that functions compute.

    An op that comes from several is listed under each. Constants are left out, and so are ops without an origin in the model.
    The ops of a function are listed once, under the names of its first call; `like` of the others gives these.
    """
    found: dict[str, ByLevel] = {}
    shared: dict[str, Shared] = {}
    for level in program.levels:
        module = program.module(level)
        stream = StringIO()
        printer = Printer(stream)
        for op in _ops(module):
            stream.seek(0)
            stream.truncate()
            printer.print_op(op)
            text = stream.getvalue().strip()
            text = text if len(text) <= LONGEST else f"{text[:LONGEST]} ..."
            for name in names_in(op.location):
                found.setdefault(name, {}).setdefault(level, []).append(text)
        for inside, own, function in _calls(module):
            entry = shared.setdefault(own, {"functions": [], "like": inside})
            if function not in entry["functions"]:
                entry["functions"].append(function)
    for name in shared:
        found.setdefault(name, {})
    return found, shared


def _calls(module: ModuleOp) -> Iterator[tuple[str, str, str]]:
    """Yields (name in the function, name of the call's own, the function) for each op of the model that a call stands for."""
    for op in module.walk():
        if isinstance(op, CallOp | TileCallOp):
            function = op.callee.data if isinstance(op, TileCallOp) else op.callee.root_reference.data
            for inside, own in places_of(op).items():
                yield inside, own, function
                yield inside, inside, function


def _ops(module: ModuleOp) -> Iterator[Operation]:
    """Yields the ops of functions and graphs; loops and branches stay whole."""
    waiting: list[Operation] = [op for op in module.body.block.ops if isinstance(op, FuncOp | GraphOp)]
    while waiting:
        for inner in body.block.ops if (body := waiting.pop(0).regions[0]).blocks else ():
            if isinstance(inner, TileFuncOp):
                waiting.append(inner)
            elif inner.name != "data.constant" and not isinstance(inner, ConstOp):
                yield inner
