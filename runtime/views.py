"""Views as NumPy arrays: parameters as Python values, strided arrays on a variable's memory, and the piece of a view for
a box.
"""

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
    """A PopulusError whose message already begins with its place."""


def value_of(attribute: Attribute) -> Param:
    """Converts a family's parameter to a Python value. Raises PopulusError for another kind of attribute."""
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
            raise PopulusError(f"{attribute} is not a kernel parameter; numbers, strings, lists and expressions are")


def params_of(params: DictionaryAttr) -> dict[str, Param]:
    """Converts a family's parameters to Python values, by name."""
    return {name: value_of(attribute) for name, attribute in params.data.items()}


def view_array(memory: Array, view: View) -> Array:
    """Gives the array of a view on a variable's `memory`: [elements], row-major. No data is copied."""
    item = memory.itemsize
    if 0 in view.shape:
        return np.ndarray(view.shape, memory.dtype)
    if memory.strides == (0,):  # equal elements, stored once
        return np.broadcast_to(memory[:1].reshape(()), view.shape)
    array = np.ndarray(view.shape, memory.dtype, memory, view.offset * item, tuple(s * item for s in view.strides))
    array.flags.writeable = memory.flags.writeable
    return array


def slices_of(family: FamilyOp, field: Field, shape: tuple[int, ...], box: Box) -> tuple[tuple[slice, ...], tuple[tuple[int, int], ...]]:
    """Gives the slices of a view of `shape` that a box accesses, and its overhang (before, after) in each dimension.

    For the inputs of a codelet that pads, a slice spans the whole window. Otherwise an access's coefficient is the
    slice's step. Raises PlacedError for an access whose elements are not evenly spaced.
    """
    window = field.kind == "in" and family.declaration.padded
    slices: list[slice] = []
    pads: list[tuple[int, int]] = []
    for access, n in zip(field.access, shape):
        first, end, before, after = access.interval(n, box)
        step = 1
        if not window and not access.part and not access.whole and access.terms:
            step = step_of(access, box)
            if step == 0:
                raise PlacedError(
                    f"{where(family)}: @{family.codelet.data} {field.name}[{access}] touches elements that are not evenly spaced; "
                    f"see the operand through a reshape that gives each axis its own dimension"
                )
        slices.append(slice(first, max(first, end), step))
        pads.append((before, after))
    return tuple(slices), tuple(pads)


def step_of(access: Access, box: Box) -> int:
    """Gives the distance between neighbouring elements that an access touches in a box; 0 if it varies."""
    terms = sorted((c, box[a][1] - box[a][0]) for a, c in access.terms if box[a][1] - box[a][0] > 1)
    if not terms:
        return 1
    step = span = terms[0][0]  # span: the range that the finer axes cover without a gap
    for coefficient, n in terms:
        if coefficient % step or coefficient > span:
            return 0
        span += coefficient * (n - 1)
    return step


def piece_of(family: FamilyOp, field: Field, array: Array, box: Box, constant: bool) -> Piece:
    """Gives the piece of a field's view that a box accesses; it is read-only if the field is an input."""
    slices, pads = slices_of(family, field, array.shape, box)
    part = array[(*slices, ...)]  # the ellipsis keeps a result without dimensions an array
    if field.kind == "in" and part.flags.writeable:
        part = part.view()
        part.flags.writeable = False
    return Piece(part, field.access, pads, constant, array.shape)


def collapsed(family: FamilyOp) -> Domain:
    """Gives the family's iteration space with each parallel axis in one part."""
    return family.space.collapse(family.contracted)
