"""Readers of ONNX files: the model, and tensors from it or from files of external data. They read data, never code.

No size that a file states is trusted: it is compared with the bytes that exist before memory is allocated.
"""

from __future__ import annotations

import math
import os
import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from populus.dialects.onnx.types import element_numbered
from populus.dialects.support.budget import check_shape
from populus.dialects.support.diagnostics import PopulusError, no_file

if TYPE_CHECKING:
    import numpy as np
    from google.protobuf.message import Message
    from numpy.typing import NDArray
    from onnx import ModelProto, SparseTensorProto, TensorProto

NUMBER = re.compile("[0-9]{1,19}")  # an offset or length: `int` also takes 1_6 and other digits than these
DENSE_LIMIT = 1 << 32  # bytes of the largest sparse tensor that is made dense


def read_model(path: str | os.PathLike[str]) -> ModelProto:
    """Reads a model, without its external data.

    Raises PopulusError if the file does not exist or is no ONNX model.
    """
    from google.protobuf.message import DecodeError
    from onnx import ModelProto

    name = os.fspath(path)
    try:
        data = Path(path).read_bytes()
    except FileNotFoundError:
        raise PopulusError(no_file(name)) from None
    except OSError as error:
        raise PopulusError(f"{name}: {error.strerror or error}") from error
    model = ModelProto()
    try:
        model.ParseFromString(data)
    except DecodeError as error:
        raise PopulusError(f"{name}: this is not an ONNX model, or only part of one ({len(data)} bytes)") from error
    if not model.HasField("graph"):
        raise PopulusError(f"{name}: this is not an ONNX model: there is no graph in its {len(data)} bytes")
    return model


def check_names(message: Message, place: str) -> None:
    """Raises PopulusError if a string of a model is not UTF-8: protobuf gives its bytes then, and not a text."""
    from google.protobuf.message import Message as AnyMessage
    from onnx import TensorProto

    names: list[object] = []
    waiting: list[Message] = [message]
    while waiting:
        part = waiting.pop()
        if isinstance(part, TensorProto):
            names.append(part.name)  # its other strings are data
            continue
        for field, value in part.ListFields():
            if field.message_type is not None:
                waiting.extend([value] if isinstance(value, AnyMessage) else value)
            elif field.type == field.TYPE_STRING:
                names.extend([value] if isinstance(value, str | bytes) else value)
    for name in names:
        if not isinstance(name, str):
            raise PopulusError(f"{place}: the name {name!r} in it is not UTF-8")


@cache
def _layout(number: int) -> tuple[np.dtype[Any], str] | None:
    """Gives the dtype of a DataType, and the field with its values if there is no raw data; None if tiles lack it."""
    import ml_dtypes
    import numpy as np

    fields: dict[int, tuple[Any, str]] = {
        1: (np.float32, "float_data"),
        2: (np.uint8, "int32_data"),
        3: (np.int8, "int32_data"),
        4: (np.uint16, "int32_data"),
        5: (np.int16, "int32_data"),
        6: (np.int32, "int32_data"),
        7: (np.int64, "int64_data"),
        9: (np.bool_, "int32_data"),
        10: (np.float16, "int32_data"),
        11: (np.float64, "double_data"),
        12: (np.uint32, "uint64_data"),
        13: (np.uint64, "uint64_data"),
        14: (np.complex64, "float_data"),
        15: (np.complex128, "double_data"),
        16: (ml_dtypes.bfloat16, "int32_data"),
        17: (ml_dtypes.float8_e4m3fn, "int32_data"),
        18: (ml_dtypes.float8_e4m3fnuz, "int32_data"),
        19: (ml_dtypes.float8_e5m2, "int32_data"),
        20: (ml_dtypes.float8_e5m2fnuz, "int32_data"),
    }
    if number not in fields:
        return None
    dtype, field = fields[number]
    return np.dtype(dtype), field


class Folder:
    """The folder of a model, whose files of external data are each mapped once as long as an array of one lives."""

    def __init__(self, path: Path):
        self.path = path
        self._maps: WeakValueDictionary[str, np.memmap[Any, np.dtype[np.uint8]]] = WeakValueDictionary()

    def bytes(self, location: str, name: str) -> NDArray[np.uint8]:
        """Gives the bytes of a file that the tensor `name` states. Raises PopulusError if it is missing, or outside of the folder."""
        import numpy as np

        if (found := self._maps.get(location)) is not None:
            return found
        inside, path = self.path.resolve(), Path(location)
        absolute = not location or "\0" in location or path.is_absolute() or ".." in path.parts
        if absolute or not (inside / path).resolve().is_relative_to(inside):
            raise PopulusError(f"'{name}' is in the file '{location}', which is not inside the model's folder {self.path}")
        path = (inside / path).resolve()
        if not path.is_file():
            raise PopulusError(f"'{name}' is in the file '{location}', which is missing in {self.path}")
        if not path.stat().st_size:
            return np.empty(0, np.uint8)
        found = self._maps[location] = np.memmap(path, np.uint8, "r")
        return found


