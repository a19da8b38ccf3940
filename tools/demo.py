"""recognise a handwritten digit by a program for tiles; or walk a larger net down, level by level, and run it."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, TypeAlias

from rich.console import Console
from rich.table import Table
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation

from populus.dialects.data import ConstantOp, array_attribute
from populus.dialects.popart import SoftmaxOp
from populus.dialects.poplar import GraphOp
from populus.dialects.signature import main_of
from populus.dialects.support.diagnostics import PopulusError, did_you_mean
from populus.dialects.table import context
from populus.lowering.driver.phases import LEVELS
from populus.lowering.driver.pipeline import Pipeline, Timing
from populus.program.signature import Signature
from populus.runtime.differences import RTOL
from populus.tools.arrays import ATOL, Agreement, compare, read_arrays
from populus.tools.command import UsageError, whole
from populus.tools.digit import digit, write_page
from populus.tools.output import Terminal, shown
from populus.tools.progress import stages, working

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Arrays: TypeAlias = dict[str, NDArray[Any]]

WIDTH = 79


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `populus demo`."""
    parser.add_argument("--digit", type=int, choices=range(10), metavar="0..9", default=3, help="which image of a digit to recognise (3)")
    parser.add_argument("--web", metavar="FILE", help="write a page that recognises a digit which is drawn on it, without a server")
    parser.add_argument("--model", metavar="NAME", help="walk a light model of the onnx package down instead: light_resnet50")
    parser.add_argument("--target", default="gc200", metavar="T", help="the machine (gc200)")
    parser.add_argument("--tiles", type=whole(1), default=None, metavar="N", help="number of tiles to use (16 for a digit, else all)")


def execute(args: argparse.Namespace) -> int:
    """Runs the command."""
    if args.web is not None:
        if args.model is not None:
            raise UsageError("--web: the page is of the net of digits; --model is for the terminal")
        with working(f"building {args.web}"):
            size = write_page(args.web, args.target, 16 if args.tiles is None else args.tiles)
        Terminal(highlight=False, soft_wrap=True).print(f"{args.web} ({size / 1e3:.0f} kB): open it in a browser", markup=False)
        return 0
    if args.model is None:
        return digit(Terminal(width=WIDTH, highlight=False), args.digit, args.target, 16 if args.tiles is None else args.tiles)
    import onnx.backend.test

    from populus.lowering.onnx.importer import import_onnx
    from populus.runtime.session import Session

    begin = perf_counter()
    console = Terminal(width=WIDTH, highlight=False)
    path = Path(onnx.backend.test.__file__).parent / "data" / "light" / f"{args.model}.onnx"
    if args.model not in (known := {p.stem for p in path.parent.glob("*.onnx")}):
        raise PopulusError(f"the onnx package has no light model '{args.model}'{did_you_mean(args.model, known)}")
    console.rule(f"[bold]{args.model}[/bold]: from ONNX to tiles", align="left")

    ctx, module = context(), import_onnx(path)
    pipeline = Pipeline.named("inference").with_defaults(target=args.target, tiles=args.tiles)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("level", "passes", "ops, by dialect"):
        table.add_column(column, overflow="fold")
    table.add_column("seconds", justify="right")
    done, signature = 0, None
    with stages("compiling") as progress:
        for level in LEVELS:
            passes = Pipeline(pipeline.down_to(level).passes[done:])
            timings: list[Timing] = []
            passes.run(ctx, module, timings=timings, progress=progress)
            done += len(passes)
            if level == "popops":
                signature = Signature.of(module)
            seconds = sum(t.seconds for t in timings)
            table.add_row(f"[bold cyan]{level}[/]", "\n".join(t.name for t in timings), _ops(module), f"{seconds:.2f}")
    console.print(table)

    assert signature is not None
    session = Session(module)
    console.print(machine_table(module, session.profile().summary))

    inputs = _inputs(signature)
    start = perf_counter()
    with working("running"):
        outputs = session.run(inputs)
    ran = perf_counter() - start
    console.rule(f"run in {ran:.2f} s by the {session.engine} engine", align="left")
    agreements: list[Agreement] = []
    if session.engine == "native":
        expected = read_arrays([str(path.with_name(f"{args.model}_output_0.pb"))], list(signature.outputs))
        agreements += compare(outputs, expected, RTOL, ATOL)
        for a in agreements:
            _say(console, a, "the output packaged with ONNX")
    else:  # Its logits are equal and huge: rounding in sums of different orders makes some of them the largest.
        console.print("not compared with the output packaged with ONNX, which needs native's order of sums")
    # All weights in the package are equal, and so are its outputs, so wrong layouts would agree. Random weights tell them apart.
    with working("running with random weights"):
        agreements += _with_drawn_weights(import_onnx(path), pipeline, inputs)
    _say(console, agreements[-1], "NumPy's definitions, with random weights")
    console.print(f"{perf_counter() - begin:.1f} s in all", style="dim")
    return 1 if any(a.problem for a in agreements) else 0


