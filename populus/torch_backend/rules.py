"""Functions of PyTorch that a trace treats on its own: losses are noted, and batch norm in training keeps ONNX's op."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import torch
import torch.nn.functional as F
from torch.overrides import TorchFunctionMode

from populus.dialects.support.diagnostics import PopulusError

LOSSES = [
    "binary_cross_entropy",
    "binary_cross_entropy_with_logits",
    "cosine_embedding_loss",
    "cross_entropy",
    "ctc_loss",
    "gaussian_nll_loss",
    "hinge_embedding_loss",
    "huber_loss",
    "kl_div",
    "l1_loss",
    "margin_ranking_loss",
    "mse_loss",
    "multi_margin_loss",
    "multilabel_margin_loss",
    "multilabel_soft_margin_loss",
    "nll_loss",
    "poisson_nll_loss",
    "smooth_l1_loss",
    "soft_margin_loss",
    "triplet_margin_loss",
]


@dataclass
class Loss:
    """A result of a loss function: the tensor of a trace, or the output of a model."""

    function: str
    tensor: Any = None
    output: str = ""


class Rules(TorchFunctionMode):
    """The functions of the table, inside a `with`. `losses`: the results of loss functions, in order."""

    innermost: Rules | None = None

    def __init__(self) -> None:
        super().__init__()
        self.losses: list[Loss] = []
        self._before: Rules | None = None

    def __enter__(self) -> Self:
        self._before, Rules.innermost = Rules.innermost, self
        return super().__enter__()

    def __exit__(self, *error: object) -> None:
        Rules.innermost = self._before
        super().__exit__(*error)

    def __torch_function__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        function: Any = SPECIAL.get(func, func)
        result = function(*args, **(kwargs or {}))
        if func in LOSS_FUNCTIONS:
            self.losses.append(Loss(LOSS_FUNCTIONS[func], result))
        return result

    @staticmethod
    def note(function: str, tensor: Any) -> None:
        """Notes a loss, if a trace is going on."""
        if Rules.innermost is not None:
            Rules.innermost.losses.append(Loss(function, tensor))


LOSS_FUNCTIONS = {getattr(F, name): name for name in LOSSES}


def batch_norm(
    input: Any,
    running_mean: Any | None,
    running_var: Any | None,
    weight: Any = None,
    bias: Any = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Any:
    """Computes a batch norm; in training, by ONNX's op with the statistics of the batch, which the exporter has no rule for.

    ONNX's running variance takes the variance of the n elements of a channel; PyTorch's takes it times `n / (n - 1)`.
    """
    if not training:
        return F.batch_norm(input, running_mean, running_var, weight, bias, False, momentum, eps)
    channels = input.shape[1]
    count = input.numel() // channels
    like: dict[str, Any] = {"dtype": input.dtype}
    tensors: tuple[Any, ...] = (
        input,
        torch.ones(channels, **like) if weight is None else weight,
        torch.zeros(channels, **like) if bias is None else bias,
        torch.zeros(channels, **like) if running_mean is None else running_mean,
        torch.ones(channels, **like) if running_var is None else running_var,
    )
    if count < 2:
        raise PopulusError(f"a batch norm in training has {count} element for each channel; more than 1 are expected")
    y, mean, variance = torch.onnx.ops.symbolic_multi_out(
        "BatchNormalization",
        tensors,
        {"training_mode": 1, "momentum": 1.0 - momentum, "epsilon": float(eps)},
        dtypes=[input.dtype, tensors[3].dtype, tensors[4].dtype],
        shapes=[input.shape, (channels,), (channels,)],
        version=15,
    )
    if running_mean is not None and running_var is not None:
        old = running_var * (1.0 - momentum)
        running_mean.copy_(mean)
        running_var.copy_(old + (variance - old) * (count / (count - 1)))
    return y


def instance_norm(
    input: Any,
    running_mean: Any | None = None,
    running_var: Any | None = None,
    weight: Any = None,
    bias: Any = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Any:
    """Computes an instance norm, and updates its running statistics, which the exporter leaves as they are."""
    if use_input_stats and running_mean is not None and running_var is not None:
        inner = tuple(range(2, input.dim()))
        for running, found in ((running_mean, input.mean(inner)), (running_var, input.var(inner))):
            running.copy_(running * (1.0 - momentum) + found.detach().mean(0) * momentum)
        running_mean = running_var = None
    return F.instance_norm(input, running_mean, running_var, weight, bias, use_input_stats, momentum, eps)


def cross_entropy(
    input: Any,
    target: Any,
    weight: Any = None,
    size_average: bool | None = None,
    ignore_index: int = -100,
    reduce: bool | None = None,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Any:
    """Computes a cross entropy; with smoothed labels or probabilities by its formula, as ONNX's op has neither.

    With s = label_smoothing, C classes and log-probabilities p: `(1 - s) nll(p, target) + s / C sum over classes of -w p`.
    """
    axis = 0 if input.dim() == 1 else 1
    if not target.is_floating_point() and not label_smoothing:
        return F.cross_entropy(input, target, weight, size_average, ignore_index, reduce, reduction)
    if size_average is not None or reduce is not None:
        raise PopulusError("cross_entropy with size_average or reduce is not there; give reduction")
    logs, classes = F.log_softmax(input, axis), input.shape[axis]
    shape = [-1 if d == axis else 1 for d in range(input.dim())]
    weighted = logs if weight is None else logs * weight.reshape(shape)
    if target.is_floating_point():
        each = -(weighted * (target * (1.0 - label_smoothing) + label_smoothing / classes)).sum(axis)
        share = each.numel()
    else:
        kept = target != ignore_index
        each = (1.0 - label_smoothing) * F.nll_loss(logs, target, weight, ignore_index=ignore_index, reduction="none")
        each = each - label_smoothing / classes * torch.where(kept, weighted.sum(axis), 0.0)
        counted = torch.where(kept, target, 0)
        share = torch.where(kept, 1.0 if weight is None else weight[counted], 0.0).sum()
    return each if reduction == "none" else each.sum() if reduction == "sum" else each.sum() / share


SPECIAL: dict[Any, Callable[..., Any]] = {F.batch_norm: batch_norm, F.instance_norm: instance_norm, F.cross_entropy: cross_entropy}
