"""write the predicted cycles and memory of a program, as a page and as data; compare two; find the smallest machine."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console
from rich.table import Table

from populus.dialects.poplar.target import KIB, Spec
from populus.dialects.support.output_files import replacing
from populus.lowering.poplar.allocate import TooLargeError
from populus.program.program import Program
from populus.tools.command import UsageError, stands_for
from populus.tools.output import console as make_console
from populus.tools.output import say_written, shown, to_standard_output
from populus.tools.progress import working
from populus.tools.report.page import html
from populus.tools.report.record import read, record, text_of
from populus.tools.report.record_types import Record
from populus.tools.report.what_if import Machine, WhatIf, tiles_that_suffice, what_if
from populus.tools.run import add_compile_arguments, program_of
from populus.tools.weightless import without_weights

HOTTEST = 10  # number of ops printed
WIDTH = 32  # characters of an op's name


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `populus profile`."""
    add_compile_arguments(parser)
    add = parser.add_argument
    add("--json", metavar="FILE", help="write the profile as JSON to this file (see docs/profile.md), or to standard output for -")
    add("--html", metavar="FILE", help="write the profile as one HTML page that needs no network")
    add("--before", metavar="FILE", help="a profile.json to compare with")
    add("--no-weights", action="store_true", help="plan by the shapes of the weights: their data is not read, and may be missing")
    add("--all", action="store_true", help="print every total and column, not only the first")
    add("--what-if", action="store_true", help="find the smallest machine on which the model fits, and the largest consumers of memory")


def execute(args: argparse.Namespace) -> int:
    """Runs the command."""
    if not args.no_weights or Path(args.model).suffix == ".json":
        return profiled(args)
    with TemporaryDirectory() as folder:
        zeros = without_weights(Path(args.model), Path(folder))
        stands_for(zeros, args.model)
        args.model = str(zeros)
        return profiled(args)


READ = {"model", "example", "json", "html", "before", "all"}  # the arguments that a profile has a use for


def _of_a_profile(args: argparse.Namespace) -> Record:
    """Reads the profile that the arguments name. Raises UsageError for arguments that are of models: they would change nothing."""
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    defaults = vars(parser.parse_known_args([])[0])
    if given := [name for name, value in defaults.items() if name not in READ and getattr(args, name) != value]:
        options = ", ".join(f"--{name.replace('_', '-')}" for name in given)
        raise UsageError(f"{args.model}: a profile is shown as it is; give {options} with the model")
    return read(args.model)


def profiled(args: argparse.Namespace) -> int:
    """Profiles the model of the arguments, and writes what they ask for."""
    console = make_console(args)
    before = None if args.before is None else read(args.before)
    if Path(args.model).suffix == ".json":
        show(args, console, _of_a_profile(args), before)
        return 0
    if args.what_if:
        return _what_if(args, console)
    try:
        program = program_of(args, "poplar")
    except TooLargeError:
        _show_too_large(args, console, before)
        raise
    show(args, console, record(program, Path(args.model).name), before)
    return 0


def _show_too_large(args: argparse.Namespace, console: Console, before: Record | None) -> None:
    """Writes the profile of a program as it was planned, beyond the memory of its machine, and prints the tiles that it needs."""
    above = program_of(args, "popops")
    planned = above.pipeline.with_options("poplar-allocate", beyond=True)
    show(args, console, record(Program(above.source, planned, replace(above.options, level="poplar")), Path(args.model).name), before)
    with working(f"fitting {args.model} into machines"):
        found = tiles_that_suffice(above, Spec.of(args.target, args.tiles))
    answer = "no number of its tiles that was tried suffices" if found is None else f"{found[0]:,} tiles suffice: --target '{found[1]}'"
    console.print(answer, markup=False)


def show(args: argparse.Namespace, console: Console, data: Record, before: Record | None) -> None:
    """Writes the files that the arguments ask for, and prints the tables."""
    for path, text in ((args.json, lambda: text_of(data)), (args.html, lambda: html(data, before))):
        if path == "-":
            to_standard_output(text())
        elif path is not None:
            with replacing(path) as partial:
                partial.write_text(text(), encoding="utf-8")
    console.print(totals(data, before, every=args.all))
    console.print()
    console.print(hottest(data, every=args.all))
    say_written(console, args.json, args.html)


FIRST = {  # the totals that are printed without --all, in words
    "cycles": "cycles",
    "seconds": "time",
    "compute_cycles": "computing",
    "exchange_cycles": "exchanging",
    "sync_cycles": "waiting at barriers",
    "peak_tile_bytes": "fullest tile",
    "fits": "fits its memory",
    "tiles_used": "tiles in use",
    "utilisation": "matrix units",
}


