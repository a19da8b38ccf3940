"""The populus command itself."""

from __future__ import annotations

from importlib import import_module

import pytest

from populus.tools.main import COMMANDS


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_explains_itself(name, populus):
    got = populus(name, "--help")
    assert (got.status, got.err) == (0, "")
    assert "--debug" in got.out
    assert import_module(f"populus.tools.{name.replace('-', '_')}").__doc__


def test_help_lists_the_commands(populus):
    got = populus("--help")
    assert got.status == 0
    assert all(summary.split(",")[0] in " ".join(got.out.split()) for summary in COMMANDS.values())


@pytest.mark.parametrize(
    ("args", "message", "status"),
    [
        ([], "populus: the following arguments are required: COMMAND (--help lists the options)\n", 2),
        (["ru"], "populus: no command 'ru'; did you mean 'run'? (--help lists the commands)\n", 2),
        (["bench", "--repeat", "0"], "populus: --repeat 0: expected at least 1\n", 2),
    ],
)
def test_what_is_no_command_is_one_line(args, message, status, populus):
    got = populus(*args)
    assert (got.status, got.err) == (status, message)
