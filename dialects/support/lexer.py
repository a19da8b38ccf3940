"""The lexer of our texts: xDSL's, in time linear in the text, and without characters that only look like digits and letters."""

from __future__ import annotations

import re

from xdsl.utils.exceptions import ParseError
from xdsl.utils.lexer import Span
from xdsl.utils.mlir_lexer import MLIRLexer, MLIRToken


class Lexer(MLIRLexer):
    """xDSL's lexer, which tries each way to cut a string that is not closed into pieces: their number doubles with each character."""

    # Possessive: what a piece has matched is not given back, so there is one way to cut. The strings that match are the same.
    _unescaped_characters_regex = re.compile(r'"(?:[^"\\\n\v\f]++|\\(?:["nt\\]|[0-9A-Fa-f]{2}))*+"')

    def lex(self) -> MLIRToken:
        """Reads the next token. Raises ParseError if there is none."""
        token = super().lex()
        # xDSL lets a name begin with a letter of any script and a number with any numeral, which `int` then refuses.
        first = self.input.at(token.span.start)
        if first is not None and not first.isascii():
            raise ParseError(Span(token.span.start, token.span.start + 1, self.input), f"unexpected character {first!r}")
        return token
