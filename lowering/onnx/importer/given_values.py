"""Values that a user gives to inputs of a model before it is compiled: arrays of the types and shapes that the inputs have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from populus.dialects.onnx.types import is_open
from populus.dialects.support import shapes
from populus.dialects.support.diagnostics import PopulusError, did_you_mean

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray
    from onnx import ModelProto, ValueInfoProto


def given_values(model: ModelProto, values: Mapping[str, ArrayLike]) -> dict[str, NDArray[Any]]:
    """Converts values of inputs, by name, to the types of the inputs: 16000 to an i64 scalar.

    Raises PopulusError for an unknown name, a value that the element type cannot hold, and another shape.
    """
    inputs = {i.name: i for i in model.graph.input}
    if strange := [name for name in values if name not in inputs]:
        raise PopulusError(f"there is no input '{strange[0]}' to give a value to{did_you_mean(strange[0], inputs)}")
    return {name: _converted(inputs[name], value) for name, value in values.items()}


def _converted(info: ValueInfoProto, value: ArrayLike) -> NDArray[Any]:
    """Converts the value of one input. Raises PopulusError; see `given_values`."""
    import numpy as np
    from onnx import helper

    if not info.type.HasField("tensor_type"):
        raise PopulusError(f"input '{info.name}' is no tensor; only tensors can be given a value")
    stated = info.type.tensor_type
    array, dtype = np.asarray(value), np.dtype(helper.tensor_dtype_to_np_dtype(stated.elem_type))
    converted = array
    if array.dtype != dtype:
        with np.errstate(all="ignore"):
            converted = array.astype(dtype) if array.dtype.kind in "biuf" and dtype.kind in "biuf" else None
        if converted is None or not np.array_equal(converted.astype(array.dtype), array):
            raise PopulusError(f"input '{info.name}' is {dtype}, and {np.array2string(array, threshold=8)} is given, which it cannot hold")
    if not stated.HasField("shape"):
        return converted
    sizes = [-1 if is_open(d) else d.dim_value for d in stated.shape.dim]
    if converted.size == 1 and len(sizes) != converted.ndim and all(n in (-1, 1) for n in sizes):
        return converted.reshape([1] * len(sizes))  # one number for [1], or [1] for a scalar
    if len(sizes) != converted.ndim or any(n not in (-1, m) for n, m in zip(sizes, converted.shape)):
        wanted = "x".join("?" if n < 0 else str(n) for n in sizes) or "a scalar"
        raise PopulusError(f"input '{info.name}' is {wanted}, and the value that is given is {shapes.text(converted.shape)}")
    return converted
