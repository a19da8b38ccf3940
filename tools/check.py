"""list the ops of a model and whether each is supported; exit 1 if one is not."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table
from xdsl.context import Context
from xdsl.dialects.builtin import TensorType

from populus.dialects.support.diagnostics import PopulusError, where
from populus.dialects.support.element_types import element_type_of
from populus.dialects.support.errors import printable
from populus.dialects.table import context
from populus.lowering.driver import extensions
from populus.lowering.driver.files import read_module
from populus.lowering.driver.inventory import Row
from populus.lowering.driver.plausible_sizes import Plausible, inventory_at_plausible_sizes
from populus.lowering.onnx.custom_ops import custom_ops
from populus.lowering.stablehlo.to_popart import judged
from populus.tools.command import add_model, dims_of, typed, values_of, whole
from populus.tools.output import Json, add_json, say_written, shown, write_json
from populus.tools.output import console as make_console

if TYPE_CHECKING:
    from populus.program.program import Program
    from populus.proof.passes import Row as ProofRow

COLOURS = {"tile": "green", "host": "yellow", "missing": "red"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `populus check`."""
    add = parser.add_argument
    add_model(parser, "a .onnx model, a .mlir program of StableHLO, or a net by name")
    add_json(parser)
    add("--dim", action="append", default=[], metavar="NAME=N|LEAST..GREATEST", help="size of a symbolic dimension, or its range (tried)")
    add("--value", action="append", default=[], metavar="NAME=V", help="make an input a constant, such as one that decides a branch")
    add("--load", action="append", default=[], metavar="FILE.py", help="load ops from a Python file")
    add("--no-host", action="store_true", help="treat ops that need the host as missing")
    add("--nodes", action="store_true", help="list every node instead of every kind")
    add("--prove", action="store_true", help="compile the model, prove each pass and the launches; exit 1 if one is refuted")
    add("--prove-rewrites", action="store_true", help="compile the model and prove each rewrite of a pattern; exit 1 if one is refuted")
    add("--target", metavar="NAME", help="with --prove, --prove-rewrites: the machine to compile for (host)")
    add("--tiles", type=whole(1), metavar="N", help="with --prove, --prove-rewrites: the number of its tiles")


def execute(args: argparse.Namespace) -> int:
    """Runs the command."""
    if not args.model.endswith((".onnx", ".mlir")):
        raise PopulusError(f"{args.model}: not an .onnx model, nor a .mlir program of StableHLO; check needs one")
    ctx = context()
    for extension in (*extensions.installed(), *map(extensions.read, args.load)):
        extension.register(ctx)
    dims = {name: size if isinstance(size, int) else size[1] for name, size in dims_of(args.dim).items()}
    if args.model.endswith(".mlir"):
        found = Plausible(_of_stablehlo(ctx, args.model), {}, [])
    else:
        found = inventory_at_plausible_sizes(args.model, dims=dims, values=values_of(args.value), customs=custom_ops(ctx))
    rows = found.rows
    if args.no_host:
        rows = [
            replace(row, status="missing", reason=f"only the host can do it: {row.reason}") if row.status == "host" else row for row in rows
        ]
    console = make_console(args, soft_wrap=False)
    console.print(table_of(rows, each=args.nodes))
    missing = [row for row in rows if row.status == "missing"]
    for reason, nodes in _by_reason([row for row in rows if row.status == "host"]).items():
        console.print(f"[yellow]host[/yellow] {shown(_listed(nodes))}: {shown(reason)}", soft_wrap=True)
    for reason, nodes in _by_reason(missing).items():
        console.print(f"[red]missing[/red] {shown(_listed(nodes))}: {shown(reason)}", soft_wrap=True)
    if found.sizes:
        console.print(shown(_sizes(found, bool(missing))), soft_wrap=True)
    counts = Counter(row.status for row in rows)
    said = ", ".join(f"{counts[status]} {status}" for status in COLOURS if counts[status])
    console.print(f"{len(rows)} nodes: {said or 'none needs anything'}")
    result: dict[str, Json] = {
        "model": args.model,
        "nodes": [asdict(row) for row in rows],
        "counts": {status: counts[status] for status in COLOURS},
        "sizes": dict(found.sizes),
    }
    if args.prove and not missing:
        result["proofs"] = [asdict(row) for row in _proved(args, found.sizes, console)]
    if args.prove_rewrites and not missing:
        result["rewrites"] = _rewrites(args, found.sizes, console)
    write_json(args, result)
    say_written(console, args.json)
    if missing:
        print(printable(typed(f"populus: {args.model}: {len(missing)} of {len(rows)} nodes cannot be compiled")), file=sys.stderr)
    return 1 if missing else 0


def _of_stablehlo(ctx: Context, path: str) -> list[Row]:
    """Makes a row for each op of a program of StableHLO. Raises PopulusError for a module of another level."""
    module = read_module(ctx, path)
    rows: list[Row] = []
    for op, reason in judged(module):
        values = [v for v in (*op.operands, *op.results) if isinstance(v.type, TensorType)]
        element = str(element_type_of(values[0].type)) if values else ""
        dialect, _, kind = op.name.partition(".")
        rows.append(Row(where(op).strip("'"), kind, dialect, 1, element, "missing" if reason else "tile", reason))
    if not rows:
        raise PopulusError(f"{path}: no program of StableHLO; check needs one, or an .onnx model")
    return rows


