"""compile and run models, and print how long that took and what it costs on the machine."""

from __future__ import annotations

import argparse
from pathlib import Path
from time import perf_counter

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from populus.api import compile
from populus.options import CHOICES
from populus.tools.command import UsageError, dims_of, values_of
from populus.tools.progress import working
from populus.tools.run import ENGINE

LIGHT = ("light_squeezenet", "light_resnet50", "light_shufflenet")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `populus bench`."""
    add = parser.add_argument
    add("models", nargs="*", metavar="MODEL", help=f".onnx models; without any, these of the onnx package: {', '.join(LIGHT)}")
    add("--target", default="gc200", metavar="T", help="the machine (gc200)")
    add("--tiles", type=int, metavar="N", help="number of tiles to use (all)")
    add("--engine", default="auto", choices=CHOICES, help=ENGINE)
    add("--dim", action="append", default=[], metavar="NAME=N|LEAST..GREATEST", help="size of a symbolic dimension, or its range")
    add("--value", action="append", default=[], metavar="NAME=V", help="make an input a constant, such as one that decides a branch")
    add("--repeat", type=int, default=3, metavar="N", help="number of runs, of which the fastest is printed (3)")


def execute(args: argparse.Namespace) -> int:
    """Runs the command."""
    if args.repeat < 1:
        raise UsageError(f"--repeat {args.repeat}: expected at least 1")
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("model", overflow="fold")
    for column in ("compile s", "run s", "poplar ops", "cycles", "KiB of fullest tile"):
        table.add_column(column, justify="right")
    for model in args.models or [_light(name) for name in LIGHT]:
        with working(f"measuring {model}"):
            table.add_row(*_measured(Path(model), args))
    Console(highlight=False).print(table)
    return 0


def _measured(model: Path, args: argparse.Namespace) -> list[str]:
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
    numbers = (f"{compiled:.2f}", f"{min(seconds):.3f}", f"{summary['poplar_ops']:,}", f"{int(summary['cycles']):,}")
    return [escape(model.stem), *numbers, f"{int(summary['peak_tile_bytes']) / 1024:,.0f}"]


def _light(name: str) -> Path:
    import onnx.backend.test

    return Path(onnx.backend.test.__file__).parent / "data" / "light" / f"{name}.onnx"
