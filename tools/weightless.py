"""A model without its weights: zeros in a file that takes no space stand for them, so that sizes alone decide plans and costs."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

from populus.dialects.onnx.types import element_numbered
from populus.dialects.support.diagnostics import PopulusError
from populus.dialects.support.element_types import is_byte, is_float, size_in_bytes
from populus.lowering.onnx.importer.read import Folder, read_model, read_tensor

if TYPE_CHECKING:
    from onnx import TensorProto

LEAST = 65536  # bytes of an initializer that is a weight; smaller ones may be limits and scales, and are kept
PAGE = 4096  # bytes; each weight begins on a page, with a number of its own, or equal weights would be one


def without_weights(model: Path, folder: Path) -> Path:
    """Writes a copy of an ONNX model into a folder, with zeros in place of its weights; returns its path.

    Weights are floats and 8-bit integers of LEAST bytes or more, and any floats in files beside the model, which may be missing.
    Raises PopulusError for a file that is no ONNX model, or for other data in a file that is missing.
    """
    if model.suffix != ".onnx":
        raise PopulusError(f"{model}: --no-weights is for .onnx models")
    proto, end = read_model(model), 0
    with (folder / "weights").open("wb") as file:
        for number, tensor in enumerate(proto.graph.initializer, 1):
            bytes = weight_bytes(tensor)
            if bytes:
                _place(tensor, end, bytes)
                file.seek(end)
                file.write(number.to_bytes(2, "little")[: min(bytes, 2)])
                end += -(-bytes // PAGE) * PAGE
            elif tensor.data_location == tensor.EXTERNAL:
                content = read_tensor(tensor, Folder(model.parent)).tobytes()
                tensor.ClearField("external_data")
                tensor.ClearField("data_location")
                tensor.raw_data = content
        file.truncate(end)
    made = folder / model.name
    made.write_bytes(proto.SerializeToString())
    return made


def weight_bytes(tensor: TensorProto) -> int:
    """Counts the bytes of an initializer that is a weight; 0 if it is none."""
    element = element_numbered(tensor.data_type)
    if element is None or any(n < 0 for n in tensor.dims) or not (is_float(element) or is_byte(element)):
        return 0
    bytes = math.prod(tensor.dims) * size_in_bytes(element)
    return bytes if bytes >= LEAST or (is_float(element) and tensor.data_location == tensor.EXTERNAL) else 0


def _place(tensor: TensorProto, offset: int, bytes: int) -> None:
    """Turns a tensor into bytes of the file of zeros."""
    kept = tensor.name, tensor.data_type, list(tensor.dims)
    tensor.Clear()
    tensor.name, tensor.data_type = kept[:2]
    tensor.dims.extend(kept[2])
    tensor.data_location = tensor.EXTERNAL
    for key, value in (("location", "weights"), ("offset", str(offset)), ("length", str(bytes))):
        tensor.external_data.add(key=key, value=value)
