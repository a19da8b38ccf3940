"""Diagnostics: user errors in one line, locations that survive rewriting, and checks that xDSL leaves out."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from typing import NoReturn, TypeVar, cast

from xdsl.dialects.builtin import (
    UNKNOWN_LOC,
    ArrayAttr,
    FileLineColLoc,
    FusedLoc,
    LocationAttr,
    ModuleOp,
    NameLoc,
    NoneAttr,
    StringAttr,
    UnknownLoc,
)
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue
from xdsl.utils.exceptions import DiagnosticException, VerifyException

from populus.dialects.support.errors import PopulusWarning as PopulusWarning  # noqa: PLC0414, as others import it from here
from populus.dialects.support.errors import ProgramError
from populus.dialects.support.quick_ops import QuickOp

L = TypeVar("L", NameLoc, FusedLoc)
NOTHING = NoneAttr()
TENSORS = ("onnx", "stablehlo", "chlo", "popart", "popops", "poplin", "popnn", "poprand", "gcl", "host", "data")
"""The dialects of ops on tensors."""


class PopulusError(DiagnosticException, ProgramError):
    """A user's mistake, in one line: where, what was found, what was expected, what to do."""


def named(name: str) -> NameLoc:
    """Makes the location of ops that come from the ONNX node (or tensor) `name`."""
    return _unchecked(NameLoc, desc=StringAttr(name), location=NOTHING)


def _unchecked(kind: type[L], **parameters: Attribute) -> L:
    """Makes a location without xDSL's checks of what it is made of: there is one for each op, and a new one for each that is rewritten."""
    location = kind.__new__(kind)
    vars(location).update(parameters)
    return location


_COMMANDS = [0]  # commands that run now, which may be within each other


@contextmanager
def command_line() -> Generator[None, None, None]:
    """Makes messages inside name options of the command line, and not arguments of Python."""
    _COMMANDS[0] += 1
    try:
        yield
    finally:
        _COMMANDS[0] -= 1


def option(command: str, python: str) -> str:
    """Gives the spelling of an option for whoever reads the message: at the command line, or in Python."""
    return command if _COMMANDS[0] else python


def place(location: LocationAttr) -> str | None:
    """Formats a location: `'stem/conv'`, `leaky.mlir:3:1`, or the parts of a fusion joined by ` + `; None if it is unknown."""
    match location:
        case NameLoc():
            return f"'{location.desc.data}'"
        case FileLineColLoc():
            return f"{location.filename.data}:{location.line.data}:{location.column.data}"
        case FusedLoc():
            places = [place(part) for part in parts_of(location)]
            return " + ".join(dict.fromkeys(p for p in places if p is not None)) or None
        case _:
            return None


def names_of(location: LocationAttr) -> list[str]:
    """Lists the names of ONNX nodes in a location."""
    match location:
        case NameLoc():
            return [location.desc.data]
        case FusedLoc():
            return [name for part in parts_of(location) for name in names_of(part)]
        case _:
            return []


def where(op: Operation | None) -> str:
    """Formats the location of `op`, or of its nearest parent that has one."""
    while op is not None:
        if (found := place(op.location)) is not None:
            return found
        op = op.parent_op()
    return "somewhere"


def fused(*locations: LocationAttr) -> LocationAttr:
    """Fuses the locations of several ops: the distinct known ones, flattened. The last is that of the op whose result is kept."""
    flat: dict[LocationAttr, None] = {}
    for location in reversed(locations):
        parts = parts_of(location) if isinstance(location, FusedLoc) else [location]
        flat.update({part: None for part in reversed(parts) if part is not UNKNOWN_LOC and not isinstance(part, UnknownLoc)})
    match list(reversed(flat)):
        case []:
            return UNKNOWN_LOC
        case [only]:
            return only
        case several:
            return _unchecked(FusedLoc, locations=ArrayAttr(several), metadata=NOTHING)


