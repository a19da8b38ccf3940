"""Table of the steps that one native call walks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from populus.runtime.engine.native.codegen.jit import Library
from populus.runtime.engine.native.kernels.launch import Launch
from populus.runtime.engine.native.run.step_loop import WORDS, Step, Why
from populus.runtime.engine.native.run.thread_pool import Team

Array = NDArray[Any]

SHARED = 6_000  # ns of work from which a launch is shared: threads synchronise in some hundreds of ns
PART, PARTS = 4_000, 4  # minimum ns of a chunk if a thread has more than one; maximum chunks per thread
WOKEN = 60_000  # ns of shared launches from which threads are woken
BUDGET = 50_000_000  # ns of launches after which a walk checks for interrupts


class Table:
    """Steps of a walk. Python's steps are STOPs, after which the walk resumes."""

    def __init__(self, library: Library):
        self.library = library
        self.launches: dict[int, Launch] = {}
        self.stops: dict[int, Callable[[], None]] = {}
        self._rows: list[list[int]] = []
        self._places: list[Array] = []  # arrays that steps read and write, referenced so that they stay alive
        self._ahead: list[int] = []  # ns of shared launches between a step and the next stop

    def __len__(self) -> int:
        return len(self._rows)

    # -- writing it

    def step(self, kind: Step, *words: int | Array) -> int:
        """Adds a step and returns its number. An array stands for its address."""
        row = [int(kind)]
        for word in words:
            if isinstance(word, np.ndarray):
                self._places.append(word)
                row.append(word.ctypes.data)
            else:
                row.append(word)
        self._rows.append(row + [0] * (WORDS - len(row)))
        return len(self._rows) - 1

    def launch(self, launch: Launch) -> None:
        """Adds a launch."""
        self.launches[self.step(Step.LAUNCH)] = launch

    def stop(self, run: Callable[[], None]) -> None:
        """Adds a step that Python runs."""
        self.stops[self.step(Step.STOP)] = run

    def aim(self, step: int, position: int, to: int) -> None:
        """Sets the jump target of an existing step: the word at `position`."""
        self._rows[step][position] = to

    def finish(self, threads: int, times: Sequence[int] | None = None) -> None:
        """Loads the kernels and writes all addresses.

        `threads`: number of threads that may share launches; `times`: estimated number of runs of each step.
        """
        launches = self.launches.values()
        self.library.load([k for launch in launches for k in launch.kernels])
        self.end = self.step(Step.STOP)
        for number, launch in self.launches.items():
            launch.bind()
            chunks = min(launch.units, PARTS * threads, max(threads, launch.work // PART)) if launch.work >= SHARED else 1
            words = [self.library.address(launch.kernel), launch.words.ctypes.data, launch.units, max(launch.work, 50), chunks]
            self._rows[number][1 : 1 + len(words)] = words
        ahead = 0
        for number in reversed(range(len(self._rows))):
            row = self._rows[number]
            if row[0] == Step.STOP:
                ahead = 0
            elif row[0] == Step.LAUNCH and row[5] > 1:
                ahead += row[4] * (times[number] if times else 1)
            self._ahead.append(ahead)
        self._ahead.reverse()
        self._table = np.array(self._rows, np.int64)
        self._at = self._table.ctypes.data

    # -- walking it

    def run(self, workers: Team) -> None:
        """Walks from the first step to the end. Raises the errors of Python's steps and of refused launches."""
        step = 0
        while True:
            came = workers.walk(self._at, step, BUDGET, self._ahead[step] >= WOKEN)
            step, why = came >> 2, came & 3
            if why == Why.STOPPED:
                if step == self.end:
                    return
                self.stops[step]()
                step += 1
            elif why == Why.REFUSED:
                self.launches[step].refuse()
