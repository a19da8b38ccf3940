"""Drawings of an Ir's graphs in Graphviz's language DOT, at the points of a program that `Ir.dot_checkpoint` names."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from xdsl.ir import Block, Operation, SSAValue

from populus.dialects.support.output_files import replacing

if TYPE_CHECKING:
    from populus.popxl.ir import Ir
    from populus.write.builder import Builder

ALL, FINAL = "ALL", "FINAL"


def wanted(ir: Ir) -> set[str]:
    """Gives the checks that the session options or the variable `POPART_DOT_CHECKS` name, in capitals."""
    stated = os.environ.get("POPART_DOT_CHECKS") or ""
    named: Iterable[str] = [*stated.split(":"), *ir.session_options.dotChecks]
    return {name.upper() for name in named if name}


def checkpoint(ir: Ir, check: str) -> None:
    """Writes `check.dot` into the options' `logDir` if the check is wanted. A check of a name that was drawn gets another file."""
    if wanted(ir) & {ALL, check.upper()}:
        folder = Path(ir.session_options.logDir or ".")
        folder.mkdir(parents=True, exist_ok=True)
        path, number = folder / f"{check}.dot", 0
        while path.exists():
            number += 1
            path = folder / f"{check}_{number}.dot"
        with replacing(path) as partial:
            partial.write_text(drawing(ir))


def drawing(ir: Ir) -> str:
    """Draws the main graph and all that it calls: a node for each op, an edge for each tensor that one gives another."""
    lines = ["digraph ir {", "  node [shape=box];"]
    for number, graph in enumerate([ir.main_graph, *ir.main_graph.functions()]):
        lines += [f"  subgraph cluster_{number} {{", f'    label="{graph.name}";', *_nodes(graph, f"g{number}"), "  }"]
    return "\n".join([*lines, "}", ""])


def _nodes(graph: Builder, prefix: str) -> list[str]:
    names: dict[SSAValue, str] = {}
    lines: list[str] = []
    for number, (argument, name) in enumerate(zip(graph.block.args, graph.inputs_in_order)):
        names[argument] = f"{prefix}_in{number}"
        lines.append(f'    {names[argument]} [label="{name}", shape=ellipse];')
    for number, op in enumerate(graph.block.ops):
        node = f"{prefix}_{number}"
        names.update(dict.fromkeys(op.results, node))
        lines.append(f'    {node} [label="{op.name.partition(".")[2]}"];')
        lines += [f'    {names[v]} -> {node} [label="{_type(v)}"];' for v in _read(op, graph.block) if v in names]
    return lines


def _read(op: Operation, block: Block) -> list[SSAValue]:
    """Gives the values of the block that an op reads, itself or in its regions."""
    found = {v: None for inner in op.walk() for v in inner.operands if v.owner is block or getattr(v.owner, "parent", None) is block}
    return list(found)


def _type(value: SSAValue) -> str:
    return str(value.type).removeprefix("tensor<").removesuffix(">")
