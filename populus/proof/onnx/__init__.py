"""ONNX's ops by their definitions: index maps, formulas and sums, independent of how they are lowered.

Shapes are those that shape inference found. An op, or an older version of one, that has no definition here is not decided.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from xdsl.ir import SSAValue

from populus.dialects.onnx.schema import OnnxOp
from populus.dialects.support.element_types import shape_of
from populus.proof.onnx.elements import ELEMENTS
from populus.proof.onnx.indexed import INDEXED
from populus.proof.onnx.node import Node, Results
from populus.proof.onnx.products import PRODUCTS
from populus.proof.onnx.quantized import QUANTIZED
from populus.proof.onnx.recurrent import RECURRENT
from populus.proof.onnx.rows import ROWS
from populus.proof.onnx.sampled import SAMPLED
from populus.proof.report import Undecided
from populus.proof.terms import Terms
from populus.proof.trees import Pieces

DEFINITIONS: Mapping[str, Callable[[Node], Results]] = {**ELEMENTS, **INDEXED, **ROWS, **PRODUCTS, **QUANTIZED, **SAMPLED, **RECURRENT}

NOTHING_KNOWN = {*ROWS, *PRODUCTS, *RECURRENT}
"""Ops that are not decided for operands without elements."""


def has_definition(op: OnnxOp) -> bool:
    """Tells whether an op has a definition here; others may be functions."""
    return not op.DOMAIN and op.OP_TYPE in DEFINITIONS


def defined(t: Terms, op: OnnxOp, values: Mapping[SSAValue, Pieces]) -> Results:
    """Gives the results of an op. Raises Undecided if it has no definition here."""
    n = Node(t, op, values)
    if op.OP_TYPE in NOTHING_KNOWN and any(0 in shape_of(v.type) for v in op.operands[: 1 if op.OP_TYPE in ROWS else None]):
        raise Undecided("a tensor without elements")
    found = DEFINITIONS[op.OP_TYPE](n)
    return [x for x, result in zip(found, op.outputs) if result is not None]
