"""Softmax and norms of rows that exporters decompose."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from xdsl.ir import Operation, SSAValue

from populus.dialects import popart
from populus.dialects.popart import ElementwiseOp, ReduceOp, calls
from populus.dialects.support.element_types import dtype_of, is_float
from populus.lowering.popart.patterns.formulas import DEEPEST, Formulas, private
from populus.lowering.popart.patterns.normal_form import (
    EPSILON,
    ONE,
    Atom,
    Function,
    Leaf,
    NoNormalForm,
    Polynomial,
    Powers,
    add,
    alike,
    leaf,
    leaves_of,
    number,
    power,
    scaled,
)
from populus.lowering.popart.rewriting import Pattern, Rewriting, made_by, read_once, scalar


class Softmax(Pattern[popart.DivOp]):
    """`e^(x - max x) / sum of e^(x - max x)`, or without the maxima, is a softmax.

    Legal: both are along the same single dimension, and no other op reads a value in between. Where `e^x`
    overflows without the maxima, the softmax stays finite.
    """

    ROOTS = (popart.DivOp,)
    EXACT = False

    def rewrite(self, op: popart.DivOp, r: Rewriting) -> Sequence[SSAValue] | None:
        e = made_by(op.a, popart.ExpOp, op)
        total = _along(op.b, popart.ReduceSumOp, op)
        if e is None or total is None or total.x is not op.a or not _read_by(op.a, op, total) or not is_float(calls.element(op.y)):
            return None
        x, axis = e.x, total.dims()[0]
        shifted = made_by(x, popart.SubOp, op)
        if shifted is not None and read_once(x):
            largest = _along(shifted.b, popart.ReduceMaxOp, op)
            if largest is not None and largest.x is shifted.a and largest.dims() == (axis,) and read_once(shifted.b):
                x = shifted.a
        return [r.insert(popart.SoftmaxOp(x, axis=axis))]


class LogOfSoftmax(Pattern[popart.LogOp]):
    """The logarithm of a softmax is one op. Legal: the softmax has no other use. Where it underflows, the result is
    now finite.
    """

    ROOTS = (popart.LogOp,)
    EXACT = False

    def rewrite(self, op: popart.LogOp, r: Rewriting) -> Sequence[SSAValue] | None:
        inner = made_by(op.x, popart.SoftmaxOp, op)
        return None if inner is None or not read_once(op.x) else [r.insert(popart.LogSoftmaxOp(inner.x, axis=inner.axis))]


class LayerNorm(Pattern[ElementwiseOp]):
    """`(x - m) / sqrt(v + epsilon) scale + bias`, with m the mean of x and v that of `(x - m)^2`, is a layer norm.

    Legal: both means are over the same last dimensions of x; scale and bias, if any, broadcast to x; no other op
    reads a value in between. Every spelling of this normal form matches. For example, v may be the mean of
    squares less the square of the mean, and the root a reciprocal or a power.
    """

    ROOTS = (popart.DivOp, popart.MulOp, popart.SubOp, popart.AddOp)
    EXACT = False

    def rewrite(self, op: ElementwiseOp, r: Rewriting) -> Sequence[SSAValue] | None:
        for mean in _means(op):
            norm = _normalised(op, mean.x, mean)
            if norm is not None:
                scale = norm.scale or _ones(r, mean.x, norm.axis)
                return [r.insert(popart.LayerNormOp(mean.x, scale, norm.bias, axis=norm.axis, epsilon=norm.epsilon))]
        return None


class RmsNorm(Pattern[ElementwiseOp]):
    """`x / sqrt(v + epsilon) scale`, with v the mean of `x^2`, is an RMS norm. Legal: as for `LayerNorm`."""

    ROOTS = (popart.DivOp, popart.MulOp)
    EXACT = False

    def rewrite(self, op: ElementwiseOp, r: Rewriting) -> Sequence[SSAValue] | None:
        for mean in _means(op):
            for x in _squared(mean):
                norm = _normalised(op, x, None)
                if norm is not None and norm.bias is None:
                    scale = norm.scale or _ones(r, x, norm.axis)
                    return [r.insert(popart.RmsNormOp(x, scale, axis=norm.axis, epsilon=norm.epsilon))]
        return None


class NormScale(Pattern[popart.MulOp]):
    """A factor after a layer or RMS norm without scale is its scale.

    Legal: the norm has scale 1 and no bias, its result has no other use, and the factor broadcasts to it.
    """

    ROOTS = (popart.MulOp,)

    def rewrite(self, op: popart.MulOp, r: Rewriting) -> Sequence[SSAValue] | None:
        for norm, factor in _norms(op):
            if scalar(norm.scale) == 1 and (isinstance(norm, popart.RmsNormOp) or norm.bias is None):
                return [r.insert(type(norm)(norm.x, factor, axis=norm.axis, epsilon=norm.epsilon))]
        return None


class NormBias(Pattern[popart.AddOp]):
    """A term after a layer norm without bias is its bias. Legal: it broadcasts to the norm's result, which has no
    other use.
    """

    ROOTS = (popart.AddOp,)

    def rewrite(self, op: popart.AddOp, r: Rewriting) -> Sequence[SSAValue] | None:
        for norm, term in _norms(op):
            if isinstance(norm, popart.LayerNormOp) and norm.bias is None:
                return [r.insert(popart.LayerNormOp(norm.x, norm.scale, term, axis=norm.axis, epsilon=norm.epsilon))]
        return None


@dataclass(frozen=True)
class _Norm:
    """Parameters of a norm, besides x: its first normalised dimension, epsilon, scale and bias."""

    axis: int
    epsilon: float
    scale: SSAValue | None
    bias: SSAValue | None


def _means(op: ElementwiseOp) -> list[popart.ReduceMeanOp]:
    """Lists the means over last dimensions, which stay as 1, on which `op` depends through element-wise ops."""
    means: dict[popart.ReduceMeanOp, None] = {}
    seen: set[SSAValue] = set()
    waiting = list(op.operands)
    while waiting and len(seen) <= 2 * DEEPEST:
        value = waiting.pop(0)
        if value in seen or value.owner is op:
            continue
        seen.add(value)
        mean = made_by(value, popart.ReduceMeanOp, op)
        if mean is not None and _is_last(mean):
            means[mean] = None
        elif (inner := made_by(value, ElementwiseOp, op)) is not None:
            waiting.extend(inner.operands)
    return list(means)


def _is_last(mean: ReduceOp) -> bool:
    rank, dims = len(calls.shape(mean.x)), mean.dims()
    return mean.keep and bool(dims) and dims == tuple(range(rank - len(dims), rank)) and calls.element(mean.x) in EPSILON


def _squared(mean: popart.ReduceMeanOp) -> list[SSAValue]:
    """Lists the values whose squares a mean may average."""
    owner = mean.x.owner
    return list(dict.fromkeys(o for o in owner.operands if o.type == mean.x.type)) if isinstance(owner, ElementwiseOp) else []


def _normalised(op: ElementwiseOp, x: SSAValue, mean: popart.ReduceMeanOp | None) -> _Norm | None:
    """Matches `op` as a norm of x, less its `mean` if there is one; None if it is none."""
    if op.y.type != x.type:
        return None
    known = [x] if mean is None else [x, mean.y]
    formulas, squares = Formulas(op, *known), Formulas(op, *known)
    try:
        terms = formulas.of(op.y)
        roots = {atom for powers, _ in terms for atom, p in powers if isinstance(atom, Function) and (atom.name, p) == ("sqrt", -1)}
        if len(roots) != 1:
            return None
        (root,) = roots
        assert isinstance(root, Function), root
        variance = _variance(root.args[0], formulas, squares, mean)
    except NoNormalForm:
        return None
    scale_and_bias = None if variance is None else _factors(terms, root, formulas, mean is not None)
    if variance is None or scale_and_bias is None:
        return None
    second, epsilon = variance
    scale, bias = scale_and_bias
    dims = second.dims()
    if (mean is not None and mean.dims() != dims) or not _is_last(second) or calls.shape(second.x) != calls.shape(x):
        return None
    row = calls.shape(x)[dims[0] :]
    if any(v is not None and not _stretches(v, row) for v in (scale, bias)):
        return None
    between = [*formulas.ops, *squares.ops, second, *([] if mean is None else [mean])]
    return _Norm(dims[0], epsilon, scale, bias) if private(between, op) else None


def _variance(
    p: Polynomial, formulas: Formulas, squares: Formulas, mean: popart.ReduceMeanOp | None
) -> tuple[popart.ReduceMeanOp, float] | None:
    """Matches `v + epsilon` (or, with a mean, `v - mean^2 + epsilon`); returns the mean of squares and epsilon."""
    x = leaf(0)
    deviation = x if mean is None else add(x, scaled(leaf(1), -1))
    element = calls.element(formulas.leaves[0])
    epsilon = next((f for powers, f in p if powers == ONE), 0.0)
    for index in sorted(leaves_of(p) - {0, 1} if mean is not None else leaves_of(p) - {0}):
        owner = formulas.leaves[index].owner
        if not isinstance(owner, popart.ReduceMeanOp):
            continue
        of = squares.of(owner.x)
        if alike(p, add(leaf(index), number(epsilon)), element) and alike(of, power(deviation, 2), element):
            return owner, epsilon
        if mean is not None and alike(of, power(x, 2), element):
            variance = add(leaf(index), scaled(power(leaf(1), 2), -1))
            if alike(p, add(variance, number(epsilon)), element):
                return owner, epsilon
    return None


def _factors(terms: Polynomial, root: Function, formulas: Formulas, centred: bool) -> tuple[SSAValue | None, SSAValue | None] | None:
    """Matches `scale x / root - scale mean / root + bias`; returns scale and bias, or None."""
    by_power = dict(terms)
    candidates: list[int | None] = [None, *range(2 if centred else 1, len(formulas.leaves))]
    for index in candidates:
        factors: list[tuple[Atom, int]] = [(root, -1)] if index is None else [(root, -1), (Leaf(index), 1)]
        wanted: dict[Powers, float] = {frozenset([*factors, (Leaf(0), 1)]): 1.0}
        if centred:
            wanted[frozenset([*factors, (Leaf(1), 1)])] = -1.0
        if not all(math.isclose(by_power.get(p, 0.0), f) for p, f in wanted.items()):
            continue
        rest = [(p, f) for p, f in terms if p not in wanted]
        scale = None if index is None else formulas.leaves[index]
        if not rest:
            return scale, None
        if len(rest) == 1 and rest[0][1] == 1.0 and len(rest[0][0]) == 1:
            ((atom, exponent),) = rest[0][0]
            if isinstance(atom, Leaf) and exponent == 1 and atom.index > 1:
                return scale, formulas.leaves[atom.index]
    return None


def _norms(op: popart.MulOp | popart.AddOp) -> list[tuple[popart.LayerNormOp | popart.RmsNormOp, SSAValue]]:
    """Lists the norms whose only user is `op`, each with the other operand."""
    norms: list[tuple[popart.LayerNormOp | popart.RmsNormOp, SSAValue]] = []
    for x, other in ((op.a, op.b), (op.b, op.a)):
        norm = made_by(x, popart.LayerNormOp, op) or made_by(x, popart.RmsNormOp, op)
        if norm is not None and read_once(x) and _stretches(other, calls.shape(norm.x)[norm.axis :]):
            norms.append((norm, other))
    return norms


def _stretches(value: SSAValue, row: Sequence[int]) -> bool:
    """Tells whether a value broadcasts to the shape of a row."""
    shape = calls.shape(value)
    return len(shape) <= len(row) and all(n in (1, m) for n, m in zip(shape[::-1], row[::-1]))


def _ones(r: Rewriting, x: SSAValue, axis: int) -> SSAValue:
    return r.constant(np.ones(calls.shape(x)[axis:], dtype_of(calls.element(x))))


def _along(value: SSAValue, kind: type[ReduceOp], beside: Operation) -> ReduceOp | None:
    """Returns a value's producer if it is a reduction of this class along one dimension, which stays as 1."""
    op = made_by(value, kind, beside)
    return op if op is not None and op.keep and len(op.dims()) == 1 else None


def _read_by(value: SSAValue, *ops: Operation) -> bool:
    return {use.operation for use in value.uses} <= set(ops)
