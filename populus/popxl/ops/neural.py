"""Ops of neural networks: products, pools and norms."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

from populus.popart.quiet import ignored
from populus.popxl import dtypes
from populus.popxl.errors import WrongType, WrongValue
from populus.popxl.internals.recording import recorded
from populus.popxl.ops.common import axis_of, cast_to, emit, stated, without
from populus.popxl.ops.conv import PARTIALS, PadType, pads_of
from populus.popxl.ops.shape import reshape
from populus.popxl.tensor import Tensor


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
        pads = pads_of(t.shape[2:], kernel_size, strides, dilations, tuple(padding or (0,) * (2 * n)), auto_pad)
        return emit(op, t, kernel=tuple(kernel_size), strides=strides, pads=pads, dilations=dilations, ceil=ceil_mode)

    doc = f"Computes {what} of each window of t [N, C, ..], over the elements of t in it. Raises ValueError for the options of no windows."
    return recorded(kind)(stated(compute, op, doc, without(compute, *without_meaning)))


average_pool = _pool("AveragePool", "average_pool", "the mean", "storage_order")
max_pool = _pool("MaxPool", "max_pool", "the largest element")
