"""Convolutions, and the padding of windows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

from populus.popart.quiet import ignored
from populus.popxl.errors import WrongValue
from populus.popxl.internals.recording import recorded
from populus.popxl.ops.common import emit
from populus.popxl.tensor import Tensor

PARTIALS = "partial sums are of f32"
PadType = Literal["not_set", "same_upper", "same_lower", "valid"]


def pads_of(
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
    pads = pads_of(t.shape[2:], weight.shape[2:], strides, dilations, _of_rank(padding, n), pad_type)
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
