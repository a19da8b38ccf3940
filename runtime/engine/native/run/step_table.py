"""Table of the steps that one native call walks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from xdsl.ir import Operation

from populus.runtime.built.steps import BUDGET, SHARED, WOKEN, WORDS, Step, Why
from populus.runtime.built.team import Team
from populus.runtime.engine.native.codegen.jit import Kernel, Library
from populus.runtime.engine.native.kernels.launch import Launch
from populus.runtime.engine.native.run.image import Block, Blocks, Image, Region, Word
from populus.runtime.engine.native.run.sharing import Sharing, simulated

Array = NDArray[Any]


class Table:
    """Steps of a walk. Python's steps are STOPs, after which the walk resumes."""

    def __init__(self, library: Library, blocks: Blocks):
        self.library = library
        self.launches: dict[int, Launch] = {}
        self.stops: dict[int, Callable[[], None]] = {}
        self.names: dict[int, str] = {}  # of launches: the steps that they belong to
        self._blocks = blocks
        self._rows: list[list[Word]] = []
        self.stopping: list[Operation] = []  # steps that Python runs
        self.turned = False
        self._ahead: list[int] = []  # ns of shared launches between a step and the next stop

    def __len__(self) -> int:
        return len(self._rows)

    # -- writing it

    def step(self, kind: int, *words: Word) -> int:
        """Adds a step and returns its number. An array stands for its place."""
        self._rows.append([int(kind), *words])
        return len(self._rows) - 1

    def place(self) -> Array:
        """Makes a word that steps read and write."""
        place = np.zeros(1, np.int64)
        self._blocks.add(Region.PLACES, place)
        return place

    def launch(self, launch: Launch, name: str) -> None:
        """Adds a launch of the step `name`."""
        number = self.step(Step.LAUNCH)
        self.launches[number], self.names[number] = launch, name

    def stop(self, run: Callable[[], None], op: Operation) -> None:
        """Adds a step that Python runs."""
        self.stops[self.step(Step.STOP)] = run
        self.stopping.append(op)

    def aim(self, step: int, position: int, to: int) -> None:
        """Sets the jump target of an existing step: the word at `position`."""
        row = self._rows[step]
        row += [0] * (position + 1 - len(row))
        row[position] = to

    def finish(self, loading: Sequence[Launch] = ()) -> None:
        """Ends the table: its image is whole then. `loading`: launches after its end, which a program's loading runs."""
        self.end = self.step(Step.STOP)
        for launch in loading:
            self.launch(launch, "loading")
        if loading:
            self.step(Step.STOP)
        self.image = Image(self._rows, self.launches, self._blocks)

    def bind(self, times: Sequence[int], scratch: Array) -> None:
        """Loads the kernels and writes all addresses.

        `times`: estimated number of runs of each step; `scratch`: the memory
        of all tasks, instead of those that grew while tasks were bound.
        """
        self._code = self.library.load([k for launch in self.launches.values() for k in launch.kernels])
        self.scratch = scratch
        self._table = self._bound()
        self._at = self._table.ctypes.data
        self.times = times
        steps: list[list[int]] = self._table[: WORDS * self.image.steps].reshape(-1, WORDS).tolist()
        ahead = 0
        for number, row in reversed(list(enumerate(steps))):
            if row[0] == Step.STOP:
                ahead = 0
            elif row[0] == Step.LAUNCH and row[3] > 1 and row[4] >= SHARED:
                ahead += row[4] * times[number]
            self._ahead.append(ahead)
        self._ahead.reverse()

    def _bound(self) -> NDArray[np.int64]:
        return self.image.bound(self._address)

    def _address(self, target: Kernel | Block) -> int:
        if not isinstance(target, Block):
            return self.library.address(target)
        return self.scratch.ctypes.data if target.region is Region.WORKSPACE else target.address

    def trade(self, pairs: Sequence[tuple[Array, Array]]) -> None:
        """Prepares a second table, in which the two memories of each pair have each other's places. `turn` exchanges the tables."""
        self._other = self._bound()
        found = self._other[self.image.at]
        moved = found.copy()
        for one, two in (*pairs, *((b, a) for a, b in pairs)):
            begin = one.ctypes.data
            moved[(found >= begin) & (found < begin + one.nbytes)] += two.ctypes.data - begin
        self._other[self.image.at] = moved

    def turn(self) -> None:
        """Exchanges the two tables of `trade`."""
        self._table, self._other, self.turned = self._other, self._table, not self.turned
        self._at = self._table.ctypes.data

    def sharing(self, threads: int) -> Sharing:
        """Simulates a run of the bound table on so many threads."""
        return simulated(self._table[: WORDS * self.image.steps].reshape(-1, WORDS), self.times, self.names, threads)

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
                while (run := self.stops.get(step)) is not None:  # one after the other, as streams stand: none is walked to alone
                    run()
                    step += 1
            elif why == Why.REFUSED:
                self.launches[step].refuse()
