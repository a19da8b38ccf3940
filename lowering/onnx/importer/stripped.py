"""Models read without their large tensors, which become external data of the model's own file and are mapped.

ONNX files are protocol buffers: fields of a tag, a length and that many bytes. Only the lengths on the way to the
graph's initializers are parsed. The ordinary reader handles any other content, and reports errors in it.
"""

from __future__ import annotations

import mmap
import os
from pathlib import Path
from typing import TYPE_CHECKING

from populus.lowering.onnx.importer.read import read_model

if TYPE_CHECKING:
    from onnx import ModelProto

LARGE = 1 << 16  # bytes of a tensor that are worth leaving in the file
GRAPH, INITIALIZER, RAW_DATA = 7, 5, 9  # fields of ModelProto, GraphProto, TensorProto
VARINT, FIXED64, LENGTH, FIXED32 = 0, 1, 2, 5  # wire types


class _Odd(Exception):
    """A content that this parser leaves to the ordinary reader."""


def read_stripped(path: str | os.PathLike[str]) -> ModelProto:
    """Reads a model; large initializers stay in the file where possible. Raises PopulusError as `read_model`."""
    return stripped(Path(path)) or read_model(path)


def stripped(path: Path) -> ModelProto | None:
    """Reads a model with initializers of 64 KiB or more as external data of its own file; None if impossible."""
    from google.protobuf.message import DecodeError
    from onnx import ModelProto

    if path.is_symlink() or not path.is_file() or path.stat().st_size < LARGE:
        return None
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        try:
            content = _model(data, path.name)
        except (_Odd, IndexError):
            return None
    model = ModelProto()
    try:
        model.ParseFromString(content)
    except DecodeError:
        return None
    return model if model.HasField("graph") else None


def _model(data: mmap.mmap, name: str) -> bytes:
    """Rewrites the bytes of a model, with large initializers as external data."""
    parts: list[bytes] = []
    for number, wire, begin, start, end in _fields(data, 0, len(data)):
        if (number, wire) == (GRAPH, LENGTH):
            graph = b"".join(
                _tensor(data, b, s, e, name) if (n, w) == (INITIALIZER, LENGTH) and e - s >= LARGE else data[b:e]
                for n, w, b, s, e in _fields(data, start, end)
            )
            parts.append(_field(GRAPH, graph))
        else:
            parts.append(data[begin:end])
    return b"".join(parts)


def _tensor(data: mmap.mmap, begin: int, start: int, end: int, name: str) -> bytes:
    """Rewrites the field of an initializer: the location of its raw data replaces the data."""
    from onnx import TensorProto

    rest: list[bytes] = []
    entry = TensorProto()
    for number, wire, b, s, e in _fields(data, start, end):
        if (number, wire) == (RAW_DATA, LENGTH) and not entry.external_data:
            for key, value in (("location", name), ("offset", str(s)), ("length", str(e - s))):
                entry.external_data.add(key=key, value=value)
        else:
            rest.append(data[b:e])
    if not entry.external_data:
        return data[begin:end]
    entry.data_location = TensorProto.EXTERNAL
    return _field(INITIALIZER, b"".join(rest) + entry.SerializeToString())


def _field(number: int, content: bytes) -> bytes:
    """Encodes a field with a length."""
    return _varint(number << 3 | LENGTH) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    """Encodes an integer."""
    digits = bytearray()
    while value > 127:
        digits.append(value & 127 | 128)
        value >>= 7
    digits.append(value)
    return bytes(digits)


def _fields(data: mmap.mmap, at: int, end: int) -> list[tuple[int, int, int, int, int]]:
    """Lists the fields between two offsets: number, wire type, and the offsets of field, content and end."""
    fields: list[tuple[int, int, int, int, int]] = []
    while at < end:
        begin = at
        tag, at = _read(data, at)
        number, wire = tag >> 3, tag & 7
        start = at
        if wire == VARINT:
            _, at = _read(data, at)
        elif wire == LENGTH:
            length, start = _read(data, at)
            at = start + length
        elif wire in (FIXED64, FIXED32):
            at += 8 if wire == FIXED64 else 4
        else:
            raise _Odd
        if at > end or number == 0:
            raise _Odd
        fields.append((number, wire, begin, start, at))
    return fields


def _read(data: mmap.mmap, at: int) -> tuple[int, int]:
    """Decodes an integer: its value, and the offset after it."""
    value = shift = 0
    while shift < 70:
        byte = data[at]
        value |= (byte & 127) << shift
        at += 1
        if byte < 128:
            return value, at
        shift += 7
    raise _Odd
