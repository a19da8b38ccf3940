"""Fixtures of all tests: the tools called in-process."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings

from helpers.command import Command, command

settings.register_profile("busy", deadline=None, suppress_health_check=[HealthCheck.too_slow])  # no test is about time
settings.load_profile("busy")


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
