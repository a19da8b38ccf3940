"""Threads that run shares of launches. They wait in Python and enter compiled code once per run."""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import os
import threading
import weakref
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

import numpy as np

from populus.dialects.support.guard import Guard
from populus.runtime.built.steps import STATE_WORDS, THREADS, TICKET, YIELD

if TYPE_CHECKING:
    from queue import SimpleQueue  # a program that wakes no threads imports neither it nor what it imports

    from numpy.typing import NDArray


class Team:
    """Team of threads that includes the caller.

    A run that finds the team busy with another thread's run goes alone; results are the same. Workers return when the
    ticket is no longer theirs, for any reason that the run ended. Memory that a chunk uses stays allocated until the
    chunk is done. The threads end when the last program that holds the team is gone. `walk`, `worker`: addresses in `code`, which is kept.
    """

    def __init__(self, walk: int, worker: int, code: object, size: int):
        self._code = code
        number, pointer = ctypes.c_int64, ctypes.c_void_p
        self._walk = ctypes.CFUNCTYPE(number, pointer, pointer, number, number)(walk)
        self._worker = ctypes.CFUNCTYPE(None, pointer, number)(worker)
        memory = np.zeros(STATE_WORDS + 16, np.int64)
        skipped = -memory.ctypes.data % 128 // 8
        self._state = memory[skipped : skipped + STATE_WORDS]
        self._state[YIELD], self._state[THREADS] = _yield_address(), size
        self._at = self._state.ctypes.data
        self._lock = threading.Lock()
        self._ticket = 0
        self.size = size
        self._wake: list[SimpleQueue[int]] = []
        self._threads: list[threading.Thread] = []

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
        from queue import SimpleQueue

        for i in range(1, self.size):
            wake: SimpleQueue[int] = SimpleQueue()
            try:
                arguments = (self._worker, self._state, self._code, wake)
                thread = threading.Thread(target=_serve, args=arguments, name=f"populus-{i}", daemon=True)
                thread.start()
            except RuntimeError:  # the system refuses more threads: the existing ones suffice
                break
            self._wake.append(wake)
            self._threads.append(thread)
        if self._wake:
            weakref.finalize(self, _dismiss, self._wake).atexit = False
        return self._wake

    def end(self) -> None:
        """Ends the threads, and waits until they have left compiled code."""
        _dismiss(self._wake)
        for thread in self._threads:
            thread.join(PATIENCE)


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


PATIENCE = 1.0  # seconds that a process waits for a thread when it ends: another thread's run may keep it

_TEAMS: WeakValueDictionary[Hashable, Team] = WeakValueDictionary()
_GUARD = Guard()


def shared_team(key: Hashable, make: Callable[[], Team]) -> Team:
    """Returns the team of this key, which all programs share that live at the same time."""
    with _GUARD.lock:
        if (found := _TEAMS.get(key)) is None:
            found = _TEAMS[key] = make()
        return found


def end_all() -> None:
    """Ends all teams. A thread that comes back from compiled code while Python ends is unwound by the system, beside what ends with it."""
    for team in list(_TEAMS.values()):
        team.end()


atexit.register(end_all)


def forget() -> None:
    """Makes teams anew when they are asked for: a child process has no threads of its parent."""
    _TEAMS.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=forget)
