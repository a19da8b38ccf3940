"""Sequences, optionals, loops and branches that are decided while compiling: nothing of them is left behind shape inference.

The elements of a sequence are values, and its ops say which ones; a loop of known length is its body that often; an If with a
known condition is its branch. What only the running model decides is refused, except a position among elements of one type,
which becomes a selection.
"""

from __future__ import annotations

from populus.dialects.onnx.schema import OnnxOp
from populus.lowering.onnx_structure import control, optionals, sequences
from populus.lowering.onnx_structure.place import Elements, Place, Rules, Walk

RULES: Rules = {**control.RULES, **optionals.RULES, **sequences.RULES}

__all__ = ["Elements", "Walk", "resolve"]


def resolve(op: OnnxOp, walk: Walk) -> bool:
    """Replaces an op of this folder's kind by what it stands for; False for any other op."""
    if op.DOMAIN or op.OP_TYPE not in RULES:
        return False
    return RULES[op.OP_TYPE](Place(op, walk))
