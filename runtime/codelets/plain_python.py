"""A codelet as the plain Python function that it is, on arrays: an oracle for the engines.

Elements are NumPy's floats, in the codelet's precision or in double, and Python's integers. Functions of `math` are NumPy's, which
give an infinity or NaN where Python's raise an exception, as the engines do.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import FunctionType, SimpleNamespace
from typing import Any

import numpy as np

from populus.dialects.poplar.tile_functions import FLOATS, SCRATCH, TESTS
from populus.dialects.poplar.tile_program import TileCode
from populus.runtime.codelets.task import Array
from populus.runtime.codelets.tile_values import FUNCTIONS


class PlainVector:
    """A vector whose elements are Python's numbers. An index outside is an IndexError, a negative one too."""

    def __init__(self, array: Array, float_type: Any):
        self.array, self.shape, self.float_type = array, array.shape, float_type

    def __len__(self) -> int:
        return self.shape[0]

    def _place(self, index: int | tuple[int, ...]) -> tuple[int, ...]:
        at = index if isinstance(index, tuple) else (index,)
        if len(at) != len(self.shape) or not all(0 <= i < n for i, n in zip(at, self.shape)):
            raise IndexError(f"index {index} of shape {self.shape}")
        return at

    def __getitem__(self, index: int | tuple[int, ...]) -> Any:
        item = self.array[self._place(index)]
        return self.float_type(item) if self.array.dtype.kind not in "iub" else item.item()

    def __setitem__(self, index: int | tuple[int, ...], value: Any) -> None:
        if self.array.dtype.kind in "iu":
            bits = 8 * self.array.itemsize
            value = int(value) & ((1 << bits) - 1)
            value -= (1 << bits) if self.array.dtype.kind == "i" and value >> (bits - 1) else 0
        self.array[self._place(index)] = value


class NoInteger(float):
    """A float that should have become an integer, and has none. Only `float` takes it; each other use is an error."""

    def _refuse(self, *others: object) -> Any:
        raise ValueError(f"{float(self)} has no integer")

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = _refuse
    __lt__ = __le__ = __gt__ = __ge__ = __eq__ = __ne__ = __neg__ = __abs__ = __and__ = __or__ = __xor__ = __lshift__ = __rshift__ = _refuse
    __rand__ = __ror__ = __rxor__ = __rlshift__ = __rrshift__ = __invert__ = __index__ = __truediv__ = __rtruediv__ = _refuse
    __hash__ = float.__hash__


def plain(code: TileCode, arrays: Mapping[str, Array], scalars: Mapping[str, float | int | bool], double: bool = False) -> None:
    """Calls the codelet's function once on whole arrays, the outputs among them. `double`: in double precision in any case."""
    wide = double or any(a.dtype == np.float64 for a in arrays.values())
    float_type: Any = np.float64 if wide else np.float32
    kinds: dict[str, Any] = {"float": float_type, "int": int, "bool": bool}
    given: dict[str, Any] = {v: PlainVector(a, float_type) for v, a in arrays.items()}
    given |= {n: kinds[code.scalars[n]](v) for n, v in scalars.items()}
    with np.errstate(all="ignore"):
        _bound(code.function, _names(float_type), {})(**given)


def _names(float_type: Any) -> dict[str, Any]:
    """Gives the functions of numbers and of scratch vectors, by name."""

    def total(name: str) -> Any:
        def apply(*args: float) -> Any:
            if name == "log" and len(args) == 2:
                return apply(args[0]) / apply(args[1])
            value = FUNCTIONS[name](*(float_type(a) for a in args))
            return bool(value) if name in TESTS else float_type(value)

        return apply

    def rounded(function: Any) -> Any:
        def apply(x: float) -> Any:
            return function(x) if math.isfinite(x) else NoInteger(x)

        return apply

    def vector(dtype: Any) -> Any:
        def made(*shape: int) -> PlainVector:
            return PlainVector(np.zeros(shape, dtype), float_type)

        return made

    whole = {n: rounded(f) for n, f in (("int", int), ("trunc", int), ("round", round), ("floor", math.floor), ("ceil", math.ceil))}
    dtypes: dict[str, Any] = {"floats": float_type, "ints": np.int64, "bools": np.bool_}
    scratch = {n: vector(d) for n, d in dtypes.items()}
    return {**{name: total(name) for name in (*FLOATS, *TESTS)}, **scratch, **whole, "float": float_type}


def _bound(function: Any, own: Mapping[str, Any], known: dict[Any, Any]) -> Any:
    """Gives the function with total functions of numbers, also in the helpers that it calls."""
    if function not in known:
        names = {**function.__globals__, **{n: own[n] for n in ("float", "int", "round")}}
        known[function] = FunctionType(function.__code__, names, function.__name__)
        for name, value in function.__globals__.items():
            if value is math:
                names[name] = SimpleNamespace(**{**vars(math), **own})
            elif name in own and (value is getattr(math, name, None) or name in SCRATCH):
                names[name] = own[name]
            elif isinstance(value, FunctionType) and name in function.__code__.co_names:
                names[name] = _bound(value, own, known)
    return known[function]
