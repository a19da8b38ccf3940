"""Rows written by index, and the order of elements: PopLibs' `multiUpdate` and `topK`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from xdsl.dialects.builtin import StringAttr, TensorType, i32
from xdsl.ir import Attribute
from xdsl.irdl import irdl_op_definition, operand_def, prop_def, result_def
from xdsl.utils.exceptions import VerifyException

from populus.dialects.base.tensor_op import HIGH_VALUE, TensorOp
from populus.dialects.poplar.meaning import RESULT, Meaning, Whole, numbered, plain
from populus.dialects.poplar.partition import ALL
from populus.dialects.support.constraints import flag, whole
from populus.dialects.support.element_types import element_type_of, is_integer, shape_of, tensor
from populus.dialects.support.shapes import ShapeError, text

UPDATES = ("set", "add", "mul", "min", "max")


@irdl_op_definition
class MultiUpdateOp(TensorOp):
    """`y = table`, but row `indices[i]` combined by `op` with `updates[i]`, in the order of i; of two that are `set` the last stays.

    table: [n, ..]; indices: [m], each within 0 .. n; updates: [m, ..]. Source: popops::multiUpdate, multiUpdateAdd, multiUpdateMax.
    """

    OUTLINE_VALUE: ClassVar[float] = HIGH_VALUE

    name = "popops.multi_update"
    table = operand_def(TensorType)
    indices = operand_def(TensorType)
    updates = operand_def(TensorType)
    op = prop_def(StringAttr)
    y = result_def(TensorType)

    def infer(self) -> Sequence[TensorType[Attribute]]:
        return [updated(self.table.type, self.indices.type, self.updates.type, self.op.data)]

    def meaning(self) -> Meaning:
        """Says what the result is."""
        shape = shape_of(self.table.type)
        d = numbered("d", len(shape))
        fields = (
            ("table", 0, plain(*d)),
            ("indices", 1, (ALL,)),
            ("updates", 2, (ALL, *plain(*d[1:]))),
            ("y", RESULT, plain(*d)),
        )
        return [Whole("multi_update", tuple(zip(d, shape)), fields, {"op": self.op})]


@irdl_op_definition
class TopKOp(TensorOp):
    """Where the k largest (or smallest) elements of each row stand, in order; of equal ones the first comes first. NaN is largest.

    x: [.., n]; y: [.., k], i32. Source: popops::topKWithPermutation.
    """

    OUTLINE_VALUE: ClassVar[float] = HIGH_VALUE

    name = "popops.top_k"
    x = operand_def(TensorType)
    k = whole()
    largest = flag(None)
    y = result_def(TensorType)

    def infer(self) -> Sequence[TensorType[Attribute]]:
        return [ordered(self.x.type, self.k)]

    def meaning(self) -> Meaning:
        """Says what the result is."""
        shape = shape_of(self.x.type)
        d = numbered("d", len(shape) - 1)
        fields = (("x", 0, (*plain(*d), ALL)), ("y", RESULT, plain(*d, "k")))
        return [Whole("top_k", (*zip(d, shape), ("k", self.k)), fields, {"largest": self.properties["largest"]})]


def updated(table: Attribute, indices: Attribute, updates: Attribute, op: str) -> TensorType[Attribute]:
    """Computes the type of a table with updated rows. Raises ShapeError or VerifyException for operands that do not fit."""
    if op not in UPDATES:
        raise VerifyException(f"'{op}' is not one of {', '.join(UPDATES)}")
    if not is_integer(element_type_of(indices)):
        raise VerifyException(f"the indices are {indices}, not integers")
    rows, at, new = shape_of(table), shape_of(indices), shape_of(updates)
    if not rows or len(at) != 1 or new != (*at, *rows[1:]):
        raise ShapeError(f"rows of {text(new)} at {text(at)} indices do not fit {text(rows)}")
    if element_type_of(updates) != element_type_of(table):
        raise VerifyException(f"the updates are {updates}, the table is {table}")
    return tensor(rows, element_type_of(table))


def ordered(x: Attribute, k: int) -> TensorType[Attribute]:
    """Computes the type of k positions in each row. Raises ShapeError if rows are shorter."""
    shape = shape_of(x)
    if not shape or not 0 <= k <= shape[-1]:
        raise ShapeError(f"{k} elements are asked of rows of {text(shape)}")
    return tensor((*shape[:-1], k), i32)
