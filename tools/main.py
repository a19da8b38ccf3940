"""`populus`: the command, and the table of its commands."""

from __future__ import annotations

import argparse
import platform
import sys
from collections.abc import Collection, Sequence
from importlib import import_module, metadata

from populus.tools.command import ArgumentParser, reporting

COMMANDS = {  # each is `populus.tools.<name>`, imported on use
    "run": "compile a model and run it on inputs from a file, or on random ones",
    "run-program": "run a Python program of PopART, PopXL or PopTorch as it is",
    "poprun": "run a program of several replicas in several processes, as PopDist's `poprun` does",
    "build": "build a model as a shared library with a C interface",
    "check": "list the ops of a model and whether each is supported",
    "profile": "write a profile of cycles and memory; compare two; find the smallest machine",
    "explore": "weigh a model on many machines; find those that none beats in cycles, memory, energy or area",
    "reduce": "shrink a model or a text that fails to the smallest that still does",
    "export": "write a model as an ONNX file, or as StableHLO for XLA and JAX",
    "check-op": "check the whole contract of the ops in a file",
    "new-op": "write a file with an op of your own, and its test",
    "new-pass": "write a file with a pass of your own, and its test",
    "new-target": "write a file with a machine of your own, and its test",
    "cache": "show or clear the folders of compiled kernels and kept programs",
    "targets": "list the machines, and what judges their predictions",
    "check-compat": "compare the signatures of ops with stored ones",
    "docs-op": "print the page of an op, or of an op's attributes",
    "demo": "walk a ResNet-50 from ONNX down to a program for tiles, and run it",
    "train": "train a model on arrays from a file, with checkpoints",
    "bench-op": "print the cycles of each op in a file",
    "bench": "print compile times, run times and machine costs of models",
}


def main(argv: list[str] | None = None) -> int:
    """Runs the command; gives 0 on success, and 1 with one line on stderr on failure."""
    args = sys.argv[1:] if argv is None else argv
    return reporting("populus", args, _run)


def _run(args: Sequence[str]) -> int:
    parser = parser_of([next((a for a in args if not a.startswith("-")), "")])
    parsed = parser.parse_args(args)
    for check in getattr(parsed, "checks", ()):
        check(parsed)
    from populus.tools.progress import telling

    with telling(parsed.verbose, parsed.quiet):
        return parsed.execute(parsed)


def parser_of(commands: Collection[str]) -> ArgumentParser:
    """Makes the parser of the command line, with the arguments of these commands only: each is imported for them."""
    parser = ArgumentParser(prog="populus", description="Compile and run ONNX models; check what a model needs; see its levels and costs.")
    parser.add_argument("--version", action=VersionAction, help="print the versions of Populus and of what it builds on, and exit")
    add = parser.add_argument
    add("--print-completion", action=CompletionAction, metavar="SHELL", help="print completion for bash, zsh, tcsh or fish, and exit")
    subparsers = parser.add_subparsers(dest="command", required=True, metavar="COMMAND", parser_class=ArgumentParser)
    for name, summary in COMMANDS.items():
        subparser = subparsers.add_parser(name, help=summary, description=summary)
        if name in commands:
            command = import_module(f"populus.tools.{name.replace('-', '_')}")
            command.add_arguments(subparser)
            subparser.add_argument("--debug", action="store_true", help="show a traceback when something fails")
            if not any(action.nargs == argparse.REMAINDER for action in subparser._actions):  # pyright: ignore[reportPrivateUsage]
                told = subparser.add_mutually_exclusive_group()
                told.add_argument("-v", "--verbose", action="store_true", help="print each pass, its seconds and ops to stderr")
                told.add_argument("-q", "--quiet", action="store_true", help="print no progress and no warnings")
            subparser.set_defaults(execute=command.execute, verbose=False, quiet=False)
    return parser


class VersionAction(argparse.Action):
    """Prints the versions, and exits."""

    def __init__(self, option_strings: Sequence[str], dest: str, help: str | None = None):
        super().__init__(option_strings, dest, nargs=0, help=help)

    def __call__(self, parser: argparse.ArgumentParser, namespace: object, values: object, option_string: str | None = None) -> None:
        print(versions(), flush=True)
        parser.exit()


def versions() -> str:
    """Gives the versions of Populus and of the packages that it builds on."""
    found: list[str] = []
    for package in ("populus-tiles", "xdsl", "onnx", "numpy", "llvmlite"):
        try:
            found.append(f"{package} {metadata.version(package)}")
        except metadata.PackageNotFoundError:
            found.append(f"{package} not installed")
    first, *others = found
    return f"{first.replace('populus-tiles', 'populus')} ({', '.join(others)}, Python {platform.python_version()})"


class CompletionAction(argparse.Action):
    """Prints the completion of a shell, of all commands and options, and exits."""

    def __call__(self, parser: argparse.ArgumentParser, namespace: object, values: object, option_string: str | None = None) -> None:
        from populus.tools.completion import completion

        print(completion(parser_of(COMMANDS), str(values)), flush=True)
        parser.exit()


if __name__ == "__main__":
    sys.exit(main())
