"""Products that share an operand, and constant factors that products absorb."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from xdsl.ir import Operation, SSAValue

from populus.dialects import popart
from populus.dialects.data import ConstantOp, is_loaded
from populus.dialects.popart import calls
from populus.dialects.support.element_types import is_float
from populus.lowering.popart.patterns.linear import Linear, channel_axis, extremes, rounded, with_factor
from populus.lowering.popart.rewriting import Pattern, Rewriting, array_of, read_once, scalar

Build = Callable[[Rewriting], SSAValue]


class MergeMatMuls(Pattern[popart.MatMulOp]):
    """Products of one operand with several constant matrices are one product with the concatenated matrix, then
    slices.

    Legal: all are in one block and have one element type. If each product's only user adds a constant row, these
    additions are merged too.
    """

    ROOTS = (popart.MatMulOp,)
    EXACT = False
    LATE = True

    def rewrite(self, op: popart.MatMulOp, r: Rewriting) -> Sequence[SSAValue] | None:
        readers = {use.operation: None for use in op.a.uses if use.index == 0}
        matrices = [m for m in readers if isinstance(m, popart.MatMulOp) and m.parent is op.parent and _is_matrix(m.b)]
        if len(matrices) < 2 or op not in matrices:
            return None
        block = op.parent_block()
        assert block is not None
        matrices.sort(key=block.get_operation_index)
        if matrices[0] is not op:
            return None
        widths = [calls.shape(m.b)[1] for m in matrices]
        y = r.insert(popart.MatMulOp(op.a, r.joined([m.b for m in matrices], 1)))
        replaced: list[Operation] = list(matrices)
        biases = [_bias(m) for m in matrices]
        rows = [bias[1] for bias in biases if bias is not None]
        if len(rows) == len(matrices):
            y = r.insert(popart.AddOp(y, r.joined(rows, 0)))
            replaced = [bias[0] for bias in biases if bias is not None]
        at, shape = 0, calls.shape(y)
        for old, width in zip(replaced, widths):
            begins, ends = [0] * len(shape), list(shape)
            begins[-1], ends[-1] = at, at + width
            piece = popart.SliceOp(y, begins=begins, ends=ends, steps=[1] * len(shape))
            r.also(old, [r.insert(piece)])
            at += width
        return []  # `also` has recorded the replacements


def _is_matrix(value: SSAValue) -> bool:
    return is_loaded(value) and len(calls.shape(value)) == 2


def _bias(op: popart.MatMulOp) -> tuple[Operation, SSAValue] | None:
    """Returns the addition of a constant row that is a product's only user, and the row."""
    reader = op.y.get_user_of_unique_use()
    if not isinstance(reader, popart.AddOp) or reader.parent is not op.parent:
        return None
    row = reader.b if reader.a is op.y else reader.a
    return (reader, row) if is_loaded(row) and calls.shape(row) == calls.shape(op.y)[-1:] else None


class FactorIntoWeights(Pattern[popart.MulOp | popart.DivOp]):
    """A constant number that multiplies (or divides) a result of a product with constant weights is part of the
    weights.

    Legal: only reshapes, transposes, sums with constants and further products are in between, and none has
    another use. The weights stay finite. Thus the scale of attention scores disappears if a linear layer computes
    queries or keys.
    """

    ROOTS = (popart.MulOp, popart.DivOp)
    EXACT = False

    def rewrite(self, op: popart.MulOp | popart.DivOp, r: Rewriting) -> Sequence[SSAValue] | None:
        pairs = [(op.a, op.b)] if isinstance(op, popart.DivOp) else [(op.a, op.b), (op.b, op.a)]
        for x, by in pairs:
            number = scalar(by)
            if not number or not is_float(calls.element(x)) or x.type != op.y.type:
                continue
            factor = 1 / number if isinstance(op, popart.DivOp) else number
            if np.isfinite(factor) and (build := scaled(x, factor, op)) is not None:
                return [build(r)]
        return None


def scaled(x: SSAValue, factor: float, beside: Operation) -> Build | None:
    """Returns a builder of `factor x` that scales the weights of x; None if there are none, or x has another use."""
    op = x.owner
    if not isinstance(op, Operation) or op.parent is not beside.parent or not read_once(x):
        return None
    match op:
        case popart.ReshapeOp() | popart.TransposeOp():
            inner = scaled(op.x, factor, beside)
            return None if inner is None else lambda r: _again(r, op, {op.x: inner(r)})
        case popart.AddOp() | popart.SubOp():
            sides = [_term(o, factor, beside) for o in op.operands]
            a, b = sides
            if a is None or b is None or all(isinstance(o.owner, ConstantOp) for o in op.operands):
                return None
            return lambda r: _again(r, op, {op.a: a(r), op.b: b(r)})
        case popart.ConvOp() | popart.ConvTransposeOp() | popart.GemmOp() | popart.MatMulOp() if _stays_finite(op, factor):
            return lambda r: _weighted(r, op, factor)
        case popart.MatMulOp() if op.a is not op.b:
            for side in (op.a, op.b):
                if (inner := scaled(side, factor, beside)) is not None:
                    return lambda r, side=side, inner=inner: _again(r, op, {side: inner(r)})
        case _:
            pass
    return None


def _term(value: SSAValue, factor: float, beside: Operation) -> Build | None:
    """Returns a builder of a scaled addend."""
    array = array_of(value)
    if array is None:
        return scaled(value, factor, beside)
    return (lambda r: rounded(r, array * factor, value)) if _is_finite(value, array, factor) else None


def _again(r: Rewriting, op: Operation, values: dict[SSAValue, SSAValue]) -> SSAValue:
    """Inserts the op with other operands."""
    return r.insert(op.clone(values))


def _is_finite(value: SSAValue, array: NDArray[Any], factor: float) -> bool:
    """Tells whether all elements stay finite when scaled: the least and the greatest do, which are NaN if any element is."""
    if not array.size:
        return True
    with np.errstate(over="ignore", invalid="ignore"):
        return bool(np.isfinite((extremes(value, array) * factor).astype(array.dtype)).all())


def _stays_finite(op: Linear, factor: float) -> bool:
    """Tells whether weights and bias are constants that stay finite when scaled."""
    arrays = [(o, array_of(o)) for o in op.operands[1:]]
    return all(a is not None and _is_finite(o, a, factor) for o, a in arrays) and len(calls.shape(op.operands[1])) > 1


def _weighted(r: Rewriting, op: Linear, factor: float) -> SSAValue:
    axis = channel_axis(op)
    value = with_factor(r, op, np.full(calls.shape(op.y)[axis], factor), axis)
    assert value is not None, op
    return value
