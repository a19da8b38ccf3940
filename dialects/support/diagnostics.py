"""Diagnostics: user errors in one line, locations that survive rewriting, and checks that xDSL leaves out."""

from __future__ import annotations

import re
import struct
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from difflib import get_close_matches
from typing import Any, NoReturn, cast

from xdsl.context import Context
from xdsl.dialects.builtin import (
    DYNAMIC_INDEX,
    AnyFloat,
    ArrayAttr,
    ComplexType,
    FileLineColLoc,
    FusedLoc,
    IndexType,
    IntAttr,
    IntegerType,
    LocationAttr,
    ModuleOp,
    NameLoc,
    NoneAttr,
    RankedStructure,
    StringAttr,
    UnknownLoc,
)
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue, TypeAttribute
from xdsl.irdl import base
from xdsl.parser import AttrParser, Parser
from xdsl.parser.generic_parser import ParserState
from xdsl.utils.exceptions import DiagnosticException, ParseError, VerifyException
from xdsl.utils.lexer import Input, Span
from xdsl.utils.mlir_lexer import MLIRTokenKind

from populus.dialects.support.errors import PopulusWarning as PopulusWarning  # noqa: PLC0414, as others import it from here
from populus.dialects.support.errors import ProgramError, printable
from populus.dialects.support.lexer import Lexer

TENSORS = ("onnx", "popart", "popops", "poplin", "popnn", "poprand", "gcl", "host", "data")
"""The dialects of ops on tensors."""


class PopulusError(DiagnosticException, ProgramError):
    """A user's mistake, in one line: where, what was found, what was expected, what to do."""


def named(name: str) -> NameLoc:
    """Makes the location of ops that come from the ONNX node (or tensor) `name`."""
    return NameLoc(StringAttr(name), NoneAttr())


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
        flat.update({part: None for part in reversed(parts) if not isinstance(part, UnknownLoc)})
    match list(reversed(flat)):
        case []:
            return UnknownLoc()
        case [only]:
            return only
        case several:
            return FusedLoc(tuple(several), NoneAttr())


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
    locations = cast("ArrayAttr[Attribute]", location.locations)
    return [part for part in locations if isinstance(part, LocationAttr)]


class _Element(Parser._TensorLiteralElement):  # pyright: ignore[reportPrivateUsage]  # its only place to tell hexadecimal floats
    """An element of a dense literal. A hexadecimal float is its bits, as the printer writes some; xDSL reads an integer."""

    def to_float(self, parser: AttrParser) -> float:
        bits, type = self.span.text, getattr(parser, "element", None)
        if bits[:2] not in ("0x", "0X") or not isinstance(type, AnyFloat):
            return super().to_float(parser)
        return next(type.iter_unpack(int(bits, 16).to_bytes(type.compile_time_size, "little")))

    def to_type(self, parser: AttrParser, type: Any) -> Any:
        if isinstance(parser, LocatingParser):
            parser.element = type
        return super().to_type(parser, type)


_SIZES = re.compile(r"[0-9]++(?:x[0-9]++(?!\.))*+")
_TENSOR = re.compile(r"(?:!poplar\.)?tensor<[\w.]*+>", re.ASCII)
_DENSE = base(RankedStructure[IntegerType | IndexType | AnyFloat | ComplexType])


