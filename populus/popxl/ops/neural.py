"""Ops of neural networks: products, windows, norms and losses."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np

from populus.popart.quiet import ignored
from populus.popxl import dtypes
from populus.popxl.errors import WrongType, WrongValue
from populus.popxl.internals.recording import kept, recorded
from populus.popxl.ops.common import axis_of, cast_to, emit, fixed, stated, without
from populus.popxl.ops.elementwise import div, equal, mul, sub, where
from populus.popxl.ops.reduce import sum as total
from populus.popxl.ops.shape import reshape
from populus.popxl.tensor import Tensor, constant

PARTIALS = "partial sums are of f32"
PadType = Literal["not_set", "same_upper", "same_lower", "valid"]
Reduction = Literal["mean", "sum", "none"]


@recorded("MatMul")
def matmul(
    lhs: Tensor,
    rhs: Tensor,
    available_memory_proportion: float | None = None,
    output_type: dtypes.dtype | None = None,
    partials_type: dtypes.dtype | None = None,
) -> Tensor:
    """Computes the matrix product, with batch dimensions broadcast. The planner chooses how, so two of the options are hints only.

    Partial sums are of f32; another `partials_type` warns.
    Raises ValueError for a session option `partialsTypeMatMuls` that is no type of partial sums.
    """
    if partials_type not in (None, dtypes.float32):
        ignored("matmul's partials_type", PARTIALS, "popxl")
    stated_type = lhs.ir.session_options.partialsTypeMatMuls
    if partials_type is None and stated_type not in ("", "half", "float"):
        raise WrongValue(f"session option partialsTypeMatMuls is '', 'half' or 'float', not '{stated_type}'")
    found = emit("matmul", lhs, rhs)
    return found if output_type is None else cast_to(found, output_type)


@recorded("Softmax")
def softmax(t: Tensor, axis: int) -> Tensor:
    """Computes `e^t / sum of e^t` along an axis."""
    return emit("softmax", t, axis=axis_of(t, axis))


@recorded("GroupNormalization")
def group_norm(t: Tensor, weight: Tensor, bias: Tensor, num_groups: int, eps: float = 1e-5) -> Tensor:
    """Computes `(t - mean) / sqrt(variance + eps) weight + bias`, with statistics of each instance and group of channels (dimension 1)."""
    shape = t.shape
    spatial = reshape(t, (*shape, 1)) if t.rank == 2 else t
    return reshape(emit("group_norm", spatial, weight, bias, groups=num_groups, epsilon=eps), shape)


def layer_norm(t: Tensor, weight: Tensor, bias: Tensor, eps: float = 1e-5) -> Tensor:
    """Computes `group_norm` with one group."""
    return group_norm(t, weight, bias, 1, eps)


@recorded("BatchNormalization")
def batch_norm_inference(
    t: Tensor, scale: Tensor, bias: Tensor, mean: Tensor, var: Tensor, epsilon: float = 1e-5, momentum: float = 0.9
) -> Tensor:
    """Computes `(t - mean) / sqrt(var + epsilon) scale + bias` for each channel. `momentum` is of training alone."""
    return emit("batch_norm", t, scale, bias, mean, var, epsilon=epsilon)


def _pads(
    sizes: Sequence[int], kernel: Sequence[int], strides: Sequence[int], dilation: Sequence[int], pads: Sequence[int], how: PadType
) -> tuple[int, ...]:
    """Gives the padding before every dimension, then that after. Raises ValueError for an unknown kind."""
    n = len(sizes)
    if how == "not_set":
        return tuple(pads)
    if how == "valid":
        return (0,) * (2 * n)
    if how not in ("same_upper", "same_lower"):
        raise WrongValue(f"padding is not_set, same_upper, same_lower or valid, not '{how}'")
    whole = [max(0, (math.ceil(sizes[d] / strides[d]) - 1) * strides[d] + (kernel[d] - 1) * dilation[d] + 1 - sizes[d]) for d in range(n)]
    less, more = [w // 2 for w in whole], [w - w // 2 for w in whole]
    return (*less, *more) if how == "same_upper" else (*more, *less)


@recorded("Conv")
def conv(
    t: Tensor,
    weight: Tensor,
    stride: Sequence[int] = (1, 1),
    padding: Sequence[int] = (0, 0, 0, 0),
    dilation: Sequence[int] = (1, 1),
    groups: int = 1,
    pad_type: PadType = "not_set",
    available_memory_proportions: Sequence[float] | None = None,
    partials_types: Sequence[str] | None = None,
    enable_conv_dithering: Sequence[int] | None = None,
) -> Tensor:
    """Computes the convolution of t [N, C, ..] with `weight` [O, C / groups, ..]. The last three options are hints.

    Partial sums are of f32: another of `partials_types` warns. Raises ValueError for an unknown kind of padding or of partial sums.
    """
    _check_partials("conv", partials_types)
    n = t.rank - 2
    strides, dilations = tuple(stride)[:n], tuple(dilation)[:n]
    pads = _pads(t.shape[2:], weight.shape[2:], strides, dilations, _of_rank(padding, n), pad_type)
    return emit("conv", t, weight, strides=strides, pads=pads, dilations=dilations, group=groups)


def _check_partials(op: str, types: Sequence[str] | None) -> None:
    """Raises ValueError for types of partial sums that there are not, and warns of those that are not taken."""
    for name in types or ():
        if name not in ("half", "float"):
            raise WrongValue(f"{op}: partials_types has 'half' or 'float', not {name!r}")
        if name == "half":
            ignored(f"{op}'s partials_types", PARTIALS, "popxl")


def _of_rank(padding: Sequence[int], n: int) -> tuple[int, ...]:
    """Gives padding for n dimensions: as given, or none where that is the default of two dimensions."""
    return tuple(padding) if len(padding) == 2 * n or any(padding) else (0,) * (2 * n)


@recorded("ConvTranspose")
def conv_transpose(
    t: Tensor,
    weight: Tensor,
    stride: Sequence[int] = (1, 1),
    padding: Sequence[int] = (0, 0, 0, 0),
    dilation: Sequence[int] = (1, 1),
    groups: int = 1,
    pad_type: PadType = "not_set",
    output_padding: Sequence[int] = (),
    output_shape: Sequence[int] = (),
    available_memory_proportions: Sequence[float] | None = None,
    partials_types: Sequence[str] | None = None,
    enable_conv_dithering: Sequence[int] | None = None,
) -> Tensor:
    """Computes the transposed convolution of t [N, C, ..] with `weight` [C, O / groups, ..].

    `output_shape` states the spatial sizes, and padding follows: half of the excess on each side, an odd one more before with
    `same_upper`, else after. The last three options are hints that plans do without; `partials_types` as in `conv`.
    """
    _check_partials("conv_transpose", partials_types)
    n = t.rank - 2
    strides, dilations = tuple(stride)[:n], tuple(dilation)[:n]
    extra = tuple(output_padding) or (0,) * n
    full = [(t.shape[2 + d] - 1) * strides[d] + extra[d] + (weight.shape[2 + d] - 1) * dilations[d] + 1 for d in range(n)]
    pads = _of_rank(padding, n)
    wanted = tuple(output_shape) or (tuple(t.shape[2 + d] * strides[d] for d in range(n)) if pad_type.startswith("same") else ())
    if wanted:
        excess = [full[d] - wanted[-n:][d] for d in range(n)]
        half = [e // 2 for e in excess]
        rest = [e - h for e, h in zip(excess, half)]
        pads = (*rest, *half) if pad_type == "same_upper" else (*half, *rest)
    elif pad_type == "valid":
        pads = (0,) * (2 * n)
    return emit("conv_transpose", t, weight, strides=strides, pads=pads, dilations=dilations, output_padding=extra, group=groups)


def _pool(kind: str, op: str, what: str, *without_meaning: str) -> Callable[..., Tensor]:
    def compute(
        t: Tensor,
        kernel_size: Sequence[int],
        stride: Sequence[int] | None = None,
        padding: Sequence[int] | None = None,
        out_pads: Sequence[int] | None = None,
        dilation: Sequence[int] | None = None,
        in_dilations: Sequence[int] | None = None,
        auto_pad: PadType = "not_set",
        ceil_mode: bool = False,
        storage_order: Literal["row", "column"] = "row",
    ) -> Tensor:
        n = t.rank - 2
        if storage_order != "row" and without_meaning:
            raise WrongType(f"{op} has no storage_order")
        if any(out_pads or ()) or any(d != 1 for d in in_dilations or ()):
            raise WrongValue("out_pads and in_dilations do not belong to windows; leave them out")
        strides, dilations = tuple(stride or (1,) * n), tuple(dilation or (1,) * n)
        pads = _pads(t.shape[2:], kernel_size, strides, dilations, tuple(padding or (0,) * (2 * n)), auto_pad)
        return emit(op, t, kernel=tuple(kernel_size), strides=strides, pads=pads, dilations=dilations, ceil=ceil_mode)

    doc = f"Computes {what} of each window of t [N, C, ..], over the elements of t in it. Raises ValueError for the options of no windows."
    return recorded(kind)(stated(compute, op, doc, without(compute, *without_meaning)))


average_pool = _pool("AveragePool", "average_pool", "the mean", "storage_order")
max_pool = _pool("MaxPool", "max_pool", "the largest element")


@recorded("Nll")
def nll_loss(
    probs: Tensor, labels: Tensor, ignore_index: int | None = None, reduction: Reduction = "mean", log_prob: bool = False
) -> Tensor:
    """Computes `-log p[label]` of probabilities [.., classes] (or their logarithms, with `log_prob`): mean, sum, or one for each label.

    Labels equal to `ignore_index` count as 0, and the mean is over the others. Raises ValueError for another reduction.
    """
    return _loss(probs, labels, ignore_index, reduction, log_prob)[0]


@recorded("NlllWithSoftmaxGradDirect")
def nll_loss_with_softmax_grad(
    probs: Tensor, labels: Tensor, loss_grad: float | Tensor = 1, ignore_index: int | None = None, reduction: Reduction = "mean"
) -> tuple[Tensor, Tensor]:
    """Computes `nll_loss` of `probs = softmax(x)`, and the gradient of x: `loss_grad (probs - onehot(label))`, over the labels' number."""
    loss, chosen, counted, number = _loss(probs, labels, ignore_index, reduction, False)
    grad = sub(probs, chosen) if counted is None else mul(sub(probs, chosen), counted)
    scale = loss_grad if isinstance(loss_grad, Tensor) else kept(fixed(loss_grad, probs, dtypes.float32))
    if scale.rank:
        scale = reshape(scale, (*scale.shape, 1)) if reduction == "none" else reshape(scale, ())
    if reduction == "mean":
        scale = div(scale, cast_to(number, scale.dtype))
    return loss, cast_to(mul(cast_to(grad, scale.dtype), scale), probs.dtype)


def _loss(
    probs: Tensor, labels: Tensor, ignore: int | None, reduction: Reduction, logarithms: bool
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
