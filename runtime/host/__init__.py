"""The host functions that `host.call` and `poplar.host_call` name, in NumPy and Python.

A function takes its parameters as Python values and its inputs as arrays, and returns its results as arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

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
    raise PopulusError(str(params["why"]))


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
    results = [current().encode(a) if a.dtype == object else a for a in function(params, inputs)]
    for i, ((shape, dtype), result) in enumerate(zip(types, results)):
        if result.shape != shape:
            raise PopulusError(
                f"{name} gives {list(result.shape)} for these values; the program was compiled for {list(shape)} (result {i})"
            )
        assert result.dtype == dtype, (name, result.dtype, dtype)
    return results[: len(types)]


def _flags(params: Params, name: str, count: int) -> list[bool]:
    """Tells for each operand if it holds handles of strings."""
    return [bool(v) for v in params.get(name, (0,) * count)]