class LocatingParser(Parser):
    """A parser whose ops know their line, and whose constraint failures and unknown ops are errors at that line."""

    _begin: Span | None = None
    _depth = 0  # of the regions in which the parser is
    _TensorLiteralElement = _Element
    element: Attribute | None = None  # the element type of the dense literal that is read

    def __init__(self, ctx: Context, input: str, name: str = "<unknown>"):
        super().__init__(ctx, "", name)
        self._tensors: dict[str, TypeAttribute] = {}  # by their text
        self._parser_state = ParserState(Lexer(Input(input, name)))

    def parse_optional_type(self) -> TypeAttribute | None:
        """Parses a type, or gives None. A text has few tensor types, and each many times: one that was read is not read again."""
        token = self._current_token
        match = _TENSOR.match(token.span.input.content, token.span.start)
        if match is None:
            return super().parse_optional_type()
        if (type := self._tensors.get(match[0])) is None:
            type = super().parse_optional_type()
            if type is not None and self.pos >= match.end():
                self._tensors[match[0]] = type
        else:
            self._resume_from(match.end())
        return type

    def parse_dimension_list(self) -> list[int]:
        """Parses `2x3x4` at once. xDSL's lexer reads the rest of the shape anew after each `x`, as it may be a name."""
        token = self._current_token
        match = _SIZES.match(content := token.span.input.content, token.span.start)
        if token.kind is not MLIRTokenKind.INTEGER_LIT or match is None or content.startswith("x?", match.end()):
            return super().parse_dimension_list()
        self._resume_from(match.end())
        return [int(n) for n in match[0].split("x")]

    def _parse_dense_literal_type(self) -> RankedStructure[Any]:
        # xDSL builds the constraint anew for each literal, in a tenth of the time in which a tile program is read.
        type = self.expect(self.parse_optional_type, "Dense attribute must be typed!")
        if not _DENSE.verifies(type):
            self.raise_error("Expected memref, vector or tensor type of integer, index, float, or complex type")
        if DYNAMIC_INDEX in type.get_shape():
            self.raise_error("Dense literal attribute should have a static shape.")
        return type

    def parse_module(self, allow_implicit_module: bool = True) -> ModuleOp:
        """Parses a module. Raises ParseError, also if brackets or regions are nested deeper than Python's stack."""
        try:
            return super().parse_module(allow_implicit_module)
        except RecursionError:
            span = self._current_token.span
        raise ParseError(span, "nested too deeply to be read")

    def parse_operation(self) -> Operation:
        from populus.dialects.support.budget import check_nesting  # which raises errors of this file

        self._begin = span = self._current_token.span
        check_nesting(self._depth, lambda: f"{span.input.name}:{(at := span.get_location()).line}:{at.col}")
        self._depth += 1
        try:
            op = super().parse_operation()
        except VerifyException as error:
            raise ParseError(span, " ".join(str(error).split())) from error
        except (OverflowError, ValueError, struct.error) as error:
            raise ParseError(span, f"a number does not fit its type: {error}") from error
        except MemoryError:
            pass  # raised below, where what was made is free again
        else:
            return self._placed(op, span)
        finally:
            self._depth -= 1
        raise ParseError(span, "a constant takes more memory than there is")

    def _parse_block(self) -> Block:
        span = self._current_token.span
        try:
            return super()._parse_block()
        except KeyError as error:  # xDSL 0.74 forgets where it saw a label that was a successor before
            raise ParseError(span, f"re-declaration of block '{error.args[0]}'") from error

    @staticmethod
    def _placed(op: Operation, span: Span) -> Operation:
        if isinstance(op.location, UnknownLoc):
            at = span.get_location()
            op.location = FileLineColLoc(StringAttr(printable(at.file)), IntAttr(at.line), IntAttr(at.col))
        return op

    def _get_op_by_name(self, name: str) -> type[Operation]:
        op = self.ctx.get_optional_op(name, dialect_stack=self._parser_state.dialect_stack)
        if op is not None:
            return op
        dialect = name.partition(".")[0]
        if dialect in self.ctx.registered_dialect_names:
            known = [o.name for o in self.ctx.loaded_ops if o.name.startswith(f"{dialect}.")]
            self.raise_error(f"there is no op '{name}'{did_you_mean(name, known)}", at_position=self._begin)
        hint = did_you_mean(dialect, self.ctx.registered_dialect_names) if "." in name else ""
        self.raise_error(f"there is no op '{name}'" + (f", nor a dialect '{dialect}'{hint}" if hint else ""), at_position=self._begin)


class PlainErrors(Operation):
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


def nearest(name: str, names: Iterable[str]) -> str:
    """Makes the end of a message about an unknown name of very many: `; did you mean 'Relu'?`, or nothing if none is near."""
    near = get_close_matches(name, sorted(names), 1)
    return f"; did you mean '{near[0]}'?" if near else ""
