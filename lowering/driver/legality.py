"""Legality of a module for a target: which ops it may not contain, such as ops of a higher level."""

from __future__ import annotations

from collections import Counter

from xdsl.dialects.builtin import ModuleOp

from populus.dialects.poplar import FamilyOp, GraphOp
from populus.dialects.poplar.target import PRESETS, Target, make_target
from populus.dialects.support.diagnostics import PopulusError

LEGAL = ("builtin.module", "poplar.*")  # ops of a tile program, legal on every machine


def legal_ops(target: Target) -> tuple[str, ...]:
    """Lists the names of the ops that a target runs; `poplar.*` stands for a whole dialect."""
    assert target.name in PRESETS, target.name
    return LEGAL


def illegal(module: ModuleOp, target: str) -> Counter[tuple[str, str]]:
    """Counts the illegal ops as (op name, reason) -> occurrences. Raises PopulusError for an unknown target."""
    machine = make_target(target)
    legal = legal_ops(machine)
    counts: Counter[tuple[str, str]] = Counter()
    for op in module.walk():
        dialect = op.name.partition(".")[0]
        if op.name not in legal and f"{dialect}.*" not in legal:
            counts[op.name, "not an op of a tile program"] += 1
        elif isinstance(op, FamilyOp) and op.codelet.data in machine.lacks:
            counts[op.name, f"{machine.name} has no codelet {op.codelet.data}"] += 1
        elif isinstance(op, GraphOp) and op.machine.name != machine.name:
            counts[op.name, f"made for {op.machine.name}"] += 1
    return counts


def verify_legal(module: ModuleOp, target: str) -> None:
    """Checks that a target runs every op of a module. Raises PopulusError listing the illegal ops with their
    counts.
    """
    if counts := illegal(module, target):
        listed = ", ".join(f"{count} {name} ({why})" for (name, why), count in sorted(counts.items()))
        raise PopulusError(f"{sum(counts.values())} ops are not legal on {target}: {listed}; lower the module further, or for that target")
