"""Completion of `populus` and `populus-opt` in bash, zsh, tcsh and fish: `populus --print-completion SHELL`."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Iterator
from importlib import import_module
from typing import Any

from populus.dialects.support.diagnostics import did_you_mean
from populus.tools.command import UsageError

SHELLS = ("bash", "fish", "tcsh", "zsh")


def completion(parser: argparse.ArgumentParser, shell: str) -> str:
    """Makes the script of a shell; shtab makes all but fish's. Raises UsageError for another shell."""
    if shell not in SHELLS:
        raise UsageError(f"no completion for '{shell}'{did_you_mean(shell, SHELLS)}")
    if shell == "fish":
        return "\n".join(_fish(parser))
    return str(import_module("shtab").complete(parser, shell=shell))


class CompletionAction(argparse.Action):
    """Prints the completion of a shell for the options of a parser, and exits."""

    def __call__(self, parser: argparse.ArgumentParser, namespace: object, values: object, option_string: str | None = None) -> None:
        print(completion(parser, str(values)), flush=True)
        parser.exit()


def _fish(parser: argparse.ArgumentParser) -> Iterator[str]:
    """Yields the lines for fish: commands, and the options of each with their choices."""
    name = parser.prog
    subparsers: Any = argparse._SubParsersAction  # pyright: ignore[reportPrivateUsage]
    commands: Any = next((a for a in parser._actions if isinstance(a, subparsers)), None)  # pyright: ignore[reportPrivateUsage]
    if commands is None:
        yield from (f"complete -c {name} {option}" for option in _options(parser))
        return
    found: dict[str, str] = {choice.dest: choice.help or "" for choice in commands._choices_actions}
    for command, help in found.items():
        yield f"complete -c {name} -n __fish_use_subcommand -f -a {command} -d {_quoted(help)}"
    yield from (f"complete -c {name} -n __fish_use_subcommand {option}" for option in _options(parser))
    for command in found:
        given = f"complete -c {name} -n {shlex.quote(f'__fish_seen_subcommand_from {command}')}"
        yield from (f"{given} {option}" for option in _options(commands.choices[command]))


def _options(parser: argparse.ArgumentParser) -> Iterator[str]:
    for action in parser._actions:  # pyright: ignore[reportPrivateUsage]
        names = [f"-l {o[2:]}" if o.startswith("--") else f"-s {o[1:]}" for o in action.option_strings]
        if not names:
            continue
        takes = "" if action.nargs == 0 else f" -x -a {_quoted(' '.join(map(str, action.choices)))}" if action.choices else " -r"
        help = "" if action.help in (None, argparse.SUPPRESS) else f" -d {_quoted(str(action.help) % {'prog': parser.prog})}"
        yield f"{' '.join(names)}{takes}{help}"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
