"""compile a model and run it on inputs from a file, or on random ones."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, TypeAlias

from rich.console import Console
from rich.table import Table

from populus.compare.engines import compare_engines
from populus.compare.levels import Comparison, compare_levels
from populus.dialects.poplar.target import PARTIALS, Spec
from populus.dialects.support.diagnostics import did_you_mean
from populus.dialects.support.errors import printable
from populus.dialects.support.output_files import replacing
from populus.lowering.driver.phases import LEVELS
from populus.lowering.driver.pipeline import Pipeline
from populus.program import compile as api
from populus.program import front
from populus.program.buckets import BUCKETS
from populus.program.open_program import OpenProgram
from populus.program.options import ACCURACIES, CHOICES
from populus.program.padding import UnequalSizesError
from populus.program.program import Program
from populus.program.ready import is_ready
from populus.runtime.differences import RTOL
from populus.runtime.ranks import world
from populus.tools.arrays import ATOL, Agreement, compare, plain_arrays, read_arrays, write_npz
from populus.tools.command import (
    Proposed,
    UsageError,
    add_model,
    amount,
    bounds_of,
    buckets_of,
    dims_of,
    group,
    is_file,
    of_arguments,
    typed,
    values_of,
    whole,
)
from populus.tools.judges import judging
from populus.tools.output import Json, add_json, described, say_written, shown, write_json
from populus.tools.output import console as make_console
from populus.tools.progress import stages, working
from populus.tools.replicated import dealt, run_dealt

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from populus.runtime.engine.native.run.sharing import Sharing

    Arrays: TypeAlias = dict[str, NDArray[Any]]


SIMULATED = (2, 16, 64)  # threads, of which --profile simulates how they share a run
MACHINE, NUMBERS, SIZES, PASSES = "machine and engine", "numbers", "sizes and values of the model", "passes and programs that are kept"
DATA, CHECKS = "inputs and outputs", "checks and profiles"  # titles of groups of options
ENGINE = "native (machine code), numpy, strict (checks every vertex), or auto (default): native, but numpy without llvmlite"


def add_compile_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments that control compiling."""
    machine, numbers, sizes, passes = (group(parser, title) for title in (MACHINE, NUMBERS, SIZES, PASSES))
    add_model(parser, "a .onnx model, a .mlir module of any level, or a net by name, such as squeezenet")
    machine("--target", default="host", metavar="T", help="host (default), gc2, gc200, bow, n150, p150; 'gc200, tiles=64' replaces fields")
    machine("--tiles", type=whole(1), metavar="N", help="number of tiles to use (all)")
    machine("--engine", default="auto", choices=Proposed(CHOICES), help=f"{ENGINE}, or one of --load")
    machine("--sample", type=whole(1), metavar="K", help="let strict check K vertices of each family (all)")
    machine("--threads", type=whole(1), metavar="N", help="number of threads of native (POPULUS_THREADS, or the number of CPUs)")
    numbers("--narrow", action="store_true", help="compute 64-bit types as 32-bit ones if the target lacks them, and check for overflow")
    numbers("--partials", choices=PARTIALS, help="sum products of 16-bit floats in f32 (default), or faster and less exactly in f16")
    numbers("--weight-format", metavar="F", help="bfp8 or bfp4: constants of products have a shared exponent for 16 elements, on a mesh")
    numbers("--fidelity", metavar="F", help="LoFi, HiFi2, HiFi3 or HiFi4: phases in which a mesh multiplies (all that a format needs)")
    passes("--optimise", metavar="AIM", help="cycles, memory, or balanced (default): what plans of products and convolutions spare")
    passes("--no-host", action="store_true", help="refuse a model that needs the host for strings or images")
    sizes("--dim", action="append", default=[], metavar="NAME=N|LEAST..GREATEST", help="size of a symbolic dimension, or its range")
    sizes("--value", action="append", default=[], metavar="NAME=V", help="make an input a constant, such as one that decides a branch")
    sizes("--bound", action="append", default=[], metavar="NAME=N", help="the most iterations of the Loop NAME, where the data decide them")
    passes("--pipeline", default="inference", metavar="NAME|FILE", help="the passes: inference (default), inference-plain, or a file")
    numbers("--accuracy", default="standard", choices=list(ACCURACIES), help="exact: convolutions are sums in order; fast: errors of 1e-6")
    passes("--plan", metavar="FILE", help="plans of products and convolutions by name, as --plan-to writes them; others as always")
    passes("--plan-to", metavar="FILE", help="write the plans of products and convolutions to this file, to read, edit and give back")
    passes("--cache", action=argparse.BooleanOptionalAction, help="keep any program, or none; default: that of an ONNX file")
    passes("--load", action="append", default=[], metavar="FILE.py", help="load ops and passes from a Python file")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `populus run`."""
    add_compile_arguments(parser)
    add_json(parser)
    numbers, data, checks = (group(parser, title) for title in (NUMBERS, DATA, CHECKS))
    data("--inputs", action="append", default=[], metavar="FILE", help="a .npz by input names, or .pb tensors in order (random inputs)")
    served = parser.add_mutually_exclusive_group()
    served.add_argument("--exact", action="store_true", help="compile for exactly the sizes of --inputs, not for a range that holds them")
    served.add_argument("--buckets", metavar="N,N,..", help="the greatest sizes of the ranges that open dimensions are compiled for")
    data("--replicas", type=whole(1), default=1, metavar="N", help="deal the samples of --inputs to N replicas (1), or to ranks of mpiexec")
    data("--outputs", metavar="FILE.npz", help="write the outputs to this .npz")
    data("--expect", action="append", default=[], metavar="FILE", help="compare with a .npz, or .pb tensors in order; exit 1 if unequal")
    numbers("--rtol", type=amount, default=RTOL, help=f"tolerance relative to the largest element ({RTOL:g})")
    numbers("--atol", type=amount, default=ATOL, help=f"additional absolute tolerance, also for integers ({ATOL:g})")
    checks("--level", default="poplar", choices=list(LEVELS), help="the level to run (poplar)")
    checks("--check-levels", action="store_true", help="run at every level and compare each with the one above")
    checks("--verify-each", choices=["run", "prove"], help="run the program before and after each pass, or prove each; fail at a wrong one")
    checks("--profile", metavar="FILE.html", help="write tiles, bytes and cycles to this file; print how threads would share a run")
    checks("--shuffle-orders", type=whole(2), metavar="N", help="print the differences between N other orders of the sums")
    numbers("--seed", type=whole(0), default=0, metavar="N", help="which random inputs (0)")


def check_engine(args: argparse.Namespace) -> None:
    """Raises UsageError for an unknown engine, machine or pipeline, unless a file is loaded, which may define it."""
    if args.load:
        return
    if args.engine not in CHOICES:
        raise UsageError(f"no --engine choice '{args.engine}'{did_you_mean(args.engine, CHOICES)}")
    with of_arguments():
        Spec.of(args.target, args.tiles)
        if not is_file(args.pipeline):
            Pipeline.read(args.pipeline)


def program_of(
    args: argparse.Namespace, level: str, buckets: Sequence[int] = BUCKETS, compile: Callable[..., Program] = api.compile
) -> Program:
    """Compiles the program that the arguments describe, with a spinner. `buckets`: of open dimensions."""
    check_engine(args)
    with stages(f"compiling {args.model}") as progress:
        program = compile(
            args.model,
            target=args.target,
            tiles=args.tiles,
            dims=dims_of(args.dim),
            values=values_of(args.value),
            bounds=bounds_of(args.bound),
            pipeline=args.pipeline,
            engine=args.engine,
            level=level,
            load=args.load,
            sample=args.sample,
            narrow=args.narrow,
            partials=args.partials,
            optimise=args.optimise,
            threads=args.threads,
            host=not args.no_host,
            accuracy=args.accuracy,
            weight_format=args.weight_format,
            fidelity=args.fidelity,
            cache=args.cache,
            plan=args.plan,
            buckets=buckets,
            progress=progress,
        )
    if args.plan_to is not None:
        with replacing(args.plan_to) as partial:
            partial.write_text(f"# {shown(Path(args.model).name)} on {args.target}\n{program.plans()}", encoding="utf-8")
    return program


def verified(args: argparse.Namespace, console: Console) -> Program:
    """Compiles the program. With --verify-each, judges each pass, and prints the verdicts."""
    looks_inside = args.verify_each or args.profile or args.check_levels or args.shuffle_orders or args.replicas > 1
    looks_inside = looks_inside or args.value or args.plan_to
    with judging(args.verify_each) as judge:
        buckets = BUCKETS if args.buckets is None else buckets_of(args.buckets)
        program = program_of(args, args.level, buckets, api.compile if looks_inside else front.compile)
    for line in judge.lines():
        console.print(line, style="dim", markup=False)
    return program


def check_replicas(args: argparse.Namespace) -> None:
    """Raises UsageError for options that are of one replica. Ranks but the first print and write nothing."""
    alone = {"--check-levels": args.check_levels, "--shuffle-orders": args.shuffle_orders, "--profile": args.profile}
    if args.replicas > 1 and (found := [name for name, given in alone.items() if given]):
        raise UsageError(f"{found[0]} is of one replica; leave out --replicas")
    if args.replicas > 1 and not args.inputs:
        raise UsageError("--replicas deals the samples of --inputs, which are not given")
    if args.replicas > 1 and world().rank > 0:
        args.outputs = args.json = None
        sys.stdout = sys.stderr = open(os.devnull, "w")  # noqa: SIM115, until the process ends


def execute(args: argparse.Namespace) -> int:
    """Runs the command."""
    if args.profile is not None and args.level != "poplar":
        raise UsageError(f"--profile needs the poplar level, and --level {args.level} does not go there")
    if args.weight_format is not None and (args.check_levels or args.verify_each):
        check = "--check-levels" if args.check_levels else "--verify-each"
        raise UsageError(f"--weight-format rounds weights, so results differ, which {check} would report; give one of them")
    check_replicas(args)
    console = make_console(args)
    start = perf_counter()
    program = verified(args, console)
    if isinstance(program, OpenProgram) and args.inputs:
        first = dealt(read_arrays(args.inputs, list(program.names)), args.replicas)[0]
        program = sized(program, first, exact=args.exact or args.check_levels)
    compiled = perf_counter()
    signature = program.signature
    if signature.padding is not None:
        served = ", ".join(f"{name} = {least}..{most}" for name, (least, most) in signature.padding.bounds.items())
        console.print(f"one program for {served}", style="dim", markup=False)
    parts = inputs_of(args, program)
    inputs = parts[0]
    with working(f"running {args.model}"):
        outputs = plain_arrays(program.run(inputs) if args.replicas == 1 else run_dealt(program, parts))
    ran = perf_counter()
    console.print(outputs_table(outputs))
    if args.shuffle_orders is not None:
        for name, far in program.spread(inputs, args.shuffle_orders).items():
            console.print(f"{name}: {args.shuffle_orders} orders of its sums are within {far:.2g} of its largest element", markup=False)
    engine = engine_of(program, args.level)
    for line in () if is_ready(program) else remarks(program, args.level):
        console.print(line, style="dim", markup=False)
    at = f"the level {args.level}" + (f", engine {engine}" if engine else "")
    console.print(f"compiled in {compiled - start:.2f} s, ran in {ran - compiled:.2f} s at {at}", style="dim")
    if args.outputs is not None:
        write_npz(args.outputs, outputs)
    shared = [] if args.profile is None else profile(args, program, console)
    failed: list[str] = []
    agreements: list[Agreement] = []
    levels: list[Comparison] = []
    if args.expect:
        expected = read_arrays(args.expect, list(signature.outputs))
        agreements = compare(outputs, expected, args.rtol, args.atol)
        console.print(agreement_table([("", a) for a in agreements], "expected"))
        failed += [a.problem for a in agreements if a.problem]
    if args.check_levels:
        levels = check_levels(program, inputs, args.rtol, console)
        failed += [str(c) for c in levels if c.first is not None]
    result: dict[str, Json] = {
        "model": args.model,
        "level": args.level,
        "engine": engine,
        "compile_seconds": compiled - start,
        "run_seconds": ran - compiled,
        "outputs": [described(name, array) for name, array in outputs.items()],
        "comparisons": [asdict(a) for a in agreements],
        "levels": [asdict(c) for c in levels],
        "threads": [asdict(s) for s in shared],
        "failed": failed,
    }
    write_json(args, result)
    say_written(console, args.outputs, args.profile, args.json)
    for line in failed:
        print(printable(typed(f"populus: {args.model}: {line}")), file=sys.stderr)
    return 1 if failed else 0


def profile(args: argparse.Namespace, program: Program, console: Console) -> list[Sharing]:
    """Writes the page of the profile. Prints how threads of the native engine would share a run, and gives it as data."""
    from populus.tools.report.page import html
    from populus.tools.report.record import record

    with replacing(args.profile) as partial:
        partial.write_text(html(record(program, Path(args.model).name)), encoding="utf-8")
    if program.session.engine != "native":
        return []
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("threads", "times one", "launches", "barriers", "chunks each", "balance", "alone"):
        table.add_column(column, justify="right")
    found = [program.session.sharing(threads) for threads in SIMULATED]
    for s in found:
        counts = (f"{s.speedup:.1f}", f"{s.launches:,}", f"{s.barriers:,}", f"{s.chunks:.1f}", f"{s.balance:.2f}", f"{s.alone:.2f}")
        table.add_row(f"{s.threads}", *counts)
    console.print("a run on more threads, simulated:", style="dim")
    console.print(table)
    for one in found[-1].starved:
        units = "cannot be shared" if one.units == 1 else f"{one.units:,} units in {one.chunks} chunk{'s' if one.chunks > 1 else ''}"
        console.print(f"on {found[-1].threads} threads, {one.step} loses {one.lost / 1000:.0f} us: {units}", style="dim", markup=False)
    return found


def engine_of(program: Program, level: str) -> str | None:
    """Gives the name of the engine that runs a program; None above the tile level. A program that is kept is machine code."""
    if is_ready(program):
        return "native"
    return program.session.engine if level == "poplar" else None


def remarks(program: Program, level: str) -> Iterator[str]:
    """Gives a line that counts families without native code, if there are any."""
    if level == "poplar" and program.session.fallbacks:
        counted = ", ".join(f"{codelet} {n}" for codelet, n in sorted(program.session.fallbacks.items()))
        yield f"families without native code, run by NumPy: {counted}"


def inputs_of(args: argparse.Namespace, program: Program) -> list[Arrays]:
    """Gives the inputs of each replica: random ones, or its part of those from files."""
    signature = program.signature
    if not args.inputs:
        return [signature.random(args.seed)]
    given = read_arrays(args.inputs, list(signature.inputs))
    if args.value:
        given = program.source.without_constants(given)
    return [signature.checked(part) for part in dealt(given, args.replicas)]


def sized(program: OpenProgram, inputs: Arrays, *, exact: bool) -> Program:
    """Gives the program for inputs: that of their bucket, or with `exact` that of their sizes."""
    if exact:
        return program.sized_for(inputs)
    found = program.program_for(inputs)
    try:
        if (padding := found.signature.padding) is not None:
            padding.check(padding.sizes(inputs))
    except UnequalSizesError:
        return program.sized_for(inputs)
    return found


def check_levels(program: Program, inputs: Arrays, rtol: float, console: Console) -> list[Comparison]:
    """Runs every level of the model and compares each with the one above, op by op, and the native engine with numpy; prints and gives
    the comparisons.
    """
    found: list[Comparison] = []
    for comparison in chain(compare_levels(program, inputs, rtol), engines(program, inputs, rtol)):
        found.append(comparison)
        style = "red" if comparison.first else "dim" if comparison.skipped else "green"
        console.print(f"[{style}]levels[/]  {shown(str(comparison))}")
    return found


def engines(program: Program, inputs: Arrays, rtol: float) -> Iterator[Comparison]:
    """Compares the native engine with numpy, where the program goes down to tiles."""
    if "poplar" in program.levels:
        yield compare_engines(program, inputs, rtol)


def outputs_table(outputs: Arrays) -> Table:
    """Makes a table with a line for each output: its type and the range of its values."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("output", "dtype", "shape"):
        table.add_column(column)
    for column in ("min", "mean", "max"):
        table.add_column(column, justify="right")
    for name, array in outputs.items():
        table.add_row(shown(name), str(array.dtype), "x".join(map(str, array.shape)) or "scalar", *_range(array))
    return table


def agreement_table(rows: Sequence[tuple[str, Agreement]], what: str) -> Table:
    """Makes a table with a line for each comparison: the largest differences, and whether they are within the tolerance."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column(what)
    table.add_column("output")
    for column in ("max abs", "max rel"):
        table.add_column(column, justify="right")
    table.add_column("")
    for label, a in rows:
        verdict = "[red]differs[/red]" if a.problem else "[green]agrees[/green]"
        table.add_row(shown(label), shown(a.name), f"{a.absolute:.3g}", f"{a.relative:.3g}", verdict)
    return table


def _range(array: NDArray[Any]) -> list[str]:
    import numpy as np

    if array.size == 0:
        return ["", "", ""]
    if array.dtype.kind not in "fiubV":
        return ["", "", ""]
    values = array.astype(np.float64)
    return [f"{value:.6g}" for value in (values.min(), values.mean(), values.max())]
