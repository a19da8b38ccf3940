"""Arrays of what a program gives as data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from populus.dialects.support.diagnostics import did_you_mean
from populus.popart.devices import DeviceInfo
from populus.popart.enums import ENUMS
from populus.popxl import dtypes
from populus.popxl.errors import Unsupported, WrongType, WrongValue
from populus.popxl.fp8_utils import host_pow2scale_cast_to_fp8

if TYPE_CHECKING:
    from numpy.typing import NDArray

DEVICES = {"cpu": ("host", "Cpu"), "ipu_model": ("gc200", "IpuModel"), "ipu_hw": ("gc200", "OfflineIpu")}
# The types of 32 bits for those of 64.
downcast_np_dtypes = {np.dtype(f"{kind}64"): np.dtype(f"{kind}32") for kind in ("int", "uint", "float")}


def _to_device_info(device_type: str, num_ipus: int = 1, use_popdist: bool = False) -> DeviceInfo:  # pyright: ignore[reportUnusedFunction]
    """Gives the machine of a name: `ipu_hw` and `ipu_model`, a model of so many GC200s, or `cpu`.

    Raises ValueError for another name, and for several of `cpu`.
    """
    if device_type not in DEVICES:
        raise WrongValue(f"no device '{device_type}'{did_you_mean(device_type, DEVICES)}")
    if device_type == "cpu" and num_ipus != 1:
        raise WrongValue(f"a cpu device is one machine, not {num_ipus}")
    target, kind = DEVICES[device_type]
    return DeviceInfo(target, None, ENUMS["DeviceType"].__members__[kind], numIpus=num_ipus)


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
    if isinstance(mapped := cast("object", x), np.memmap):
        _check_mapped(cast("np.memmap[Any, Any]", mapped), dtype)
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


def _check_mapped(x: np.memmap[Any, Any], dtype: dtypes.dtype | None) -> None:
    """Raises ValueError for a mapped file that cannot be a variable's memory as it is."""
    subject = "When passing a memory-mapped NumPy array, "
    if dtype is not None and dtype.as_numpy() != x.dtype:
        raise WrongValue(f"{subject}the `dtype` parameter is {x.dtype} too, or absent; it is {dtype}")
    if not (x.flags.c_contiguous and x.flags.aligned):
        raise WrongValue(f"{subject}it must already be in C-ordered and aligned form")
    if x.dtype in downcast_np_dtypes:
        raise WrongValue(f"{subject}the dtype {dtype} is not supported, as it requires downcasting to {downcast_np_dtypes[x.dtype]}")


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
