"""Command-line tools called in-process, with their status and output."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest


@dataclass(frozen=True)
class Outcome:
    """The result of a command: exit status, standard output, standard error."""

    status: int
    out: str
    err: str


Command = Callable[..., Outcome]


def command(main: Callable[[list[str]], int], capsys: pytest.CaptureFixture[str]) -> Command:
    """Makes a function that runs `main` on arguments."""

    def call(*args: object) -> Outcome:
        capsys.readouterr()
        try:
            status = main([str(a) for a in args])
        except SystemExit as stop:
            status = int(stop.code or 0)
        out, err = capsys.readouterr()
        return Outcome(status, str(out), str(err))

    return call
