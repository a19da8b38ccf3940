"""`populus`: compile and run models, check what a model needs, see the demo."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial

from populus.tools import bench, check, demo, run
from populus.tools.command import ArgumentParser, reporting

COMMANDS = {
    "run": run,
    "check": check,
    "demo": demo,
    "bench": bench,
}


def main(argv: list[str] | None = None) -> int:
    """The command; 0 if all went well, 1 with one line on stderr if not."""
    args = sys.argv[1:] if argv is None else argv
    return reporting("populus", "--debug" in args, partial(_run, args))


def _run(args: Sequence[str]) -> int:
    parser = ArgumentParser(prog="populus", description=__doc__)
    subparsers = parser.add_subparsers(dest="command", required=True, metavar="COMMAND", parser_class=ArgumentParser)
    for name, command in COMMANDS.items():
        summary = (command.__doc__ or "").splitlines()[0]
        subparser = subparsers.add_parser(name, help=summary, description=summary)
        command.add_arguments(subparser)
        subparser.add_argument("--debug", action="store_true", help="show a traceback when something fails")
        subparser.set_defaults(execute=command.execute)
    parsed = parser.parse_args(args)
    return parsed.execute(parsed)


if __name__ == "__main__":
    sys.exit(main())
