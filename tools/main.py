"""`populus`: compile and run models, check what a model needs, see the demo."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module

from populus.tools.command import ArgumentParser, reporting

COMMANDS = {  # each is `populus.tools.<name>`, imported on use
    "run": "compile a model and run it on inputs from a file, or on random ones",
    "run-program": "run a Python program of PopART, PopXL or PopTorch as it is",
    "build": "build a model as a shared library with a C interface",
    "check": "list the ops of a model and whether each is supported",
    "profile": "write a profile of cycles and memory; compare two; find the smallest machine",
    "check-op": "check the whole contract of the ops in a file",
    "new-op": "write a file with an op of your own, and its test",
    "new-target": "write a file with a machine of your own, and its test",
    "check-compat": "compare the signatures of ops with stored ones",
    "docs-op": "print the page of an op, or of an op's attributes",
    "demo": "walk a ResNet-50 from ONNX down to a program for tiles, and run it",
    "train": "train a model on arrays from a file, with checkpoints",
    "bench-op": "print the cycles of each kernel of the ops in a file",
    "bench": "print compile times, run times and machine costs of models",
}


def main(argv: list[str] | None = None) -> int:
    """Runs the command; gives 0 on success, and 1 with one line on stderr on failure."""
    args = sys.argv[1:] if argv is None else argv
    return reporting("populus", args, _run)


def _run(args: Sequence[str]) -> int:
    parser = ArgumentParser(prog="populus", description=__doc__)
    subparsers = parser.add_subparsers(dest="command", required=True, metavar="COMMAND", parser_class=ArgumentParser)
    for name, summary in COMMANDS.items():
        subparser = subparsers.add_parser(name, help=summary, description=summary)
        if name == next((a for a in args if not a.startswith("-")), None):
            command = import_module(f"populus.tools.{name.replace('-', '_')}")
            command.add_arguments(subparser)
            subparser.add_argument("--debug", action="store_true", help="show a traceback when something fails")
            subparser.set_defaults(execute=command.execute)
    parsed = parser.parse_args(args)
    return parsed.execute(parsed)


if __name__ == "__main__":
    sys.exit(main())
