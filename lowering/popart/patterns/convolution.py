"""Per-channel ops before or after a convolution or product: they become part of its weights, which are rounded anew."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from xdsl.ir import Operation, SSAValue

from populus.dialects import popart
from populus.dialects.base.tensor_op import ints
from populus.dialects.popart import calls
from populus.dialects.support.element_types import dtype_of
from populus.lowering.popart.patterns.linear import LINEAR, Linear, Vector, channel_axis, per_channel, rounded, with_factor, with_term
from populus.lowering.popart.rewriting import Pattern, Rewriting, array_of, made_by, read_once, scalar

Binary: TypeAlias = popart.MulOp | popart.DivOp | popart.AddOp | popart.SubOp


class PadIntoConv(Pattern[popart.ConvOp]):
    """A pad by zeros before a convolution is the convolution's own.

    Legal: the pad is of spatial dimensions, by no negative number, and no other op reads it. (Weights that are
    not finite lose their products with zeros, which are NaN.)
    """

    ROOTS = (popart.ConvOp,)
    EXACT = False

    def rewrite(self, op: popart.ConvOp, r: Rewriting) -> Sequence[SSAValue] | None:
        pad = made_by(op.x, popart.PadOp, op)
        if pad is None or pad.mode.data != "constant" or not read_once(op.x):
            return None
        lower, upper = ints(pad.lower_), ints(pad.upper)
        if any((*lower[:2], *upper[:2])) or min((*lower, *upper)) < 0 or (pad.value is not None and scalar(pad.value) != 0):
            return None
        pads = [a + b for a, b in zip(ints(op.pads), (*lower[2:], *upper[2:]))]
        stated = {"strides": op.strides, "dilations": op.dilations, "group": op.group}
        return [r.insert(popart.ConvOp(pad.x, op.w, op.bias, pads=pads, **stated))]


class BatchNormIntoConv(Pattern[popart.BatchNormOp]):
    """A batch norm with known statistics is a factor and a term of each channel, and so part of the preceding
    weights.

    Legal: weights and statistics are constants, and no other op reads the batch norm's operand. Its channels, which
    are dimension 1, are those of the weights: not after a product of rank 3, whose columns are its last dimension.
    """

    ROOTS = (popart.BatchNormOp,)
    EXACT = False

    def rewrite(self, op: popart.BatchNormOp, r: Rewriting) -> Sequence[SSAValue] | None:
        if (linear := _linear(op.x, op)) is None:
            return None
        known = [array_of(o) for o in op.operands[1:]]
        if any(k is None for k in known):
            return None
        scale, bias, mean, variance = (k.astype(np.float64) for k in known if k is not None)
        with np.errstate(all="ignore"):
            factor = scale / np.sqrt(variance + op.epsilon)
            term = bias - mean * factor
        if not (np.isfinite(factor).all() and np.isfinite(term).all()):
            return None
        axis = channel_axis(op)
        scaled = with_factor(r, linear, factor, axis)
        if scaled is None:
            return None
        assert isinstance(scaled.owner, LINEAR), scaled
        if (biased := with_term(r, scaled.owner, term, axis)) is not None:
            return [biased]
        shape = (-1, *(1,) * (len(calls.shape(op.x)) - 2))
        row = r.constant(term.reshape(shape).astype(dtype_of(calls.element(op.x))))
        return [r.insert(popart.AddOp(scaled, row))]


class FactorIntoConv(Pattern[popart.MulOp | popart.DivOp]):
    """A constant factor of each channel (or its reciprocal) after a convolution or product is part of its weights.

    Legal: weights and bias are constants, and the result has no other use and keeps its shape.
    """

    ROOTS = (popart.MulOp, popart.DivOp)
    EXACT = False

    def rewrite(self, op: popart.MulOp | popart.DivOp, r: Rewriting) -> Sequence[SSAValue] | None:
        for x, factor in _factors(op):
            linear = _linear(x, op)
            if linear is not None and (values := _channels(factor, linear, op)) is not None:
                scaled = with_factor(r, linear, values, channel_axis(linear))
                return None if scaled is None else [scaled]
        return None


class TermIntoConv(Pattern[popart.AddOp | popart.SubOp]):
    """A constant term of each channel after a convolution or Gemm is part of its bias.

    Legal: a bias, if any, is constant, and the result has no other use and keeps its shape.
    """

    ROOTS = (popart.AddOp, popart.SubOp)
    EXACT = False

    def rewrite(self, op: popart.AddOp | popart.SubOp, r: Rewriting) -> Sequence[SSAValue] | None:
        for x, term in _terms(op):
            linear = _linear(x, op)
            if linear is not None and (values := _channels(term, linear, op)) is not None:
                biased = with_term(r, linear, values, channel_axis(linear))
                return None if biased is None else [biased]
        return None


class FactorIntoBatchNorm(Pattern[popart.MulOp | popart.DivOp]):
    """A constant factor of each channel after a batch norm is part of its scale and bias. Legal: as
    `FactorIntoConv`.
    """

    ROOTS = (popart.MulOp, popart.DivOp)
    EXACT = False

    def rewrite(self, op: popart.MulOp | popart.DivOp, r: Rewriting) -> Sequence[SSAValue] | None:
        for x, factor in _factors(op):
            if (norm := _norm(x, op)) is not None and (values := per_channel(factor, norm)) is not None:
                scale, bias = array_of(norm.scale), array_of(norm.bias)
                if scale is not None and bias is not None and _stays(op, norm):
                    with np.errstate(divide="ignore"):
                        values = 1 / values if isinstance(op, popart.DivOp) else values
                    return _normed(r, norm, scale * values, bias * values) if np.isfinite(values).all() else None
        return None


class TermIntoBatchNorm(Pattern[popart.AddOp | popart.SubOp]):
    """A constant term of each channel after a batch norm is part of its bias. Legal: as `TermIntoConv`."""

    ROOTS = (popart.AddOp, popart.SubOp)
    EXACT = False

    def rewrite(self, op: popart.AddOp | popart.SubOp, r: Rewriting) -> Sequence[SSAValue] | None:
        for x, term in _terms(op):
            if (norm := _norm(x, op)) is not None and (values := per_channel(term, norm)) is not None:
                bias = array_of(norm.bias)
                if bias is not None and _stays(op, norm):
                    return _normed(r, norm, None, bias + (-values if isinstance(op, popart.SubOp) else values))
        return None


def _factors(op: popart.MulOp | popart.DivOp) -> list[tuple[SSAValue, SSAValue]]:
    return [(op.a, op.b)] if isinstance(op, popart.DivOp) else [(op.a, op.b), (op.b, op.a)]


def _terms(op: popart.AddOp | popart.SubOp) -> list[tuple[SSAValue, SSAValue]]:
    return [(op.a, op.b)] if isinstance(op, popart.SubOp) else [(op.a, op.b), (op.b, op.a)]


def _linear(x: SSAValue, beside: Operation) -> Linear | None:
    for kind in LINEAR:
        if (producer := made_by(x, kind, beside)) is not None and read_once(x):
            return producer
    return None


def _norm(x: SSAValue, beside: Operation) -> popart.BatchNormOp | None:
    producer = made_by(x, popart.BatchNormOp, beside)
    return producer if producer is not None and read_once(x) else None


def _stays(op: Binary, made: Operation) -> bool:
    """Tells whether the element-wise op preserves shape and element type."""
    return op.results[0].type == made.results[0].type


def _channels(value: SSAValue, linear: Linear, op: Binary) -> Vector | None:
    """Returns the factor or term of `op` for each output channel of `linear`; None if it varies otherwise, or is not
    finite.
    """
    values = per_channel(value, linear)
    if values is None or not _stays(op, linear):
        return None
    with np.errstate(divide="ignore"):
        values = 1 / values if isinstance(op, popart.DivOp) else -values if isinstance(op, popart.SubOp) else values
    return values if np.isfinite(values).all() else None


def _normed(r: Rewriting, norm: popart.BatchNormOp, scale: Vector | None, bias: Vector) -> list[SSAValue] | None:
    """Inserts the norm with another scale and bias; None if one becomes infinite when rounded."""
    with np.errstate(over="ignore"):
        rounds = ((v, dtype_of(calls.element(of))) for v, of in ((scale, norm.scale), (bias, norm.bias)) if v is not None)
        if not all(np.isfinite(v.astype(dtype)).all() for v, dtype in rounds):
            return None
    new = norm.scale if scale is None else rounded(r, scale, norm.scale)
    bias_value = rounded(r, bias, norm.bias)
    return [r.insert(popart.BatchNormOp(norm.x, new, bias_value, norm.mean, norm.variance, epsilon=norm.epsilon))]
