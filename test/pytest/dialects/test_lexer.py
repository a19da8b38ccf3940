"""The lexer reads what xDSL's reads, and types that were read before are those that are read anew."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from xdsl.utils.exceptions import ParseError
from xdsl.utils.lexer import Input
from xdsl.utils.mlir_lexer import MLIRLexer, MLIRTokenKind

from populus.dialects.support.diagnostics import PopulusError
from populus.dialects.support.lexer import Lexer
from populus.dialects.table import context
from populus.lowering.driver.files import parse_text, text_of

TEXTS = sorted((Path(__file__).parents[2] / "filecheck").rglob("*.mlir"))
CHARACTERS = ':,()}[]<>=+*{/-.?|#!%^@"0 \n\t\v'
PIECES = (*CHARACTERS, "{-#", "#-}", "->", "...", "// a\n", "0x1f", "0x", "2.5e-3", "1e5", "x3.5", "a.b$c", "%-a", "!x", "@a", '"a\\n"')


def _tokens(lexer: MLIRLexer) -> list[tuple[MLIRTokenKind, str, int] | str]:
    found: list[tuple[MLIRTokenKind, str, int] | str] = []
    while not found or (found[-1][0] is not MLIRTokenKind.EOF and not isinstance(found[-1], str)):
        try:
            token = lexer.lex()
        except ParseError as error:
            return [*found, str(error.span.start)]
        found.append((token.kind, token.text, token.span.start))
    return found


def test_tokens_of_texts_are_xdsls():
    for path in TEXTS[::25]:
        text = path.read_text()
        assert _tokens(Lexer(Input(text, "a"))) == _tokens(MLIRLexer(Input(text, "a"))), path


def test_tokens_of_any_pieces_are_xdsls():
    rng = random.Random(0)
    for _ in range(2000):
        text = "".join(rng.choice(PIECES) for _ in range(rng.randint(1, 6)))
        assert _tokens(Lexer(Input(text, "a"))) == _tokens(MLIRLexer(Input(text, "a"))), repr(text)


@pytest.mark.parametrize("shape", ["2x3xf32", "0x10xf32", "2x0xf32", "10x0x10xi1", "f32", "0xf32"])
def test_shapes_are_read_as_they_are_printed(shape: str):
    text = f"func.func @f(%a: tensor<{shape}>, %b: tensor<{shape}>) -> tensor<{shape}> {{\n func.return %b : tensor<{shape}>\n}}"
    assert text_of(parse_text(context(), text, "a"), locations=False).count(f"tensor<{shape}>") == 4


@pytest.mark.parametrize("shape", ["2x3.5xf32", "2x", "x2xf32", "2xx3xf32", "2x3", "2.xf32", "2x-1xf32"])
def test_a_shape_that_is_none_is_refused(shape: str):
    with pytest.raises(PopulusError):
        parse_text(context(), f"func.func @f(%a: tensor<{shape}>) {{\n func.return\n}}", "a")
