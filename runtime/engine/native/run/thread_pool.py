"""Threads that run shares of launches. They wait in Python and enter compiled code once per run."""

from __future__ import annotations

import contextlib
import ctypes
import os
import threading
import weakref
from collections.abc import Callable
from queue import SimpleQueue
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from populus.dialects.support.diagnostics import PopulusError
from populus.dialects.support.guard import Guard
from populus.runtime.engine.native.codegen.jit import Library
from populus.runtime.engine.native.run.step_loop import STATE_WORDS, TICKET, WALK, WORKER, YIELD

VARIABLE = "POPULUS_THREADS"
MOST = 250


def threads_of(count: int | None = None) -> int:
    """Chooses a program's number of threads: `count`, else POPULUS_THREADS, else the CPUs that this process may use.

    Raises PopulusError unless it is a number from 1 to 250.
    """
    if count is not None:
        return _checked(count, f"threads = {count}")
    named = os.environ.get(VARIABLE)
    if named:
        return _checked(int(named) if named.isdecimal() else 0, f"{VARIABLE} = {named}")
    if hasattr(os, "sched_getaffinity"):
        return min(len(os.sched_getaffinity(0)), MOST)
    return min(os.cpu_count() or 1, MOST)


def _checked(n: int, setting: str) -> int:
    if not 1 <= n <= MOST:
        raise PopulusError(f"{setting}; a program runs on 1 to {MOST} threads")
    return n


class Team:
    """Team of threads that includes the caller.

    A run that finds the team busy with another thread's run goes alone; results are the same. Workers return when the
    ticket is no longer theirs, for any reason that the run ended. Memory that a chunk uses stays allocated until the
    chunk is done. The threads end when the last program that holds the team is gone.
    """

    def __init__(self, library: Library, size: int):
        self._code = library.load([WALK, WORKER])
        number, pointer = ctypes.c_int64, ctypes.c_void_p
        self._walk = ctypes.CFUNCTYPE(number, pointer, pointer, number, number)(library.address(WALK))
        self._worker = ctypes.CFUNCTYPE(None, pointer, number)(library.address(WORKER))
        memory = np.zeros(STATE_WORDS + 16, np.int64)
        skipped = -memory.ctypes.data % 128 // 8
        self._state = memory[skipped : skipped + STATE_WORDS]
        self._state[YIELD] = _yield_address()
        self._at = self._state.ctypes.data
        self._lock = threading.Lock()
        self._ticket = 0
        self.size = size
        self._wake: list[SimpleQueue[int]] = []
        weakref.finalize(self, _dismiss, self._wake).atexit = False

    def walk(self, table: int, first: int, budget: int, shared: bool) -> int:
        """Runs the walker and returns its result. `shared`: wake the other threads."""
        if not shared or self.size == 1 or not self._lock.acquire(blocking=False):
            return int(self._walk(table, None, first, budget))
        try:
            self._ticket += 1
            self._state[TICKET] = self._ticket
            for wake in self._wake or self._started():
                wake.put(self._ticket)
            return int(self._walk(table, self._at, first, budget))
        finally:
            self._state[TICKET] = 0
            self._lock.release()

    def _started(self) -> list[SimpleQueue[int]]:
        for i in range(1, self.size):
            wake = SimpleQueue[int]()
            try:
                arguments = (self._worker, self._state, self._code, wake)
                threading.Thread(target=_serve, args=arguments, name=f"populus-{i}", daemon=True).start()
            except RuntimeError:  # the system refuses more threads: the existing ones suffice
                break
            self._wake.append(wake)
        return self._wake


def _serve(worker: Callable[[int, int], None], state: NDArray[np.int64], code: object, wake: SimpleQueue[int]) -> None:
    """Runs the worker for a team until there is no more of it. It holds what the worker reads, `state` and `code`, but not the team."""
    while ticket := wake.get():
        worker(state.ctypes.data, ticket)


def _dismiss(wake: list[SimpleQueue[int]]) -> None:
    for queue in wake:
        queue.put(0)


def _yield_address() -> int:
    with contextlib.suppress(AttributeError, OSError):
        library = ctypes.windll.kernel32 if os.name == "nt" else ctypes.CDLL(None)  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType, reportUnknownVariableType]
        function = library.SwitchToThread if os.name == "nt" else library.sched_yield  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
        return ctypes.cast(function, ctypes.c_void_p).value or 0  # pyright: ignore[reportUnknownArgumentType]
    return 0


_TEAMS: WeakValueDictionary[tuple[Library, int], Team] = WeakValueDictionary()
_GUARD = Guard()


def team(library: Library, size: int) -> Team:
    """Returns the team of this size, which all programs share that live at the same time."""
    with _GUARD.lock:
        if (found := _TEAMS.get((library, size))) is None:
            found = _TEAMS[library, size] = Team(library, size)
        return found


def forget() -> None:
    """Makes teams anew when they are asked for: a child process has no threads of its parent."""
    _TEAMS.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=forget)