def read_tensor(proto: TensorProto, folder: Folder | None) -> NDArray[Any]:
    """Reads the array of a TensorProto; raw data and external files are shared, not copied.

    `folder`: that of the model's file. Raises PopulusError for an element type without an array form, or a wrong size.
    """
    import numpy as np

    shape = tuple(proto.dims)
    if any(n < 0 for n in shape):
        raise PopulusError(f"'{proto.name}' has the shape {list(shape)}; dimensions are at least 0")
    if 0 in shape:  # no bytes bound the other dimensions
        check_shape([max(n, 1) for n in shape], f"'{proto.name}'")
    count = math.prod(shape)
    layout = _layout(proto.data_type)
    if proto.data_type in _PACKED:
        return _packed(proto, shape, folder)
    if proto.data_type == 8:
        return _strings(proto, shape)
    if layout is None:
        element = element_numbered(proto.data_type)
        raise PopulusError(f"'{proto.name}' is a tensor of {element or f'data type {proto.data_type}'}, which tiles cannot hold yet")
    dtype, field = layout
    if proto.data_location == 1:  # EXTERNAL
        return _external(proto, dtype, shape, folder, f"{dtype} of shape {list(shape)}")
    if proto.HasField("raw_data"):
        raw = proto.raw_data
        if len(raw) != count * dtype.itemsize:
            raise PopulusError(
                f"'{proto.name}' is {dtype} of shape {list(shape)}, {count * dtype.itemsize} bytes; the file has {len(raw)} bytes for it"
            )
        return np.frombuffer(raw, dtype.newbyteorder("<") if dtype.isbuiltin else dtype).reshape(shape)
    values = getattr(proto, field)
    if dtype.kind == "c" and len(values) == 2 * count:
        return np.asarray(values, f"f{dtype.itemsize // 2}").view(dtype).reshape(shape)
    if len(values) != count:
        raise PopulusError(f"'{proto.name}' has the shape {list(shape)}, {count} elements; the file has {len(values)} elements for it")
    if field == "int32_data" and dtype.kind not in "iub":  # bit patterns of a small float
        return np.asarray(values, np.int32).astype(f"u{dtype.itemsize}").view(dtype).reshape(shape)
    return np.asarray(values, dtype).reshape(shape)


_PACKED = {21: 4, 22: 4, 23: 4, 24: 8, 25: 2, 26: 2}  # DataType -> bits of an element; `onnx` unpacks these


def _packed(proto: TensorProto, shape: tuple[int, ...], folder: Folder | None) -> NDArray[Any]:
    """Reads a tensor whose elements are smaller than a byte, or that NumPy lacks."""
    import numpy as np
    from onnx import TensorProto as Tensor
    from onnx import numpy_helper

    bits, count = _PACKED[proto.data_type], math.prod(shape)
    needed = -(-count * bits // 8)
    if proto.data_location == 1:  # EXTERNAL
        content = _external(proto, np.dtype(np.uint8), (needed,), folder, f"{count} elements of {bits} bits")
        return numpy_helper.to_array(Tensor(data_type=proto.data_type, dims=shape, raw_data=content.tobytes()))
    bytes = len(proto.raw_data) if proto.HasField("raw_data") else len(proto.int32_data)
    if bytes != needed:
        raise PopulusError(f"'{proto.name}' has {count} elements of {bits} bits; the file has {bytes} bytes for them")
    return numpy_helper.to_array(proto)


def _strings(proto: TensorProto, shape: tuple[int, ...]) -> NDArray[Any]:
    """Reads a tensor of strings: an array of objects."""
    import numpy as np

    values = list(proto.string_data)
    if len(values) != math.prod(shape):
        raise PopulusError(f"'{proto.name}' has the shape {list(shape)}; the file has {len(values)} strings for it")
    array = np.empty(len(values), object)
    try:
        array[:] = [v.decode() for v in values]
    except UnicodeDecodeError as error:
        raise PopulusError(f"'{proto.name}' has a string that is not UTF-8") from error
    return array.reshape(shape)


def _external(proto: TensorProto, dtype: np.dtype[Any], shape: tuple[int, ...], folder: Folder | None, what: str) -> NDArray[Any]:
    """Maps a tensor in a file of external data. `what`: it, for messages. Raises PopulusError for a file outside the model's folder."""
    import numpy as np

    entries = {e.key: e.value for e in proto.external_data}
    location = entries.get("location", "")
    if folder is None:
        raise PopulusError(f"'{proto.name}' is in the file '{location}', but the model came without a path; give the path of its file")
    whole = folder.bytes(location, proto.name)
    begin, length = entries.get("offset") or "0", entries.get("length") or ""
    if not NUMBER.fullmatch(begin) or not NUMBER.fullmatch(length or "0"):
        raise PopulusError(f"'{proto.name}' has an offset or length that is no number: {entries}")
    offset, stated = int(begin), int(length) if length else None
    needed, size = math.prod(shape) * dtype.itemsize, whole.size
    if stated is not None and stated != needed:
        raise PopulusError(f"'{proto.name}' is {what}, {needed} bytes; its entry states {stated} bytes at {offset}")
    if offset + needed > size:
        raise PopulusError(f"'{proto.name}' needs the bytes {offset} to {offset + needed} of '{location}', which has {size}")
    if needed == 0:
        return np.empty(shape, dtype)
    return whole[offset : offset + needed].view(dtype).reshape(shape)


def read_sparse(proto: SparseTensorProto, folder: Folder | None) -> NDArray[Any]:
    """Reads a sparse tensor as a dense one. Raises PopulusError above 4 GiB, or for an index out of range."""
    import numpy as np

    name, shape = proto.values.name, tuple(proto.dims)
    values, indices = read_tensor(proto.values, folder), read_tensor(proto.indices, folder)
    if any(n < 0 for n in shape) or math.prod(shape) * values.itemsize > DENSE_LIMIT:
        raise PopulusError(f"the sparse tensor '{name}' of shape {list(shape)} is too large to be made dense")
    flat = indices if indices.ndim == 1 else indices @ np.array([math.prod(shape[d + 1 :]) for d in range(len(shape))], np.int64)
    if flat.shape != values.shape or (flat.size and (flat.min() < 0 or flat.max() >= math.prod(shape))):
        raise PopulusError(f"the sparse tensor '{name}' has indices that do not fit its {values.size} values and shape {list(shape)}")
    dense = np.zeros(math.prod(shape), values.dtype)
    dense[flat] = values
    return dense.reshape(shape)
