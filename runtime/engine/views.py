"""From the IR to arrays: parameters as Python values, views as arrays on a variable's memory, pieces of views for a box."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from xdsl.dialects.builtin import ArrayAttr, DenseArrayBase, DictionaryAttr, FloatAttr, IntegerAttr, IntegerType, StringAttr, i1
from xdsl.ir import Attribute

from populus.dialects.expr import ExprAttr
from populus.dialects.poplar.compute import FamilyOp
from populus.dialects.poplar.partition import Access, Box, Domain
from populus.dialects.poplar.types import Field
from populus.dialects.poplar.view import View
from populus.dialects.support.diagnostics import PopulusError, where
from populus.runtime.codelets.task import Param, Piece

Array = NDArray[Any]


class PlacedError(PopulusError):
    """A user's mistake whose message begins with its place already."""


def value_of(attribute: Attribute) -> Param:
    """A parameter of a family as a Python value."""
    match attribute:
        case IntegerAttr():
            return bool(attribute.value.data) if attribute.type == i1 else attribute.value.data
        case FloatAttr():
            return attribute.value.data
        case StringAttr():
            return attribute.data
        case ExprAttr():
            return attribute.data
        case DenseArrayBase():
            return tuple(cast("DenseArrayBase[IntegerType]", attribute).get_values())
        case ArrayAttr():
            return tuple(value_of(a) for a in attribute.data)
        case _:
            raise PopulusError(f"{attribute} is no parameter that a kernel understands; numbers, strings, lists and expressions are")


def params_of(params: DictionaryAttr) -> dict[str, Param]:
    """A family's parameters as Python values."""
    return {name: value_of(attribute) for name, attribute in params.data.items()}


def view_array(memory: Array, view: View) -> Array:
    """What a view shows of a variable whose elements, in row-major order, are `memory`: [elements]."""
    item = memory.itemsize
    if 0 in view.shape:
        return np.ndarray(view.shape, memory.dtype)
    if memory.strides == (0,):  # equal elements, stored once
        return np.broadcast_to(memory[:1].reshape(()), view.shape)
    array = np.ndarray(view.shape, memory.dtype, memory, view.offset * item, tuple(s * item for s in view.strides))
    array.flags.writeable = memory.flags.writeable
    return array


def slices_of(family: FamilyOp, field: Field, shape: tuple[int, ...], box: Box) -> tuple[tuple[slice, ...], tuple[tuple[int, int], ...]]:
    """The part of a view of `shape` that a box touches, and how far the box hangs over it in each dimension.

    A window of a codelet that pads is all that lies between its ends; else a coefficient is a step.
    Raises PlacedError for an access whose image is not evenly spaced.
    """
    window = field.kind == "in" and family.declaration.padded
    slices: list[slice] = []
    pads: list[tuple[int, int]] = []
    for access, n in zip(field.access, shape):
        first, end, before, behind = access.interval(n, box)
        step = 1
        if not window and not access.part and not access.whole and access.terms:
            step = step_of(access, box)
            if step == 0:
                raise PlacedError(
                    f"{where(family)}: @{family.codelet.data} {field.name}[{access}] touches elements that are not evenly spaced; "
                    f"see the operand through a reshape that gives each axis its own dimension"
                )
        slices.append(slice(first, max(first, end), step))
        pads.append((before, behind))
    return tuple(slices), tuple(pads)


def step_of(access: Access, box: Box) -> int:
    """The distance of neighbouring elements that a sum of axes touches in a box; 0 if it varies."""
    terms = sorted((c, box[a][1] - box[a][0]) for a, c in access.terms if box[a][1] - box[a][0] > 1)
    if not terms:
        return 1
    step = span = terms[0][0]  # span: how far the finer axes reach without a gap
    for coefficient, n in terms:
        if coefficient % step or coefficient > span:
            return 0
        span += coefficient * (n - 1)
    return step


def piece_of(family: FamilyOp, field: Field, array: Array, box: Box, constant: bool) -> Piece:
    """The piece of a field's view that a box touches; read-only if the field is an input."""
    slices, pads = slices_of(family, field, array.shape, box)
    part = array[(*slices, ...)]  # the dots keep what has no dimension an array
    if field.kind == "in" and part.flags.writeable:
        part = part.view()
        part.flags.writeable = False
    return Piece(part, field.access, pads, constant)


def collapsed(family: FamilyOp) -> Domain:
    """The family's space with its parallel axes in one part."""
    return family.space.collapse(family.contracted)