def _compile(args: argparse.Namespace, sizes: Mapping[str, int]) -> Program:
    """Compiles the model; one that is open for the bucket of sizes at which its nodes were judged."""
    from populus.program.compile import compile
    from populus.program.open_program import OpenProgram

    named = {"target": args.target, "tiles": args.tiles}
    options: dict[str, Any] = {name: value for name, value in named.items() if value is not None}
    program = compile(args.model, dims=dims_of(args.dim), values=values_of(args.value), load=args.load, host=not args.no_host, **options)
    return program.serving(**sizes) if isinstance(program, OpenProgram) else program


def _say_sizes(program: Program, sizes: Mapping[str, int], console: Console) -> None:
    """Says for which sizes of open dimensions something is proved."""
    bound = {name: program.source.dims[name] for name in sizes if name in program.source.dims}
    if bound:
        at = ", ".join(f"{name} = {n if isinstance(n, int) else f'{n[0]}..{n[1]}'}" for name, n in bound.items())
        console.print(shown(f"proved for {at} (--dim NAME=LEAST..GREATEST states other sizes)"), soft_wrap=True)


def _rewrites(args: argparse.Namespace, sizes: Mapping[str, int], console: Console) -> dict[str, Json]:
    """Compiles the model and proves each rewrite; prints a line for each pattern. Raises PopulusError for one that is refuted."""
    from populus.proof.rewrites import proving_rewrites

    with proving_rewrites() as prover:
        program = _compile(args, sizes)
    for line in prover.lines() or ["no pattern rewrites anything"]:
        console.print(shown(line), soft_wrap=True)
    _say_sizes(program, sizes, console)
    return {name: {"proved": row.proved, "undecided": [*row.undecided]} for name, row in prover.rows.items()}


def _proved(args: argparse.Namespace, sizes: Mapping[str, int], console: Console) -> list[ProofRow]:
    """Compiles the model, proves each pass and the engine's launches, and prints one table. Raises PopulusError for a refuted one."""
    from populus.proof.launches import RefutedLaunches, prove_launches
    from populus.proof.passes import proving
    from populus.runtime.session import graph_of

    with proving(run=False) as prover:
        program = _compile(args, sizes)
    if any(row.passes == "poplar-allocate" for row in prover.rows):
        try:
            prover.rows.append(prove_launches(graph_of(program.module("poplar"))))
        except RefutedLaunches as why:
            raise PopulusError(f"{args.model}: {why}") from None
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("passes", "verdict", "seconds", "why"):
        table.add_column(column, overflow="fold")
    for row in prover.rows:
        table.add_row(shown(row.passes), row.verdict, f"{row.seconds:.2f}", shown(row.why))
    console.print(table)
    _say_sizes(program, sizes, console)
    return prover.rows


def _sizes(found: Plausible, missing: bool) -> str:
    """Says at which sizes of open dimensions the nodes were judged, and which others were tried."""
    at = ", ".join(f"{name} = {n}" for name, n in found.sizes.items())
    others = ", ".join(str(n) for n in dict.fromkeys(max(sizes.values()) for sizes in found.tried))
    if not others:
        return f"at {at} (--dim states other sizes)"
    return f"at {at}; {'as many nodes or more are' if missing else 'nodes are'} missing at {others} (--dim states other sizes)"


def table_of(rows: Sequence[Row], *, each: bool) -> Table:
    """Makes a table with a line for each kind of node (or each node), unsupported ones first."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("op", "opset", "element type"):
        table.add_column(column)
    table.add_column("node" if each else "nodes", justify="left" if each else "right", overflow="fold")
    table.add_column("where")
    kinds: dict[tuple[str, ...], list[str]] = {}
    for row in rows:
        op = f"{row.domain}.{row.op_type}" if row.domain not in ("", "ai.onnx") else row.op_type
        kinds.setdefault((row.status, op, str(row.opset), row.dtype), []).append(row.node)
    order = list(reversed(COLOURS))
    for (status, op, opset, dtype), nodes in sorted(kinds.items(), key=lambda kind: (order.index(kind[0][0]), kind[0][1:])):
        where = f"[{COLOURS[status]}]{status}[/]"
        for cell in nodes if each else [str(len(nodes))]:
            table.add_row(shown(op), opset, shown(dtype), shown(cell), where)
    return table


def _by_reason(rows: Sequence[Row]) -> dict[str, list[str]]:
    reasons: dict[str, list[str]] = {}
    for row in rows:
        reasons.setdefault(row.reason, []).append(f"{row.op_type} '{row.node}'" if row.node else row.op_type)
    return reasons


def _listed(nodes: Sequence[str]) -> str:
    """Lists a few nodes, and the number of the others."""
    shown = ", ".join(nodes[:3])
    return shown if len(nodes) <= 3 else f"{shown} and {len(nodes) - 3} more"
