"""weigh a model on a space of machines and options: cycles, memory, energy, area, and the points that none beats."""

from __future__ import annotations

import argparse
import re
from collections import Counter
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from populus.dialects.poplar.target import PARTIALS, Spec
from populus.dialects.support.output_files import check_places
from populus.exploration.axes import axes_of
from populus.exploration.checking import checked
from populus.exploration.explore import Exploration, Request, check_parquet, explore
from populus.exploration.measure import LESS
from populus.exploration.running import Point
from populus.exploration.search import SEARCHES
from populus.exploration.sensitivity import sensitivity
from populus.exploration.space import EQUAL
from populus.exploration.technology import technology
from populus.lowering.driver.pipeline import Pipeline
from populus.tools.command import UsageError, dims_of, is_file, of_arguments, stands_for, typed, values_of, whole
from populus.tools.output import Terminal, say_written, shown, to_standard_output
from populus.tools.weightless import without_weights
from populus.write.nets import model_path

WIDE = 400  # columns of a table: a number that is cut off is worse than a long line
SHOWN = 20  # points of the front that are printed
TIMES = {"": 1.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `populus explore`."""
    add = parser.add_argument
    add("models", nargs="+", metavar="MODEL", help="a .onnx model, a .mlir module or a net by name; several are a mix")
    add("--weights", metavar="W,W,..", help="how often each model of the mix runs (1)")
    add("--machine", default="gc200", metavar="T", help="the machine to begin with (gc200); 'gc200, tiles=64' replaces fields")
    add("--vary", action="append", default=[], metavar="NAME=V,V,..", help="values or LEAST:GREATEST:STEP of a field, size, option or pass")
    add("--equal", choices=EQUAL, help="let the memory of a tile follow, so that all tiles together have as many bytes, or as much area")
    add("--minimise", default="cycles,memory", metavar="M,M,..", help=f"measures of the front (cycles,memory): {', '.join(LESS)}")
    add("--fit", action="store_true", help="only programs that keep all their data on the tiles")
    add("--latency", metavar="TIME", help="most time of the mix, such as 2ms")
    add("--power", metavar="W", help="most watts, such as 75W")
    add("--points", type=whole(1), default=500, metavar="N", help="most points (500); a larger space is searched")
    add("--search", choices=SEARCHES, help="all points, random ones, or those that Optuna chooses; all by default, else optuna")
    add("--seed", type=whole(0), default=0, metavar="N", help="of the search (0)")
    add("--processes", type=whole(1), metavar="N", help="number of processes (one for each CPU)")
    add("--scheduler", metavar="ADDRESS", help="let the workers of this Dask scheduler weigh the points (the extra `dask`)")
    add("--log", metavar="FILE", help="keep each point in this file as soon as it is there")
    add("--resume", action="store_true", help="go on with the points of --log")
    add("--technology", metavar="T", help="7nm (default), 45nm, or a JSON file of your own: joules and square millimetres")
    add("--sensitivity", type=whole(0), default=0, metavar="N", help="the change of time by each field, of N points of the front")
    add("--check", type=whole(0), default=0, metavar="N", help="run N drawn points of the front; exit 1 if one differs from the model")
    add("--json", metavar="FILE", help="write all points as JSON to this file, or to standard output for -")
    add("--csv", metavar="FILE", help="write a line for each point")
    add("--parquet", metavar="FILE", help="write a row for each point, by pyarrow (the extra `parquet`)")
    add("--html", metavar="FILE", help="write the page, which needs no network")
    add("--no-weights", action="store_true", help="plan by the shapes of the weights: their data is not read, and may be missing")
    add("--partials", choices=PARTIALS, help="sum products of 16-bit floats in f32 (default), or faster and less exactly in f16")
    add("--optimise", metavar="AIM", help="cycles, memory, or balanced (default): what plans of products and convolutions spare")
    add("--dim", action="append", default=[], metavar="NAME=N", help="size of a symbolic dimension")
    add("--value", action="append", default=[], metavar="NAME=V", help="make an input a constant, such as one that decides a branch")
    add("--plans", type=whole(1), default=1, metavar="K", help="try the K best plans of each op together: a search in each point (1)")
    add("--plan", metavar="FILE", help="plans of products and convolutions by name, as populus profile --plan-to writes them")
    add("--pipeline", default="inference", metavar="NAME|FILE", help="the passes: inference (default), inference-plain, or a file")
    add("--load", action="append", default=[], metavar="FILE.py", help="load ops, passes and machines from a Python file")


def execute(args: argparse.Namespace) -> int:
    """Runs the command."""
    check_places([path for path in (args.json, args.csv, args.parquet, args.html) if path not in (None, "-")])
    if args.parquet is not None:
        check_parquet(args.parquet)
    console = Terminal(highlight=False, soft_wrap=True, stderr=args.json == "-", width=WIDE)
    with TemporaryDirectory() as folder:
        paths = [model_path(text) for text in args.models]
        if args.no_weights:
            paths = [str(without_weights(Path(path), _below(folder, i))) for i, path in enumerate(paths)]
        for path, text in zip(paths, args.models):
            stands_for(path, text)
        models = list(zip(paths, _weights(args.weights, len(paths)), strict=True))
        options = _options(args)
        _check_names(args, options)
        begun = perf_counter()
        with _progress() as progress:
            found = explore(models, **options, progress=progress)
        for number in found.front[: args.sensitivity]:
            found.sensitivities[number] = sensitivity(found, number)
        checks = checked(found, args.check) if args.check else []
        _write(args, found)  # the page compiles points of the front again, and reads the models
    _report(console, found, perf_counter() - begun)
    for number, changes in found.sensitivities.items():
        console.print(_sensitivity_table(number, changes))
    for check in checks:
        said = check.fault or f"agrees within {check.difference:.2g} of the largest element"
        console.print(f"point {check.point}, {check.model}: {check.engine} on {check.tiles:,} tiles {said}", markup=False)
    say_written(console, args.json, args.csv, args.parquet, args.html)
    if found.interrupted:
        go_on = f"; --log {args.log} --resume goes on" if args.log else ""
        console.print(f"interrupted after {len(found.points)} points{go_on}", markup=False)
    return 130 if found.interrupted else int(any(check.fault for check in checks))


def _options(args: argparse.Namespace) -> dict[str, Any]:
    """Gives the keywords of `explore`. Raises UsageError for texts that cannot be read."""
    names = ("machine", "equal", "fit", "points", "search", "seed", "processes", "log", "resume", "technology", "partials", "optimise")
    given = {name: getattr(args, name) for name in (*names, "plans", "scheduler", "pipeline", "plan", "load")}
    return {
        **given,
        "vary": vary_of(args.vary),
        "minimise": tuple(name.strip() for name in args.minimise.split(",")),
        "latency": None if args.latency is None else quantity("--latency", args.latency, TIMES, "2ms"),
        "power": None if args.power is None else quantity("--power", args.power, {"": 1.0, "W": 1.0, "mW": 1e-3, "kW": 1e3}, "75W"),
        "dims": dims_of(args.dim),
        "values": values_of(args.value),
    }


def _check_names(args: argparse.Namespace, options: dict[str, Any]) -> None:
    """Raises UsageError for a name or value that there is not; what files say or define is found later."""
    with of_arguments():
        Request(**{name: options[name] for name in ("minimise", "points", "processes", "latency", "power", "log", "resume")}).check()
        if args.technology is None or not is_file(args.technology):
            technology(args.technology)
        if not args.load and not is_file(args.pipeline):
            axes_of(options["vary"], Spec.of(args.machine), Pipeline.read(args.pipeline))


def vary_of(texts: Sequence[str]) -> dict[str, str]:
    """Parses `["tiles=368,736"]` to `{"tiles": "368,736"}`. Raises UsageError for another form, and for a name that is there twice."""
    found: dict[str, str] = {}
    for text in texts:
        name, equals, given = (part.strip() for part in text.partition("="))
        if not equals or not name or not given:
            raise UsageError(f"--vary {text}: expected NAME=V,V,.. or NAME=LEAST:GREATEST:STEP, such as --vary tiles=368,736")
        if name in found:
            raise UsageError(f"--vary {name} is given twice; state all values in one")
        found[name] = given
    return found


def quantity(option: str, text: str, units: dict[str, float], example: str) -> float:
    """Parses a number with a unit. Raises UsageError for another text, and for a unit that the option does not have."""
    found = re.fullmatch(r"([0-9]*\.?[0-9]+(?:e-?[0-9]+)?)\s*([A-Za-z]*)", text)
    if found is None or found[2] not in units:
        raise UsageError(f"{option} {text}: expected a number and one of {', '.join(u for u in units if u)}, such as {option} {example}")
    return float(found[1]) * units[found[2]]


def _weights(text: str | None, models: int) -> list[float]:
    try:
        found = [1.0] * models if text is None else [float(part) for part in text.split(",")]
    except ValueError:
        raise UsageError(f"--weights {text}: expected numbers, such as --weights 2,1") from None
    if len(found) != models:
        raise UsageError(f"--weights {text}: {len(found)} for {models} models; state one for each")
    return found


def _below(folder: str, number: int) -> Path:
    made = Path(folder) / str(number)
    made.mkdir()
    return made


@contextmanager
def _progress() -> Generator[Callable[[int, int, Point], None], None, None]:
    """Shows how many points are there, and the time that is left, on a terminal."""
    console = Terminal(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("points", total=None)
        yield lambda there, most, point: bar.update(task, completed=there, total=most)


def _write(args: argparse.Namespace, found: Exploration) -> None:
    if args.json == "-":
        to_standard_output(found.json())
    elif args.json is not None:
        found.to_json(args.json)
    for path, write in ((args.csv, found.to_csv), (args.parquet, found.to_parquet), (args.html, found.to_html)):
        if path is not None:
            write(path)


def _report(console: Terminal, found: Exploration, seconds: float) -> None:
    """Prints the front, and what was weighed, kept and not taken."""
    names, minimised = [axis.name for axis in found.bench.space.axes], found.request.minimise
    others = [name for name in ("seconds", "cycles", "memory") if name not in minimised]
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("point", *names, *minimised, *others):
        table.add_column(shown(name), justify="right")
    by_number = {p["point"]: p for p in found.points}
    for number in found.front[:SHOWN]:
        settings, measures = found.settings(number), by_number[number]["measures"]
        table.add_row(str(number), *(_cell(settings[n]) for n in names), *(_cell(measures[n]) for n in (*minimised, *others)))
    console.print(table)
    more = f", of which {SHOWN} are shown" if len(found.front) > SHOWN else ""
    weighed = f"{len(found.points):,} of {found.bench.space.size:,} weighed in {seconds:.1f} s"
    console.print(f"{len(found.front)} point{'s' * (len(found.front) != 1)} on the front{more}; {weighed}", markup=False)
    reused: Counter[str] = Counter()
    for point in found.points:
        reused.update(point["reuse"])
    console.print(
        f"levels above the tiles: {reused['levels_made']:,} made, {reused['levels_kept']:,} kept; "
        f"plans: {reused['plans_made']:,} made, {reused['plans_kept']:,} kept"
        + (f"; {reused['trials']:,} programs with other plans" if reused["trials"] else ""),
        markup=False,
    )
    faults = Counter(why for point in found.points if (why := found.fault(point)) is not None)
    if faults:
        why, times = faults.most_common(1)[0]
        most = "" if times == faults.total() else f", {times:,} of them"
        console.print(typed(f"{faults.total():,} not taken{most}: {why}"), markup=False)


def _sensitivity_table(number: int, changes: Sequence[Mapping[str, Any]]) -> Table:
    """Makes a table of the fields that change the time of a point."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for i, name in enumerate((f"field of point {number}", "from", "to", "time", "% for 1 %")):
        table.add_column(name, justify="right" if i else "left")
    for change in changes:
        if change["elasticity"]:
            moved = f"{change['seconds'] / change['before'] - 1:+.2%}"
            table.add_row(change["field"], _cell(change["was"]), _cell(change["to"]), moved, f"{change['elasticity']:+.3f}")
    return table


def _cell(value: object) -> str:
    if isinstance(value, bool):
        return str(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}" if isinstance(value, float) else str(value)
