"""Ops on 8-bit floats: conversions with a scale, and products of them, which are computed in single precision."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from populus.popart.errors import poplar_application_runtime_error
from populus.popxl import dtypes
from populus.popxl.context import get_current_graph
from populus.popxl.errors import WrongType, WrongValue
from populus.popxl.fp8_utils import NAN, SCALES, overflow_of
from populus.popxl.internals.recording import recorded
from populus.popxl.ops.common import cast_to, element, emit, fixed
from populus.popxl.ops.conv import PadType, conv, conv_transpose
from populus.popxl.ops.elementwise import add, mul, where
from populus.popxl.ops.neural import matmul
from populus.popxl.tensor import Constant, Tensor, constant
from populus.popxl.watch import watch

if TYPE_CHECKING:
    from numpy.typing import NDArray

FLOAT8 = (dtypes.float8_143, dtypes.float8_152)


def _power(log2_scale: Tensor) -> Tensor:
    """Gives `2^log2_scale` in single precision, by its bits. Raises ValueError for several elements, and TypeError for no int32."""
    if log2_scale.rank:
        raise WrongValue(f"log2_scale must be a scalar tensor; {log2_scale.id} is {list(log2_scale.shape)}")
    if log2_scale.dtype is not dtypes.int32:
        raise WrongType(f"log2_scale must be of type popxl.int32; {log2_scale.id} is {log2_scale.dtype}")
    if not (isinstance(log2_scale, Constant) and int(log2_scale.data) in SCALES):
        _check(log2_scale)
    exponent = emit("min", emit("max", log2_scale, fixed(-126, log2_scale)), fixed(127, log2_scale))
    return emit("bit_cast", mul(add(exponent, 127), 1 << 23), to=element(dtypes.float32))


def _check(log2_scale: Tensor) -> None:
    """Makes a run fail with a scale that is no number of 6 bits, unless the session's options say otherwise."""
    options, name = get_current_graph().ir.session_options, log2_scale.id

    def look(array: NDArray[Any]) -> None:
        if options.throwIfLog2ScaleTensorNotInRange and int(array) not in SCALES:
            raise poplar_application_runtime_error(f"log2_scale {name} is from {SCALES[0]} to {SCALES[-1]}, not {int(array)}")

    watch(log2_scale, look, f"scale {name}")


@recorded("Pow2ScaleThenCast")
def pow2scale_cast_to_fp8(t: Tensor, log2_scale: Tensor, data_type: dtypes.dtype) -> Tensor:
    """Computes `t 2^log2_scale` rounded to an 8-bit float; what is too large becomes NaN.

    Raises TypeError for a type that is no 8-bit float, and for a scale that is no int32; ValueError for a scale of several elements.
    """
    if data_type not in FLOAT8:
        raise WrongType(f"{data_type} is no 8-bit float; there are {' and '.join(map(str, FLOAT8))}")
    x = mul(cast_to(t, dtypes.float32), _power(log2_scale))
    fits = emit("less", emit("abs", x), fixed(overflow_of(data_type), x))
    nan = constant(np.array(NAN, np.uint8).view(data_type.as_numpy()), data_type)
    return t.graph.tensor(where(fits, cast_to(x, data_type), nan).ssa, f"{t.name}_{data_type}")


@recorded("CastThenPow2Scale")
def pow2scale_cast_from_fp8(t: Tensor, log2_scale: Tensor, data_type: dtypes.dtype) -> Tensor:
    """Computes an 8-bit float's numbers times `2^log2_scale`, as float16 or float32.

    Raises TypeError for another type, and for a scale that is no int32; ValueError for a scale of several elements.
    """
    if data_type not in (dtypes.float16, dtypes.float32):
        raise WrongType(f"{data_type} is no float16 or float32")
    found = cast_to(mul(cast_to(t, dtypes.float32), _power(log2_scale)), data_type)
    return t.graph.tensor(found.ssa, f"{t.name}_{data_type}")


def _operands(lhs: Tensor, rhs: Tensor, log2_scale: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Gives two operands in single precision, and the factor of their product. Raises TypeError for what is no 8-bit float."""
    for t in (lhs, rhs):
        if t.dtype not in FLOAT8:
            raise WrongType(f"{t.id} is {t.dtype}; a scaled product is of {' or '.join(map(str, FLOAT8))}")
    scale = _power(log2_scale)
    return cast_to(lhs, dtypes.float32), cast_to(rhs, dtypes.float32), scale


def _scaled(product: Tensor, scale: Tensor) -> Tensor:
    return cast_to(mul(product, scale), dtypes.float16)


@recorded("MatMul")
def matmul_pow2scaled(lhs: Tensor, rhs: Tensor, log2_scale: Tensor, available_memory_proportion: float | None = None) -> Tensor:
    """Computes the matrix product of 8-bit floats times `2^log2_scale`, as float16. The proportion is a hint.

    Raises TypeError for operands that are no 8-bit floats, and a scale that is no int32; ValueError for a scale of several elements.
    """
    a, b, scale = _operands(lhs, rhs, log2_scale)
    return _scaled(matmul(a, b, available_memory_proportion), scale)


@recorded("Conv")
def conv_pow2scaled(
    t: Tensor,
    weight: Tensor,
    log2_scale: Tensor,
    stride: Sequence[int] = (1, 1),
    padding: Sequence[int] = (0, 0, 0, 0),
    dilation: Sequence[int] = (1, 1),
    groups: int = 1,
    pad_type: PadType = "not_set",
    available_memory_proportions: Sequence[float] | None = None,
    enable_conv_dithering: Sequence[int] | None = None,
) -> Tensor:
    """Computes `conv` of 8-bit floats times `2^log2_scale`, as float16. Raises as `matmul_pow2scaled`, and for an unknown padding."""
    x, w, scale = _operands(t, weight, log2_scale)
    return _scaled(conv(x, w, stride, padding, dilation, groups, pad_type), scale)


@recorded("ConvTranspose")
def conv_transpose_pow2scaled(
    t: Tensor,
    weight: Tensor,
    log2_scale: Tensor,
    stride: Sequence[int] = (1, 1),
    padding: Sequence[int] = (0, 0, 0, 0),
    dilation: Sequence[int] = (1, 1),
    groups: int = 1,
    pad_type: PadType = "not_set",
    output_padding: Sequence[int] = (),
    output_shape: Sequence[int] = (),
    available_memory_proportions: Sequence[float] | None = None,
    enable_conv_dithering: Sequence[int] | None = None,
) -> Tensor:
    """Computes `conv_transpose` of 8-bit floats times `2^log2_scale`, as float16. Raises as `matmul_pow2scaled`."""
    x, w, scale = _operands(t, weight, log2_scale)
    return _scaled(conv_transpose(x, w, stride, padding, dilation, groups, pad_type, output_padding, output_shape), scale)
