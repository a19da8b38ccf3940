"""`Replicas`: one program run by several replicas in this process, each on memory of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from populus.dialects.support.diagnostics import PopulusError
from populus.runtime.gcl import InTurn

if TYPE_CHECKING:
    from populus.program import Program
    from populus.source import Arrays


class Replicas:
    """`count` replicas of a program. They run in turn, each to its next collective, and give the same bits on every run.

    Each has an arena of its own; the program's text, constants and machine code are shared. `populus.dialects.gcl` has the ops in which
    they meet. Raises PopulusError for less than one.
    """

    def __init__(self, program: Program, count: int):
        if count < 1:
            raise PopulusError(f"a program is run by at least 1 replica, not {count}")
        self.program, self.count = program, count
        self._each = [program, *(program.replica() for _ in range(count - 1))]

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
        return InTurn(self.count).run(lambda k: run(self._each[k], inputs[k]))
