"""The table of strings of one run: what a handle stands for."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np
from numpy.typing import NDArray

from populus.dialects.support.diagnostics import PopulusError

Array = NDArray[Any]


class Strings:
    """Strings by number, each once. A run begins with those of the program's constants."""

    def __init__(self, table: Sequence[str]):
        self.texts = list(table)
        self.handles = {text: i for i, text in enumerate(self.texts)}

    def handle(self, text: str) -> int:
        found = self.handles.get(text)
        if found is None:
            found = self.handles[text] = len(self.texts)
            self.texts.append(text)
        return found

    def encode(self, array: Array) -> NDArray[np.int32]:
        """The handles of an array of strings."""
        return np.array([self.handle(str(v)) for v in array.reshape(-1)], np.int32).reshape(array.shape)

    def decode(self, array: Array) -> NDArray[np.object_]:
        """The strings of an array of handles."""
        found = np.empty(array.size, object)
        found[:] = [self.texts[int(h)] for h in array.reshape(-1)]
        return found.reshape(array.shape)


_CURRENT: ContextVar[Strings] = ContextVar("strings")


@contextmanager
def using(table: Sequence[str]) -> Generator[Strings, None, None]:
    """A run whose strings begin with these."""
    strings = Strings(table)
    token = _CURRENT.set(strings)
    try:
        yield strings
    finally:
        _CURRENT.reset(token)


def current() -> Strings:
    """The strings of the present run. Raises PopulusError for a program that came without its table."""
    try:
        return _CURRENT.get()
    except LookupError:
        raise PopulusError(
            "the program handles strings, whose table only the model's function has; run the model, not its tile program"
        ) from None


def texts_of(value: Any) -> NDArray[np.object_]:
    """An array of strings as objects: of `str`, or of bytes as UTF-8. Raises PopulusError for anything else."""
    array = np.asarray(value)
    if array.dtype.kind == "S" or (array.dtype == object and any(isinstance(v, bytes) for v in array.reshape(-1))):
        array = np.array([v.decode() if isinstance(v, bytes) else v for v in array.reshape(-1)], object).reshape(array.shape)
    elif array.dtype.kind in "UT" or (array.size == 0 and array.dtype == np.float64):
        array = array.astype(object)
    if array.dtype != object:
        raise PopulusError(f"is {array.dtype}, expected strings")
    for v in array.reshape(-1):
        if not isinstance(v, str):
            raise PopulusError(f"has an element of {type(v).__name__}, expected strings")
    return array