def _say(console: Console, a: Agreement, reference: str) -> None:
    verdict = f"[bold red]differs[/] from {reference}: {shown(a.problem)}" if a.problem else f"[bold green]agrees[/] with {reference}"
    console.print(f"'{shown(a.name)}' {verdict}")
    allowed = f"allowed: {ATOL:g} + {RTOL:g} of it"
    console.print(f"largest difference {a.absolute:.2g}, {a.relative:.2g} of the largest element ({allowed})", style="dim")


def _with_drawn_weights(module: ModuleOp, pipeline: Pipeline, inputs: Arrays) -> list[Agreement]:
    """Compares the tile program with the popart level run op by op, both with normal random weights."""
    import numpy as np

    from populus.runtime.interpreter import run_function
    from populus.runtime.session import Session

    ctx, rng = context(), np.random.default_rng(0)
    above = pipeline.down_to("popart")
    above.run(ctx, module)
    drawn = [op for op in module.walk() if isinstance(op, ConstantOp) and len(op.result.type.get_shape()) >= 2]
    for op in drawn:
        shape = op.result.type.get_shape()
        spread = np.sqrt(2 / max(int(np.prod(shape[1:])), 1))  # keeps the magnitude of values from layer to layer
        op.value = array_attribute((rng.standard_normal(shape) * spread).astype(op.array().dtype))
    # A softmax of large numbers is 1 for one class regardless of the layers, so the last layer gives small numbers.
    spreads: list[float] = []
    run_function(module, inputs, observe=lambda op, results: spreads.append(float(results[0].std())) if _is_read_by_softmax(op) else None)
    read = {operand: i for i, op in enumerate(main_of(module).body.block.ops) for operand in op.operands}
    last = max(drawn, key=lambda op: read.get(op.result, -1))
    for spread in spreads:
        last.value = array_attribute((last.array() / spread).astype(last.array().dtype))
    expected = run_function(module, inputs)
    Pipeline(pipeline.passes[len(above) :]).run(ctx, module)
    return compare(Session(module).run(inputs), expected, RTOL, ATOL)


def _is_read_by_softmax(op: Operation) -> bool:
    return any(isinstance(use.operation, SoftmaxOp) for r in op.results for use in r.uses)


def machine_table(module: ModuleOp, summary: Mapping[str, Any]) -> Table:
    """Makes a table of the machine's load: tiles, memory, and cycles by kind."""
    machine = next(op.machine for op in module.walk() if isinstance(op, GraphOp))
    cycles = max(int(summary["cycles"]), 1)
    table = Table(box=None, pad_edge=False, show_header=False, title=f"on {machine.name}", title_justify="left", title_style="bold")
    table.add_column(style="cyan")
    table.add_column(justify="right")
    table.add_column(style="dim")
    peak = int(summary["peak_tile_bytes"])
    fits = "" if summary["fits"] else ", which does not fit"
    table.add_row("tiles", f"{summary['tiles_used']:,}", f"of {machine.tiles:,}, each with {machine.tile_bytes // 1024:,} KiB")
    table.add_row("fullest tile", f"{peak:,} bytes", f"{peak / machine.tile_bytes:.0%} of its memory{fits}")
    table.add_row("exchanged", f"{int(summary['exchange_bytes']):,} bytes", f"in {int(summary['compute_sets']):,} compute sets")
    table.add_row("estimated", f"{cycles:,} cycles", f"{cycles / machine.clock_hz * 1e3:.2f} ms at {machine.clock_hz / 1e9:g} GHz")
    for part in ("compute", "exchange", "sync"):
        n = int(summary[f"{part}_cycles"])
        share = n / cycles
        table.add_row(f"  {part}", f"{n:,} cycles", f"{'█' * round(share * 20):20} {share:.0%}")
    shares = {name.removesuffix("_utilisation"): share for name, share in summary.items() if name.endswith("_utilisation")}
    types = ", ".join(f"{name} {share:.1%}" for name, share in shares.items())
    table.add_row("utilisation", f"{summary['utilisation']:.1%}", f"of the matrix units' peak for each type: {types}")
    return table


def _ops(module: ModuleOp) -> str:
    """Counts ops by dialect, the most frequent first: `onnx 176, data 269`. Functions and the module are not counted."""
    counts = Counter(op.name.partition(".")[0] for op in module.walk())
    return ", ".join(f"{name} {n}" for name, n in counts.most_common() if name not in ("builtin", "func"))


def _inputs(signature: Signature) -> Arrays:
    """Gives the inputs of ONNX's backend test for its light models, which match the packaged outputs: 0, 1/n, 2/n, ..."""
    import numpy as np

    arrays: Arrays = {}
    for name, type in signature.inputs.items():
        n = int(np.prod(type.get_shape()))
        arrays[name] = (np.arange(n).reshape(type.get_shape()) / n).astype(np.float32)
    return arrays
