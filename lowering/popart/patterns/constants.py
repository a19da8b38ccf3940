"""Constant folding: an op whose operands are all constants becomes a constant."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from xdsl.ir import SSAValue
from xdsl.traits import Pure

from populus.dialects import popart
from populus.dialects.base.tensor_op import TensorOp
from populus.dialects.data import constant_value, is_loaded
from populus.dialects.support.budget import LARGEST_FOLDED, elements
from populus.dialects.support.diagnostics import PopulusError
from populus.dialects.support.element_types import shape_of
from populus.lowering.popart.rewriting import Pattern, Rewriting
from populus.runtime.interpreter import evaluate_op

LARGEST = 1 << 20  # bytes: a larger result, if also larger than its operands, is not folded

VIEWS = (popart.ExpandOp, popart.ReshapeOp, popart.SliceOp, popart.TransposeOp)  # free where elements are equal


class FoldConstants(Pattern[TensorOp]):
    """An op whose operands are all constants is a constant, computed by the interpreter of this level.

    Legal: the op has no effects and is not random, and its result is at most 1 MiB or no larger than its
    operands. Equal up to rounding, because an engine's functions may round otherwise. PopART folds constants with
    each round of patterns.
    """

    ROOTS = (TensorOp,)
    EXACT = False

    def rewrite(self, op: TensorOp, r: Rewriting) -> Sequence[SSAValue] | None:
        # Products take dequantized weights as integers: `FoldDequantized` folds what they leave.
        return None if isinstance(op, popart.DequantizeOp) else self.folded(op, r, LARGEST)

    def folded(self, op: TensorOp, r: Rewriting, largest: int) -> Sequence[SSAValue] | None:
        """Replaces an op of constants whose result has at most `largest` bytes, or no more than they have."""
        if not op.operands or op.regions or isinstance(op, popart.RandomOp) or not op.has_trait(Pure):
            return None
        if not all(map(is_loaded, op.operands)):
            return None
        operands = [a for o in op.operands if (a := constant_value(o)) is not None]
        if not isinstance(op, VIEWS) and sum(elements(shape_of(t.type)) for t in op.results) > LARGEST_FOLDED:
            return None  # before memory is allocated for it
        try:
            with np.errstate(all="ignore"):
                arrays = evaluate_op(op, operands)
        except PopulusError:
            return None  # the op may never run; if it does, it reports the error
        if sum(_bytes(a) for a in arrays) > max(largest, sum(_bytes(a) for a in operands)):
            return None
        return [r.constant(np.asarray(a)) for a in arrays]


def _bytes(array: np.ndarray) -> int:  # pyright: ignore[reportMissingTypeArgument, reportUnknownParameterType]
    """Counts the stored bytes of an array; equal elements are stored once."""
    return array.itemsize * (array.size if any(array.strides) else 1)
