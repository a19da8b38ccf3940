"""What `host.call` and `poplar.host_call` can call, by name: NumPy and Python, written here.

A function takes its parameters as Python values, the shapes and dtypes that its results have to have, and the content of its
inputs; it gives that of its results.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from populus.dialects.support.diagnostics import PopulusError, did_you_mean
from populus.runtime.host import images, text
from populus.runtime.host.strings import current

Array: TypeAlias = NDArray[Any]
Params: TypeAlias = Mapping[str, Any]

Function: TypeAlias = Callable[[Params, list[Array]], list[Array]]

# Strings are arrays of objects in these; `call` turns handles into them and back.
FUNCTIONS: Mapping[str, Function] = {
    "image.decode": images.decode,
    "text.concat": text.concat,
    "text.from_numbers": text.from_numbers,
    "text.match": text.match,
    "text.normalize": text.normalize,
    "text.split": text.split,
    "text.to_numbers": text.to_numbers,
    "text.tokenize": text.tokenize,
}


def function_named(name: str) -> Function:
    """The host function of this name. Raises PopulusError if there is none."""
    if name not in FUNCTIONS:
        raise PopulusError(f"no host function '{name}'{did_you_mean(name, FUNCTIONS)}")
    return FUNCTIONS[name]


def call(name: str, params: Params, types: Sequence[tuple[tuple[int, ...], np.dtype[Any]]], arrays: Sequence[Array]) -> list[Array]:
    """The results of a host function, which have these shapes and dtypes. Strings go in and come out as handles.

    Raises PopulusError if the values that it is given lead to other shapes than the program was compiled for.
    """
    function = function_named(name)
    given = [current().decode(a) if text else a for text, a in zip(_flags(params, "texts_in", len(arrays)), arrays)]
    found = function(params, given)
    results = [current().encode(a) if a.dtype == object else a for a in found]
    for i, ((shape, dtype), result) in enumerate(zip(types, results)):
        if result.shape != shape:
            raise PopulusError(
                f"{name} gives {list(result.shape)} for these values; the program was compiled for {list(shape)} (result {i})"
            )
        assert result.dtype == dtype, (name, result.dtype, dtype)
    return results[: len(types)]


def _flags(params: Params, name: str, count: int) -> list[bool]:
    """Which of the operands are handles."""
    return [bool(v) for v in params.get(name, (0,) * count)]
