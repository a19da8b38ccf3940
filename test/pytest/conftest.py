"""Fixtures of all tests: the tools called in-process."""

from __future__ import annotations

import pytest

from helpers.command import Command, command


@pytest.fixture
def populus_opt(capsys: pytest.CaptureFixture[str]) -> Command:
    """`populus-opt` as a function of its arguments."""
    from populus.tools.populus_opt import main

    return command(main, capsys)


@pytest.fixture
def populus(capsys: pytest.CaptureFixture[str]) -> Command:
    """`populus` as a function of its arguments."""
    from populus.tools.main import main

    return command(main, capsys)
