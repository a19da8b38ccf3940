"""The negative log-likelihood, and its gradient through a softmax."""

from __future__ import annotations

from typing import Literal

import numpy as np

from populus.popxl import dtypes
from populus.popxl.errors import WrongValue
from populus.popxl.internals.recording import kept, recorded
from populus.popxl.ops.common import cast_to, emit, fixed
from populus.popxl.ops.elementwise import div, equal, mul, sub, where
from populus.popxl.ops.reduce import sum as total
from populus.popxl.ops.shape import reshape
from populus.popxl.tensor import Tensor, constant

REDUCTION_TYPE = Literal["mean", "sum", "none"]


@recorded("Nll")
def nll_loss(
    probs: Tensor, labels: Tensor, ignore_index: int | None = None, reduction: REDUCTION_TYPE = "mean", log_prob: bool = False
) -> Tensor:
    """Computes `-log p[label]` of probabilities [.., classes] (or their logarithms, with `log_prob`): mean, sum, or one for each label.

    Labels equal to `ignore_index` count as 0, and the mean is over the others. Raises ValueError for another reduction.
    """
    return _loss(probs, labels, ignore_index, reduction, log_prob)[0]


@recorded("NlllWithSoftmaxGradDirect")
def nll_loss_with_softmax_grad(
    probs: Tensor, labels: Tensor, loss_grad: float | Tensor = 1, ignore_index: int | None = None, reduction: REDUCTION_TYPE = "mean"
) -> tuple[Tensor, Tensor]:
    """Computes `nll_loss` of `probs = softmax(x)`, and the gradient of x: `loss_grad (probs - onehot(label))`, over the labels' number.

    Labels may have other dimensions than the probabilities, in the same order; the losses of reduction `none` have those of the labels.
    """
    if (given := labels.shape) != probs.shape[:-1] and labels.nelms * probs.shape[-1] == probs.nelms:
        labels = reshape(labels, probs.shape[:-1])
    loss, chosen, counted, number = _loss(probs, labels, ignore_index, reduction, False)
    grad = sub(probs, chosen) if counted is None else mul(sub(probs, chosen), counted)
    scale = loss_grad if isinstance(loss_grad, Tensor) else kept(fixed(loss_grad, probs, dtypes.float32))
    if scale.rank:
        scale = reshape(scale, (*scale.shape, 1)) if reduction == "none" else reshape(scale, ())
    if reduction == "mean":
        scale = div(scale, cast_to(number, scale.dtype))
    return reshape(loss, given) if reduction == "none" else loss, cast_to(mul(cast_to(grad, scale.dtype), scale), probs.dtype)


def _loss(
    probs: Tensor, labels: Tensor, ignore: int | None, reduction: REDUCTION_TYPE, logarithms: bool
) -> tuple[Tensor, Tensor, Tensor | None, Tensor]:
    """Gives the loss, ones at the labels' classes, whether each label counts, and how many do."""
    if reduction not in ("mean", "sum", "none"):
        raise WrongValue(f"reduction is mean, sum or none, not '{reduction}'")
    found = cast_to(labels, dtypes.int32)
    classes = constant(np.arange(probs.shape[-1], dtype=np.int32))
    chosen = cast_to(equal(reshape(found, (*labels.shape, 1)), classes), probs.dtype)
    each = emit("nll", probs, found, logarithms=logarithms)
    counted, number = None, fixed(max(1, labels.nelms), probs, dtypes.float32)
    if ignore is not None:
        counts = emit("not", equal(found, ignore))
        counted = reshape(cast_to(counts, probs.dtype), (*labels.shape, 1))
        each, chosen = where(counts, each, fixed(0, each)), mul(chosen, counted)
        number = emit("max", total(cast_to(counts, dtypes.float32)), fixed(1, probs, dtypes.float32))
    if reduction == "none":
        return each, chosen, counted, number
    whole = total(each)
    return whole if reduction == "sum" else cast_to(div(cast_to(whole, dtypes.float32), number), probs.dtype), chosen, counted, number
