"""Module files: text with its weights in a file next to it, written completely or not at all."""

from __future__ import annotations

import io
import os
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.printer import Printer
from xdsl.utils.exceptions import ParseError, UnregisteredConstructException

from populus.dialects.data import TABLE, Handle, blobs_of, load_blobs, save_blobs
from populus.dialects.support.diagnostics import PopulusError, verify
from populus.dialects.support.output_files import replacing_all
from populus.lowering.stablehlo.importer import is_stablehlo, needs_jaxlib, read_text
from populus.lowering.stablehlo.jaxlib_reader import generic_text
from populus.lowering.stablehlo.refinement import NOTHING, Given


@contextmanager
def in_file(path: str | os.PathLike[str] | None) -> Generator[None, None, None]:
    """Prefixes a PopulusError raised inside with the file's name, unless the message begins with it already."""
    try:
        yield
    except PopulusError as error:
        if path is None or str(error).startswith(os.fspath(path)):
            raise
        error.args = (f"{os.fspath(path)}: {error}",)  # the same error object, for callers that catch one class
        raise


def text_of(module: ModuleOp, *, locations: bool) -> str:
    """Prints the module. With `locations`, each op has its ONNX node, or its file and line."""
    stream = io.StringIO()
    Printer(stream, print_debuginfo=locations).print_op(module)
    return stream.getvalue() + "\n"


def parse_text(ctx: Context, text: str, name: str) -> ModuleOp:
    """Parses and verifies the module in `text`; each op's location is its line. `name` stands for the file in
    messages.

    Raises PopulusError `name:line:column: ...` for malformed text, and for a module that fails verification.
    """
    try:
        module = read_text(ctx, text, name)
    except ParseError as error:
        raise PopulusError(parse_message(error)) from error
    except UnregisteredConstructException as error:
        raise PopulusError(f"{name}: {error}") from error
    verify(module)
    return module


def parse_message(error: ParseError) -> str:
    """Formats a parse error as `file:line:column: reason`."""
    at = error.span.get_location()
    return f"{at.file}:{at.line}:{at.col}: {' '.join(error.msg.split())}"


def read_bytes(path: str | os.PathLike[str]) -> bytes:
    """Reads the content of a file. Raises PopulusError if it is missing, a folder, or not readable."""
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise PopulusError(f"{os.fspath(path)}: {(error.strerror or str(error)).lower()}") from error


def decode(content: bytes, name: str) -> str:
    """Decodes UTF-8. Raises PopulusError naming the first invalid byte."""
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise PopulusError(f"{name}: not a text: byte {error.start} is not UTF-8; models are .onnx, modules .mlir") from error


def weights_beside(path: str | os.PathLike[str]) -> list[Handle]:
    """Loads the stored constants next to a module's text: `x.safetensors` for `x.mlir`, else
    `weights.safetensors`.

    Returns an empty list if there is no such file. Keep the list alive until the text is parsed.
    """
    own = Path(path).with_suffix(".safetensors")
    for weights in (own, own.with_name("weights.safetensors")):
        if weights.is_file():
            return load_blobs(weights)
    return []


def read_module(
    ctx: Context, path: str | os.PathLike[str], weights: str | os.PathLike[str] | None = None, given: Given = NOTHING
) -> ModuleOp:
    """Reads the module in a `.mlir` file, with its stored constants from `weights` or from the file next to it.

    `given`: sizes and values of inputs of StableHLO.
    Raises PopulusError if a file is not readable, the text is malformed, or the module fails verification.
    """
    name = os.fspath(path)
    content = read_bytes(path)
    if given and not is_stablehlo(content):
        raise PopulusError(f"{name}: sizes and values are given, which are for ONNX and StableHLO; other modules have their sizes")
    text = generic_text(content, name, given) if given or needs_jaxlib(content) else decode(content, name)
    blobs = load_blobs(weights) if weights is not None else weights_beside(path)
    module = parse_text(ctx, text, name)
    assert all(TABLE.key(handle) for handle in blobs)  # keeps the contents alive until here
    return module


def write_module(modules: Sequence[ModuleOp], text: str, path: str | os.PathLike[str]) -> None:
    """Writes the text of `modules` to `path`, and their stored constants, if any, next to it as `.safetensors`.

    Raises PopulusError if the folder is not writable.
    """
    stored = {key: handle for module in modules for key, handle in blobs_of(module).items()}
    weights = [Path(path).with_suffix(".safetensors")] if stored else []
    with replacing_all([*weights, path]) as [*beside, partial]:
        for place in beside:
            save_blobs(stored, place)
        partial.write_text(text)
