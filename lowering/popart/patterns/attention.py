"""Attention that exporters decompose."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import SSAValue

from populus.dialects import popart
from populus.dialects.popart import calls
from populus.lowering.popart.rewriting import Pattern, Rewriting, made_by, read_once, scalar


class Attention(Pattern[popart.MatMulOp]):
    """`softmax(q k^T scale + mask) v` is attention.

    Legal: the softmax is along the last dimension, all three have equal batch dimensions, and the mask broadcasts
    to the scores. No other op reads a value in between. Equal up to rounding, because the scale may be applied to
    q.
    """

    ROOTS = (popart.MatMulOp,)
    EXACT = False

    def rewrite(self, op: popart.MatMulOp, r: Rewriting) -> Sequence[SSAValue] | None:
        softmax = made_by(op.a, popart.SoftmaxOp, op)
        rank = len(calls.shape(op.a))
        if softmax is None or softmax.axis != rank - 1 or not read_once(op.a) or rank < 2:
            return None
        scores, mask, scale = softmax.x, None, 1.0
        if (added := made_by(scores, popart.AddOp, op)) is not None and read_once(scores):
            mask, scores = (added.a, added.b) if _is_score(added.b) else (added.b, added.a)
        if (by := made_by(scores, popart.MulOp, op) or made_by(scores, popart.DivOp, op)) is not None and read_once(scores):
            x, number = (by.b, scalar(by.a)) if isinstance(by, popart.MulOp) and scalar(by.a) is not None else (by.a, scalar(by.b))
            if not number:
                return None
            scores, scale = x, 1 / number if isinstance(by, popart.DivOp) else number
        product = made_by(scores, popart.MatMulOp, op)
        if product is None or not read_once(scores) or softmax.x.type != product.y.type:
            return None
        q, kt, v = product.a, product.b, op.b
        shapes = [calls.shape(o) for o in (q, kt, v)]
        if any(len(s) != rank for s in shapes) or len({s[:-2] for s in shapes}) > 1:
            return None
        swapped = (*range(rank - 2), rank - 1, rank - 2)
        k = r.insert(popart.TransposeOp(kt, permutation=swapped))
        return [r.insert(popart.AttentionOp(q, k, v, mask, scale=scale))]


def _is_score(value: SSAValue) -> bool:
    """Tells whether a value is a product, possibly scaled: the addend that is not the mask."""
    op = value.owner
    if isinstance(op, popart.MulOp | popart.DivOp):
        return any(isinstance(o.owner, popart.MatMulOp) for o in op.operands)
    return isinstance(op, popart.MatMulOp)
