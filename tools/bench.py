"""compile and run models, and print how long that took and what it costs on the machine."""

from __future__ import annotations

import argparse
from pathlib import Path
from time import perf_counter

from rich.table import Table

from populus.program.compile import compile
from populus.program.options import CHOICES
from populus.tools.command import UsageError, dims_of, values_of, whole
from populus.tools.output import Json, add_json, say_written, shown, write_json
from populus.tools.output import console as make_console
from populus.tools.progress import working
from populus.tools.run import ENGINE
from populus.write.nets import model_path, net

LIGHT = ("squeezenet", "resnet50", "shufflenet")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `populus bench`."""
    add = parser.add_argument
    add("models", nargs="*", type=model_path, metavar="MODEL", help=f"models, or nets of the onnx package; without any, {', '.join(LIGHT)}")
    add_json(parser)
    add("--target", default="gc200", metavar="T", help="the machine (gc200)")
    add("--tiles", type=whole(1), metavar="N", help="number of tiles to use (all)")
    add("--engine", default="auto", choices=CHOICES, help=ENGINE)
    add("--dim", action="append", default=[], metavar="NAME=N|LEAST..GREATEST", help="size of a symbolic dimension, or its range")
    add("--value", action="append", default=[], metavar="NAME=V", help="make an input a constant, such as one that decides a branch")
    add("--repeat", type=whole(1), default=3, metavar="N", help="number of runs, of which the fastest is printed (3)")


def execute(args: argparse.Namespace) -> int:
    """Runs the command."""
    if args.repeat < 1:
        raise UsageError(f"--repeat {args.repeat}: expected at least 1")
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("model", overflow="fold")
    for column in ("compile s", "run s", "poplar ops", "cycles", "bytes of fullest tile"):
        table.add_column(column, justify="right")
    found: list[dict[str, Json]] = []
    for model in args.models or [net(name) for name in LIGHT]:
        with working(f"measuring {model}"):
            found.append(_measured(Path(model), args))
        row = found[-1].values()
        table.add_row(*(shown(str(v)) if isinstance(v, str) else f"{v:,.3f}" if isinstance(v, float) else f"{v:,}" for v in row))
    to = make_console(args, soft_wrap=False)
    to.print(table)
    write_json(args, found)
    say_written(to, args.json)
    return 0


def _measured(model: Path, args: argparse.Namespace) -> dict[str, Json]:
    """Measures a model; the keys are in the order of the table."""
    start = perf_counter()
    program = compile(model, target=args.target, tiles=args.tiles, dims=dims_of(args.dim), values=values_of(args.value), engine=args.engine)
    compiled = perf_counter() - start
    inputs = program.signature.random()
    seconds: list[float] = []
    for _ in range(args.repeat):
        start = perf_counter()
        program.run(inputs)
        seconds.append(perf_counter() - start)
    summary = program.profile().summary
    return {
        "model": model.stem,
        "compile_seconds": compiled,
        "run_seconds": min(seconds),
        "poplar_ops": int(summary["poplar_ops"]),
        "cycles": int(summary["cycles"]),
        "peak_tile_bytes": int(summary["peak_tile_bytes"]),
    }
