"""Optionals: whether they have an element is known while compiling."""

from __future__ import annotations

from populus.dialects.diagnostics import PopulusError
from populus.dialects.onnx.schema import OnnxOp
from populus.lowering.onnx_structure.place import Place, Rules, there


def _optional(p: Place) -> bool:
    if not p.inputs:
        return p.gives(())
    value = p.input(0)
    return p.gives(p.walk.lists.get(value, (value,)))


def _has_element(p: Place) -> bool:
    import numpy as np

    if not p.has(0):
        return p.gives(p.constant(np.array(False)))
    value = p.input(0)
    return p.gives(p.constant(np.array(value not in p.walk.lists or len(p.walk.lists[value]) > 0)))


def _get_element(p: Place) -> bool:
    value = p.input(0)
    if value not in p.walk.lists:
        return p.gives(value)
    (result,) = p.op.results
    elements = p.walk.lists[value]
    if isinstance(value.owner, OnnxOp) and value.owner.OP_TYPE == "Optional" and _holds_tensor(value.owner, p):
        return p.gives(there(elements[0]))
    if not elements:
        raise PopulusError("its optional has no element")
    p.walk.lists[result] = elements
    return True


def _holds_tensor(op: OnnxOp, p: Place) -> bool:
    return bool(op.operands) and op.operands[0] not in p.walk.lists


RULES: Rules = {
    "Optional": _optional,
    "OptionalGetElement": _get_element,
    "OptionalHasElement": _has_element,
}
