"""A pool of constants: modules that are compiled from one model share what is equal in them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Generator, Hashable
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Generic, TypeVar
from weakref import WeakValueDictionary

from populus.dialects.support.guard import Guard

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

T = TypeVar("T")


class ConstantPool(Generic[T]):
    """Constants by content, and by the computation that made them. Each lives as long as a module that has it.

    `T`: the class of a constant, of which weak references can be made. Several threads may use one pool.
    """

    def __init__(self) -> None:
        self._by_content: WeakValueDictionary[bytes, T] = WeakValueDictionary()
        self._by_computation: WeakValueDictionary[Hashable, T] = WeakValueDictionary()
        self._types: dict[Hashable, object] = {}
        self._guard = Guard()

    def of(self, content: NDArray[np.uint8], make: Callable[[NDArray[np.uint8]], T]) -> T:
        """Gives the constant of this content; `make` makes one where there is none."""
        key = hashlib.sha256(content.data).digest()
        with self._guard.lock:
            found = self._by_content.get(key)
            if found is None:
                found = self._by_content[key] = make(content)
            return found

    def computed(self, computation: Hashable) -> tuple[T, Any] | None:
        """Gives the constant that this computation made, and its type; None if it was not run, or its constant is gone."""
        with self._guard.lock:
            found = self._by_computation.get(computation)
            return None if found is None else (found, self._types[computation])

    def note(self, computation: Hashable, constant: T, type: object) -> None:
        """Records what a computation made. `computation` names the function and its operands."""
        with self._guard.lock:
            self._by_computation[computation], self._types[computation] = constant, type


_current: ContextVar[ConstantPool[Any] | None] = ContextVar("pool", default=None)


def current_pool() -> ConstantPool[Any] | None:
    """Gives the pool of this context; None if modules are compiled alone."""
    return _current.get()


@contextmanager
def sharing(pool: ConstantPool[Any] | None) -> Generator[None, None, None]:
    """Makes constants that are stored inside come from `pool`."""
    token = _current.set(pool)
    try:
        yield
    finally:
        _current.reset(token)
