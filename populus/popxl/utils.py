"""Arrays of what a program gives as data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from populus.popxl import dtypes

if TYPE_CHECKING:
    from numpy.typing import NDArray

NARROWER = {"float64": np.dtype("float32"), "int64": np.dtype("int32"), "uint64": np.dtype("uint32")}


def downcast_np_dtypes(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Gives the type of 32 bits for one of 64, or itself."""
    return NARROWER.get(dtype.name, dtype)


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
    The last two are of 8-bit floats, which `variable` and `constant` refuse.
    """
    if hasattr(x, "detach") and hasattr(x, "numpy"):
        x = x.detach().cpu().numpy()
    array = np.asarray(x)
    wanted = dtype.as_numpy() if dtype is not None else downcast_np_dtypes(array.dtype) if downcast else array.dtype
    return np.array(array, wanted, order="C", ndmin=0) if copy else np.asarray(array, wanted, order="C")


def table_to_string(rows: Sequence[Sequence[Any]], delimiter: str = " | ", header: bool = True) -> str:
    """Formats rows as text, each column as wide as its longest entry; the first row is the header."""
    widths = [max(len(str(row[i])) for row in rows if i < len(row)) for i in range(max(map(len, rows), default=0))]
    lines = [delimiter.join(f"{cell!s:{widths[i]}}" for i, cell in enumerate(row)) for row in rows]
    if header and lines:
        lines.insert(1, "-" * max(map(len, lines)))
    return "\n".join(lines) + "\n"
