"""The session option `enableInplaceAmbiguityChecking`: ops in place whose order a program leaves open.

Ops happen in the order of their calls here, so results are the same with and without the check. A program that passes it has these
results on any machine: whatever an op changes in place, each op that touches it comes before or after by what the program says, that is
by a tensor that one gives and the other takes, or by `in_sequence`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from populus.dialects.support.diagnostics import PopulusError

if TYPE_CHECKING:
    from populus.popxl.internals.op import Op
    from populus.popxl.ir import Ir
    from populus.popxl.tensor import Tensor


def check_ambiguity(ir: Ir) -> None:
    """Raises PopulusError for two ops of a graph of which one changes what the other touches, in no stated order."""
    for graph in ir.graphs:
        ops = graph.recorded
        before = _before(ops)
        touched = [_bases(op.inputs) for op in ops]
        for i, changing in enumerate(ops):
            changed = _bases(changing.changed) & touched[i]
            for j, other in enumerate(ops if changed else ()):
                if i != j and changed & touched[j] and not (before[i] >> j & 1 or before[j] >> i & 1):
                    name = min(t.id for t in changed & touched[j])
                    said = f"graph '{graph.name}' leaves the order of {changing.opType()} and {other.opType()} on {name} open"
                    raise PopulusError(f"Inplacing ambiguity detected. {said}; put them inside popxl.in_sequence()")


def _bases(tensors: Sequence[Tensor]) -> set[Tensor]:
    """Gives the tensors that these are, or are views of."""
    found: set[Tensor] = set()
    open_ = list(tensors)
    while open_:
        t = open_.pop()
        open_ += t.view_of
        if not t.view_of:
            found.add(t)
    return found


def _before(ops: Sequence[Op]) -> list[int]:
    """Gives for each op, as bits, those that come before it by what the program says."""
    giver = {t: i for i, op in enumerate(ops) for t in op.outputs}
    last: dict[object, int] = {}
    found: list[int] = []
    for i, op in enumerate(ops):
        earlier = {giver[t] for t in op.inputs if giver.get(t, i) < i}
        if op.sequence is not None:
            earlier |= {last[op.sequence]} if op.sequence in last else set()
            last[op.sequence] = i
        bits = 0
        for k in earlier:
            bits |= found[k] | 1 << k
        found.append(bits)
    return found
