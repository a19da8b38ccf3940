"""The ops of every level that come from one op of the model."""

from __future__ import annotations

from collections.abc import Iterator
from io import StringIO
from typing import TYPE_CHECKING

from xdsl.dialects.builtin import FusedLoc, LocationAttr, ModuleOp, NameLoc
from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation
from xdsl.printer import Printer

from populus.dialects.poplar import ConstOp, GraphOp
from populus.dialects.support.diagnostics import parts_of

if TYPE_CHECKING:
    from populus.program import Program

LONGEST = 4000  # characters of one op's text; longer texts are cut

ByLevel = dict[str, list[str]]


def ir_by_place(program: Program) -> dict[str, ByLevel]:
    """Lists, for each op of the model (`conv1`), the text of its ops at each level.

    An op that comes from several is listed under each. Constants are left out, and so are ops without an origin in the model.
    """
    found: dict[str, ByLevel] = {}
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
            for name in places(op.location):
                found.setdefault(name, {}).setdefault(level, []).append(text)
    return found


def places(location: LocationAttr) -> list[str]:
    """Lists the ops of the model that a location names."""
    if isinstance(location, FusedLoc):
        return list(dict.fromkeys(name for part in parts_of(location) for name in places(part)))
    return [location.desc.data] if isinstance(location, NameLoc) else []


def _ops(module: ModuleOp) -> Iterator[Operation]:
    """Yields the ops of functions and graphs; loops and branches stay whole."""
    for op in module.body.block.ops:
        if isinstance(op, FuncOp | GraphOp):
            for inner in op.body.block.ops if op.body.blocks else ():
                if inner.name != "data.constant" and not isinstance(inner, ConstOp):
                    yield inner
