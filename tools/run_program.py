"""run a Python program of PopART, PopXL or PopTorch as it is; write a profile of what it ran."""

from __future__ import annotations

import argparse
import os
import runpy
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from io import TextIOWrapper
from pathlib import Path
from traceback import print_exception
from types import TracebackType
from typing import TYPE_CHECKING, cast

from populus import popdist
from populus.aliases import installed, refusal
from populus.dialects.poplar.target import Spec
from populus.dialects.support.diagnostics import PopulusError, did_you_mean, no_file
from populus.dialects.support.errors import printable
from populus.dialects.support.output_files import check_places, replacing
from populus.dialects.support.shapes import is_size
from populus.lowering.driver import extensions
from populus.popdist import ONLY
from populus.program.options import CHOICES
from populus.program.program import Program
from populus.program.watch import Watch, watching
from populus.runtime.ranks import launched
from populus.tools.command import UsageError

if TYPE_CHECKING:
    from populus.tools.report.record_types import Record

OPTIONS = {
    "profile": ("FILE", "write a page with the profile of the programs that ran"),
    "target": ("T", "the machine, in place of what the program asks for: host, gc2, gc200, bow, n150, p150"),
    "tiles": ("N", "the number of tiles, in place of what the program asks for"),
    "engine": ("E", f"the engine: {', '.join(CHOICES)}"),
    "load": ("FILE", "a Python file that defines ops of your own"),
}
MOST = 16  # programs on a page: those that took the most cycles


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `populus run-program`."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = "The options may also stand after the file; everything after `--` is the program's own."
    for name, (metavar, text) in OPTIONS.items():
        parser.add_argument(f"--{name}", metavar=metavar, help=text)
    parser.add_argument("file", metavar="FILE", help="the program, a file of Python")
    parser.add_argument("arguments", metavar="ARGS", nargs=argparse.REMAINDER, help="the program's own arguments")


def execute(args: argparse.Namespace) -> int:
    """Runs the program; gives its exit status."""
    given = {name: cast("str | None", getattr(args, name)) for name in OPTIONS}
    arguments = split(args.arguments, given)
    watch = watch_of(given)
    check_places([given["profile"]])
    path = Path(args.file)
    if not path.is_file():
        raise PopulusError(f"{path}: a folder, not a file of Python" if path.is_dir() else no_file(path))
    if ONLY in os.environ and popdist.getInstanceIndex() != int(os.environ[ONLY]):
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # of this process and those that it starts
    if launched()[1] > 1:
        whole_lines(sys.stdout, sys.stderr)
    with ops_of(given["load"]), watching(watch), installed():
        status = run(path, arguments, args.debug)
    if given["profile"] is not None:
        write_page(given["profile"], path.name, watch)
    return status


def whole_lines(*streams: object) -> None:
    """Lets each line be one write, with PYTHONUNBUFFERED too: a launcher puts the pieces of its processes together as they come."""
    for stream in streams:
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(line_buffering=True, write_through=False)


def split(arguments: Sequence[str], given: dict[str, str | None]) -> list[str]:
    """Takes our options out of what follows the file, into `given`; gives the rest. Raises UsageError for an option without a value."""
    rest: list[str] = []
    left = list(arguments)
    while left:
        word = left.pop(0)
        name, equals, value = word.removeprefix("--").partition("=")
        if word == "--":
            break
        if not word.startswith("--") or name not in OPTIONS:
            rest.append(word)
        elif equals:
            given[name] = value
        elif left:
            given[name] = left.pop(0)
        else:
            raise UsageError(f"argument --{name}: expected one argument (--help lists the options)")
    for name, text in given.items():
        if text == "":
            raise UsageError(f"argument --{name}: the value is empty (--help lists the options)")
    return rest + left


def watch_of(given: dict[str, str | None]) -> Watch:
    """Gives the machine that the options ask for. Raises PopulusError for one that there is not."""
    tiles, engine = given["tiles"], given["engine"]
    if tiles is not None and not (is_size(tiles) and int(tiles) > 0):
        raise UsageError(f"--tiles {tiles}: expected a whole number from 1 on")
    if engine is not None and engine not in CHOICES:
        raise PopulusError(f"no engine '{engine}'{did_you_mean(engine, CHOICES)}")
    found = Watch(given["target"], None if tiles is None else int(tiles), engine)
    if found.target is not None:
        Spec.of(found.target, found.tiles)
    return found


def run(path: Path, arguments: Sequence[str], debug: bool = False) -> int:
    """Runs a file as `python FILE ARGUMENTS` would; gives its exit status.

    An error of the program is printed with its traceback, a refusal of populus as one line (unless `debug`).
    """
    with as_main(path, arguments):
        try:
            runpy.run_path(os.fspath(path), run_name="__main__")
        except SystemExit as ended:
            return status_of(ended)
        except Exception as error:
            line = refusal(error)
            if line is None or debug:
                print_exception(type(error), error, own_trace(error.__traceback__, os.fspath(path)))
            else:
                print(printable(f"populus: {line}"), file=sys.stderr)
            return 1
    return 0


@contextmanager
def ops_of(file: str | None) -> Generator[None]:
    """Loads the ops of a file for the time of a `with`. Raises PopulusError for a file without any."""
    with extensions.restored():
        if file is not None:
            extensions.load(file)
        yield


@contextmanager
def as_main(path: Path, arguments: Sequence[str]) -> Generator[None]:
    """Puts the program's arguments and its folder where Python would have them."""
    before = sys.argv, sys.path
    sys.argv, sys.path = [os.fspath(path), *arguments], [os.fspath(path.resolve().parent), *sys.path]
    try:
        yield
    finally:
        sys.argv, sys.path = before


def status_of(ended: SystemExit) -> int:
    """Gives the exit status of `sys.exit(..)`: a number, none, or a text to print."""
    match ended.code:
        case None:
            return 0
        case int() as number:
            return number
        case text:
            print(text, file=sys.stderr)
            return 1


def own_trace(trace: TracebackType | None, file: str) -> TracebackType | None:
    """Leaves out of a traceback what comes before the program's first line."""
    while trace is not None and trace.tb_frame.f_code.co_filename != file:
        trace = trace.tb_next
    return trace


def write_page(page: str, title: str, watch: Watch) -> None:
    """Writes the page of the programs that ran, and says so on stderr; without one, it says that none ran."""
    from populus.tools.report.page import html
    from populus.tools.report.record import record

    found: list[tuple[int, Record]] = []
    for program, runs in watch.runs.items():
        assert isinstance(program, Program), program
        found.append((runs, record(program, "")))
    found.sort(key=lambda entry: -entry[0] * entry[1]["summary"]["cycles"])
    if not found:
        print(printable(f"populus: {title} ran no program, so {page} is not written"), file=sys.stderr)
        return
    for i, (runs, data) in enumerate(found[:MOST], 1):
        number = f", program {i} of {len(found)}" if len(found) > 1 else ""
        data["title"] = f"{title}{number}, {runs:,} run{'s' if runs > 1 else ''}"
    with replacing(page) as partial:
        partial.write_text(html(found[0][1], others=[data for _, data in found[1:MOST]]), encoding="utf-8")
    more = f" (the {MOST} with the most cycles of {len(found)})" if len(found) > MOST else ""
    shown = min(len(found), MOST)
    print(printable(f"populus: wrote {page}: {shown} program{'s' if shown > 1 else ''}{more}"), file=sys.stderr)
