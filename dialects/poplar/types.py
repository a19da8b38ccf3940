"""The types and attributes of the tile level: views of tile memory, layouts, iteration spaces, accesses; each with short text."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import cast

from xdsl.dialects.builtin import ArrayAttr, IntAttr, StringAttr, bf16, f32
from xdsl.ir import Attribute, Data, ParametrizedAttribute, TypeAttribute
from xdsl.irdl import irdl_attr_definition
from xdsl.parser import AttrParser, Parser
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException

from populus.dialects.poplar.partition import ALL, Access, Domain, Grid, Split
from populus.dialects.poplar.view import View
from populus.dialects.support.block_floats import MAGNITUDES, bytes_an_element
from populus.dialects.support.element_types import is_known, size_in_bytes


@irdl_attr_definition
class TensorType(ParametrizedAttribute, TypeAttribute):
    """`!poplar.tensor<4x1024xf16>`: a view of tile memory. The layout is a matter of the variable, not of the type.

    `!poplar.tensor<64x1024xf32, bfp8>`: its values are those of a block format, whose bytes the machine keeps and moves.
    """

    name = "poplar.tensor"
    dims: ArrayAttr[IntAttr]
    element: Attribute
    format: StringAttr  # of blocks; "": each element has its own exponent

    @staticmethod
    def of(shape: Sequence[int], element: Attribute, block: str = "") -> TensorType:
        """Makes the type of a shape, an element type and a block format; equal ones are the same object."""
        return _shared(tuple(shape), element, block)

    def reshaped(self, shape: Sequence[int]) -> TensorType:
        """Makes the type of another view of the same memory."""
        return _shared(tuple(shape), self.element, self.block)

    @property
    def block(self) -> str:
        """The block format; "" if there is none."""
        return self.format.data

    @property
    def element_text(self) -> str:
        """The element type and the block format as text."""
        return f"{self.element}, {self.block}" if self.block else str(self.element)

    @property
    def element_bytes(self) -> float:
        """The bytes of an element on the machine: whole, but for those of block formats."""
        return bytes_an_element(self.block) if self.block else size_in_bytes(self.element)

    @property
    def bytes(self) -> int:
        """The bytes of all elements on the machine."""
        return math.ceil(math.prod(self.shape) * self.element_bytes)

    @property
    def shape(self) -> tuple[int, ...]:
        """The size of each dimension."""
        return self.whole.shape

    @property
    def whole(self) -> View:
        """The view of a whole variable of this type, made once: a `cached_property` would be a parameter to xDSL."""
        kept = cast("View | None", vars(self).get("kept_whole"))
        if kept is None:
            kept = vars(self)["kept_whole"] = View.whole(tuple(n.data for n in self.dims.data))
        return kept

    def verify(self) -> None:
        if not is_known(self.element):
            raise VerifyException(f"tiles cannot hold elements of {self.element}")
        if self.block and (self.block not in MAGNITUDES or self.element not in (f32, bf16)):
            expected = f"f32 or bf16 in {' or '.join(MAGNITUDES)}"
            raise VerifyException(f"elements of {self.element} in format '{self.block}'; {expected} is expected")

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> Sequence[Attribute]:
        with parser.in_angle_brackets():
            shape, element = parser.parse_ranked_shape()
            block = parser.parse_identifier("a block format") if parser.parse_optional_punctuation(",") is not None else ""
        return ArrayAttr([IntAttr(n) for n in shape]), element, StringAttr(block)

    def print_parameters(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            printer.print_string("".join(f"{n}x" for n in self.shape))
            printer.print_attribute(self.element)
            printer.print_string(f", {self.block}" if self.block else "")


@lru_cache(1 << 12)
def _shared(shape: tuple[int, ...], element: Attribute, block: str) -> TensorType:
    return TensorType(ArrayAttr([IntAttr(n) for n in shape]), element, StringAttr(block))


def print_types(printer: Printer, attributes: Mapping[str, Attribute], source: Attribute, result: Attribute) -> None:
    """Prints the end of a view: `attributes {..} : !poplar.tensor<4xf32> -> !poplar.tensor<2xf32>`."""
    printer.print_op_attributes(attributes, print_keyword=True)
    printer.print_string(" : ")
    printer.print_list((source, result), printer.print_attribute, " -> ")


def parse_types(parser: Parser) -> tuple[dict[str, Attribute], Attribute, Attribute]:
    """Parses the end of a view: its attributes, the type of its operand and its own."""
    attributes = parser.parse_optional_attr_dict_with_keyword()
    parser.parse_punctuation(":")
    source = parser.parse_type()
    parser.parse_punctuation("->")
    return {} if attributes is None else dict(attributes.data), source, parser.parse_type()


MOST_TILES = 1 << 31  # numbers of tiles are 64-bit integers, and are added and multiplied


def parse_split(parser: AttrParser) -> Split:
    """Parses `64 in 8 by 8`."""
    n = parser.parse_integer(allow_boolean=False, allow_negative=False)
    parts = parser.parse_integer(allow_boolean=False) if parser.parse_optional_keyword("in") is not None else 1
    grain = parser.parse_integer(allow_boolean=False) if parser.parse_optional_keyword("by") is not None else 1
    return Split(n, parts, grain)


def parse_start(parser: AttrParser) -> int:
    """Parses `start 3`; 0 if it is absent."""
    if parser.parse_optional_keyword("start") is None:
        return 0
    start = parser.parse_integer(allow_boolean=False, allow_negative=False)
    if start >= MOST_TILES:
        parser.raise_error(f"it starts at tile {start}; expected less than {MOST_TILES}")
    return start


def parse_digit(parser: AttrParser) -> int:
    """Parses a dimension, or `4 copies` as -4."""
    number = parser.parse_integer(allow_boolean=False, allow_negative=False)
    return -number if parser.parse_optional_keyword("copies") is not None else number


def parse_grid(parser: AttrParser) -> Grid:
    """Parses `[64 in 8 by 8, 56] order [2 copies, 0] start 3`."""
    square = parser.Delimiter.SQUARE
    splits = parser.parse_comma_separated_list(square, lambda: parse_split(parser))
    order: list[int] = []
    if parser.parse_optional_keyword("order") is not None:
        order = parser.parse_comma_separated_list(square, lambda: parse_digit(parser))
    return Grid(tuple(splits), tuple(order), parse_start(parser))


@irdl_attr_definition
class GridAttr(Data[Grid]):
    """`#poplar.grid<[64 in 8 by 8, 56] order [0]>`: the tile that owns each element of a variable."""

    name = "poplar.grid"

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> Grid:
        with parser.in_angle_brackets():
            return parse_grid(parser)

    def print_parameter(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            printer.print_string(str(self.data))


def parse_domain(parser: AttrParser) -> Domain:
    """Parses `(oc = 64 in 8 by 8, oh = 56 in 7) on (oh, oc) start 5`."""

    def axis() -> tuple[str, Split]:
        name = parser.parse_identifier("an axis")
        parser.parse_punctuation("=")
        return name, parse_split(parser)

    round_ = parser.Delimiter.PAREN
    axes = parser.parse_comma_separated_list(round_, axis)
    order: list[str] = []
    if parser.parse_optional_keyword("on") is not None:
        order = parser.parse_comma_separated_list(round_, lambda: parser.parse_identifier("an axis"))
    return Domain(tuple(axes), tuple(order), parse_start(parser))


@irdl_attr_definition
class DomainAttr(Data[Domain]):
    """`#poplar.domain<(oc = 64 in 8 by 8) on (oc)>`: the iteration space of a family."""

    name = "poplar.domain"

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> Domain:
        with parser.in_angle_brackets():
            return parse_domain(parser)

    def print_parameter(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            printer.print_string(str(self.data))


def parse_access(parser: AttrParser) -> Access:
    """Parses `oh * 2 + ky - 3`, `at ic` or `*`."""
    if parser.parse_optional_punctuation("*") is not None:
        return ALL
    if parser.parse_optional_keyword("at") is not None:
        return Access(((parser.parse_identifier("an axis"), 1),), part=True)
    terms: list[tuple[str, int]] = []
    offset, sign = 0, 1
    while True:
        if (number := parser.parse_optional_integer(allow_boolean=False, allow_negative=False)) is not None:
            offset += sign * number
        else:
            axis = parser.parse_identifier("an axis")
            coefficient = parser.parse_integer(allow_boolean=False) if parser.parse_optional_punctuation("*") is not None else 1
            terms.append((axis, sign * coefficient))
        if parser.parse_optional_punctuation("+") is not None:
            sign = 1
        elif parser.parse_optional_punctuation("-") is not None:
            sign = -1
        else:
            return Access(tuple(terms), offset)


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a family: what the codelet does with it, its name, and the access to each dimension of its view."""

    kind: str  # in | out | inout
    name: str
    access: tuple[Access, ...]

    def __str__(self) -> str:
        return f"{self.kind} {self.name}[{', '.join(map(str, self.access))}]"


KINDS = ("in", "inout", "out")


@irdl_attr_definition
class FieldsAttr(Data[tuple[Field, ...]]):
    """The fields of a family, one for each operand. Prints inside `poplar.family`."""

    name = "poplar.fields"

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> tuple[Field, ...]:
        def field() -> Field:
            kind = parser.parse_identifier("in, inout or out")
            name = parser.parse_identifier("a field")
            return Field(kind, name, tuple(parser.parse_comma_separated_list(parser.Delimiter.SQUARE, lambda: parse_access(parser))))

        return tuple(parser.parse_comma_separated_list(parser.Delimiter.ANGLE, field))

    def print_parameter(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            printer.print_string(", ".join(map(str, self.data)))
