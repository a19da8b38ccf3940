"""Locks between threads that a forked child finds free, and functions whose results are made once."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Callable, Hashable
from functools import update_wrapper
from importlib import import_module
from typing import Generic, TypeVar, TypeVarTuple
from weakref import WeakSet

R = TypeVar("R")
Ts = TypeVarTuple("Ts")


class Guard:
    """A lock for what one thread may do at a time: `with guard.lock:`.

    The thread that has it may take it again. Ctrl-C reaches a main thread that waits for it. In a forked child it is free,
    unless the thread that forked has it: the other threads, who would have let it go, do not come along.
    """

    # A `with` on the lock itself, which is compiled code, cannot be interrupted between taking it and the block; a method of ours could.
    __slots__ = ("__weakref__", "lock")

    def __init__(self) -> None:
        self.lock = threading.RLock()
        _GUARDS.add(self)

    @property
    def mine(self) -> bool:
        """True if this thread holds it."""
        return self.lock._is_owned()  # pyright: ignore[reportPrivateUsage, reportAttributeAccessIssue, reportUnknownMemberType, reportUnknownVariableType]


_GUARDS: WeakSet[Guard] = WeakSet()


def _free() -> None:
    """Frees, in a forked child, what threads have that are not there."""
    for guard in _GUARDS:
        if not guard.mine:
            guard.lock = threading.RLock()


def _wait_for_imports() -> None:
    """Waits, before a fork, until no other thread imports a module of this package.

    Python locks a module while a thread imports it. A child has no such thread, so it would wait for that lock for ever.
    """
    for name, module in list(sys.modules.items()):
        spec = getattr(module, "__spec__", None)
        if name.startswith(f"{_PACKAGE}.") and getattr(spec, "_initializing", False):
            with contextlib.suppress(Exception):  # the importing thread reports a failure
                import_module(name)  # returns once the other thread has finished


_PACKAGE = __name__.partition(".")[0]


def install() -> None:
    """Registers the hooks of a fork: it waits for imports by other threads, and frees their locks in the child."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=_wait_for_imports, after_in_child=_free)


class Once(Generic[*Ts, R]):
    """A cached function, as `once` returns it."""

    def __init__(self, make: Callable[[*Ts], R]):
        self._make = make
        self._made: dict[tuple[Hashable, ...], R] = {}
        self._guard = Guard()
        update_wrapper(self, make)

    def __call__(self, *arguments: *Ts) -> R:
        if arguments in self._made:
            return self._made[arguments]
        with self._guard.lock:
            if arguments not in self._made:
                self._made[arguments] = self._make(*arguments)
            return self._made[arguments]

    def cache_clear(self) -> None:
        """Makes all of it anew when it is asked for."""
        self._made.clear()


def once(make: Callable[[*Ts], R]) -> Once[*Ts, R]:
    """Keeps results as `functools.cache` does, but makes each result once even if two threads ask at the same time."""
    return Once(make)
