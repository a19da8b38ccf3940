"""The lexer of our texts: xDSL's, in time linear in the text, and without characters that only look like digits and letters."""

from __future__ import annotations

import re

from xdsl.utils.exceptions import ParseError
from xdsl.utils.lexer import Span, Token
from xdsl.utils.mlir_lexer import MLIRLexer, MLIRToken, MLIRTokenKind

_COMMON = re.compile(
    r"""(?:[ \t\n\r\v\f]++|//[^\n]*+)*+
    (?: ([a-zA-Z_][\w$.]*+) | (%(?:[0-9]++|[a-zA-Z$._-][\w$.-]*+)) | ([0-9]++)(?![.x]) | (!(?:[0-9]++|[a-zA-Z$._-][\w$.-]*+))
      | (:) | (,) | (\() | (\)) | (\}) | (\[) | (\]) | (<) | (>) | (=) | (\+) | (\*) | (\{)(?!-\#) )""",
    re.ASCII | re.VERBOSE,
)
_K = MLIRTokenKind
_KINDS = (
    _K.EOF, _K.BARE_IDENT, _K.PERCENT_IDENT, _K.INTEGER_LIT, _K.EXCLAMATION_IDENT, _K.COLON, _K.COMMA, _K.L_PAREN, _K.R_PAREN, _K.R_BRACE,
    _K.L_SQUARE, _K.R_SQUARE, _K.LESS, _K.GREATER, _K.EQUAL, _K.PLUS, _K.STAR, _K.L_BRACE,
)  # fmt: skip
"""The kinds of the groups of the pattern, by their numbers."""


class _Token(Token[MLIRTokenKind, str]):
    """A token that has its text, which xDSL cuts out of the input each time that it is asked for."""

    text = ""  # pyright: ignore[reportAssignmentType, reportIncompatibleMethodOverride]

    def __init__(self, kind: MLIRTokenKind, span: Span[str], text: str):
        self.kind, self.span = kind, span
        self.text = text  # pyright: ignore[reportAttributeAccessIssue, reportIncompatibleMethodOverride]


class Lexer(MLIRLexer):
    """xDSL's lexer, which tries each way to cut a string that is not closed into pieces: their number doubles with each character.

    One pattern reads the common tokens, for xDSL's takes a third of the time in which a text is parsed.
    """

    # Possessive: what a piece has matched is not given back, so there is one way to cut. The strings that match are the same.
    _unescaped_characters_regex = re.compile(r'"(?:[^"\\\n\v\f]++|\\(?:["nt\\]|[0-9A-Fa-f]{2}))*+"')

    def lex(self) -> MLIRToken:
        """Reads the next token. Raises ParseError if there is none."""
        if (match := _COMMON.match(self.input.content, self.pos)) is not None:
            group = match.lastindex or 0
            start, self.pos = match.span(group)
            return _Token(_KINDS[group], Span(start, self.pos, self.input), match[group])
        token = super().lex()
        # xDSL lets a name begin with a letter of any script and a number with any numeral, which `int` then refuses.
        first = self.input.at(token.span.start)
        if first is not None and not first.isascii():
            raise ParseError(Span(token.span.start, token.span.start + 1, self.input), f"unexpected character {first!r}")
        return token
