"""The code blocks of a page, and the commands of a block."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, its text, the line of its fence, and the remark `<!-- remark -->` right above it."""

    language: str
    text: str
    line: int
    remark: str = ""


@dataclass(frozen=True)
class Command:
    """A line for the shell, and the lines that a block `console` shows after it."""

    line: str
    shown: str = ""

    def arguments(self) -> list[str] | None:
        """Gives the words of a command of populus that needs no shell; None for other commands."""
        words = shlex.split(self.line)
        needs_shell = any(word in ("|", "&&", "<", ">", ";") for word in words)
        return words if words[0] in ("populus", "populus-opt") and not needs_shell else None


def blocks(text: str) -> Iterator[Block]:
    """Reads the fenced blocks of a page in order, without those inside of lists."""
    for found in re.finditer(r"(?:^<!-- ([^\n]*) -->\n)?^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        yield Block(found[2], found[3], text[: found.start(2)].count("\n") + 1, found[1] or "")


def commands(block: Block) -> list[Command]:
    """Reads the commands of a block `sh` or `console`: without remarks, continued lines joined."""
    text = re.sub(r" *\\\n *", " ", block.text)
    if block.language == "sh":
        lines = (re.sub(r"(^|\s+)#( .*)?$", "", line).strip() for line in text.splitlines())
        return [Command(line) for line in lines if line]
    parts = [part.split("\n", 1) for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]]
    return [Command(line, shown) for line, shown in parts]


def missing(shown: str, printed: str) -> str | None:
    """Gives the first line of `shown` that is not a line of `printed`, in this order; None if all are.

    `...` stands for any text within a line, and alone for any lines. Spaces at both ends do not count.
    """
    lines = iter(printed.splitlines())
    for wanted in (line.strip() for line in shown.splitlines()):
        pattern = ".*".join(map(re.escape, wanted.split("...")))
        if wanted not in ("", "...") and not any(re.fullmatch(pattern, line.strip()) for line in lines):
            return wanted
    return None
