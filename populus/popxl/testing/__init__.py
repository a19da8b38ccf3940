"""Lists of element types, for tests of programs."""

from __future__ import annotations

from populus.popxl import dtypes

_SIGNED = [dtypes.int8, dtypes.int16, dtypes.int32, dtypes.int64]
_UNSIGNED = [dtypes.uint8, dtypes.uint16, dtypes.uint32, dtypes.uint64]
_OTHERS = [
    dtypes.float8_143, dtypes.float8_152, dtypes.float16, dtypes.float32, dtypes.float64, dtypes.complex64, dtypes.complex128,
]  # fmt: skip


def get_all_int_dtypes(include_signed: bool = True, include_unsigned: bool = True) -> list[dtypes.dtype]:
    """Lists the types of integers."""
    return [*(_SIGNED if include_signed else []), *(_UNSIGNED if include_unsigned else [])]


def get_all_dtypes() -> list[dtypes.dtype]:
    """Lists the types of numbers."""
    return [*get_all_int_dtypes(), *_OTHERS]
