"""Sequences, optionals, loops and branches, as far as they are decided while compiling.

The elements of a sequence are values, and its ops say which ones; a short loop of known length is its body that often; an If with a
known condition is its branch. Other loops and branches stay, with typed regions. What only the running model decides about
sequences is refused, except a position among elements of one type, which becomes a selection.
"""

from __future__ import annotations

from populus.dialects.onnx.schema import OnnxOp
from populus.lowering.onnx.structure import attention, control_flow, maps, optionals, sequences
from populus.lowering.onnx.structure.place import Elements, Place, Rules, Walk

RULES: Rules = {**attention.RULES, **control_flow.RULES, **maps.RULES, **optionals.RULES, **sequences.RULES}

CONTROL = frozenset(control_flow.RULES)
"""The op types that may stay, as loops and branches."""

__all__ = ["CONTROL", "Elements", "Walk", "is_control", "resolve"]


def resolve(op: OnnxOp, walk: Walk) -> bool:
    """Replaces an op of this folder's kind by what it stands for; False for any other op, and for loops and branches that stay."""
    rule = RULES.get(f"{op.DOMAIN}.{op.OP_TYPE}" if op.DOMAIN else op.OP_TYPE)
    return rule is not None and rule(Place(op, walk))


def is_control(op: OnnxOp) -> bool:
    """Whether an op is a branch or a loop."""
    return not op.DOMAIN and op.OP_TYPE in CONTROL
