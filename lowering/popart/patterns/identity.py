"""Identities: ops that change nothing."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from xdsl.dialects.builtin import bf16, f16, f32, f64
from xdsl.ir import Attribute, Operation, SSAValue

from populus.dialects import popart
from populus.dialects.base.tensor_op import ints
from populus.dialects.popart import PopartOp, ReduceOp, calls
from populus.dialects.support.element_types import is_float, is_integer, is_packed, size_in_bytes
from populus.lowering.popart.rewriting import Pattern, Rewriting, made_by, scalar


class OpToIdentity(Pattern[PopartOp]):
    """An op whose result is an operand, bit for bit, is that operand.

    Legal: a rearrangement to the same shape that moves nothing, a cast to the same type, a concatenation of one
    part. Also a reduction over no dimension, a pool of single elements, `x 1`, `x / 1`, `x - 0`, `x + -0`, `x^1`.
    Not `x + 0`: it turns -0 into 0.
    """

    ROOTS = (PopartOp,)

    def rewrite(self, op: PopartOp, r: Rewriting) -> Sequence[SSAValue] | None:
        same = _SAME.get(type(op))
        value = None if same is None else same(op)
        return None if value is None or value.type != op.results[0].type else [value]


class CastOfWiderCast(Pattern[popart.CastOp]):
    """A cast to a type that holds every value of x, followed by another cast, is one cast.

    Legal: floats into wider floats, integers into wider ones of the same sign, integers into floats with enough
    digits. (An intermediate narrower type rounds, so it stays.)
    """

    ROOTS = (popart.CastOp,)

    def rewrite(self, op: popart.CastOp, r: Rewriting) -> Sequence[SSAValue] | None:
        inner = made_by(op.x, popart.CastOp, op)
        if inner is None or not _holds(calls.element(inner.x), inner.to):
            return None
        if op.to == calls.element(inner.x):
            return [inner.x]
        return [r.insert(popart.CastOp(inner.x, to=op.to))]


# Significand digits and exponent bits.
_DIGITS: dict[Attribute, tuple[int, int]] = {f16: (11, 5), bf16: (8, 8), f32: (24, 8), f64: (53, 11)}


def _holds(narrow: Attribute, wide: Attribute) -> bool:
    """Tells whether one type holds each value of the other."""
    if narrow in _DIGITS and wide in _DIGITS:
        return all(n <= w for n, w in zip(_DIGITS[narrow], _DIGITS[wide]))
    if not is_integer(narrow) or is_packed(narrow) or is_packed(wide):
        return False
    bits = 8 * size_in_bytes(narrow)
    if wide in (f32, f64):
        return bits <= _DIGITS[wide][0]
    return is_integer(wide) and str(narrow).startswith("u") == str(wide).startswith("u") and bits <= 8 * size_in_bytes(wide)


def _if_types_agree(op: Any) -> SSAValue | None:
    return op.operands[0]


def _transpose(op: popart.TransposeOp) -> SSAValue | None:
    permutation = ints(op.permutation)
    return op.x if permutation == tuple(range(len(permutation))) else None


def _slice(op: popart.SliceOp) -> SSAValue | None:
    shape = calls.shape(op.x)
    whole = all(n == 1 or (begin, step) == (0, 1) for n, (begin, _, step) in zip(shape, op.bounds()))
    return op.x if whole else None


def _pad(op: popart.PadOp) -> SSAValue | None:
    return None if any((*ints(op.lower_), *ints(op.upper))) else op.x


def _concat(op: popart.ConcatOp) -> SSAValue | None:
    axis = op.axis
    parts = [part for part in op.operands if calls.shape(part)[axis]]
    return parts[0] if len(parts) == 1 else None


def _reduce(op: ReduceOp) -> SSAValue | None:
    return None if op.dims() else op.x


def _pool(op: popart.MaxPoolOp | popart.AveragePoolOp) -> SSAValue | None:
    still = all(n == 1 for n in (*ints(op.kernel), *ints(op.strides))) and not any(ints(op.pads))
    return op.x if still else None


def _power(op: popart.PowOp) -> SSAValue | None:
    return _neutral(1.0)(op) if is_float(calls.element(op.a)) else None


def _neutral(right: float, left: float | None = None) -> Callable[[Any], SSAValue | None]:
    """Builds a rule: a where b is `right`, b where a is `left`; 0 and -0 differ."""

    def rule(op: Any) -> SSAValue | None:
        for value, neutral, other in ((op.b, right, op.a), (op.a, left, op.b)):
            if neutral is None or (number := scalar(value)) is None or number != neutral:
                continue
            if not is_float(calls.element(value)) or math.copysign(1, number) == math.copysign(1, neutral):
                return other
        return None

    return rule


_SAME: dict[type[Operation], Callable[[Any], SSAValue | None]] = {
    popart.AddOp: _neutral(-0.0, -0.0),
    popart.AveragePoolOp: _pool,
    popart.CastOp: _if_types_agree,
    popart.ConcatOp: _concat,
    popart.DivOp: _neutral(1.0),
    popart.ExpandOp: _if_types_agree,
    popart.MaxPoolOp: _pool,
    popart.MulOp: _neutral(1.0, 1.0),
    popart.PadOp: _pad,
    popart.PowOp: _power,
    popart.ReduceMaxOp: _reduce,  # not a sum, which starts from 0 and turns -0 into 0
    popart.ReduceMinOp: _reduce,
    popart.ReduceProdOp: _reduce,
    popart.ReshapeOp: _if_types_agree,
    popart.SliceOp: _slice,
    popart.SubOp: _neutral(0.0),
    popart.TileOp: _if_types_agree,
    popart.TransposeOp: _transpose,
}
