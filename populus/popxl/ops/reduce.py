"""Ops over whole dimensions."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from populus.popxl import dtypes
from populus.popxl.internals.recording import recorded
from populus.popxl.ops.common import axes_of, cast_to, emit, stated
from populus.popxl.tensor import Tensor

Axis = int | Iterable[int] | None


def _reduction(kind: str, name: str, op: str, formula: str) -> Callable[..., Tensor]:
    def compute(t: Tensor, axis: Axis = None, keepdims: bool = False) -> Tensor:
        return emit(op, t, axes=axes_of(t, axis), keep=keepdims)

    doc = f"Computes {formula} over the dimensions of `axis`, by default over all; `keepdims` leaves them with size 1."
    return recorded(kind)(stated(compute, name, doc))


l1 = _reduction("ReduceL1", "l1", "reduce_l1", "the sum of |t|")
l2 = _reduction("ReduceL2", "l2", "reduce_l2", "the root of the sum of t^2")
logsum = _reduction("ReduceLogSum", "logsum", "reduce_log_sum", "the logarithm of the sum of t")
logsumexp = _reduction("ReduceLogSumExp", "logsumexp", "reduce_log_sum_exp", "the logarithm of the sum of e^t")
max = _reduction("ReduceMax", "max", "reduce_max", "the largest element")
mean = _reduction("ReduceMean", "mean", "reduce_mean", "the mean")
min = _reduction("ReduceMin", "min", "reduce_min", "the smallest element")
prod = _reduction("ReduceProd", "prod", "reduce_prod", "the product")
sum = _reduction("ReduceSum", "sum", "reduce_sum", "the sum")
sumsquare = _reduction("ReduceSumSquare", "sumsquare", "reduce_sum_square", "the sum of t^2")


@recorded("LambSquare")
def lamb_square(t: Tensor) -> Tensor:
    """Computes the sum of t^2, a single-precision number, for the optimizer LAMB."""
    return sumsquare(cast_to(t, dtypes.float32))
