"""The teams of threads of a process, and their sizes."""

from __future__ import annotations

import os

from populus.dialects.support.diagnostics import PopulusError
from populus.runtime.built.team import Team, shared_team
from populus.runtime.engine.native.codegen.jit import Library
from populus.runtime.engine.native.run.step_loop import WALK, WORKER

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


def team(library: Library, size: int) -> Team:
    """Returns the team of this size, which all programs of a library share that live at the same time."""

    def made() -> Team:
        code = library.load([WALK, WORKER])
        return Team(library.address(WALK), library.address(WORKER), code, size)

    return shared_team((library, size), made)
