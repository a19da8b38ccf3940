"""The native program that follows the numpy engine's: a thread compiles it after some runs, and it runs from a fixed run on."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING
from weakref import WeakSet, ref

from populus.dialects.support.guard import once
from populus.runtime.engine.native import NoMachineCodeError

if TYPE_CHECKING:
    from populus.runtime.engine.program import LoadedProgram

AHEAD = 10  # the thread begins in the tenth part of the runs: programs that run a few times start none


class _GivenUp(Exception):
    """Nobody waits for the program any more."""


@dataclass
class _Made:
    """The result of the thread."""

    program: LoadedProgram | None = None
    error: BaseException | None = None


class Successor:
    """Follows a program, after this number of `runs`, by another, which `make` gives.

    A number of runs decides, and not the end of compiling, so that results depend on no clock. `after(program)` counts a run and gives
    the program for it; only one thread may call it at a time. A fork waits until the thread has ended, and the process for one kernel.
    """

    def __init__(self, runs: int, make: Callable[[], LoadedProgram]):
        self._make = make
        self._left = runs
        self._begin_at = runs - runs // AHEAD
        self._thread: threading.Thread | None = None
        self._made = _Made()

    def after(self, program: LoadedProgram) -> LoadedProgram:
        """Gives the program that runs next: `program` for the stated runs, then the other, which it waits for.

        Where there is no machine code for this CPU, or no thread, it stays with `program`. Raises what `make` raised otherwise.
        """
        if self._left == self._begin_at:
            self._begin()
        self._left -= 1
        if self._left >= 0 or self._thread is None:
            return program
        self._thread.join()
        self._thread = None
        if self._made.error is not None and not isinstance(self._made.error, NoMachineCodeError):
            raise self._made.error
        return self._made.program or program

    def _begin(self) -> None:
        _wait_at_forks()
        owner, make, made = ref(self), self._make, self._made
        thread = threading.Thread(target=lambda: _work(lambda: owner() is not None, make, made), name="populus-compiles")
        _RUNNING.add(thread)
        try:
            thread.start()
        except RuntimeError:  # the system refuses more threads
            return
        self._thread = thread


_RUNNING: WeakSet[threading.Thread] = WeakSet()


def _work(wanted: Callable[[], bool], make: Callable[[], LoadedProgram], made: _Made) -> None:
    """Makes the program, unless its owner or the process ends first."""
    from populus.runtime.engine.native.codegen.jit import BEFORE

    def check() -> None:
        if not wanted() or not threading.main_thread().is_alive():
            raise _GivenUp

    BEFORE.set(check)  # of this thread's context
    try:
        check()
        made.program = make()
    except _GivenUp:
        pass
    except BaseException as error:  # for the thread that runs the program
        made.error = error


@once
def _wait_at_forks() -> None:
    """Makes a fork wait for these threads: a child would have locks that they hold, such as of a module that they import."""
    # The hook of the compiler's lock comes first: hooks run in reverse, and a thread that needs the lock could not end.
    from populus.runtime.engine.native.codegen import jit

    assert jit.BEFORE is not None
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=_wait)


def _wait() -> None:
    for thread in list(_RUNNING):
        if thread is not threading.current_thread() and thread.is_alive():
            thread.join()
