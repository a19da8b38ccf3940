"""Expressions as attributes: parsed, printed, `#expr.fn<...>`."""

from __future__ import annotations

import math

from xdsl.ir import Data, Dialect
from xdsl.irdl import irdl_attr_definition
from xdsl.parser import AttrParser
from xdsl.printer import Printer

from populus.dialects.expr.terms import FUNCTIONS, Arg, Call, Cast, Const, Expr, text_of


def parse(parser: AttrParser) -> Expr:
    """Parses the expression at the parser's position. Raises ParseError there."""
    minus = parser.parse_optional_punctuation("-") is not None
    if parser.parse_optional_keyword("inf") is not None:
        return Const(-math.inf if minus else math.inf)
    number = parser.parse_optional_number()
    if number is not None:
        if minus:  # `-0` is an integer, `-0.0` is not
            number = -number
        return Const(number)
    if minus:
        parser.raise_error("a number is expected after '-'")
    position = parser.pos
    word = parser.parse_identifier("an expression")
    match word:
        case "nan":
            return Const(math.nan)
        case "true" | "false":
            return Const(word == "true")
        case "cast" | "bits":
            parser.parse_punctuation("(")
            x = parse(parser)
            parser.parse_punctuation(",")
            type = parser.parse_type()
            parser.parse_punctuation(")")
            return Cast(x, type, word == "bits")
        case _ if word.startswith("_") and word[1:].isdigit():
            return Arg(int(word[1:]))
        case _ if word in FUNCTIONS:
            args = parser.parse_comma_separated_list(parser.Delimiter.PAREN, lambda: parse(parser))
            if len(args) != FUNCTIONS[word].arity:
                parser.raise_error(f"{word} takes {FUNCTIONS[word].arity} arguments, not {len(args)}", position)
            return Call(word, tuple(args))
        case _:
            parser.raise_error(f"'{word}' is not a function of expressions", position)


@irdl_attr_definition
class ExprAttr(Data[Expr]):
    """`#expr.fn<add(_1, mul(_2, 0.5))>`."""

    name = "expr.fn"

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> Expr:
        with parser.in_angle_brackets():
            return parse(parser)

    def print_parameter(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            printer.print_string(text_of(self.data))


EXPR = Dialect("expr", [], [ExprAttr])
