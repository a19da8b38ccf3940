"""The parser of our texts: ops know their line, and what does not fit is an error there."""

from __future__ import annotations

import re
import struct
from typing import Any

from xdsl.context import Context
from xdsl.dialects.builtin import (
    DYNAMIC_INDEX,
    AnyFloat,
    ComplexType,
    DenseIntOrFPElementsAttr,
    FileLineColLoc,
    IndexType,
    IntAttr,
    IntegerType,
    ModuleOp,
    RankedStructure,
    StringAttr,
    TensorType,
    UnknownLoc,
)
from xdsl.ir import Attribute, AttributeInvT, Block, Operation, SSAValue, TypeAttribute
from xdsl.irdl import base
from xdsl.parser import AttrParser, Parser, UnresolvedOperand
from xdsl.parser.generic_parser import ParserState
from xdsl.utils.exceptions import ParseError, VerifyException
from xdsl.utils.lexer import Input, Span
from xdsl.utils.mlir_lexer import MLIRTokenKind

from populus.dialects.support.budget import check_nesting
from populus.dialects.support.diagnostics import did_you_mean, nearest
from populus.dialects.support.errors import printable
from populus.dialects.support.lexer import Lexer


class _Element(Parser._TensorLiteralElement):  # pyright: ignore[reportPrivateUsage]  # its only place to tell hexadecimal floats
    """An element of a dense literal. A hexadecimal float is its bits, as the printer writes some; xDSL reads an integer."""

    def to_float(self, parser: AttrParser) -> float:
        bits, type = self.span.text, getattr(parser, "element", None)
        if bits[:2] not in ("0x", "0X") or not isinstance(type, AnyFloat):
            return super().to_float(parser)
        return next(type.iter_unpack(int(bits, 16).to_bytes(type.compile_time_size, "little")))

    def to_complex(self, parser: AttrParser, type: ComplexType[Any]) -> Any:
        part, texts = type.element_type, [text.strip() for text in self.span.text.strip("()").split(",")]
        if not isinstance(part, AnyFloat):
            return super().to_complex(parser, type)
        size = part.compile_time_size
        hexadecimal = [text[:2] in ("0x", "0X") for text in texts]
        bits = [int(text, 16).to_bytes(size, "little") if h else b"" for text, h in zip(texts, hexadecimal)]
        return tuple(next(part.iter_unpack(b)) if h else float(text) for text, b, h in zip(texts, bits, hexadecimal))

    def to_type(self, parser: AttrParser, type: Any) -> Any:
        if isinstance(parser, LocatingParser):
            parser.element = type
        return super().to_type(parser, type)


_VALUE = re.compile(r"%[\w$.-]+")
_SIZES = re.compile(r"[0-9]++(?:x[0-9]++(?!\.))*+")
_TENSOR = re.compile(r"(?:!poplar\.)?tensor<[\w.]*+>", re.ASCII)
_DENSE = base(RankedStructure[IntegerType | IndexType | AnyFloat | ComplexType])


class LocatingParser(Parser):
    """A parser whose ops know their line, and whose constraint failures and unknown ops are errors at that line."""

    _begin: Span | None = None
    _depth = 0  # of the regions in which the parser is
    _TensorLiteralElement = _Element
    element: Attribute | None = None  # the element type of the dense literal that is read
    _equal: RankedStructure[Any] | None = None  # the type of a literal of equal elements, of which one is read
    _keeps_one = False
    _is_one = False

    def __init__(self, ctx: Context, input: str, name: str = "<unknown>"):
        super().__init__(ctx, "", name)
        self._tensors: dict[str, TypeAttribute] = {}  # by their text
        self._uses: dict[str, Span] = {}  # the first of each value that was not defined there
        self._parser_state = ParserState(Lexer(Input(input, name)))

    def resolve_operand(self, operand: UnresolvedOperand, type: AttributeInvT) -> SSAValue[AttributeInvT]:
        """Finds an operand's value; notes where one that is not defined yet is used first."""
        if operand.operand_name not in self.ssa_values:
            self._uses.setdefault(operand.operand_name, operand.span)
        return super().resolve_operand(operand, type)

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
        if self._keeps_one and self._is_one and 0 not in type.get_shape():
            self._equal = type
            return TensorType(type.get_element_type(), [1])
        return type

    def parse_value(self) -> Attribute:
        """Parses an attribute. A dense one of equal elements has one of them: xDSL makes a list of as many as the type has."""
        self._keeps_one, self._is_one, self._equal = True, False, None
        try:
            value = self.parse_attribute()
        finally:
            self._keeps_one = False
        if self._equal is None or not isinstance(value, DenseIntOrFPElementsAttr):
            return value
        one: DenseIntOrFPElementsAttr[Any] = DenseIntOrFPElementsAttr(self._equal, value.data)
        return one

    def _parse_tensor_literal(self) -> tuple[list[Any], list[int]]:
        found = super()._parse_tensor_literal()
        self._is_one = not found[1] and len(found[0]) == 1
        return found

    def _parse_optional_complex(self) -> tuple[Any, Span] | None:
        # xDSL wants both parts to be floats, or both integers; hexadecimal floats look like integers.
        begin = self._current_token.span
        if self.parse_optional_punctuation("(") is None:
            return None
        real, _ = self._parse_bool_int_or_float()
        self.parse_punctuation(",")
        imag, _ = self._parse_bool_int_or_float()
        end = self._current_token.span.end
        self.parse_punctuation(")")
        return (real, imag), Span(begin.start, end, begin.input)

    def parse_module(self, allow_implicit_module: bool = True) -> ModuleOp:
        """Parses a module. Raises ParseError, at its first use for a value that is never defined, and for what is nested too deeply."""
        if self._is_at_end():
            self.raise_error("there is no op in it; expected a module")
        try:
            return super().parse_module(allow_implicit_module)
        except ParseError:
            unknown = next((name for name in self.forward_ssa_references if name in self._uses), None)
            if unknown is None or not self._is_at_end():
                raise
            used = self._uses[unknown]
            names = set(_VALUE.findall(used.input.content)) - {f"%{name}" for name in self.forward_ssa_references}
            self.raise_error(f"%{unknown} is used and not defined{nearest(f'%{unknown}', names)}", used)
        except RecursionError:
            span = self._current_token.span
        raise ParseError(span, "nested too deeply to be read")

    def _is_at_end(self) -> bool:
        return self._current_token.kind is MLIRTokenKind.EOF

    def parse_operation(self) -> Operation:
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
        known = [o.name for o in self.ctx.loaded_ops if o.name.startswith(f"{dialect}.")]
        if known or dialect in self.ctx.registered_dialect_names:
            self.raise_error(f"there is no op '{name}'{did_you_mean(name, known)}", at_position=self._begin)
        hint = did_you_mean(dialect, self.ctx.registered_dialect_names) if "." in name else ""
        self.raise_error(f"there is no op '{name}'" + (f", nor a dialect '{dialect}'{hint}" if hint else ""), at_position=self._begin)
