"""`populus-lsp-server`: a language server for modules of every level, for editors.

It speaks the Language Server Protocol on stdin and stdout: what is wrong while one types, types, nodes of the model, predicted
cycles, definitions, uses, and completion. VS Code's MLIR extension starts it by its setting `mlir.server_path`.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from xdsl.context import Context

from populus.dialects.data import Handle
from populus.dialects.support.diagnostics import PopulusError
from populus.dialects.table import context
from populus.lowering.driver import extensions
from populus.lowering.driver.files import weights_beside
from populus.tools.command import ArgumentParser, reporting
from populus.tools.module_index import Extent, Index, index_of

PAUSE = 0.2
"""Seconds without typing after which a text is read."""


class Documents:
    """The texts that are open in the editor, each with its index and the constants that its file keeps beside it."""

    def __init__(self, make_context: Callable[[], Context]):
        self.make_context = make_context
        self.indices: dict[str, tuple[int | None, Index]] = {}
        self.constants: dict[str, list[Handle]] = {}

    def opened(self, uri: str, path: str | None) -> None:
        """Loads the constants beside a file that is opened, which its text names."""
        if path is not None and Path(path).is_file():
            self.constants[uri] = weights_beside(path)

    def index(self, document: Any) -> Index:
        """Gives the index of a document as it is now."""
        version, index = self.indices.get(document.uri, (None, None))
        if index is None or version != document.version or index.text != document.source:
            index = index_of(self.make_context, document.source, Path(document.path or document.uri).name)
            self.indices[document.uri] = (document.version, index)
        return index

    def closed(self, uri: str) -> None:
        """Forgets a document."""
        self.indices.pop(uri, None)
        self.constants.pop(uri, None)


def positions(document: Any, extent: Extent) -> tuple[tuple[int, int], tuple[int, int]]:
    """Gives the line and the character of both ends of a stretch, characters in the units of the editor."""

    def position(at: int) -> tuple[int, int]:
        start = document.source.rfind("\n", 0, at) + 1
        return document.source.count("\n", 0, at), document.position_codec.client_num_units(document.source[start:at])

    return position(extent[0]), position(extent[1])


def server_of(make_context: Callable[[], Context]) -> Any:
    """Makes the server. Raises PopulusError without pygls."""
    try:
        types = import_module("lsprotocol.types")
        language_server = import_module("pygls.lsp.server").LanguageServer
    except ImportError as error:
        raise PopulusError(f"populus-lsp-server needs pygls: pip install pygls ({error})") from error
    server, documents = language_server("populus-lsp-server", "1"), Documents(make_context)

    def place(document: Any, extent: Extent) -> Any:
        begin, end = (types.Position(*position) for position in positions(document, extent))
        return types.Range(start=begin, end=end)

    def found(params: Any) -> tuple[Any, Index, int]:
        document = server.workspace.get_text_document(params.text_document.uri)
        return document, documents.index(document), document.offset_at_position(params.position)

    def judge(uri: str) -> None:
        document = server.workspace.get_text_document(uri)
        mistakes = [
            types.Diagnostic(range=place(document, m.extent), message=m.message, severity=types.DiagnosticSeverity.Error, source="populus")
            for m in documents.index(document).mistakes
        ]
        server.text_document_publish_diagnostics(types.PublishDiagnosticsParams(uri=uri, version=document.version, diagnostics=mistakes))

    @server.feature(types.TEXT_DOCUMENT_DID_OPEN)
    def did_open(params: Any) -> None:
        uri = params.text_document.uri
        documents.opened(uri, server.workspace.get_text_document(uri).path)
        judge(uri)

    @server.feature(types.TEXT_DOCUMENT_DID_CHANGE)
    async def did_change(params: Any) -> None:
        uri, version = params.text_document.uri, params.text_document.version
        await asyncio.sleep(PAUSE)
        if server.workspace.get_text_document(uri).version == version:
            judge(uri)

    @server.feature(types.TEXT_DOCUMENT_DID_CLOSE)
    def did_close(params: Any) -> None:
        documents.closed(params.text_document.uri)

    @server.feature(types.TEXT_DOCUMENT_HOVER)
    def hover(params: Any) -> Any:
        document, index, at = found(params)
        shown = index.hover(at)
        if shown is None:
            return None
        content = types.MarkupContent(kind=types.MarkupKind.Markdown, value=shown[1])
        return types.Hover(contents=content, range=place(document, shown[0]))

    @server.feature(types.TEXT_DOCUMENT_DEFINITION)
    def definition(params: Any) -> Any:
        document, index, at = found(params)
        extent = index.definition(at)
        return None if extent is None else types.Location(uri=document.uri, range=place(document, extent))

    @server.feature(types.TEXT_DOCUMENT_REFERENCES)
    def references(params: Any) -> Any:
        document, index, at = found(params)
        return [types.Location(uri=document.uri, range=place(document, extent)) for extent in index.uses(at)]

    @server.feature(types.TEXT_DOCUMENT_COMPLETION, types.CompletionOptions(trigger_characters=[".", "%", "@", "{"]))
    def completion(params: Any) -> Any:
        _, index, at = found(params)
        return [types.CompletionItem(label=label) for label in index.proposals(at)]

    return server


def _run(args: Sequence[str]) -> int:
    parser = ArgumentParser(prog="populus-lsp-server", description=__doc__)
    parser.add_argument("--load", action="append", default=[], metavar="FILE.py", help="load ops from a Python file")
    given = parser.parse_args(args)
    loaded = [*extensions.installed(), *map(extensions.read, given.load)]

    def make_context() -> Context:
        ctx = context()
        for extension in loaded:
            extension.register(ctx)
        return ctx

    server_of(make_context).start_io()
    return 0


def main(argv: list[str] | None = None) -> int:
    """Runs the server until the editor ends it; gives 0, and 1 with one line on stderr on failure."""
    return reporting("populus-lsp-server", sys.argv[1:] if argv is None else argv, _run)


if __name__ == "__main__":
    sys.exit(main())
