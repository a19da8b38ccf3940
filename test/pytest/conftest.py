"""What tests share: the tools called in-process, with what they printed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest


@dataclass(frozen=True)
class Outcome:
    """How a command ended."""

    status: int
    out: str
    err: str


Command = Callable[..., Outcome]


def _command(main: Callable[[list[str]], int], capsys: pytest.CaptureFixture[str]) -> Command:
    def call(*args: object) -> Outcome:
        capsys.readouterr()
        try:
            status = main([str(a) for a in args])
        except SystemExit as stop:
            status = int(stop.code or 0)
        out, err = capsys.readouterr()
        return Outcome(status, str(out), str(err))

    return call


@pytest.fixture
def populus_opt(capsys: pytest.CaptureFixture[str]) -> Command:
    """`populus-opt` as a function of its arguments."""
    from populus.tools.populus_opt import main

    return _command(main, capsys)


@pytest.fixture
def populus(capsys: pytest.CaptureFixture[str]) -> Command:
    """`populus` as a function of its arguments."""
    from populus.tools.main import main

    return _command(main, capsys)