def between(block: Block, before: Operation | None, end: Operation | None) -> list[Operation]:
    """Lists the ops of a block after `before` (from its start if that is None) and before `end`: those inserted meanwhile."""
    found: list[Operation] = []
    op = block.first_op if before is None else before.next_op
    while op is not None and op is not end:
        found.append(op)
        op = op.next_op
    return found


def locate(ops: Iterable[Operation], location: LocationAttr) -> None:
    """Gives a place to those of the ops, and of the ops inside them, that have none."""
    for op in ops:
        for inner in op.walk():
            if isinstance(inner.location, UnknownLoc):
                inner.location = location


def parts_of(location: FusedLoc) -> list[LocationAttr]:
    """Lists the locations in a fusion, in order."""
    return [part for part in cast("ArrayAttr[LocationAttr]", location.locations) if not isinstance(part, NoneAttr)]


class PlainErrors(QuickOp):
    """An op whose failed check is its message alone: xDSL prints the whole module beside it, which nothing here reads."""

    def emit_error(self, message: str, underlying_error: Exception) -> NoReturn:
        raise underlying_error


def verify(module: ModuleOp) -> None:
    """Verifies a module, and that values are defined before use; the error names the op and its location.

    Raises PopulusError.
    """
    try:
        module.verify()
    except RecursionError:
        raise PopulusError("regions are nested too deeply to be verified") from None
    except VerifyException as first:
        for op in module.walk(region_first=True):
            try:
                op.verify(verify_nested_ops=False)
            except VerifyException as error:
                raise PopulusError(f"{where(op)}: {op.name}: {' '.join(str(error).split())}") from error
        raise PopulusError(" ".join(str(first).split())) from first
    check_order(module)


def check_order(module: ModuleOp) -> None:
    """Checks that each value is defined before it is used (regions of one block), which xDSL's `verify` does not.

    And that a function of tensors is one block. Raises PopulusError naming the op.
    """
    seen: set[SSAValue] = set()

    def visit(region: Region) -> None:
        if (parent := region.parent_op()) is not None and parent.name == "func.func":
            _check_function(parent, region)
        for block in region.blocks:
            seen.update(block.args)
            for op in block.ops:
                for value in op.operands:
                    if value not in seen:
                        raise PopulusError(f"{where(op)}: {op.name} uses %{value.name_hint or '?'} before it is defined")
                for inner in op.regions:
                    visit(inner)
                seen.update(op.results)

    visit(module.body)


def _check_function(function: Operation, body: Region) -> None:
    """Raises PopulusError for a function of ops on tensors that is not one block with its return at the end."""
    blocks = list(body.blocks)
    if not any(op.name.partition(".")[0] in TENSORS for block in blocks for op in block.ops):
        return
    if len(blocks) > 1 or (last := blocks[0].last_op) is None or last.name != "func.return":
        raise PopulusError(f"{where(function)}: a function of ops on tensors is one block that ends in func.return")


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """Makes the end of a message about an unknown name: `; did you mean 'relu'?`, or the list of known names."""
    known = sorted(names)
    return nearest(name, known) or (f"; there are {', '.join(known)}" if known else "; there are none")


def no_file(path: str | os.PathLike[str]) -> str:
    """Makes the message about a file that is not there: `digitz.onnx: no such file; did you mean 'digits.onnx'?`."""
    name = os.fspath(path)
    folder, last = os.path.split(name)
    try:
        others = [other for other in os.listdir(folder or os.curdir) if os.path.splitext(other)[1] == os.path.splitext(last)[1]]
    except OSError:
        others = []
    return f"{name}: no such file{nearest(last, others)}"


def nearest(name: str, names: Iterable[str]) -> str:
    """Makes the end of a message about an unknown name of very many: `; did you mean 'Relu'?`, or nothing if none is near."""
    from difflib import get_close_matches

    near = get_close_matches(name, sorted(names), 1)
    return f"; did you mean '{near[0]}'?" if near else ""
