"""The string table of one run, which maps handles to strings."""

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
    """A table of distinct strings, numbered by handles. A run begins with the strings of the program's constants."""

    def __init__(self, table: Sequence[str]):
        self.texts = list(table)
        self.handles = {text: i for i, text in enumerate(self.texts)}

    def handle(self, text: str) -> int:
        """Gives the handle of a string, a new one if the table lacks it."""
        handle = self.handles.get(text)
        if handle is None:
            handle = self.handles[text] = len(self.texts)
            self.texts.append(text)
        return handle

    def encode(self, array: Array) -> NDArray[np.int32]:
        """Gives the handles of an array of strings, in its shape."""
        return np.array([self.handle(str(v)) for v in array.reshape(-1)], np.int32).reshape(array.shape)

    def decode(self, array: Array) -> NDArray[np.object_]:
        """Gives the strings of an array of handles, in its shape."""
        if array.size and not 0 <= int(array.min()) <= int(array.max()) < len(self.texts):
            raise PopulusError(f"{int(array.min())} to {int(array.max())} are no handles of strings; there are {len(self.texts)}")
        strings = np.empty(array.size, object)
        strings[:] = [self.texts[int(h)] for h in array.reshape(-1)]
        return strings.reshape(array.shape)


_CURRENT: ContextVar[Strings] = ContextVar("strings")


@contextmanager
def using(table: Sequence[str]) -> Generator[Strings, None, None]:
    """Enters a run whose string table begins with these strings."""
    strings = Strings(table)
    token = _CURRENT.set(strings)
    try:
        yield strings
    finally:
        _CURRENT.reset(token)


def current() -> Strings:
    """Gives the string table of the current run. Raises PopulusError outside a run with a table."""
    try:
        return _CURRENT.get()
    except LookupError:
        raise PopulusError(
            "the program handles strings, whose table only the model's function has; run the model, not its tile program"
        ) from None


def texts_of(value: Any) -> NDArray[np.object_]:
    """Converts an array of `str`, or of bytes in UTF-8, to an array of objects. Raises PopulusError for other elements."""
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
