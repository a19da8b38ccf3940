"""`Replicas`: one program run by several replicas, each on memory of its own, in this process or in those of `mpiexec`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from populus.dialects.support.diagnostics import PopulusError
from populus.runtime.gcl import Group, communicator
from populus.runtime.ranks import MpiWire, World, world
from populus.runtime.turns import InTurn

if TYPE_CHECKING:
    from populus.program.program import Program
    from populus.program.source import Arrays

Result = TypeVar("Result")


@dataclass(frozen=True)
class Place:
    """Where replicas run: `count` of them in all, of which this process has those of `here`."""

    count: int
    here: range
    world: World

    @staticmethod
    def of(count: int) -> Place:
        """Assigns replicas to the ranks of `mpiexec`, in equal numbers, or all to this process if there are no ranks.

        Raises PopulusError for less than one, and for a number that is not a multiple of the ranks.
        """
        if count < 1:
            raise PopulusError(f"a program is run by at least 1 replica, not {count}")
        ranks = world()
        if count % ranks.size:
            raise PopulusError(f"{count} replicas cannot be dealt to {ranks.size} ranks in equal numbers")
        mine = count // ranks.size
        return Place(count, range(ranks.rank * mine, (ranks.rank + 1) * mine), ranks)

    @staticmethod
    def alone() -> Place:
        """Gives each process a replica of its own, which meets no other."""
        return Place(1, range(1), World(0, 1))

    @property
    def first(self) -> bool:
        """True in the process that writes files and reports."""
        return self.world.rank == 0

    def run(self, function: Callable[[int], Result]) -> list[Result]:
        """Gives what a function gives for the number of each replica here. Raises the error of the first that has one."""
        wire = MpiWire.of(len(self.here)) if self.world.size > 1 else None
        return InTurn(self.count, self.here.start, len(self.here), wire).run(function)

    def everywhere(self, each: Sequence[Arrays]) -> list[Arrays]:
        """Gives the arrays of all replicas, from those of the replicas here, which have the same names, shapes and types on each."""
        if self.world.size == 1:
            return list(each)
        all = Group(1, self.count)

        def gathered(k: int) -> list[Arrays]:
            way, mine = communicator(), each[k - self.here.start]
            parts = {name: way.gather(all, array, f"output '{name}'") for name, array in mine.items()}
            return [{name: parts[name][k] for name in mine} for k in range(self.count)]

        return self.run(gathered)[0]

    def check_same(self, what: str, text: str) -> None:
        """Raises PopulusError on all ranks, naming the first whose text is not rank 0's."""
        if other := self.world.same(text):
            raise PopulusError(f"rank {other[0]} has {what} than rank 0; all ranks run one program on the same data")


class Replicas:
    """`count` replicas of a program. Each runs to its next collective, and they give the same bits on every run.

    Each has an arena of its own; the program's text, constants and machine code are shared. `populus.dialects.gcl` has the ops in which
    they meet. Under `mpiexec`, each rank has an equal number of several, and runs one by itself. Raises PopulusError for less than one,
    and for a number that is not a multiple of the ranks.
    """

    def __init__(self, program: Program, count: int):
        self.place = Place.alone() if count == 1 else Place.of(count)
        self.program, self.count = program, count
        self.programs = [program, *(program.replica() for _ in self.place.here[1:])]
        """The programs of this process's replicas."""

    def run(self, inputs: Sequence[Mapping[str, Any]]) -> list[Arrays]:
        """Gives each replica's outputs, from each replica's inputs. Raises PopulusError as `Program.run`, and if replicas do not meet."""
        return self._run(inputs, lambda program, given: program.run(given))

    def run_at(self, level: str, inputs: Sequence[Mapping[str, Any]]) -> list[Arrays]:
        """Computes the outputs at another level, as `Program.run_at`."""
        return self._run(inputs, lambda program, given: program.run_at(level, given))

    def _run(self, inputs: Sequence[Mapping[str, Any]], run: Callable[[Program, Mapping[str, Any]], Arrays]) -> list[Arrays]:
        if len(inputs) != self.count:
            raise PopulusError(f"there are {self.count} replicas, and inputs for {len(inputs)}")
        if self.count == 1:
            return [run(self.program, inputs[0])]
        start = self.place.here.start
        return self.place.everywhere(self.place.run(lambda k: run(self.programs[k - start], inputs[k])))
