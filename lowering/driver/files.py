"""Modules as files: text with its weights beside it, written completely or not at all."""

from __future__ import annotations

import io
import itertools
import os
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.printer import Printer
from xdsl.utils.exceptions import ParseError, UnregisteredConstructException

from populus.dialects.data import Blob, blobs_of, load_blobs, save_blobs
from populus.dialects.support.diagnostics import LocatingParser, PopulusError, verify

_WRITERS = itertools.count()  # several threads may write one file; the last to end it stays


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Generator[Path, None, None]:
    """A path to write to in place of `path`, which takes its place when the block ends well and is removed when it does not.

    Raises PopulusError if the folder cannot be written to.
    """
    target = Path(path)
    partial = target.with_name(f"{target.name}.{os.getpid()}.{next(_WRITERS)}.partial")
    try:
        yield partial
        partial.replace(target)
    except OSError as error:
        raise PopulusError(f"{target}: cannot be written: {error.strerror or error}") from error
    finally:
        partial.unlink(missing_ok=True)


@contextmanager
def in_file(path: str | os.PathLike[str] | None) -> Generator[None, None, None]:
    """What is wrong inside is said to be in this file, unless the message begins with it anyway."""
    try:
        yield
    except PopulusError as error:
        if path is None or str(error).startswith(os.fspath(path)):
            raise
        error.args = (f"{os.fspath(path)}: {error}",)  # it stays the error that it is, for those who catch one kind
        raise


def text_of(module: ModuleOp, *, locations: bool) -> str:
    """The module's text. With `locations`, each op says which ONNX node (or line) it came from."""
    stream = io.StringIO()
    Printer(stream, print_debuginfo=locations).print_op(module)
    return stream.getvalue() + "\n"


def parse_text(ctx: Context, text: str, name: str) -> ModuleOp:
    """The module in `text`, whose ops know their line. `name` stands for the file in messages.

    Raises PopulusError `name:line:column: ...` where the text is malformed, and for what cannot be verified.
    """
    try:
        module = LocatingParser(ctx, text, name).parse_module()
    except ParseError as error:
        raise PopulusError(parse_message(error)) from error
    except UnregisteredConstructException as error:
        raise PopulusError(f"{name}: {error}") from error
    verify(module)
    return module


def parse_message(error: ParseError) -> str:
    """`file:line:column: what is wrong`."""
    at = error.span.get_location()
    return f"{at.file}:{at.line}:{at.col}: {' '.join(error.msg.split())}"


def read_bytes(path: str | os.PathLike[str]) -> bytes:
    """The content of a file. Raises PopulusError if there is none, it is a folder, or may not be read."""
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise PopulusError(f"{os.fspath(path)}: {(error.strerror or str(error)).lower()}") from error


def decode(content: bytes, name: str) -> str:
    """Text of UTF-8. Raises PopulusError naming the first byte that is none."""
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise PopulusError(f"{name}: not a text: byte {error.start} is not UTF-8; models are .onnx, modules .mlir") from error


def weights_beside(path: str | os.PathLike[str]) -> list[Blob]:
    """The stored constants beside a module's text: `x.safetensors` for `x.mlir`, else `weights.safetensors` of its folder.

    Keep the list until the text is parsed. Empty if there is no such file.
    """
    own = Path(path).with_suffix(".safetensors")
    for weights in (own, own.with_name("weights.safetensors")):
        if weights.is_file():
            return load_blobs(weights)
    return []


def read_module(ctx: Context, path: str | os.PathLike[str], weights: str | os.PathLike[str] | None = None) -> ModuleOp:
    """The module in a `.mlir` file, with its stored constants from `weights`, or from the file beside it.

    Raises PopulusError.
    """
    name = os.fspath(path)
    text = decode(read_bytes(path), name)
    blobs = load_blobs(weights) if weights is not None else weights_beside(path)
    module = parse_text(ctx, text, name)
    assert all(blob.key for blob in blobs)  # held until here: a blob lives as long as something refers to it
    return module


def write_module(modules: Sequence[ModuleOp], text: str, path: str | os.PathLike[str]) -> None:
    """Writes the text of `modules` to `path`, and their stored constants, if any, beside it as `.safetensors`."""
    stored = {key: blob for module in modules for key, blob in blobs_of(module).items()}
    if stored:
        with replacing(Path(path).with_suffix(".safetensors")) as partial:
            save_blobs(stored, partial)
    with replacing(path) as partial:
        partial.write_text(text)
