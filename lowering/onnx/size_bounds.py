"""Upper bounds of result types whose size depends on the data."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from xdsl.dialects.builtin import i64
from xdsl.ir import Attribute, SSAValue

from populus.dialects.onnx.schema import OnnxOp
from populus.dialects.onnx.types import as_tensor, is_static
from populus.dialects.support import shapes
from populus.dialects.support.element_types import element_type_of, shape_of, tensor

if TYPE_CHECKING:
    from numpy.typing import NDArray

Known = Callable[[SSAValue], "NDArray[Any] | None"]


def bound_axes(op: OnnxOp) -> list[int | None]:
    """Gives the axis along which each output of such an op has a valid length; None for an output that is all valid."""
    match op.OP_TYPE:
        case "NonZero":
            return [1]
        case "Compress":
            return [_rows(op)[1]]
        case "Unique":
            return [_rows(op)[1], 0, None, 0]
        case _:
            return [0]


def largest_types(op: OnnxOp, known: Known) -> list[Attribute] | None:
    """Gives the largest types of all outputs of an op with data-dependent sizes; None for any other op."""
    if op.DOMAIN or op.OP_TYPE not in _BOUNDS:
        return None
    types = [None if v is None else as_tensor(v.type) for v in op.inputs]
    if any(v is not None and (t is None or not is_static(t)) for v, t in zip(op.inputs, types)):
        return None
    return _BOUNDS[op.OP_TYPE](op, known)


def _input(op: OnnxOp, i: int) -> SSAValue:
    """Gives input `i`, which the op requires."""
    value = op.inputs[i]
    assert value is not None, (op.name, i)
    return value


def _nonzero(op: OnnxOp, known: Known) -> list[Attribute] | None:
    """Bounds NonZero: [rank, elements]."""
    shape = shape_of(_input(op, 0).type) or (1,)
    return [tensor((len(shape), math.prod(shape)), i64)]


def _rows(op: OnnxOp) -> tuple[tuple[int, ...], int]:
    """Gives the shape of x, flattened if the op has no axis, and the axis."""
    shape = shape_of(_input(op, 0).type)
    axis = op.property("axis")
    return (shape, shapes.axis(axis, len(shape))) if axis is not None else ((math.prod(shape),), 0)


def _compress(op: OnnxOp, known: Known) -> list[Attribute] | None:
    """Bounds Compress by the length of its condition."""
    if known(_input(op, 1)) is not None:
        return None
    shape, axis = _rows(op)
    most = min(shape[axis], shape_of(_input(op, 1).type)[0])
    return [tensor((*shape[:axis], most, *shape[axis + 1 :]), element_type_of(_input(op, 0).type))]


def _unique(op: OnnxOp, known: Known) -> list[Attribute] | None:
    """Bounds Unique by the number of rows."""
    shape, axis = _rows(op)
    return [tensor(shape, element_type_of(_input(op, 0).type)), *[tensor((shape[axis],), i64)] * 3]


def _non_max_suppression(op: OnnxOp, known: Known) -> list[Attribute] | None:
    """Bounds NonMaxSuppression: [selected, 3], by the boxes and the limit for each class."""
    batch, classes, n = shape_of(_input(op, 1).type)
    most = 0
    if len(op.inputs) > 2 and (limit := op.inputs[2]) is not None:
        if (array := known(limit)) is None:
            return None
        most = int(array.reshape(-1)[0])
    return [tensor((batch * classes * min(most, n), 3), i64)]


_BOUNDS: Mapping[str, Callable[[OnnxOp, Known], list[Attribute] | None]] = {
    "Compress": _compress,
    "NonMaxSuppression": _non_max_suppression,
    "NonZero": _nonzero,
    "Unique": _unique,
}
