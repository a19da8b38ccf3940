"""Optionals, whose presence is known at compile time."""

from __future__ import annotations

from xdsl.ir import SSAValue

from populus.dialects.support.diagnostics import PopulusError
from populus.lowering.onnx.structure.resolution import Resolution, Rules, there


class Nothing(tuple[SSAValue | None, ...]):
    """The elements of an empty optional."""

    __slots__ = ()


class Held(tuple[SSAValue | None, ...]):
    """The one element of an optional tensor; an optional sequence has the sequence's elements."""

    __slots__ = ()


def _optional(p: Resolution) -> bool:
    """Resolves Optional to its element, or to an empty optional."""
    if not p.inputs:
        return p.gives(Nothing())
    value = p.input(0)
    return p.gives(p.walk.lists.get(value, Held((value,))))


def _has_element(p: Resolution) -> bool:
    """Resolves OptionalHasElement; a tensor or sequence counts as present. Source: ONNX OptionalHasElement-18."""
    import numpy as np

    there = p.has(0) and not isinstance(p.walk.lists.get(p.input(0)), Nothing)
    return p.gives(p.constant(np.array(there)))


def _get_element(p: Resolution) -> bool:
    """Resolves OptionalGetElement. Raises PopulusError for an empty optional."""
    value = p.input(0)
    if value not in p.walk.lists:
        return p.gives(value)
    elements = p.walk.lists[value]
    if isinstance(elements, Nothing):
        raise PopulusError("its optional has no element")
    if isinstance(elements, Held):
        return p.gives(there(elements[0]))
    (result,) = p.op.results
    p.walk.lists[result] = elements
    return True


RULES: Rules = {
    "Optional": _optional,
    "OptionalGetElement": _get_element,
    "OptionalHasElement": _has_element,
}
