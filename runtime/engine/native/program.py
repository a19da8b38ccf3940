"""A program whose families run as machine code where there is a kernel for them, and on NumPy where not."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from xdsl.ir import Block, Operation

from populus.dialects.diagnostics import PopulusError
from populus.dialects.poplar.compute import CopyOp, FamilyOp
from populus.dialects.poplar.memory import ConstOp, storage_of
from populus.dialects.poplar.program import GraphOp
from populus.runtime.codelets.task import Run, Task
from populus.runtime.engine.binding import collapsed, params_of, piece_of
from populus.runtime.engine.native.copies import copy
from populus.runtime.engine.native.jit import library
from populus.runtime.engine.native.kernels import NATIVE
from populus.runtime.engine.native.launch import Batch, Launch
from populus.runtime.engine.numpy import NumpyProgram
from populus.runtime.engine.program import BlockNode, Node, StepNode, located


class NativeProgram(NumpyProgram):
    """A graph whose steps between two of the host's are one native call.

    `fallbacks`: how many families of each codelet run on the NumPy kernel, for want of a native one for their types or form.
    `cpu`: as `machine.machine` takes it. Raises PopulusError if llvmlite is not installed.
    """

    def __init__(self, graph: GraphOp, cpu: str | None = None):
        try:
            self.library = library(cpu)
        except ImportError:
            raise PopulusError("the native engine needs llvmlite, which is not installed; install xdsl[llvm], or use numpy") from None
        super().__init__(graph)

    def family(self, family: FamilyOp) -> list[Run]:
        launches = self.launches(family)
        if launches is not None:
            return list[Run](launches)
        codelet = family.codelet.data
        self.fallbacks[codelet] = self.fallbacks.get(codelet, 0) + 1
        return super().family(family)

    def launches(self, family: FamilyOp) -> list[Launch] | None:
        """The native kernel, bound to each box; None if there is none for the family."""
        native = NATIVE.get(family.codelet.data)
        if native is None:
            return None
        params = params_of(family.params)
        fields = [(field, self.array(value), isinstance(storage_of(value), ConstOp)) for field, value in family.connections()]
        launches: list[Launch] = []
        for box in collapsed(family).boxes():
            pieces = {field.name: piece_of(family, field, array, box, constant) for field, array, constant in fields}
            found = native(self.library, Task(params, box, pieces, self.workspace))
            if found is None:
                return None
            launches += found
        return launches

    def copy(self, op: CopyOp) -> StepNode:
        source, target = self.array(op.src), self.array(op.dst)
        launches = copy(self.library, source, target)
        return super().copy(op) if launches is None else StepNode(op, launches, [(op.dst, target)])

    def _block(self, block: Block) -> BlockNode:
        return NativeBlock([node for op in block.ops for node in self._nodes(op)])


class NativeBlock(BlockNode):
    """Nodes in order, launches that follow one another as one call."""

    def __init__(self, nodes: Sequence[Node]):
        super().__init__(nodes)
        self._merged = _merged(super().calls())
        self._runs = tuple(run for run, _ in self._merged)
        self._ops = tuple(op for _, op in self._merged)

    def calls(self) -> Sequence[tuple[Run, Operation | None]]:
        return self._merged


def _merged(calls: Sequence[tuple[Run, Operation | None]]) -> list[tuple[Run, Operation | None]]:
    merged: list[tuple[Run, Operation | None]] = []
    launches: list[Launch] = []

    def flush() -> None:
        if launches:
            merged.append((Batch(launches[0].library, launches), None))
            launches.clear()

    for run, op in calls:
        if isinstance(run, Batch):
            launches += run.launches
        elif isinstance(run, Launch):
            if run.refused is not None and op is not None:
                run.refused = _placed(run.refused, op)
            launches.append(run)
        else:
            flush()
            merged.append((run, op))
    flush()
    return merged


def _placed(run: Callable[[], object], op: Operation) -> Callable[[], None]:
    """A call whose PopulusError names the step."""

    def placed() -> None:
        with located(op):
            run()

    return placed
