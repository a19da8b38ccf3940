"""Writes files of safetensors: the length of a header, the header, and the bytes of each tensor.

The library's writer takes a buffer of 1 MiB, and ends the process where the system refuses it. This one raises MemoryError or OSError.

Source: https://github.com/huggingface/safetensors#format
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, BinaryIO

if TYPE_CHECKING:
    from numpy.typing import NDArray

ALIGNMENT = 8  # bytes of which the header's length is a multiple
TYPES = {  # NumPy's name -> that of the format
    "bool": "BOOL", "uint8": "U8", "int8": "I8", "uint16": "U16", "int16": "I16", "uint32": "U32", "int32": "I32", "uint64": "U64",
    "int64": "I64", "float16": "F16", "bfloat16": "BF16", "float32": "F32", "float64": "F64", "complex64": "C64",
    "float8_e4m3fn": "F8_E4M3", "float8_e5m2": "F8_E5M2",
}  # fmt: skip


def write_tensors(file: BinaryIO, tensors: Mapping[str, NDArray[Any]], metadata: Mapping[str, str] | None = None) -> None:
    """Writes tensors by name, those of wide elements first, so that each lies at a multiple of its element's size. Raises OSError."""
    import numpy as np

    entries: dict[str, object] = {} if metadata is None else {"__metadata__": dict(metadata)}
    ordered = sorted(tensors.items(), key=lambda named: (-named[1].itemsize, named[0]))
    end = 0
    for name, array in ordered:
        begin, end = end, end + array.nbytes
        entries[name] = {"dtype": TYPES[array.dtype.name], "shape": list(array.shape), "data_offsets": [begin, end]}
    header = json.dumps(entries, separators=(",", ":")).encode()
    header += b" " * (-len(header) % ALIGNMENT)
    file.write(len(header).to_bytes(8, "little") + header)
    for _, array in ordered:
        assert array.dtype.isnative, array.dtype
        file.write(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
