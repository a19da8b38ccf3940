"""Elements picked by index."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

from xdsl.builder import Builder
from xdsl.dialects.builtin import StringAttr, TensorType
from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import irdl_op_definition, operand_def, prop_def, result_def
from xdsl.utils.exceptions import VerifyException

from populus.dialects import expr, popops
from populus.dialects.base.tensor_op import HIGH_VALUE
from populus.dialects.data import constant, constant_value
from populus.dialects.expr import Arg
from populus.dialects.popart import calls
from populus.dialects.popart.base import Link, Neutral, PopartOp
from populus.dialects.poplar.sums import narrowed, widened
from populus.dialects.poplar.target import sum_type
from populus.dialects.popops import MultiSliceOp, MultiUpdateOp
from populus.dialects.popops.indexed import ordered, updated
from populus.dialects.support import shapes
from populus.dialects.support.constraints import flag, whole
from populus.dialects.support.diagnostics import PopulusError, where
from populus.dialects.support.element_types import element_type_of, is_integer, is_unsigned, shape_of, tensor


@irdl_op_definition
class GatherOp(PopartOp):
    """`y[.., i.., ..] = x[.., indices[i..], ..]` along `axis`; negative indices count from the end. Source: ONNX Gather-13."""

    name = "popart.gather"
    x = operand_def(TensorType)
    indices = operand_def(TensorType)
    axis = whole()
    y = result_def(TensorType)

    def infer(self) -> Sequence[TensorType[Attribute]]:
        shape = shape_of(self.x.type)
        axis = self.axis
        shapes.front(axis, len(shape))
        if not is_integer(element_type_of(self.indices.type)):
            raise VerifyException(f"the indices are {self.indices.type}, not integers")
        return [tensor((*shape[:axis], *shape_of(self.indices.type), *shape[axis + 1 :]), element_type_of(self.x.type))]

    def independent(self) -> Sequence[Link]:
        more = len(shape_of(self.indices.type)) - 1
        return [(0, d, 0, d + more if d > self.axis else d) for d in range(len(shape_of(self.x.type))) if d != self.axis]

    def neutral(self) -> Sequence[Neutral]:
        return [(1, d, "zero", self.axis + d) for d in range(len(shape_of(self.indices.type)))]

    def lower(self, b: Builder) -> Sequence[SSAValue]:
        return [calls.insert(b, MultiSliceOp(self.x, self._from_front(b), dim=self.axis))]

    def _from_front(self, b: Builder) -> SSAValue:
        """Counts negative indices from the front. Raises PopulusError for a constant one that is outside its dimension."""
        axis, n, indices = self.axis, calls.shape(self.x)[self.axis], self.indices
        known = constant_value(indices)
        if known is None:
            signed = not is_unsigned(calls.element(indices))
            return calls.map(b, expr.select(Arg(1) + n, Arg(1), Arg(1) < 0), indices) if signed else indices
        if known.size and not (-n <= known.min() and known.max() < n):
            wrong = known.min() if known.min() < -n else known.max()
            raise PopulusError(f"{where(self)}: {self.name}: index {wrong} is outside dimension {axis} of x, which has {n} elements")
        if known.size and known.min() < 0:
            return b.insert(constant(known + n * (known < 0).astype(known.dtype))).result
        return indices

    def gradient(self, b: Builder, grads: Sequence[SSAValue]) -> Sequence[SSAValue | None]:
        # Row i of dx is the sum of the rows of g whose index is i. Rows that nothing looked up are 0, whatever g has.
        axis, shape, picked = self.axis, calls.shape(self.x), math.prod(calls.shape(self.indices))
        order = [axis, *(d for d in range(len(shape)) if d != axis)]
        g = calls.transpose(b, calls.reshape(b, grads[0], (*shape[:axis], picked, *shape[axis + 1 :])), order)
        dx = calls.added_rows(b, shape[axis], calls.reshape(b, self._from_front(b), (picked,)), g)
        return [calls.transpose(b, dx, [order.index(d) for d in range(len(shape))]), None]


@irdl_op_definition
class ScatterOp(PopartOp):
    """`y = x`, but row `indices[i]` is `updates[i]`, or combined with it: reduction `set`, `add`, `mul`, `min` or `max`.

    x: [n, ..]; indices: [m], each within 0 .. n; updates: [m, ..]. Of several that are `set` the last stays.
    Source: ONNX ScatterND-18, ScatterElements-18.
    """

    OUTLINE_VALUE: ClassVar[float] = HIGH_VALUE

    name = "popart.scatter"
    x = operand_def(TensorType)
    indices = operand_def(TensorType)
    updates = operand_def(TensorType)
    reduction = prop_def(StringAttr)
    y = result_def(TensorType)

    def infer(self) -> Sequence[TensorType[Attribute]]:
        return [updated(self.x.type, self.indices.type, self.updates.type, self.reduction.data)]

    def lower(self, b: Builder) -> Sequence[SSAValue]:
        return [calls.insert(b, MultiUpdateOp(self.x, self.indices, self.updates, op=self.reduction))]

    def gradient(self, b: Builder, grads: Sequence[SSAValue]) -> Sequence[SSAValue | None]:
        reduction = self.reduction.data
        (g,) = grads
        taken = calls.insert(b, MultiSliceOp(g, self.indices, dim=0))
        if reduction == "add":
            return [g, None, taken]
        if reduction in ("min", "max"):
            return self._of_largest(b, g, taken)
        if reduction == "mul":
            return self._of_product(b, g, taken)
        zeros = calls.fill(b, 0, calls.element(g), calls.shape(self.updates))
        return [calls.insert(b, MultiUpdateOp(g, self.indices, zeros, op="set")), None, taken]

    def _of_largest(self, b: Builder, g: SSAValue, taken: SSAValue) -> list[SSAValue | None]:
        """Shares the gradient equally among the elements that equal the result, as PyTorch's scatter_reduce does."""
        own = calls.element(g)
        same = expr.cast(expr.equal(Arg(1), Arg(2)), sum_type(own))  # a half holds no count beyond 65,504
        largest = calls.map(b, same, self.x, self.y)
        won = calls.map(b, same, self.updates, calls.insert(b, MultiSliceOp(self.y, self.indices, dim=0)))
        count = calls.insert(b, MultiUpdateOp(largest, self.indices, won, op="add"))
        # A NaN equals nothing, so that none may be counted.
        share = narrowed(expr.select(widened(Arg(1), own) / Arg(3), 0.0, Arg(2) > 0), own)
        dx = calls.map(b, share, g, largest, count)
        counts = calls.insert(b, MultiSliceOp(count, self.indices, dim=0))
        du = calls.map(b, share, taken, won, counts)
        return [dx, None, du]

    def _of_product(self, b: Builder, g: SSAValue, taken: SSAValue) -> list[SSAValue | None]:
        """Multiplies the gradient by the product of the other factors, which is 0 if two or more factors are 0."""
        element = calls.element(g)
        ones = calls.fill(b, 1, element, calls.shape(self.x))
        zero = expr.cast(expr.equal(Arg(1), 0.0), element)
        whole = expr.select(1.0, Arg(1), expr.equal(Arg(1), 0.0))
        # Products and numbers of zeros over the updates alone: x, which is a factor too, is multiplied in where it is wanted.
        products = calls.insert(b, MultiUpdateOp(ones, self.indices, calls.map(b, whole, self.updates), op="mul"))
        none = calls.fill(b, 0, element, calls.shape(self.x))
        zeros = calls.insert(b, MultiUpdateOp(none, self.indices, calls.map(b, zero, self.updates), op="add"))
        dx = calls.map(b, expr.select(Arg(1) * Arg(2), 0.0, expr.equal(Arg(3), 0.0)), g, products, zeros)
        x, p, n = (calls.insert(b, MultiSliceOp(v, self.indices, dim=0)) for v in (self.x, products, zeros))
        u = Arg(2)
        others = expr.select(
            expr.select(Arg(4), 0.0, expr.equal(Arg(5), 1.0)),  # u is a zero: the rest, if it is the only one
            expr.select(Arg(4) / u, 0.0, expr.equal(Arg(5), 0.0)),
            expr.equal(u, 0.0),
        )
        du = calls.map(b, Arg(1) * Arg(3) * others, taken, self.updates, x, p, n)
        return [dx, None, du]


@irdl_op_definition
class TopKOp(PopartOp):
    """`y = argsort(x)[..., :k]`: where the k largest (or smallest) elements of each row stand, in order; the first of equals first.

    x: [.., n]; y: [.., k], i32. Source: ONNX TopK-24.
    """

    OUTLINE_VALUE: ClassVar[float] = HIGH_VALUE

    name = "popart.top_k"
    x = operand_def(TensorType)
    k = whole()
    largest = flag(None)
    y = result_def(TensorType)

    def infer(self) -> Sequence[TensorType[Attribute]]:
        return [ordered(self.x.type, self.k)]

    def independent(self) -> Sequence[Link]:
        return [(0, d, 0, d) for d in range(len(shape_of(self.x.type)) - 1)]

    def neutral(self) -> Sequence[Neutral]:
        return [(0, len(shape_of(self.x.type)) - 1, "lowest" if self.largest else "highest")]

    def lower(self, b: Builder) -> Sequence[SSAValue]:
        return [calls.insert(b, popops.TopKOp(self.x, k=self.k, largest=self.largest))]

    def gradient(self, b: Builder, grads: Sequence[SSAValue]) -> Sequence[SSAValue | None]:
        return [None]
