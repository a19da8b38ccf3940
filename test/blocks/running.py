"""Runs the blocks of a page in order, in one folder and one namespace."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import os
import re
import shutil
import subprocess
import sys
import tomllib
import traceback
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from blocks.reading import Block, Command, blocks, commands, missing

LOCATION = re.compile(r' loc\((?:unknown|"[^"]*"|fused\[[^\]]*\])\)')
T = TypeVar("T")
RESULTS = ("ran", "not run", "failed")
LEFT_OUT = re.compile(r"^ *\.\.\.\n", re.MULTILINE)


@dataclass(frozen=True)
class Frame:
    """A file of which a block is a part: the block replaces the line BLOCK, and the commands use the file."""

    file: str
    text: str
    commands: tuple[str, ...]


@dataclass(frozen=True)
class Page:
    """A page's reader: the files and names that the page takes for granted, and the lines that are not run.

    `given` runs first, in the empty folder; it may return names for blocks of Python. `before`: the same in front of a block that contains
    the text. `framed`: by a text of the block. `not_run`: the starts of commands and of blocks, with reasons. `long`: starts of commands
    and of blocks that only a whole run includes. `said`: what is printed where a block of text begins so. `fails`: starts of commands that
    exit with 1 or 2. `needs`: modules and programs without which the page is not run.
    """

    given: Callable[[], dict[str, Any] | None] | None = None
    before: dict[str, Callable[[], dict[str, Any] | None]] = field(default_factory=dict[str, Any])
    framed: dict[str, Frame] = field(default_factory=dict[str, Frame])
    not_run: dict[str, str] = field(default_factory=dict[str, str])
    long: tuple[str, ...] = ()
    said: dict[str, Callable[[], str]] = field(default_factory=dict[str, Any])
    fails: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()


@dataclass(frozen=True)
class Outcome:
    """The result of a block or of a command: `ran`, `not run` with a reason, or `failed` with one."""

    place: str
    what: str
    result: str
    reason: str = ""

    def __str__(self) -> str:
        return f"{self.place}: {self.result}: {self.what}" + (f": {self.reason}" if self.reason else "")


class Failed(Exception):
    """A block that does not do what its page says."""


class Reader:
    """Runs the blocks of one page as somebody who follows it."""

    def __init__(self, path: Path, name: str, page: Page, *, whole: bool):
        self.path, self.name, self.page, self.whole = path, name, page, whole
        self.names: dict[str, Any] = {"__name__": "__main__"}
        self.printed = ""
        self.unused = {text for table in (page.before, page.framed, page.said, page.not_run) for text in table}

    def outcomes(self) -> Iterator[Outcome]:
        """Runs the page. The page's first failure does not end it."""
        absent = [name for name in self.page.needs if importlib.util.find_spec(name) is None and shutil.which(name) is None]
        if self.page.given is not None and not absent:
            self.names.update(self.page.given() or {})
        for block in blocks(self.path.read_text()):
            place = f"{self.name}:{block.line}"
            if absent:
                yield Outcome(place, block.language, "not run", f"needs {' and '.join(absent)}")
            elif block.language not in ("sh", "console") and (reason := self.reason(block.text)) is not None:
                yield Outcome(place, block.language, "not run", reason)
            else:
                yield from self.of_block(place, block)
        for text in self.unused if not absent else ():
            yield Outcome(self.name, repr(text), "failed", "no block has what the table in test/blocks/pages.py states")

    def entry(self, table: dict[str, T], has: Callable[[str], bool]) -> T | None:
        """Finds the first entry of a table of the page whose text a block has."""
        text = next(filter(has, table), None)
        self.unused.discard(text or "")
        return None if text is None else table[text]

    def reason(self, text: str) -> str | None:
        """Gives the reason why a block or a command is not run; None if it is."""
        if not self.whole and text.startswith(self.page.long):
            return "long: `make blocks` runs it"
        return self.entry(self.page.not_run, text.startswith)

    def of_block(self, place: str, block: Block) -> Iterator[Outcome]:
        """Runs one block; a block of commands has an outcome for each."""
        if (prepare := self.entry(self.page.before, block.text.__contains__)) is not None:
            self.names.update(prepare() or {})
        if (frame := self.entry(self.page.framed, block.text.__contains__)) is not None:
            whole = re.sub(
                r"^( *)BLOCK\n", lambda m: re.sub(r"^(?=.)", m[1], block.text, flags=re.MULTILINE), frame.text, flags=re.MULTILINE
            )
            Path(frame.file).write_text(whole)
            for line in frame.commands:
                yield self.tried(place, line, lambda line=line: self.command(Command(line)))
            return
        if block.language not in ("sh", "console"):
            assert block.language in KINDS, f"{place}: the fence has no language; one of sh, console, {', '.join(KINDS)}"
            yield self.tried(place, block.language, lambda: KINDS[block.language](self, block))
            return
        self.printed = ""
        for command in commands(block):
            if (reason := self.reason(command.line)) is not None:
                yield Outcome(place, command.line, "not run", reason)
            else:
                yield self.tried(place, command.line, lambda command=command: self.command(command))

    def tried(self, place: str, what: str, body: Callable[[], None]) -> Outcome:
        """Runs `body`, and gives the outcome."""
        try:
            body()
        except Failed as failed:
            return Outcome(place, what, "failed", str(failed))
        except BaseException:  # an error of a block is its outcome, whatever it is
            return Outcome(place, what, "failed", traceback.format_exc())
        return Outcome(place, what, "ran")

    def command(self, command: Command) -> None:
        """Runs a command; compares its status and what it prints."""
        if command.line.startswith("cd "):
            os.chdir(command.line[3:])
            return
        status, printed = self.in_process(words) if (words := command.arguments()) is not None else self.in_shell(command.line)
        self.printed += printed
        fails = "populus: " in command.shown or command.line.startswith(self.page.fails or ("\0",))
        if status not in ((1, 2) if fails else (0,)):
            raise Failed(f"status {status}\n{printed[-3000:]}")
        if (line := missing(command.shown, printed)) is not None:
            raise Failed(f"not printed: {line}\n{printed[-3000:]}")

    def in_process(self, words: list[str]) -> tuple[int, str]:
        """Runs a command of populus here: its start, half a second, is spent once for a page."""
        from populus.tools import main, populus_opt

        with captured() as printed:
            try:
                status = {"populus": main.main, "populus-opt": populus_opt.main}[words[0]](words[1:])
            except SystemExit as stop:
                status = int(stop.code or 0)
        return status, printed.getvalue()

    def in_shell(self, line: str) -> tuple[int, str]:
        """Runs a line by the shell, with this Python and its commands first in the path."""
        ran = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
        return ran.returncode, ran.stdout + ran.stderr

    def python(self, block: Block) -> None:
        """Runs Python, or writes it to a file if its first line is the file's name."""
        if block.remark.startswith("of "):
            self.quoted(block)
        elif named := re.match(r"# (\S+\.py)\n", block.text):
            Path(named[1]).write_text(block.text)
        else:
            with captured() as printed:
                exec(compile(block.text, f"{self.path}:{block.line}", "exec"), self.names)
            self.printed = printed.getvalue()

    def quoted(self, block: Block) -> None:
        """Requires that the block is a part of the file of the repository that the remark names."""
        name = block.remark.removeprefix("of ")
        root = next(p for p in self.path.parents if (p / "pyproject.toml").exists())
        if block.text not in (root / name).read_text():
            raise Failed(f"not a part of {name}")

    def mlir(self, block: Block) -> None:
        """Parses a block; with a remark, compares it with the file of that name or, for `printed`, with what was printed last."""
        if block.remark:
            return self.shown(block)
        from populus.dialects.support.parser import LocatingParser
        from populus.dialects.table import context

        for part in block.text.split("// -----"):
            parser = LocatingParser(context(), LEFT_OUT.sub("", part), self.name)
            while (op := parser.parse_optional_operation()) is not None:
                assert op.name != "builtin.unregistered", op.name
        return None

    def shown(self, block: Block) -> None:
        """Compares a block with the file of its remark, or with what the last block printed."""
        text = self.printed
        if block.remark != "printed":
            files = [p for p in (Path(f"{block.remark}.mlir"), Path("steps") / f"{block.remark}.mlir") if p.exists()]
            if not files:
                raise Failed(f"there is no file {block.remark}.mlir")
            text = LOCATION.sub("", files[0].read_text())
        if (line := missing(block.text, text)) is not None:
            raise Failed(f"not there: {line}\n{text[-3000:]}")

    def text(self, block: Block) -> None:
        """Compares what a remark `printed` or a file's name asks for. Every other text needs its reason in the table."""
        if (say := self.entry(self.page.said, block.text.startswith)) is not None:
            self.printed = say()
        elif not block.remark:
            raise Failed("a text has a remark that says where it comes from, or a reason in test/blocks/pages.py")
        self.shown(block if block.remark else replace(block, remark="printed"))

    def toml(self, block: Block) -> None:
        """Parses TOML."""
        tomllib.loads(block.text)


KINDS: dict[str, Callable[[Reader, Block], None]] = {
    "mlir": Reader.mlir,
    "python": Reader.python,
    "text": Reader.text,
    "toml": Reader.toml,
}


@contextlib.contextmanager
def captured() -> Generator[io.StringIO]:
    """Collects standard output and standard error in one text."""
    text = io.StringIO()
    with contextlib.redirect_stdout(text), contextlib.redirect_stderr(text):
        yield text


def path_of_commands(folder: Path) -> str:
    """Writes `populus`, `populus-opt` and `python` of this interpreter into a folder; gives PATH with it in front."""
    folder.mkdir(exist_ok=True)
    for name, module in (("populus", "-m populus"), ("populus-opt", "-m populus.tools.populus_opt"), ("python", "")):
        (folder / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {module} "$@"\n')
        (folder / name).chmod(0o755)
    return os.pathsep.join((str(folder), str(Path(sys.executable).parent), os.environ.get("PATH", "")))
