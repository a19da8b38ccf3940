"""Matrix products."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import ClassVar

from xdsl.builder import Builder
from xdsl.dialects.builtin import TensorType
from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import irdl_op_definition, operand_def, opt_operand_def, result_def
from xdsl.utils.exceptions import VerifyException

from populus.dialects.base.tensor_op import HIGH_VALUE
from populus.dialects.expr import Arg, cast
from populus.dialects.popart import calls
from populus.dialects.popart.base import Link, Neutral, PopartOp
from populus.dialects.poplin import MatMulOp as GroupedMatMulOp
from populus.dialects.support import shapes
from populus.dialects.support.constraints import flag, number
from populus.dialects.support.element_types import element_type_of, shape_of, tensor
from populus.dialects.support.shapes import ShapeError


def product(
    b: Builder,
    x: SSAValue,
    y: SSAValue,
    left: Sequence[int] | None = None,
    right: Sequence[int] | None = None,
    to: Sequence[int] | None = None,
) -> SSAValue:
    """Builds NumPy's matmul of x and y as a library call with as few groups as possible.

    x and y are treated as shapes `left` and `right`, each of at least two dimensions; the result is reshaped to `to`.
    """
    s, t = left or calls.shape(x), right or calls.shape(y)
    batch = shapes.broadcast(s[:-2], t[:-2])
    m, k, n = s[-2], s[-1], t[-1]
    to = (*batch, m, n) if to is None else to
    if math.prod(t[:-2]) == 1:  # one right-hand side for all: its groups are more rows of the left-hand side
        x, y = calls.reshape(b, x, (1, math.prod(s[:-1]), k)), calls.reshape(b, y, (1, k, n))
    else:
        groups = math.prod(batch)
        x = calls.reshape(b, _stretched(b, x, s, (*batch, m, k)), (groups, m, k))
        y = calls.reshape(b, _stretched(b, y, t, (*batch, k, n)), (groups, k, n))
    return calls.reshape(b, calls.insert(b, GroupedMatMulOp(x, y)), to)


def _as(b: Builder, y: SSAValue, like: SSAValue) -> SSAValue:
    """Casts a product to the element type of `like`: that of 8-bit integers, which is i32, wraps around."""
    return y if calls.element(y) == calls.element(like) else calls.map(b, cast(Arg(1), calls.element(like)), y)


def _stretched(b: Builder, x: SSAValue, shape: Sequence[int], to: Sequence[int]) -> SSAValue:
    """Broadcasts x, of shape `shape`, where necessary."""
    return x if math.prod(shape) == math.prod(to) else calls.stretch(b, calls.reshape(b, x, shape), to)


def transposed(b: Builder, x: SSAValue) -> SSAValue:
    """Exchanges the last two dimensions of x."""
    rank = len(calls.shape(x))
    return calls.transpose(b, x, (*range(rank - 2), rank - 1, rank - 2))


def product_links(a: SSAValue, b: SSAValue, y: SSAValue) -> list[Link]:
    """Says which dimension of y the rows, columns and batch dimensions of NumPy's matmul are."""
    m, n, k = (len(calls.shape(v)) for v in (a, b, y))
    batch = max(m - 2, n - 2, 0)
    links = [(i, d, 0, d + batch - (rank - 2)) for i, rank in enumerate((m, n)) for d in range(rank - 2)]
    return [*links, *([(0, m - 2, 0, batch)] if m > 1 else []), *([(1, n - 1, 0, k - 1)] if n > 1 else [])]


def product_zeros(a: SSAValue, b: SSAValue) -> list[Neutral]:
    """Says that a matmul sums over the last dimension of a and the last but one of b, in both zeros: zero times NaN is NaN."""
    return [(0, len(calls.shape(a)) - 1, "zero"), (1, max(len(calls.shape(b)) - 2, 0), "zero")]


def _agree(a: SSAValue, b: SSAValue) -> None:
    if element_type_of(a.type) != element_type_of(b.type):
        raise VerifyException(f"{element_type_of(a.type)} times {element_type_of(b.type)}; equal element types are expected")


