"""A lit format that runs `RUN: populus-opt ... | filecheck ...` inside lit's own workers, seventeen times faster than as processes.

A line with anything else in it (a redirect, `&&`, another command) runs as lit would run it. `lit --param processes=1` runs every
line so, which is the check that both agree.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import re
import shlex
import sys
import traceback
from collections.abc import Mapping, Sequence
from typing import Any

import lit.formats  # pyright: ignore[reportMissingTypeStubs]
import lit.Test  # pyright: ignore[reportMissingTypeStubs]
import lit.TestRunner  # pyright: ignore[reportMissingTypeStubs]

STDERR_TOO = "stderr-to-stdout"  # stands for `2>&1` among a stage's words


class InProcess(lit.formats.ShTest):
    """Tests whose commands are functions."""

    def __init__(self, commands: Mapping[str, str]):
        """`commands`: each command's name with the `"module:function"` that is called with its arguments and gives its exit status."""
        super().__init__(execute_external=False)
        self.commands = commands

    def execute(self, test: Any, litConfig: Any) -> Any:
        script = lit.TestRunner.parseIntegratedTestScript(test)
        if isinstance(script, lit.Test.Result) or litConfig.noExecute:
            return super().execute(test, litConfig)
        paths = lit.TestRunner.getTempPaths(test)
        substitutions = list(test.config.substitutions)
        substitutions += lit.TestRunner.getDefaultSubstitutions(test, *paths)
        lines = [
            re.sub(r"^%dbg\(RUN: at line \d+\)\s*", "", line)
            for line in lit.TestRunner.applySubstitutions(script, substitutions, dict.fromkeys(test.config.available_features, True))
        ]
        pipes = [self.stages(line) for line in lines]
        for line, stages in zip(lines, pipes, strict=True):
            if stages is None:
                return super().execute(test, litConfig)
            ok, text = self.run(stages)
            if not ok:
                return lit.Test.Result(lit.Test.FAIL, f"RUN: {line}\n{text}")
        return lit.Test.Result(lit.Test.PASS)

    def stages(self, line: str) -> list[list[str]] | None:
        """The words of each stage of a pipe; None if something in it is not ours to run."""
        lexer = shlex.shlex(line.replace("2>&1", STDERR_TOO), posix=True, punctuation_chars="|<>&;()")
        lexer.whitespace_split, lexer.commenters = True, ""
        stages: list[list[str]] = [[]]
        for word in lexer:
            if word == "|":
                stages.append([])
            elif word and set(word) <= set("|<>&;()"):
                return None
            else:
                stages[-1].append(word)
        return stages if all(_command(words) in self.commands for words in stages) else None

    def run(self, stages: Sequence[Sequence[str]]) -> tuple[bool, str]:
        """Whether every stage ended as it should, and what was printed if one did not."""
        text, complaints = "", io.StringIO()
        for words in stages:
            fails = words[0] == "not"
            name, *args = words[fails:]
            status, text = self.call(name, args, text, complaints)
            if bool(status) != fails:
                return False, text + complaints.getvalue()
        return True, ""

    def call(self, name: str, args: Sequence[str], text: str, complaints: io.StringIO) -> tuple[object, str]:
        """The exit status and standard output of one command that reads `text`."""
        module, function = self.commands[name].split(":")
        out = io.StringIO()
        stdin, sys.stdin = sys.stdin, io.TextIOWrapper(io.BytesIO(text.encode()))
        try:
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out if STDERR_TOO in args else complaints):
                try:
                    status: object = getattr(importlib.import_module(module), function)([a for a in args if a != STDERR_TOO])
                except SystemExit as stop:
                    status = stop.code
                except Exception:
                    traceback.print_exc()
                    status = 1
        finally:
            sys.stdin = stdin
        return status, out.getvalue()


def _command(words: Sequence[str]) -> str:
    """The command of a stage, behind a `not`."""
    words = words[1:] if words[:1] == ["not"] else words
    return words[0] if words else ""


def filecheck(args: Sequence[str]) -> object:
    """FileCheck, called as the other commands are."""
    from filecheck.main import main  # pyright: ignore[reportMissingTypeStubs]

    return main(["filecheck", *args])
