"""Attributes and types of `stablehlo`: words, lists of numbers by name, the dimensions of a convolution, tokens.

#stablehlo<comparison_direction LT>
#stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>
#stablehlo.conv<[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]>
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

from xdsl.dialects.builtin import StringAttr
from xdsl.ir import Attribute, Data, ParametrizedAttribute, SpacedOpaqueSyntaxAttribute, TypeAttribute
from xdsl.irdl import irdl_attr_definition
from xdsl.parser import AttrParser
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException

Entry: TypeAlias = "float | str | Attribute | tuple[Any, ...]"


class Word(ParametrizedAttribute, SpacedOpaqueSyntaxAttribute):
    """One of a few words: `#stablehlo<fft_type RFFT>`."""

    WORDS: ClassVar[tuple[str, ...]]
    word: StringAttr

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> Sequence[Attribute]:
        if parser.parse_optional_punctuation("<") is None:
            return [StringAttr(parser.parse_identifier())]
        word = parser.parse_identifier()  # `#stablehlo.fft_type<RFFT>`
        parser.parse_punctuation(">")
        return [StringAttr(word)]

    def print_parameters(self, printer: Printer) -> None:
        printer.print_string(self.word.data)

    def verify(self) -> None:
        if self.word.data not in self.WORDS:
            raise VerifyException(f"{self.name.partition('.')[2]} is '{self.word.data}'; it is one of {', '.join(self.WORDS)}")


def _words(name: str, words: str) -> type[Word]:
    made = type(name, (Word,), {"name": name, "WORDS": tuple(words.split()), "__annotations__": {"word": StringAttr}})
    return irdl_attr_definition(made)


@dataclass(frozen=True)
class Entries:
    """Named entries, hashable: numbers, words and lists of them."""

    entries: tuple[tuple[str, Entry], ...]


class Named(Data[Entries]):
    """Entries by name: `#stablehlo.dot<lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [0]>`."""

    def entry(self, name: str, default: Entry = ()) -> Any:
        """Gives an entry; `default` if it is left out."""
        return dict(self.data.entries).get(name, default)

    def ints(self, name: str) -> tuple[int, ...]:
        """Gives a list of integers; an empty one if it is left out."""
        return tuple(self.entry(name))

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> Entries:
        found: list[tuple[str, Entry]] = []
        with parser.in_angle_brackets():
            while (name := parser.parse_optional_identifier()) is not None:
                parser.parse_punctuation("=")
                found.append((name, _entry(parser)))
                if parser.parse_optional_punctuation(",") is None:
                    break
        return Entries(tuple(found))

    def print_parameter(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            printer.print_list(self.data.entries, lambda e: printer.print_string(f"{e[0]} = {_text(e[1])}"))


def _entry(parser: AttrParser) -> Entry:
    if (items := parser.parse_optional_comma_separated_list(parser.Delimiter.SQUARE, lambda: _entry(parser))) is not None:
        return tuple(items)
    if (word := parser.parse_optional_identifier()) is not None:
        return word
    if parser.parse_optional_punctuation("?") is not None:
        return -1
    if (number := parser.parse_optional_number()) is not None:
        return number
    return parser.parse_attribute()


def _text(entry: Entry) -> str:
    return f"[{', '.join(map(_text, entry))}]" if isinstance(entry, tuple) else str(entry)


def _named(name: str) -> type[Named]:
    return irdl_attr_definition(type(name, (Named,), {"name": name}))


Places: TypeAlias = "tuple[tuple[str | int, ...], tuple[str | int, ...], tuple[str | int, ...]]"


@irdl_attr_definition
class ConvolutionDimensions(Data[Places]):
    """For the input, the kernel and the output: what each dimension is, `b`, `f`, `i`, `o` or the number of a spatial one."""

    name = "stablehlo.conv"

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> Places:
        def side() -> tuple[str | int, ...]:
            place = lambda: parser.parse_optional_identifier() or parser.parse_integer()  # noqa: E731
            return tuple(parser.parse_comma_separated_list(parser.Delimiter.SQUARE, place))

        with parser.in_angle_brackets():
            lhs = side()
            parser.parse_characters("x")
            rhs = side()
            parser.parse_punctuation("->")
            return lhs, rhs, side()

    def print_parameter(self, printer: Printer) -> None:
        lhs, rhs, out = (f"[{', '.join(map(str, side))}]" for side in self.data)
        with printer.in_angle_brackets():
            printer.print_string(f"{lhs}x{rhs}->{out}")

    def order(self, side: int, first: str, second: str) -> list[int]:
        """Lists the dimensions of a side in the order: `first`, `second`, spatial ones."""
        places = self.data[side]
        wanted = [first, second, *range(len(places) - 2)]
        if sorted(map(str, places)) != sorted(map(str, wanted)):
            raise VerifyException(f"the dimensions [{', '.join(map(str, places))}] are not {first}, {second} and 0 to {len(places) - 3}")
        return [places.index(p) for p in wanted]


@irdl_attr_definition
class TokenType(ParametrizedAttribute, TypeAttribute):
    """`!stablehlo.token`: an order of effects, no data."""

    name = "stablehlo.token"


NAMED = "dot gather scatter channel_handle dot_algorithm output_operand_alias result_accuracy"
_DIRECTIONS = "EQ NE GE GT LE LT"
ATTRIBUTES: list[type[Attribute]] = [
    ConvolutionDimensions,
    TokenType,
    _words("stablehlo.comparison_direction", _DIRECTIONS),
    _words("chlo.comparison_direction", _DIRECTIONS),
    _words("stablehlo.comparison_type", "NOTYPE FLOAT TOTALORDER SIGNED UNSIGNED"),
    _words("chlo.comparison_type", "NOTYPE FLOAT TOTALORDER SIGNED UNSIGNED"),
    _words("stablehlo.precision", "DEFAULT HIGH HIGHEST"),
    _words("chlo.precision", "DEFAULT HIGH HIGHEST"),
    _words("stablehlo.fft_type", "FFT IFFT RFFT IRFFT"),
    _words("stablehlo.transpose", "TRANSPOSE_INVALID NO_TRANSPOSE TRANSPOSE ADJOINT"),
    _words("stablehlo.rng_distribution", "UNIFORM NORMAL"),
    _words("stablehlo.rng_algorithm", "DEFAULT THREE_FRY PHILOX"),
    _words("stablehlo.result_accuracy_mode", "DEFAULT HIGHEST TOLERANCE"),
    *map(_named, (f"stablehlo.{name}" for name in NAMED.split())),
    *(_named(f"chlo.{name}") for name in ("ragged_dot",)),
]
