"""PopXL's element types: `dtype` and its instances."""

from __future__ import annotations

import builtins
import importlib
import importlib.util
from typing import Any

import numpy as np

from populus.popxl.errors import WrongType, WrongValue


class dtype:
    """The type of a tensor's elements; there is one instance of each. Compare them, or ask for NumPy's by `as_numpy`."""

    def __init__(self, name: str, numpy: Any, kind: str, torch: str | None, python: type | None = None):
        self._name, self._numpy, self._kind, self._torch, self._python = name, np.dtype(numpy), kind, torch, python
        _BY_NAME[name] = _BY_NUMPY[self._numpy] = self

    @property
    def name(self) -> str:
        return self._name

    @property
    def is_complex(self) -> builtins.bool:
        return self._kind == "c"

    @property
    def is_int(self) -> builtins.bool:
        """True for integers, with a sign or without."""
        return self._kind in "iu"

    @property
    def is_floating_point(self) -> builtins.bool:
        return self._kind == "f"

    @property
    def is_signed(self) -> builtins.bool:
        return self._kind in "ifc"

    @classmethod
    def from_name(cls, name: str) -> dtype:
        """Gives the type of a name, such as `float32` or `half`. Raises ValueError for another."""
        found = _BY_NAME.get(name) or _ALIASES.get(name)
        if found is None:
            raise WrongValue(f"there is no element type '{name}'; there are {', '.join(_BY_NAME)}")
        return found

    @classmethod
    def as_dtype(cls, type_value: Any) -> dtype:
        """Gives the type that a name, a type of Python, NumPy or PyTorch, an array or a tensor stands for. Raises ValueError."""
        if isinstance(type_value, dtype):
            return type_value
        if isinstance(type_value, str) and (type_value in _BY_NAME or type_value in _ALIASES):
            return cls.from_name(type_value)
        for known in _BY_NAME.values():
            if type_value is known._python and known._python is not None:
                return known
        found = getattr(type_value, "dtype", type_value)
        if isinstance(found, dtype):
            return found
        if type(found).__module__ == "torch":
            found = str(found).removeprefix("torch.")
        try:
            plain = np.dtype(found)
            return _BY_HELD.get(plain.name) or _BY_NUMPY[plain]
        except (TypeError, KeyError):
            raise WrongValue(f"{type_value!r} is no element type of PopXL; there are {', '.join(_BY_NAME)}") from None

    def as_numpy(self) -> np.dtype[Any]:
        """Gives NumPy's type of it; that of an 8-bit float is a structure of one byte, of the float's name."""
        return self._numpy

    @property
    def held(self) -> np.dtype[Any]:
        """NumPy's type of the elements inside a program, which for an 8-bit float is that of the package ml_dtypes."""
        name = next((name for name, type in _BY_HELD.items() if type is self), None)
        return self._numpy if name is None else np.dtype(getattr(importlib.import_module("ml_dtypes"), name))

    @property
    def of_torch(self) -> builtins.bool:
        """True where PyTorch has the type too."""
        return self._torch is not None

    def as_torch(self) -> Any:
        """Gives PyTorch's type of it. Raises TypeError where it has none, and ModuleNotFoundError without PyTorch."""
        if self._torch is None:
            raise WrongType(f"PyTorch has no element type {self.name}")
        return getattr(importlib.import_module("torch"), self._torch)

    def __str__(self) -> str:
        return self._name

    def __repr__(self) -> str:
        return f"popxl.dtypes.{self._name}"


_BY_NAME: dict[str, dtype] = {}
_BY_NUMPY: dict[np.dtype[Any], dtype] = {}

np_dtype_float8_143 = np.dtype([("float8_143", "u1")])
np_dtype_float8_152 = np.dtype([("float8_152", "u1")])

bool = dtype("bool", "bool", "b", "bool", builtins.bool)
int8 = dtype("int8", "int8", "i", "int8")
int16 = dtype("int16", "int16", "i", "int16")
int32 = dtype("int32", "int32", "i", "int32")
int64 = dtype("int64", "int64", "i", "int64")
uint8 = dtype("uint8", "uint8", "u", "uint8")
uint16 = dtype("uint16", "uint16", "u", None)
uint32 = dtype("uint32", "uint32", "u", None)
uint64 = dtype("uint64", "uint64", "u", None)
float8_143 = dtype("float8_143", np_dtype_float8_143, "f", None)
float8_152 = dtype("float8_152", np_dtype_float8_152, "f", None)
float16 = dtype("float16", "float16", "f", "float16")
float32 = dtype("float32", "float32", "f", "float32", builtins.float)
float64 = dtype("float64", "float64", "f", "float64")
complex64 = dtype("complex64", "complex64", "c", "complex64")
complex128 = dtype("complex128", "complex128", "c", "complex128")
half, float, double = float16, float32, float64
_BY_HELD = {"float8_e4m3fnuz": float8_143, "float8_e5m2fnuz": float8_152}
_ALIASES = {"half": half, "float": float, "double": double}

_NP_TO_POPXL = {known: found for known, found in _BY_NUMPY.items() if known.names is None}


def __getattr__(name: str) -> Any:
    """Gives `_PT_TO_POPXL`, the types by PyTorch's, which is empty without PyTorch."""
    if name != "_PT_TO_POPXL":
        raise AttributeError(name)
    if importlib.util.find_spec("torch") is None:
        return {}
    return {found.as_torch(): found for found in _BY_NAME.values() if found.of_torch}
