"""Custom ops where the sizes of their operands are bounded, or decided by the data: `declared.py` has what their classes say."""

from __future__ import annotations

from xdsl.ir import SSAValue

from populus.dialects.popart.base import ElementwiseOp, PopartOp
from populus.lowering.onnx.to_popart.declared import declared, met
from populus.lowering.onnx.to_popart.masks import Place
from populus.lowering.onnx.to_popart.open_shapes import agreed, aligned


def converted(place: Place, op: PopartOp) -> list[SSAValue]:
    """Inserts a user's op whose operands are partly valid, and gives its results with their valid parts.

    Raises PopulusError for a dimension that the op does not name, with the methods that would.
    """
    m = place.masks
    assert m is not None
    if isinstance(op, ElementwiseOp):
        op.operands = aligned(place, list(op.operands))
        return [m.insert(place, op)]
    op.operands = agreed(place, list(op.operands), [*met(op).values()])
    declared(m, place, op)
    return [m.safe(place, r) for r in op.results]
