"""Sequences, optionals, loops and branches that are resolved at compile time.

A sequence is a list of values, and its ops select among them. A short loop of known length is unrolled, and an If with
a known condition is its branch. Other loops and branches stay, with typed regions. Sequences that depend on run-time
values are refused, except a position among elements of one type, which becomes a selection.
"""

from __future__ import annotations

from populus.dialects.onnx.schema import OnnxOp
from populus.lowering.onnx.structure import attention, branches, loops, maps, optionals, sequences
from populus.lowering.onnx.structure.resolution import Elements, Resolution, Rules, TypingWalk

RULES: Rules = {**attention.RULES, **branches.RULES, **loops.RULES, **maps.RULES, **optionals.RULES, **sequences.RULES}

CONTROL = frozenset({**branches.RULES, **loops.RULES})
"""The op types that may stay, as loops and branches."""

__all__ = ["CONTROL", "Elements", "TypingWalk", "is_control", "resolve"]


def resolve(op: OnnxOp, walk: TypingWalk) -> bool:
    """Replaces an op of these kinds by its meaning; False for any other op, and for loops and branches that stay."""
    rule = RULES.get(f"{op.DOMAIN}.{op.OP_TYPE}" if op.DOMAIN else op.OP_TYPE)
    if rule is None:
        return False
    resolution = Resolution(op, walk)
    try:
        return rule(resolution)
    finally:
        resolution.drop_copies()


def is_control(op: OnnxOp) -> bool:
    """Tells whether an op is a branch or a loop."""
    return not op.DOMAIN and op.OP_TYPE in CONTROL
