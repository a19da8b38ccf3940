"""Floats of 8 bits on the host: arrays of them from wider floats and back, and scales for them.

PopXL's `float8_143` and `float8_152` have 4 and 5 bits of exponent with bias 8 and 16, no infinity, and one NaN, the byte 0x80: MLIR's
`f8E4M3FNUZ` and `f8E5M2FNUZ`. On the host, their arrays are of a NumPy structure of one byte. A scale says by which power of 2 the
numbers are multiplied before they are rounded.
Source: Graphcore, PopXL user guide, "Float8 datatypes".
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from populus.popxl import dtypes
from populus.popxl.errors import Unsupported

if TYPE_CHECKING:
    from numpy.typing import NDArray

SCALES = range(-32, 32)  # a scale is a signed integer of 6 bits
NAN = 0x80

_MANTISSA = {dtypes.float8_143: 3, dtypes.float8_152: 2}  # bits
_BIAS = {dtypes.float8_143: 8, dtypes.float8_152: 16}


@cache
def values_of(type: dtypes.dtype) -> NDArray[Any]:
    """Gives the 128 numbers that are not negative, in float64; their places are their bytes."""
    bits = _MANTISSA[type]
    codes = np.arange(128)
    exponent, fraction = codes >> bits, (codes & ((1 << bits) - 1)) / (1 << bits)
    scale = np.maximum(exponent, 1) - _BIAS[type]
    return np.ldexp(np.where(exponent > 0, 1 + fraction, fraction), scale)


def overflow_of(type: dtypes.dtype) -> float:
    """Gives the least number that is too large: it lies half a step above the largest one, and rounding to even goes up."""
    below, largest = values_of(type)[-2:]
    return float(largest + (largest - below) / 2)


def _checked(type: dtypes.dtype | None, known: Any, log2_scale: int) -> dtypes.dtype:
    if type is None or type not in known:
        raise Unsupported(f"{type} is not one of {', '.join(str(k) for k in known)}")
    if log2_scale not in SCALES:
        raise Unsupported(f"log2_scale is from {SCALES[0]} to {SCALES[-1]}, not {log2_scale}")
    return type


def host_pow2scale_cast_to_fp8(
    src: Any, dtype: dtypes.dtype | None = None, log2_scale: int = 0, nan_on_overflow: bool = True
) -> NDArray[Any]:
    """Gives `src 2^log2_scale` rounded to 8 bits, to even where two are as near, as an array of NumPy's structure.

    A number that is too large becomes NaN, or the largest of its sign without `nan_on_overflow`; infinity is NaN always.
    Raises RuntimeError for data that are no floats, for another type, and for a scale outside of -32 to 31.
    """
    array = np.asarray(src.detach().cpu().numpy() if hasattr(src, "detach") else src)
    if array.dtype.name not in ("float16", "float32", "float64"):
        raise Unsupported(f"src.dtype {array.dtype} is no float of 16, 32 or 64 bits")
    type = _checked(dtype, _BIAS, log2_scale)
    values = values_of(type)
    x = np.ldexp(array.astype(np.float64), log2_scale)
    size = np.abs(x)
    # Between neighbours lies the number from which on rounding goes up; on it, to the one whose byte is even.
    middle = (values[:-1] + values[1:]) / 2
    above, reached = np.searchsorted(middle, size, "left"), np.searchsorted(middle, size, "right")
    codes = np.where(above % 2 == 0, above, reached)
    codes = np.where((x < 0) & (codes > 0), codes | 0x80, codes)
    lost = ~np.isfinite(x) | (size >= overflow_of(type)) if nan_on_overflow else ~np.isfinite(x)
    return np.where(lost, NAN, codes).astype(np.uint8).view(type.as_numpy()).reshape(array.shape)


def host_pow2scale_cast_from_fp8(src: NDArray[Any], dtype: dtypes.dtype | None = None, log2_scale: int = 0) -> NDArray[Any]:
    """Gives the numbers of an array of 8-bit floats, times `2^log2_scale`, as floats of 16, 32 or 64 bits.

    Raises RuntimeError for an array of another kind, for another type, and for a scale outside of -32 to 31.
    """
    kind = next((k for k in _BIAS if src.dtype == k.as_numpy()), None)
    if kind is None:
        raise Unsupported(f"src.dtype {src.dtype} is no 8-bit float")
    type = _checked(dtype, (dtypes.float16, dtypes.float32, dtypes.float64), log2_scale)
    codes = np.ascontiguousarray(src).view(np.uint8).reshape(src.shape)
    found = np.where(codes >= NAN, -1.0, 1.0) * values_of(kind)[codes & 0x7F]
    with np.errstate(over="ignore"):
        return np.ldexp(np.where(codes == NAN, np.nan, found), log2_scale).astype(type.as_numpy())


def host_fp8_mse_scale(src: NDArray[Any], dtype: dtypes.dtype | None = None) -> tuple[float, int]:
    """Gives the scale for which rounding loses the least, and the mean square of what is lost.

    For each scale from -31 to 31, `src 2^scale` is rounded, held within the type's range, and scaled back. Of scales that are as good, the
    middle one is given. Raises RuntimeError for data that are no float16 or float32, and for another type.
    """
    if src.dtype.name not in ("float16", "float32"):
        raise Unsupported(f"src.dtype {src.dtype} is no float of 16 or 32 bits")
    type, x = _checked(dtype, _BIAS, 0), np.asarray(src, np.float64)
    errors = {s: _error(x, type, s) for s in range(-31, 32)}
    least = min(errors.values())
    best = [s for s, error in errors.items() if error == least]
    return least, best[len(best) // 2]


def _error(x: NDArray[Any], type: dtypes.dtype, scale: int) -> float:
    rounded = host_pow2scale_cast_to_fp8(x, type, scale, nan_on_overflow=False)
    return float(np.mean((host_pow2scale_cast_from_fp8(rounded, dtypes.float64, -scale) - x) ** 2)) if x.size else 0.0


def host_fp8_mse_scale_pb(src: Any, dtype: dtypes.dtype | None = None) -> int:
    """Gives the scale of `host_fp8_mse_scale` alone, also for tensors of PyTorch."""
    return host_fp8_mse_scale(np.asarray(src.detach().cpu().numpy() if hasattr(src, "detach") else src), dtype)[1]
