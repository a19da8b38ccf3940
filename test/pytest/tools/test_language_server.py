"""populus-lsp-server, tried by a client: mistakes while typing, hover, definition, uses, completion."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from lsprotocol import types
from pygls.lsp.client import LanguageClient

import populus
from populus.dialects.table import context
from populus.lowering.driver.files import text_of, write_module
from populus.tools import language_server
from populus.tools.module_index import index_of

TEXT = """func.func @main(%x: tensor<4xf32>, %e: tensor<4xf32>) -> tensor<4xf32> {
  %y = popart.leaky_relu %x {alpha = 0.5 : f32} : tensor<4xf32> loc("act")
  %z = popart.add %y, %y : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  func.return %z : tensor<4xf32>
}
"""
WRONG = TEXT.replace("popart.add", "popart.adde")
UNDEFINED = TEXT.replace("popart.add %y, %y", "popart.add %y, %yy")


def at(text: str, part: str, inside: int = 0) -> types.Position:
    """Gives the position of a part of a text."""
    before = text[: text.index(part) + inside]
    return types.Position(line=before.count("\n"), character=len(before) - before.rfind("\n") - 1)


def shown(text: str, range: types.Range) -> str:
    """Gives what stands in a range of one line."""
    assert range.start.line == range.end.line
    return text.splitlines()[range.start.line][range.start.character : range.end.character]


def with_server(visit: Callable[[LanguageClient, Callable[[], Awaitable[Any]]], Awaitable[None]], *arguments: str) -> None:
    """Starts the server, runs a visit with a client and what waits for the next judgement, and ends the server."""

    async def run() -> None:
        client, judged = LanguageClient("test", "1"), asyncio.Queue[Any]()

        def judge(params: Any) -> None:
            judged.put_nowait(params)

        client.feature(types.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)(judge)
        await client.start_io(sys.executable, "-m", "populus.tools.language_server", *arguments)
        await client.initialize_async(types.InitializeParams(capabilities=types.ClientCapabilities()))
        client.initialized(types.InitializedParams())
        await visit(client, lambda: asyncio.wait_for(judged.get(), 60))
        await client.shutdown_async(None)
        client.exit(None)
        await client.stop()

    asyncio.run(run())


def opened(client: LanguageClient, uri: str, text: str) -> types.TextDocumentIdentifier:
    """Opens a text in the editor."""
    client.text_document_did_open(
        types.DidOpenTextDocumentParams(types.TextDocumentItem(uri=uri, language_id="mlir", version=1, text=text))
    )
    return types.TextDocumentIdentifier(uri=uri)


def test_an_editor_is_told_what_is_wrong_and_what_stands_where(tmp_path: Path):
    async def visit(client: LanguageClient, judgement: Callable[[], Awaitable[Any]]) -> None:
        document = opened(client, (tmp_path / "net.mlir").as_uri(), TEXT)
        assert list((await judgement()).diagnostics) == []

        async def asked(what: Any, params: Any, part: str, inside: int = 0, **more: Any) -> Any:
            return await what(params(text_document=document, position=at(TEXT, part, inside), **more))

        hover = await asked(client.text_document_hover_async, types.HoverParams, "%y, %y")
        assert "%y : tensor<4xf32>" in hover.contents.value
        assert "a result of `popart.leaky_relu`" in hover.contents.value
        assert "node: 'act'" in hover.contents.value
        hover = await asked(client.text_document_hover_async, types.HoverParams, "popart.leaky", 3)
        assert shown(TEXT, hover.range) == "popart.leaky_relu"
        place = await asked(client.text_document_definition_async, types.DefinitionParams, "%y, %y", 4)
        assert (place.range.start, shown(TEXT, place.range)) == (at(TEXT, "%y"), "%y")
        asks = types.ReferenceContext(include_declaration=True)
        uses = await asked(client.text_document_references_async, types.ReferenceParams, "%y", context=asks)
        assert [(u.range.start.line, shown(TEXT, u.range)) for u in uses] == [(1, "%y"), (2, "%y"), (2, "%y")]

        wrong = ((2, WRONG, "did you mean 'popart.add'?", "%z = popart.adde"), (3, UNDEFINED, "did you mean '%y'?", "%yy"))
        for version, text, message, part in wrong:
            change = types.TextDocumentContentChangeWholeDocument(text=text)
            changed = types.VersionedTextDocumentIdentifier(uri=document.uri, version=version)
            client.text_document_did_change(types.DidChangeTextDocumentParams(text_document=changed, content_changes=[change]))
            (mistake,) = (await judgement()).diagnostics
            assert message in mistake.message
            assert mistake.range.start == at(text, part)

    with_server(visit)


OPS = '''from populus.custom import *


@irdl_op_definition
class RectOp(UnaryOp):
    """`y = max(x, 0)`. Source: ONNX Relu-14."""

    name = "acme.rect"

    def forward(self, x: Expr) -> Expr:
        return maximum(x, 0.0)
'''


def test_ops_of_a_file_are_known_and_completed(tmp_path: Path):
    (tmp_path / "rect.py").write_text(OPS)
    text = "func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {\n  %y = acme.re\n}\n"

    async def visit(client: LanguageClient, judgement: Callable[[], Awaitable[Any]]) -> None:
        document = opened(client, (tmp_path / "net.mlir").as_uri(), text)
        (mistake,) = (await judgement()).diagnostics
        assert "did you mean 'acme.rect'?" in mistake.message
        items = await client.text_document_completion_async(
            types.CompletionParams(text_document=document, position=at(text, "acme.re", len("acme.re")))
        )
        assert isinstance(items, (list, tuple))
        assert [item.label for item in items] == ["acme.rect"]

    with_server(visit, "--load", str(tmp_path / "rect.py"))


PROPOSED = {
    "  %v = popart.leaky_r": ["popart.leaky_relu"],
    "  %v = popl": ["poplar.", "poplin."],
    "  %v = popart.neg %": ["%e", "%x", "%y"],
    "  %v = popart.leaky_relu %x {al": ["alpha"],
    "  %v = func.call @ma": ["@main"],
    "  // popart.leaky_r": [],
    "  %v = nothing.at_a": [],
}


@pytest.mark.parametrize("line", PROPOSED)
def test_what_may_stand_at_a_place(line: str):
    begin = "\n".join(TEXT.splitlines()[:2]) + f"\n{line}"
    index = index_of(context, begin + "\n}\n", "net.mlir")
    assert index.proposals(len(begin)) == PROPOSED[line]


def test_each_level_of_a_model_has_its_index_and_tiles_their_cycles(tmp_path: Path):
    program = populus.compile(populus.net("digits"), target="gc200", tiles=16)
    for level in ("onnx", "popart", "popops", "poplar"):
        file = tmp_path / f"{level}.mlir"
        write_module([program.module(level)], text_of(program.module(level), locations=True), file)
        text, kept = file.read_text(), language_server.weights_beside(file)
        index = index_of(context, text, file.name)
        assert index.mistakes == [], level
        assert index.module is not None
        assert {s.op for s in index.ops} | {index.module} == set(index.module.walk())
        assert all(text[slice(*s.name)] == s.op.name for s in index.ops), level
        for mention in index.mentions:
            assert index.definition(mention.extent[0]) in index.uses(mention.extent[0])
        del kept
    family = text.index("poplar.execute")
    shown = index.hover(family)
    assert shown is not None
    assert f"cycles: {index.cycles[index.stated(family).op]:,}, predicted" in shown[1]
    codelet = text.index("@matmul")
    assert index.uses(codelet)


def test_every_op_that_is_refused_is_a_mistake_at_its_name():
    text = """func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %y = "popart.relu"(%x) : (tensor<4xf32>) -> tensor<5xf32>
  %z = "popart.neg"(%x) : (tensor<4xf32>) -> tensor<6xf32>
  func.return %x : tensor<4xf32>
}
"""
    mistakes = index_of(context, text, "net.mlir").mistakes
    assert [text[slice(*m.extent)] for m in mistakes] == ["popart.relu", "popart.neg"]


HLO = """func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %y = stablehlo.add %x, %x : tensor<4xf32>
  return %y : tensor<4xf32>
}
"""


def test_mistakes_of_pretty_stablehlo_are_those_of_jaxlib():
    assert index_of(context, HLO, "net.mlir").mistakes == []
    (mistake,) = index_of(context, HLO.replace("%x, %x", "%x, %z"), "net.mlir").mistakes
    assert mistake.extent[0] == HLO.index("%x, %x") + 4
    assert "undeclared" in mistake.message


def test_mistakes_of_arguments_and_a_missing_package_are_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    assert language_server.main(["--lod"]) == 2
    assert language_server.main(["--load", "nothing.py"]) == 1
    monkeypatch.setitem(sys.modules, "pygls.lsp.server", None)
    assert language_server.main([]) == 1
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 3
    assert "pip install pygls" in lines[2]


def test_an_editor_that_ends_without_a_word_ends_the_server():
    ended = subprocess.run([sys.executable, "-m", "populus.tools.language_server"], input=b"", capture_output=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout) == (0, b"")
