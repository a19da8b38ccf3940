"""The seam of engines: memory, compile, launch. Whoever answers these three runs tile programs; the rest follows from them.

| answer | question | by default |
|---|---|---|
| `memory(value)` | the elements of a variable, constant or argument, row-major, which one array has | no default |
| `bind(parameter, value)` | from now on a function's parameter is this memory | no default |
| `compile(family)` | the calls that compute a family, bound to its memory | no default |
| `launch(op, calls, written)` | a step of the program that makes these calls | a step that makes them in order |
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from xdsl.ir import Operation, SSAValue

from populus.dialects.poplar.compute import CopyOp, ExecuteOp, FamilyOp
from populus.dialects.poplar.memory import view_of
from populus.runtime.codelets import IMPLEMENTATIONS
from populus.runtime.codelets.task import Run, Task, Workspace
from populus.runtime.engine.codelet_vertices import named
from populus.runtime.engine.program import LoadedProgram, StepNode, Written
from populus.runtime.views import collapsed, params_of, piece_of, view_array

Array = NDArray[Any]


class Engine(LoadedProgram):
    """A graph on an engine whose memory is arrays. A file that is loaded may define one: its `ENGINE` is the name that users give.

    The constructor then takes the graph alone, allocates memory, and ends with `load()`.
    """

    ENGINE: ClassVar[str] = ""

    @abstractmethod
    def memory(self, value: SSAValue) -> Array:
        """Gives the memory of a view's variable, constant or argument: [elements], row-major."""

    @abstractmethod
    def compile(self, family: FamilyOp) -> list[Run]:
        """Gives the calls that compute a family, in order."""

    def launch(self, op: Operation, calls: Sequence[Run], written: Written) -> StepNode:
        """Makes a step of calls. `written`: the views that they write, with their arrays."""
        return StepNode(op, calls, written)

    def is_constant(self, value: SSAValue) -> bool:
        """Tells if the elements of a view never change, so that kernels may pack them."""
        return False

    # -- what follows

    def array(self, value: SSAValue) -> Array:
        return view_array(self.memory(value), view_of(value))

    def execute(self, op: ExecuteOp) -> StepNode:
        # In program order: a family may read results of an earlier family of the execute.
        calls = [call for family in op.families() for call in self.compile(family)]
        return self.launch(op, calls, [(v, self.array(v)) for family in op.families() for _, v in family.written()])

    def copy(self, op: CopyOp) -> StepNode:
        source, target = self.array(op.src), self.array(op.dst)
        return self.launch(op, [lambda: np.copyto(target, source)], [(op.dst, target)])

    def read(self, op: Operation, value: SSAValue) -> Callable[[], Array]:
        array = self.array(value)
        return lambda: array

    def write(self, op: Operation, value: SSAValue) -> Callable[[Array], None]:
        array = self.array(value)
        return lambda source: np.copyto(array, source.reshape(array.shape))

    def by_numpy(self, family: FamilyOp, workspace: Workspace) -> list[Run]:
        """Binds NumPy's kernel to a family whole: a call for each part of its contracted axes."""
        kernel, params = IMPLEMENTATIONS[family.codelet.data].kernel, params_of(family.params)
        fields = [(field, self.array(value), self.is_constant(value)) for field, value in family.connections()]
        runs: list[Run] = []
        for box in collapsed(family).boxes():
            pieces = {field.name: piece_of(family, field, array, box, constant) for field, array, constant in fields}
            runs.append(named(family, box, kernel(Task(params, box, pieces, workspace))))
        return runs
