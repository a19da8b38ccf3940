"""Spellings of `mlir-opt` that `populus-opt` takes: nested pipelines, modules printed between passes, expected errors."""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from io import StringIO

from xdsl.dialects.builtin import ModuleOp
from xdsl.printer import Printer
from xdsl.utils.exceptions import ParseError

from populus.dialects.support.diagnostics import PopulusError

TOPICS = ("popart-fuse",)
"""The passes that log what they do."""

ANCHORS = ("builtin.module", "func.func", "any")


def flat_pipeline(text: str) -> str:
    """Turns `builtin.module(cse,func.func(canonicalize))` into `cse,canonicalize`: every pass here runs on the whole module.

    Raises PopulusError for brackets that do not match, and for an op that passes are not nested on.
    """
    found, depth, braces = "", 0, 0
    for part in re.split(r"([(){}])", text):
        if part in ("{", "}"):
            braces += 1 if part == "{" else -1
        elif part == "(" and not braces:
            anchor = re.split(r"[,\s]", found)[-1]
            if anchor not in ANCHORS:
                raise PopulusError(f"--pass-pipeline: passes are nested on '{anchor}'; expected {', '.join(ANCHORS)}")
            found, depth = found[: len(found) - len(anchor)], depth + 1
            continue
        elif part == ")" and not braces:
            depth -= 1
            if depth < 0:
                break
            continue
        found += part
    if depth or braces:
        raise PopulusError(f"--pass-pipeline: the brackets of '{text}' do not match")
    return found


def dump(title: str, module: ModuleOp, *, debuginfo: bool = False) -> None:
    """Prints a module to standard error under a title, as `mlir-opt` does."""
    printed = StringIO()
    Printer(printed, print_debuginfo=debuginfo).print_op(module)
    print(f"// -----// IR Dump {title} //----- //\n{printed.getvalue()}\n", file=sys.stderr)


@contextmanager
def logging_of(topic: str | None) -> Generator[None, None, None]:
    """Prints to standard error, inside the block, what the pass of a name logs: a line for each record, after the name."""
    if topic is None:
        yield
        return
    logger, handler = logging.getLogger(f"populus.{topic}"), logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter(f"[{topic}] %(message)s"))
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    try:
        yield
    finally:
        logger.setLevel(before)
        logger.removeHandler(handler)


def source_line(error: ParseError) -> str:
    """Gives the line of the source at a parse error, with a caret under the place; empty if the line is not printable."""
    source, start = str(error.span.input.content), error.span.start
    begin = source.rfind("\n", 0, start) + 1
    end = source.find("\n", start)
    line, column = source[begin : len(source) if end < 0 else end], start - begin
    if len(line) > WIDEST:
        cut = max(0, column - WIDEST // 2)
        line, column = line[cut : cut + WIDEST], column - cut
    if not line.strip() or not line.replace("\t", "").isprintable():
        return ""
    return f"  {line}\n  {''.join(c if c == chr(9) else ' ' for c in line[:column])}^"


WIDEST = 160  # characters of a source line that are printed


@dataclass(frozen=True)
class Expected:
    """An `expected-error` comment: the line that it is about, and a part of the message."""

    line: int
    text: str


_EXPECTED = re.compile(r"expected-error(?:-re)?\s*(?:@([+-]\d+|above|below|unknown))?\s*\{\{(.*?)\}\}")


def expected_errors(text: str, offset: int = 0) -> list[Expected]:
    """Lists the `// expected-error @+1 {{text}}` comments of a text. `offset`: lines before it in its file. Line 0: any line."""
    found: list[Expected] = []
    for number, line in enumerate(text.split("\n"), offset + 1):
        for at, wanted in _EXPECTED.findall(line):
            shift = {"": 0, "above": -1, "below": 1}.get(at)
            found.append(Expected(0 if at == "unknown" else number + (int(at) if shift is None else shift), wanted))
    return found


def check_expected(expected: list[Expected], message: str | None, name: str) -> None:
    """Compares the error of a text with those that its comments expect: a part stops at its first error, so it has one.

    `message`: as printed, `file:line:column: ...`, or None without an error. Raises PopulusError if they differ.
    """
    if len(expected) > 1:
        raise PopulusError(f"{name}: {len(expected)} errors are expected before the next // -----; a part stops at its first one")
    (wanted,) = expected
    if message is None:
        raise PopulusError(f"{name}:{wanted.line}: expected error '{wanted.text}' was not produced")
    found = re.search(re.escape(name) + r":(\d+)", message)
    if wanted.text not in message:
        raise PopulusError(f"{name}:{wanted.line}: expected error '{wanted.text}', found: {message}")
    if wanted.line and found is not None and int(found[1]) != wanted.line:
        raise PopulusError(f"{name}:{wanted.line}: expected error '{wanted.text}' is in line {found[1]}: {message}")
