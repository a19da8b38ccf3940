"""Arrays of what a program gives as data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from populus.popxl import dtypes
from populus.popxl.errors import Unsupported, WrongType
from populus.popxl.fp8_utils import host_pow2scale_cast_to_fp8

if TYPE_CHECKING:
    from numpy.typing import NDArray

# The types of 32 bits for those of 64.
downcast_np_dtypes = {np.dtype(f"{kind}64"): np.dtype(f"{kind}32") for kind in ("int", "uint", "float")}


def to_numpy(
    x: Any,
    dtype: dtypes.dtype | None = None,
    downcast: bool = True,
    copy: bool = True,
    log2_scale: int | None = None,
    nan_on_overflow: bool | None = None,
) -> NDArray[Any]:
    """Gives a number, a list, an array or a tensor of PyTorch as an array of `dtype`.

    Without a `dtype`, floats and integers of 64 bits become those of 32; `downcast` False leaves them.
    The last two are of 8-bit floats, as in `fp8_utils.host_pow2scale_cast_to_fp8`; an array of their bytes stays as it is.
    Raises RuntimeError where they are given for another type, and TypeError for data of an 8-bit float that are no floats.
    """
    if hasattr(x, "detach") and hasattr(x, "numpy"):
        x = x.detach().cpu().numpy()
    array = np.asarray(x)
    if dtype is not None and dtype.as_numpy().names:
        if array.dtype != dtype.as_numpy() and array.dtype.name not in ("float16", "float32", "float64"):
            raise WrongType(f"{array.dtype} is no type that becomes {dtype}; give floats of 16, 32 or 64 bits")
        whole = array.dtype == dtype.as_numpy()
        array = array if whole else host_pow2scale_cast_to_fp8(array, dtype, log2_scale or 0, nan_on_overflow is not False)
    elif (option := "log2_scale" if log2_scale is not None else "nan_on_overflow" if nan_on_overflow is not None else None) is not None:
        raise Unsupported(f"{option} is of float8_143 and float8_152 alone, not of {dtype or array.dtype}")
    wanted = dtype.as_numpy() if dtype is not None else downcast_np_dtypes.get(array.dtype, array.dtype) if downcast else array.dtype
    return np.array(array, wanted, order="C", ndmin=0) if copy else np.asarray(array, wanted, order="C")


def held(array: NDArray[Any]) -> NDArray[Any]:
    """Gives an array of the host with the element type that it has inside a program; the same memory."""
    return array.view(dtypes.dtype.as_dtype(array.dtype).held) if array.dtype.names else array


def seen(array: NDArray[Any]) -> NDArray[Any]:
    """Gives an array of a program with the element type that the host sees; the same memory."""
    return array.view(dtypes.dtype.as_dtype(array.dtype).as_numpy()) if array.dtype.name.startswith("float8") else array


def table_to_string(rows: Sequence[Sequence[Any]], delimiter: str = " | ", header: bool = True) -> str:
    """Formats rows as text, each column as wide as its longest entry; the first row is the header."""
    widths = [max(len(str(row[i])) for row in rows if i < len(row)) for i in range(max(map(len, rows), default=0))]
    lines = [delimiter.join(f"{cell!s:{widths[i]}}" for i, cell in enumerate(row)) for row in rows]
    if header and lines:
        lines.insert(1, "-" * max(map(len, lines)))
    return "\n".join(lines) + "\n"