@irdl_op_definition
class MatMulOp(PopartOp):
    """`y[.., m, n] = sum over k of a[.., m, k] b[.., k, n]`, batch dimensions broadcast.

    A vector on the left is a row, one on the right a column; that dimension is then gone from y. Source: ONNX MatMul-13.
    """

    OUTLINE_VALUE: ClassVar[float] = HIGH_VALUE

    name = "popart.matmul"
    a = operand_def(TensorType)
    b = operand_def(TensorType)
    y = result_def(TensorType)

    def _matrices(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Returns the operands' shapes, with vectors as matrices."""
        a, b = shape_of(self.a.type), shape_of(self.b.type)
        return (1, *a) if len(a) == 1 else a, (*b, 1) if len(b) == 1 else b

    def infer(self) -> Sequence[TensorType[Attribute]]:
        given = shapes.text(shape_of(self.a.type)), shapes.text(shape_of(self.b.type))
        a, b = self._matrices()
        if not a or not b or a[-1] != b[-2]:
            raise ShapeError(f"{given[0]} times {given[1]}; the last dimension of a is to be the last but one of b")
        _agree(self.a, self.b)
        rows = [] if len(shape_of(self.a.type)) == 1 else [a[-2]]
        columns = [] if len(shape_of(self.b.type)) == 1 else [b[-1]]
        return [tensor((*shapes.broadcast(a[:-2], b[:-2]), *rows, *columns), element_type_of(self.a.type))]

    def independent(self) -> Sequence[Link]:
        return product_links(self.a, self.b, self.y)

    def neutral(self) -> Sequence[Neutral]:
        return product_zeros(self.a, self.b)

    def block_rows(self) -> Mapping[int, int]:
        return {i: rank - 1 for i, v in enumerate((self.a, self.b)) if (rank := len(shape_of(v.type))) > 1}

    def lower(self, b: Builder) -> Sequence[SSAValue]:
        left, right = self._matrices()
        return [_as(b, product(b, self.a, self.b, left, right, calls.shape(self.y)), self.y)]

    def gradient(self, b: Builder, grads: Sequence[SSAValue]) -> Sequence[SSAValue | None]:
        left, right = self._matrices()
        g = calls.reshape(b, grads[0], (*shapes.broadcast(left[:-2], right[:-2]), left[-2], right[-1]))
        x, y = calls.reshape(b, self.a, left), calls.reshape(b, self.b, right)
        dx = calls.sum_to(b, product(b, g, transposed(b, y)), left)
        if math.prod(right[:-2]) == 1 and left[:-2] == calls.shape(g)[:-2]:  # one y for all: its gradient is one product too
            rows = calls.reshape(b, x, (math.prod(left[:-1]), left[-1]))
            dy = calls.reshape(b, product(b, transposed(b, rows), calls.reshape(b, g, (math.prod(left[:-1]), right[-1]))), right)
        else:
            dy = calls.sum_to(b, product(b, transposed(b, x), g), right)
        return [calls.reshape(b, dx, calls.shape(self.a)), calls.reshape(b, dy, calls.shape(self.b))]


@irdl_op_definition
class GemmOp(PopartOp):
    """`y = alpha a' b' + beta c`, where a' is a, or its transpose with `trans_a`; c broadcasts to y. Source: ONNX Gemm-13."""

    OUTLINE_VALUE: ClassVar[float] = HIGH_VALUE

    name = "popart.gemm"
    a = operand_def(TensorType)
    b = operand_def(TensorType)
    c = opt_operand_def(TensorType)
    alpha = number(1.0)
    beta = number(1.0)
    trans_a = flag()
    trans_b = flag()
    y = result_def(TensorType)

    def infer(self) -> Sequence[TensorType[Attribute]]:
        a, b = shape_of(self.a.type), shape_of(self.b.type)
        if len(a) != 2 or len(b) != 2:
            raise ShapeError(f"{shapes.text(a)} times {shapes.text(b)}; two matrices are expected")
        m, k = reversed(a) if self.trans_a else a
        k_, n = reversed(b) if self.trans_b else b
        if k != k_:
            raise ShapeError(f"a sums over {k} elements, b over {k_}")
        _agree(self.a, self.b)
        if self.c is not None:
            _agree(self.a, self.c)
            if shapes.broadcast(shape_of(self.c.type), (m, n)) != (m, n):
                raise ShapeError(f"c is {shapes.text(shape_of(self.c.type))}, which does not stretch to {m}x{n}")
        return [tensor((m, n), element_type_of(self.a.type))]

    def independent(self) -> Sequence[Link]:
        rank = 0 if self.c is None else len(shape_of(self.c.type))
        added = [(2, d, 0, d + 2 - rank) for d in range(rank)]
        return [(0, 1 if self.trans_a else 0, 0, 0), (1, 0 if self.trans_b else 1, 0, 1), *added]

    def neutral(self) -> Sequence[Neutral]:
        return [(0, 0 if self.trans_a else 1, "zero"), (1, 1 if self.trans_b else 0, "zero")]

    def block_rows(self) -> Mapping[int, int]:
        return {0: 0 if self.trans_a else 1, 1: 0 if self.trans_b else 1}

    def _factors(self, b: Builder) -> tuple[SSAValue, SSAValue]:
        return (
            transposed(b, self.a) if self.trans_a else self.a,
            transposed(b, self.b) if self.trans_b else self.b,
        )

    def lower(self, b: Builder) -> Sequence[SSAValue]:
        alpha, beta = self.alpha, self.beta
        y = _as(b, product(b, *self._factors(b)), self.y)
        scaled = Arg(1) if alpha == 1 else Arg(1) * alpha
        if self.c is None or beta == 0:
            return [calls.map(b, scaled, y)]
        return [calls.map(b, scaled + (Arg(2) if beta == 1 else Arg(2) * beta), y, self.c)]

    def gradient(self, b: Builder, grads: Sequence[SSAValue]) -> Sequence[SSAValue | None]:
        alpha, beta = self.alpha, self.beta
        g = grads[0] if alpha == 1 else calls.map(b, Arg(1) * alpha, grads[0])
        left, right = self._factors(b)
        da, db = product(b, g, transposed(b, right)), product(b, transposed(b, left), g)
        results: list[SSAValue | None] = [
            transposed(b, da) if self.trans_a else da,
            transposed(b, db) if self.trans_b else db,
        ]
        if self.c is not None:
            dc = calls.sum_to(b, grads[0], calls.shape(self.c))
            results.append(dc if beta == 1 else calls.map(b, Arg(1) * beta, dc))
        return results
