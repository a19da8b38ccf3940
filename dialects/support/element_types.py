"""Element types: xDSL's attribute, NumPy's dtype and the size in bytes of each.

Integers are signless when signed (`i32`) and `ui32` when not; `i1` is a boolean of one byte.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, cast

from xdsl.dialects.builtin import (
    BFloat16Type,
    Float4E2M1FNType,
    Float8E4M3FNType,
    Float8E4M3FNUZType,
    Float8E5M2FNUZType,
    Float8E5M2Type,
    Float8E8M0FNUType,
    Float16Type,
    Float32Type,
    Float64Type,
    IntegerType,
    Signedness,
    TensorType,
    bf16,
    f16,
    f32,
    f64,
    i1,
    i8,
    i16,
    i32,
    i64,
)
from xdsl.ir import Attribute, SSAValue

if TYPE_CHECKING:
    import numpy as np

i2, i4 = IntegerType(2), IntegerType(4)
ui2, ui4, ui8, ui16, ui32, ui64 = (IntegerType(width, Signedness.UNSIGNED) for width in (2, 4, 8, 16, 32, 64))

# element type -> NumPy (or ml_dtypes) dtype name
_DTYPES: dict[Attribute, str] = {
    f16: "float16",
    f32: "float32",
    f64: "float64",
    bf16: "bfloat16",
    Float4E2M1FNType(): "float4_e2m1fn",
    Float8E4M3FNType(): "float8_e4m3fn",
    Float8E4M3FNUZType(): "float8_e4m3fnuz",
    Float8E5M2Type(): "float8_e5m2",
    Float8E5M2FNUZType(): "float8_e5m2fnuz",
    Float8E8M0FNUType(): "float8_e8m0fnu",
    i1: "bool",
    i2: "int2",
    i4: "int4",
    i8: "int8",
    i16: "int16",
    i32: "int32",
    i64: "int64",
    ui2: "uint2",
    ui4: "uint4",
    ui8: "uint8",
    ui16: "uint16",
    ui32: "uint32",
    ui64: "uint64",
}

# Floats of 8 bits and less and integers of less than 8: a byte each.
BYTES = tuple(e for e, name in _DTYPES.items() if name.startswith(("float8", "float4")) or name in ("int2", "int4", "uint2", "uint4"))

# Those that NumPy has only with the package ml_dtypes. Integers of less than a byte take one each.
_ML_DTYPES = {name for name in _DTYPES.values() if name.startswith(("bfloat", "float8", "float4"))} | {"int2", "int4", "uint2", "uint4"}

_FLOATS = (
    Float16Type,
    Float32Type,
    Float64Type,
    BFloat16Type,
    Float4E2M1FNType,
    Float8E4M3FNType,
    Float8E4M3FNUZType,
    Float8E5M2Type,
    Float8E5M2FNUZType,
    Float8E8M0FNUType,
)


def is_float(element: Attribute) -> bool:
    """Tells whether a type is a float type."""
    return isinstance(element, _FLOATS)


def is_integer(element: Attribute) -> bool:
    """Tells whether a type is an integer type other than boolean."""
    return isinstance(element, IntegerType) and element != i1


def is_byte(element: Attribute) -> bool:
    """Tells whether a type is an integer type of 8 bits."""
    return element in (i8, ui8)


def is_packed(element: Attribute) -> bool:
    """Tells whether a type is an integer of less than a byte: stored, moved and converted, never computed in."""
    return isinstance(element, IntegerType) and cast("IntegerType[int, Signedness]", element).width.data in (2, 4)


def is_unsigned(element: Attribute) -> bool:
    """Tells whether a type is an unsigned integer of whole bytes."""
    return element in (ui8, ui16, ui32, ui64)


def is_known(element: Attribute) -> bool:
    """Tells whether tiles and engines can hold this element type."""
    return element in _DTYPES


@lru_cache(None)
def dtype_of(element: Attribute) -> np.dtype[Any]:
    """Returns the NumPy dtype of an element type. Raises TypeError for one that no engine holds (strings)."""
    import numpy as np

    if element not in _DTYPES:
        raise TypeError(f"element type {element} has no array form")
    name = _DTYPES[element]
    if name in _ML_DTYPES:
        import ml_dtypes

        return np.dtype(getattr(ml_dtypes, name))
    return np.dtype(name)


@lru_cache(None)
def _elements_by_dtype() -> dict[str, Attribute]:
    return {name: element for element, name in _DTYPES.items()}


@lru_cache(None)
def element_of(dtype: np.dtype[Any]) -> Attribute:
    """Returns the element type of a NumPy dtype. Raises TypeError for one that no engine holds."""
    if dtype.name not in _elements_by_dtype():
        raise TypeError(f"dtype {dtype} has no element type")
    return _elements_by_dtype()[dtype.name]


def size_in_bytes(element: Attribute) -> int:
    """Returns the size of an element."""
    return dtype_of(element).itemsize


def shape_of(type: Attribute) -> tuple[int, ...]:
    """Returns the shape of a tensor type; -1 for a dynamic dimension. A sparse type has that of the dense tensor."""
    found: tuple[int, ...] | None = vars(type).get("plain_shape")  # a net asks 15,000 times, and has a hundred types
    if found is None:
        dense = getattr(type, "dense", type)
        assert isinstance(dense, TensorType), type
        found = vars(type)["plain_shape"] = dense.get_shape()
    return found


def bytes_of(shape: Sequence[int], element: Attribute) -> int:
    """Gives the bytes of an array. Raises TypeError for elements that no engine holds (strings)."""
    return math.prod(shape) * size_in_bytes(element)


def value_bytes(value: SSAValue) -> int:
    """Gives the bytes of a value whose type is a tensor of static shape. Raises TypeError as `bytes_of` does."""
    return bytes_of(shape_of(value.type), element_type_of(value.type))


def element_type_of(type: Attribute) -> Attribute:
    """Returns the element type of a tensor type, or of the dense tensor of a sparse type."""
    if not isinstance(type, TensorType):
        type = getattr(type, "dense", type)
        assert isinstance(type, TensorType), type
    return cast("TensorType[Attribute]", type).element_type


def tensor(shape: tuple[int, ...] | list[int], element: Attribute) -> TensorType[Attribute]:
    """Makes a tensor type, or gives one that was made before: a type cannot change, and a program has few."""
    return _tensor(tuple(shape), element)


@lru_cache(4096)
def _tensor(shape: tuple[int, ...], element: Attribute) -> TensorType[Attribute]:
    return TensorType(element, list(shape))
