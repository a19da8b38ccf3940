"""Sparse values: rows of a larger tensor with their numbers, as one value of one type.

    %s = sparse.rows %numbers, %rows {size = 6 : i64} : (tensor<4xi64>, tensor<4x3xf32>) -> !popart.sparse<4, tensor<6x3xf32>>
    %m = sparse.merge %s : (!popart.sparse<4, tensor<6x3xf32>>) -> !popart.sparse<4, tensor<6x3xf32>>
    %d = sparse.dense %m : (!popart.sparse<4, tensor<6x3xf32>>) -> tensor<6x3xf32>

The type states the full shape. An op of dense tensors refuses it. Tiles have numbers and rows apart: the lowering of an op that reads a
sparse value looks for those that it was made of.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from xdsl.builder import Builder
from xdsl.dialects.builtin import IntAttr, TensorType, i32, i64
from xdsl.ir import Attribute, Dialect, ParametrizedAttribute, SSAValue, TypeAttribute
from xdsl.irdl import irdl_attr_definition, irdl_op_definition, operand_def, result_def
from xdsl.parser import AttrParser
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException

from populus.dialects.expr import Arg, call, equal, maximum, select
from populus.dialects.expr import cast as converted
from populus.dialects.popart import calls
from populus.dialects.popart.base import PopartOp
from populus.dialects.popops import MultiSliceOp, MultiUpdateOp
from populus.dialects.support.constraints import whole
from populus.dialects.support.diagnostics import PopulusError
from populus.dialects.support.element_types import element_type_of, shape_of, tensor

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Rows(NamedTuple):
    """A sparse value in the interpreter. A negative number is of no row."""

    numbers: NDArray[Any]
    rows: NDArray[Any]


@irdl_attr_definition
class SparseType(ParametrizedAttribute, TypeAttribute):
    """`!popart.sparse<4, tensor<6x3xf32>>`: 4 rows of a tensor, with their numbers."""

    name = "popart.sparse"
    count: IntAttr
    dense: Attribute

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> list[Attribute]:
        with parser.in_angle_brackets():
            count = parser.parse_integer(allow_boolean=False, allow_negative=False)
            parser.parse_punctuation(",")
            return [IntAttr(count), parser.parse_type()]

    def print_parameters(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            printer.print_string(f"{self.count.data}, ")
            printer.print_attribute(self.dense)

    def verify(self) -> None:
        dense = self.dense
        if not isinstance(dense, TensorType) or not shape_of(cast("Attribute", dense)):
            raise VerifyException(f"a tensor of at least one dimension is expected, found {self.dense}")


@irdl_op_definition
class RowsOp(PopartOp):
    """`s = rows[i] at numbers[i] of a tensor of size rows`; numbers: [m], below size, negative for no row; rows: [m, ..].

    Source: Paddle SelectedRows.
    """

    name = "sparse.rows"
    numbers = operand_def(TensorType)
    rows = operand_def(TensorType)
    s = result_def(SparseType)
    size: int = whole(low=0)

    def infer(self) -> Sequence[Any]:
        numbers, rows = shape_of(self.numbers.type), shape_of(self.rows.type)
        if element_type_of(self.numbers.type) not in (i32, i64) or len(numbers) != 1 or rows[:1] != numbers:
            raise VerifyException(
                f"numbers are {self.numbers.type}, rows are {self.rows.type}; [m] of i32 or i64, and [m, ..] are expected"
            )
        return [SparseType(IntAttr(numbers[0]), tensor((self.size, *rows[1:]), element_type_of(self.rows.type)))]

    def evaluate(self, *arrays: NDArray[Any]) -> Sequence[Any]:
        return [Rows(*arrays)]


@irdl_op_definition
class MergeOp(PopartOp):
    """`m = s with each number once, at its first place, with the sum of its rows`; other places have no row. Source: Paddle MergeAdd."""

    name = "sparse.merge"
    s = operand_def(SparseType)
    m = result_def(SparseType)

    def infer(self) -> Sequence[Any]:
        return [self.s.type]

    def evaluate(self, *arrays: Any) -> Sequence[Any]:
        import numpy as np

        numbers, rows = cast("Rows", arrays[0])
        first = {int(n): i for i, n in reversed(list(enumerate(numbers))) if n >= 0}
        merged, total = np.full_like(numbers, -1), np.zeros_like(rows)
        for i, n in enumerate(numbers):
            if n >= 0:
                merged[first[int(n)]] = n
                total[first[int(n)]] += rows[i]
        return [Rows(merged, total)]


@irdl_op_definition
class DenseOp(PopartOp):
    """`d[n] = sum of the rows whose number is n`, zeros where there is none. Source: Paddle SelectedRows."""

    name = "sparse.dense"
    s = operand_def(SparseType)
    d = result_def(TensorType)

    def infer(self) -> Sequence[Any]:
        return [cast("SparseType", self.s.type).dense]

    def evaluate(self, *arrays: Any) -> Sequence[NDArray[Any]]:
        import numpy as np

        numbers, rows = cast("Rows", arrays[0])
        found = np.zeros(shape_of(self.d.type), rows.dtype)
        np.add.at(found, numbers[numbers >= 0], rows[numbers >= 0])
        return [found]

    def lower(self, b: Builder) -> Sequence[SSAValue]:
        numbers, rows = parts(b, self.s)
        column = calls.reshape(b, numbers, (*shape_of(numbers.type), *[1] * (len(shape_of(rows.type)) - 1)))
        rows = calls.map(b, select(Arg(1), converted(0, element_type_of(rows.type)), Arg(2) >= 0), rows, column)
        return [calls.added_rows(b, shape_of(self.d.type)[0], calls.map(b, maximum(Arg(1), 0), numbers), rows)]


@irdl_op_definition
class PartsOp(PopartOp):
    """`numbers, rows = those of s`. Source: Paddle SelectedRows."""

    name = "sparse.parts"
    s = operand_def(SparseType)
    numbers = result_def(TensorType)
    rows = result_def(TensorType)

    def infer(self) -> Sequence[Any]:
        of = cast("SparseType", self.s.type)
        return [tensor((of.count.data,), i64), tensor((of.count.data, *shape_of(of.dense)[1:]), element_type_of(of.dense))]

    def evaluate(self, *arrays: Any) -> Sequence[NDArray[Any]]:
        numbers, rows = cast("Rows", arrays[0])
        return [numbers.astype("int64"), rows]

    def lower(self, b: Builder) -> Sequence[SSAValue]:
        numbers, rows = parts(b, self.s)
        same = element_type_of(numbers.type) == i64
        return [numbers if same else calls.map(b, converted(Arg(1), i64), numbers), rows]


def parts(b: Builder, value: SSAValue) -> tuple[SSAValue, SSAValue]:
    """Builds the numbers and rows of a sparse value. Raises PopulusError if no op of this block made it."""
    match value.owner:
        case RowsOp() as made:
            return made.numbers, made.rows
        case MergeOp() as made:
            numbers, rows = parts(b, made.s)
            (m,), element = shape_of(numbers.type), element_type_of(rows.type)
            if m == 0:
                return numbers, rows
            place = first_places(b, numbers, shape_of(cast("SparseType", made.s.type).dense)[0])
            total = calls.added_rows(b, m, place, rows)
            first = calls.map(b, call("and", equal(Arg(1), Arg(2)), Arg(3) >= 0), place, iota(b, m), numbers)
            kept = calls.reshape(b, first, (m, *[1] * (len(shape_of(rows.type)) - 1)))
            zero = converted(0, element)
            return calls.map(b, select(Arg(1), -1, Arg(2)), numbers, first), calls.map(b, select(Arg(1), zero, Arg(2)), total, kept)
        case _:
            raise PopulusError("a sparse value crosses a branch, a loop or a call; make it dense before")


def first_places(b: Builder, numbers: SSAValue, size: int) -> SSAValue:
    """Builds where the first number that equals each one stands: [m], i32. Numbers are below `size`; negative ones count as equal."""
    (m,) = shape_of(numbers.type)
    at = calls.map(b, select(size, Arg(1), Arg(1) < 0), numbers)
    first = calls.insert(b, MultiUpdateOp(calls.fill(b, m, i32, (size + 1,)), at, iota(b, m), op="min"))
    return calls.insert(b, MultiSliceOp(first, at, dim=0))


def iota(b: Builder, n: int) -> SSAValue:
    """Builds the numbers from 0: [n], i32."""
    import numpy as np

    from populus.dialects.data import constant

    return b.insert(constant(np.arange(n, dtype=np.int32))).result


SPARSE = Dialect("sparse", [RowsOp, MergeOp, DenseOp, PartsOp], [])
