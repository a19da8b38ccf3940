"""What of a module a target does not run: ops of another level, a program made for another machine."""

from __future__ import annotations

from collections import Counter

from xdsl.dialects.builtin import ModuleOp

from populus.dialects.poplar import GraphOp
from populus.dialects.poplar.target import PRESETS, Target, make_target
from populus.dialects.support.diagnostics import PopulusError

LEGAL = ("builtin.module", "poplar.*")  # what a tile program is made of, on every machine


def legal_ops(target: Target) -> tuple[str, ...]:
    """The names of the ops that a target runs; `poplar.*` stands for all of a dialect."""
    assert target.name in PRESETS, target.name
    return LEGAL


def illegal(module: ModuleOp, target: str) -> Counter[tuple[str, str]]:
    """(op, why it is not one of the target's) with how often. Raises PopulusError for a target that there is not."""
    machine = make_target(target)
    legal = legal_ops(machine)
    found: Counter[tuple[str, str]] = Counter()
    for op in module.walk():
        dialect = op.name.partition(".")[0]
        if op.name not in legal and f"{dialect}.*" not in legal:
            found[op.name, "not an op of a tile program"] += 1
        elif isinstance(op, GraphOp) and op.machine.name != machine.name:
            found[op.name, f"made for {op.machine.name}"] += 1
    return found


def verify_legal(module: ModuleOp, target: str) -> None:
    """Raises PopulusError listing the ops that the target does not run, with counts."""
    if found := illegal(module, target):
        listed = ", ".join(f"{count} {name} ({why})" for (name, why), count in sorted(found.items()))
        raise PopulusError(f"{sum(found.values())} ops are not legal on {target}: {listed}; lower the module further, or for that target")
