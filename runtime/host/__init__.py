"""The host functions that `host.call` and `poplar.host_call` name, in NumPy and Python.

A function takes its parameters as Python values and its inputs as arrays, and returns its results as arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from populus.dialects.host import REFUSE
from populus.dialects.support.diagnostics import PopulusError, did_you_mean
from populus.runtime.host import images, text
from populus.runtime.host.strings import current

Array: TypeAlias = NDArray[Any]
Params: TypeAlias = Mapping[str, Any]

Function: TypeAlias = Callable[[Params, list[Array]], list[Array]]


def refuse(params: Params, inputs: list[Array]) -> list[Array]:
    """Ends the run: a branch is taken that was not compiled. Raises PopulusError with the reason, always."""
    raise PopulusError(str(params.get("why", "a branch is taken that was not compiled")))


# These functions take strings as arrays of objects; `call` converts from handles and back.
FUNCTIONS: Mapping[str, Function] = {
    "image.decode": images.decode,
    REFUSE: refuse,
    "text.concat": text.concat,
    "text.from_numbers": text.from_numbers,
    "text.match": text.match,
    "text.normalize": text.normalize,
    "text.split": text.split,
    "text.to_numbers": text.to_numbers,
    "text.tokenize": text.tokenize,
}


@dataclass(frozen=True)
class Form:
    """The form of a call: its operands, all of them strings or none; the types of the parameters that it reads; those that it needs."""

    operands: int
    texts: bool
    params: Mapping[str, type] = field(default_factory=dict[str, type])
    needed: tuple[str, ...] = ()

    def check(self, name: str, params: Params, arrays: Sequence[Array]) -> None:
        """Raises PopulusError for another call."""
        if len(arrays) != self.operands:
            raise PopulusError(f"{name} is called with {len(arrays)} operands, expected {self.operands}")
        if any((a.dtype == object) != self.texts for a in arrays):
            said = "numbers, expected strings (texts_in)" if self.texts else "strings, expected numbers"
            raise PopulusError(f"{name} is called with {said}")
        if missing := [n for n in self.needed if n not in params]:
            raise PopulusError(f"{name} has no parameter '{missing[0]}', which it needs")
        for n, kind in self.params.items():
            if n in params and not _is(params[n], kind):
                words = {str: "a text", int: "a whole number", list: "a list of texts"}
                raise PopulusError(f"{name}: {n} is {params[n]!r}, expected {words[kind]}")


def _is(value: Any, kind: type) -> bool:
    if kind is list:
        return not isinstance(value, str) and isinstance(value, Sequence) and all(isinstance(v, str) for v in cast("Sequence[Any]", value))
    return isinstance(value, kind)


FORMS: Mapping[str, Form] = {
    "image.decode": Form(1, False, {"pixel_format": str}),
    "text.concat": Form(2, True),
    "text.from_numbers": Form(1, False),
    "text.match": Form(1, True, {"pattern": str}, ("pattern",)),
    "text.normalize": Form(1, True, {"case_change_action": str, "is_case_sensitive": int, "stopwords": list}),
    "text.split": Form(1, True, {"delimiter": str, "maxsplit": int}),
    "text.to_numbers": Form(1, True, {"dtype": str}, ("dtype",)),
    "text.tokenize": Form(1, True, {"mincharnum": int, "tokenexp": str, "separators": list, "mark": int, "pad_value": str}, ("pad_value",)),
}


def function_named(name: str) -> Function:
    """Gives the host function of this name. Raises PopulusError if there is none."""
    if name not in FUNCTIONS:
        raise PopulusError(f"no host function '{name}'{did_you_mean(name, FUNCTIONS)}")
    return FUNCTIONS[name]


def call(name: str, params: Params, types: Sequence[tuple[tuple[int, ...], np.dtype[Any]]], arrays: Sequence[Array]) -> list[Array]:
    """Calls a host function, whose results have the shapes and dtypes of `types`. Strings are passed and returned as
    handles.

    Raises PopulusError if the input values lead to other shapes than the program was compiled for.
    """
    function = function_named(name)
    inputs = [current().decode(a) if text else a for text, a in zip(_flags(params, "texts_in", len(arrays)), arrays)]
    if name in FORMS:
        FORMS[name].check(name, params, inputs)
    results = [current().encode(a) if a.dtype == object else a for a in function(params, inputs)]
    if len(results) < len(types):
        raise PopulusError(f"{name} gives {len(results)} results, the program says {len(types)}")
    for i, ((shape, dtype), result) in enumerate(zip(types, results)):
        if result.shape != shape:
            raise PopulusError(
                f"{name} gives {list(result.shape)} for these values; the program was compiled for {list(shape)} (result {i})"
            )
        if result.dtype != dtype:
            raise PopulusError(f"{name} gives {result.dtype}, the program says {dtype} (result {i})")
    return results[: len(types)]


def _flags(params: Params, name: str, count: int) -> list[bool]:
    """Tells for each operand if it holds handles of strings."""
    return [bool(v) for v in params.get(name, (0,) * count)]
