"""The log of rewrites: which pattern fired on which op, and at which condition the others stopped.

It is Python's logging, the logger `populus.popart-fuse` at the level DEBUG; `populus-opt --debug-only=popart-fuse` prints it.
"""

from __future__ import annotations

import linecache
import logging
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xdsl.ir import Operation
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern

from populus.dialects.support.diagnostics import where

if TYPE_CHECKING:
    from types import CodeType, FrameType

LOGGER = logging.getLogger("populus.popart-fuse")


def apply(pattern: RewritePattern, op: Operation, rewriter: PatternRewriter) -> None:
    """Applies a pattern to an op, and logs one line: that it fires, or the condition at which it stopped, with file and line."""
    code: CodeType = getattr(type(pattern), "rewrite", type(pattern).match_and_rewrite).__code__
    place, last, before = f"{where(op)}: {op.name}", 0, sys.getprofile()

    def seen(frame: FrameType, event: str, value: Any) -> None:
        nonlocal last
        if event == "return" and frame.f_code is code:
            last = frame.f_lineno

    sys.setprofile(seen)
    try:
        pattern.match_and_rewrite(op, rewriter)
    finally:
        sys.setprofile(before)
    name = type(pattern).__name__
    if rewriter.has_done_action:
        LOGGER.debug("%s: %s fires", place, name)
    else:
        LOGGER.debug("%s: %s stops at %s:%d: %s", place, name, Path(code.co_filename).name, last, condition(code.co_filename, last))


def condition(file: str, line: int) -> str:
    """Returns the source of a line; of a bare `return None`, the branch that it stands in, or else the statement before it."""
    text = linecache.getline(file, line)
    if text.strip() == "return None":
        for above in range(line - 1, 0, -1):
            found = linecache.getline(file, above)
            if found.strip() and _indent(found) <= _indent(text):
                return found.strip()
    return text.strip()


def _indent(text: str) -> int:
    return len(text) - len(text.lstrip())
