"""Reshapes, transposes and expansions: merged, cancelled, or moved past element-wise ops."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import Operation, SSAValue

from populus.dialects import popart
from populus.dialects.base.tensor_op import ints
from populus.dialects.data import ConstantOp
from populus.dialects.popart import ElementwiseOp, calls
from populus.dialects.support import shapes
from populus.dialects.support.element_types import tensor
from populus.lowering.popart.rewriting import Pattern, Rewriting, made_by, read_once

LARGEST_CONE = 16  # the most element-wise ops through which a transpose moves at once


class ViewSimplify(Pattern[popart.ReshapeOp]):
    """A reshape of a reshape is one. Always legal."""

    ROOTS = (popart.ReshapeOp,)

    def rewrite(self, op: popart.ReshapeOp, r: Rewriting) -> Sequence[SSAValue] | None:
        inner = made_by(op.x, popart.ReshapeOp, op)
        return None if inner is None else [r.insert(popart.ReshapeOp(inner.x, shape=calls.shape(op.y)))]


class TransposeToIdentityOrReshape(Pattern[popart.TransposeOp]):
    """A transpose of a transpose is one; one that moves only dimensions of 1 is a reshape. Always legal."""

    ROOTS = (popart.TransposeOp,)

    def rewrite(self, op: popart.TransposeOp, r: Rewriting) -> Sequence[SSAValue] | None:
        permutation, shape = ints(op.permutation), calls.shape(op.x)
        if (inner := made_by(op.x, popart.TransposeOp, op)) is not None:
            return [_transposed(r, inner.x, _composed(ints(inner.permutation), permutation))]
        moved = [d for d in permutation if shape[d] != 1]
        return [r.insert(popart.ReshapeOp(op.x, shape=calls.shape(op.y)))] if moved == sorted(moved) else None


class TransposeThroughElementwise(Pattern[popart.TransposeOp]):
    """Transposes before and after element-wise ops cancel.

    Legal: every operand of these ops is a transpose, a constant, or a scalar; the ops have no other users. Fires
    if at least one transpose is undone by the later one.
    """

    ROOTS = (popart.TransposeOp,)

    def rewrite(self, op: popart.TransposeOp, r: Rewriting) -> Sequence[SSAValue] | None:
        cone = _cone(op.x, op)
        permutation = ints(op.permutation)
        if not cone:
            return None
        inside = {c.results[0] for c in cone}
        leaves = [o for c in cone for o in c.operands if o not in inside]
        cancels = False
        for leaf in leaves:
            turned = made_by(leaf, popart.TransposeOp, op)
            if turned is None and not isinstance(leaf.owner, ConstantOp) and calls.shape(leaf):
                return None
            rank = len(calls.shape(leaf))
            cancels |= turned is not None and _composed(ints(turned.permutation), permutation) == tuple(range(rank))
            if turned is not None and rank != len(permutation):
                return None
        if not cancels:
            return None
        values: dict[SSAValue, SSAValue] = {}
        for leaf in leaves:
            if leaf not in values:
                values[leaf] = _permuted_operand(r, leaf, permutation)
        for c in cone:
            type = tensor(shapes.permuted(calls.shape(c.results[0]), permutation), calls.element(c.results[0]))
            new = c.create(operands=[values[o] for o in c.operands], properties=c.properties.copy(), result_types=[type])
            values[c.results[0]] = r.insert(new)
        return [values[op.x]]


class ExpandCast(Pattern[ElementwiseOp]):
    """An element-wise op on an expanded operand works on the operand itself.

    Legal: the other operands already have the result's shape. Otherwise, the other operands are scalars, the
    expansion has no other use, and the result is expanded instead. PopART does this for casts alone.
    """

    ROOTS = (ElementwiseOp,)

    def rewrite(self, op: ElementwiseOp, r: Rewriting) -> Sequence[SSAValue] | None:
        shape = calls.shape(op.y)
        for i, operand in enumerate(op.operands):
            expanded = made_by(operand, popart.ExpandOp, op)
            if expanded is None:
                continue
            others = [calls.shape(o) for j, o in enumerate(op.operands) if j != i]
            if shapes.broadcast(calls.shape(expanded.x), *others) == shape:
                return [_with_operand(r, op, i, expanded.x, shape)]
            if read_once(operand) and not any(others):
                small = _with_operand(r, op, i, expanded.x, calls.shape(expanded.x))
                return [r.insert(popart.ExpandOp(small, shape=shape))]
        return None


def _with_operand(r: Rewriting, op: ElementwiseOp, position: int, value: SSAValue, shape: Sequence[int]) -> SSAValue:
    operands = [value if j == position else o for j, o in enumerate(op.operands)]
    return r.insert(op.create(operands=operands, properties=op.properties.copy(), result_types=[tensor(tuple(shape), calls.element(op.y))]))


def _composed(first: Sequence[int], second: Sequence[int]) -> tuple[int, ...]:
    """Composes the permutations `first`, then `second`."""
    return tuple(first[d] for d in second)


def _transposed(r: Rewriting, x: SSAValue, permutation: Sequence[int]) -> SSAValue:
    return x if tuple(permutation) == tuple(range(len(permutation))) else r.insert(popart.TransposeOp(x, permutation=permutation))


def _permuted_operand(r: Rewriting, value: SSAValue, permutation: Sequence[int]) -> SSAValue:
    """Permutes an operand of an element-wise op whose result is permuted."""
    shape = calls.shape(value)
    if not shape:
        return value
    if isinstance(value.owner, popart.TransposeOp):
        return _transposed(r, value.owner.x, _composed(ints(value.owner.permutation), permutation))
    if len(shape) < len(permutation):
        value = r.insert(popart.ReshapeOp(value, shape=(*(1,) * (len(permutation) - len(shape)), *shape)))
    return _transposed(r, value, permutation)


def _cone(value: SSAValue, beside: Operation) -> list[ElementwiseOp]:
    """Collects the element-wise ops that produce a value, definitions first, whose results have its shape and no
    other use.

    Returns [] if there are too many.
    """
    cone: list[ElementwiseOp] = []

    def visit(v: SSAValue) -> None:
        op = made_by(v, ElementwiseOp, beside)
        if op is None or not read_once(v) or calls.shape(v) != calls.shape(value) or len(cone) > LARGEST_CONE:
            return
        for operand in op.operands:
            visit(operand)
        cone.append(op)

    visit(value)
    return cone if len(cone) <= LARGEST_CONE else []