def totals(data: Record, before: Record | None, *, every: bool = True) -> Table:
    """Makes a table of the totals, with those of another profile and their changes. `every`: also those that FIRST does not have."""
    table = _table(data["title"], *(["before", "now", ""] if before is not None else [""]))
    table.add_column("")
    summary = data["summary"]
    for name in (*(n for n in FIRST if n in summary), *(n for n in summary if every and n not in FIRST)):
        value = summary[name]
        old = None if before is None else before["summary"].get(name)
        factor, unit = _scale(name, value)
        written = [_number(v if factor == 1 or v is None else v * factor) for v in (old, value)]
        cells = written[1:] if before is None else [*written, _change(old, value)]
        table.add_row(FIRST.get(name, name.replace("_", " ")), *cells, unit)
    return table


def _scale(name: str, value: float | bool) -> tuple[float, str]:
    """Gives the unit in which a total is written, and how many of it the total's own unit has."""
    if name == "utilisation":
        return 100, "% of their peak"
    if name != "seconds":
        return 1, unit_of(name)
    return next(((f, unit) for f, unit in ((1, "s"), (1e3, "ms"), (1e6, "µs")) if value * f >= 1), (1e9, "ns"))


def unit_of(name: str) -> str:
    """Gives the unit of a total: its last word if that is one."""
    last = name.rpartition("_")[2]
    units = {"cycles": "cycles", "bytes": "bytes", "bound": "bytes", "ops": "ops", "sets": "compute sets", "flops": "operations"}
    more = {"seconds": "s", "used": "tiles", "fields": "fields", "utilisation": "of their peak"}
    return (units | more).get(last, "")


def _end_of(name: str, most: int) -> str:
    """Shortens a name on its left: names of a model differ at their ends."""
    return name if len(name) <= most else f"..{name[2 - most :]}"


def hottest(data: Record, *, every: bool = True) -> Table:
    """Makes a table of the model's most expensive ops. `every`: also the columns that a terminal of 80 characters has no room for."""
    more = ("steps", "sync", "bytes exchanged") if every else ()
    table = _table("op", "cycles", "share", "compute", "exchange", *more)
    cycles = max(int(data["summary"]["cycles"]), 1)
    for op in data["ops"][:HOTTEST]:
        first, *others = op["places"] or [op["name"]]
        end = f" + {len(others)} more" if others else ""
        numbers = (op["compute"], op["exchange"], *((len(op["steps"]), op["sync"], op["bytes"]) if every else ()))
        name = shown(_end_of(first, WIDTH - len(end)) + end)
        table.add_row(name, f"{op['cycles']:,}", f"{op['cycles'] / cycles:.1%}", *(f"{n:,}" for n in numbers))
    return table


def _what_if(args: argparse.Namespace, console: Console) -> int:
    program = program_of(args, "popops")
    spec = Spec.of(args.target, args.tiles)
    with working(f"fitting {args.model} into machines"):
        found = what_if(program, spec)
    console.print(what_if_table(found, spec))
    return 0


def what_if_table(found: WhatIf, spec: Spec) -> Table:
    """Makes a table of the smallest machines and the consumers of memory."""
    machine = spec.target()
    title = f"{machine.name}, {machine.tiles:,} tiles of {machine.tile_bytes // 1024:,} KiB"
    table = _table(title, "", "cycles", "", "bytes from outside the tiles")
    base = found.itself and found.itself.cycles
    sizes = {"smallest tile memory": (found.tile_bytes, KIB, " KiB"), "fewest tiles": (found.tiles, 1, "")}
    table.add_row("fits", "yes" if found.itself else "no", *_costs(found.itself, None))
    for name, (other, unit, suffix) in sizes.items():
        size = "none that was tried" if other is None else f"{other.size // unit:,}{suffix}"
        table.add_row(name, size, *_costs(other, base))
    for text, bytes in found.reasons:
        table.add_row(f"  {shown(text)}", f"{-(-bytes // 1024):,} KiB")
    return table


def _costs(machine: Machine | None, base: int | None) -> list[str]:
    """Formats the cycles on a machine, relative to those on the target, and the bytes that it streams."""
    if machine is None:
        return ["", "", ""]
    times = "" if base is None else f"{machine.cycles / max(base, 1):.3g} x"
    return [f"{machine.cycles:,}", times, f"{machine.streamed:,}"]


def _table(first: str, *numbers: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column(shown(first), overflow="fold")
    for column in numbers:
        table.add_column(column, justify="right")
    return table


def _number(value: float | bool | None) -> str:
    match value:
        case None:
            return ""
        case bool():
            return "yes" if value else "no"
        case int():
            return f"{value:,}"
        case _:
            return f"{value:.4g}"


def _change(old: float | bool | None, new: float | bool) -> str:
    if old is None or isinstance(new, bool) or old == new:
        return ""
    return f"{(new - old) / old:+.1%}" if old else "new"
