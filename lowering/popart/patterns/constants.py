"""What depends on constants alone is computed now."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from xdsl.ir import SSAValue
from xdsl.traits import Pure

from populus.dialects import popart
from populus.dialects.base.tensor_op import TensorOp
from populus.dialects.support.budget import LARGEST_FOLDED, elements
from populus.dialects.support.diagnostics import PopulusError
from populus.dialects.support.element_types import shape_of
from populus.lowering.popart.rewriting import Pattern, Rewriting, array_of
from populus.runtime.interpreter import evaluate_op

LARGEST = 1 << 20  # bytes: a result that is larger, and larger than what it is computed from, stays computed

VIEWS = (popart.ExpandOp, popart.ReshapeOp, popart.SliceOp, popart.TransposeOp)  # which take no memory where all elements are one


class FoldConstants(Pattern[TensorOp]):
    """An op whose operands are all constants is a constant, computed by the interpreter of this level.

    Legal: no effects, nothing random, a result that is not both more than 1 MiB and more than its operands. To rounding, since an
    engine's own functions may round otherwise. PopART folds constants with each round of patterns.
    """

    ROOTS = (TensorOp,)
    EXACT = False

    def rewrite(self, op: TensorOp, r: Rewriting) -> Sequence[SSAValue] | None:
        if not op.operands or op.regions or isinstance(op, popart.RandomOp) or not op.has_trait(Pure):
            return None
        given = [a for o in op.operands if (a := array_of(o)) is not None]
        if len(given) < len(op.operands):
            return None
        if not isinstance(op, VIEWS) and sum(elements(shape_of(t.type)) for t in op.results) > LARGEST_FOLDED:
            return None  # before there is memory taken for it
        try:
            with np.errstate(all="ignore"):
                arrays = evaluate_op(op, given)
        except PopulusError:
            return None  # it may never run; if it does, it says what is wrong
        if sum(_bytes(a) for a in arrays) > max(LARGEST, sum(_bytes(a) for a in given)):
            return None
        return [r.constant(np.asarray(a)) for a in arrays]


def _bytes(array: np.ndarray) -> int:  # pyright: ignore[reportMissingTypeArgument, reportUnknownParameterType]
    """Those that are kept: equal elements are one."""
    return array.itemsize * (array.size if any(array.strides) else 1)
