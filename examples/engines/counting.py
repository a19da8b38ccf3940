"""An engine that counts: it runs a tile program by NumPy, and keeps the operations, bytes and time of each kind of step.

    populus run net.onnx --load examples/engines/counting.py --engine counting

It answers the three questions of an engine: memory is an array for each variable, compiling binds NumPy's kernels, and a launch
is a step that counts what it makes. The walk over loops, branches, calls, streams and tasks is the one of all engines.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter_ns
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from xdsl.ir import Operation, SSAValue

from populus.dialects.poplar.compute import ExecuteOp, FamilyOp
from populus.dialects.poplar.memory import ConstOp, ParamOp, StorageOp, storage_of, view_of
from populus.dialects.poplar.program import GraphOp
from populus.dialects.support.element_types import dtype_of
from populus.runtime.codelets.cost import flops
from populus.runtime.codelets.task import Run, Workspace
from populus.runtime.cycles import Vertex
from populus.runtime.engine.engine import Engine
from populus.runtime.engine.program import StepNode, Written

Array = NDArray[Any]


@dataclass
class Count:
    """The launches of a codelet in all runs, its operations of floats (two for a product and its sum),
    bytes written, and nanoseconds."""

    launches: int = 0
    operations: int = 0
    bytes: int = 0
    time: int = 0


class CountingProgram(Engine):
    """A program that counts. `counts`: by codelet, `copy` for steps that only move data; several families of a step are `a+b`."""

    name = "counting"
    ENGINE: ClassVar = "counting"

    def __init__(self, graph: GraphOp):
        super().__init__(graph)
        self.workspace = Workspace()
        self.counts: dict[str, Count] = {}
        self._memory: dict[StorageOp, Array] = {}
        self.load()

    # -- memory

    def memory(self, value: SSAValue) -> Array:
        storage = storage_of(value)
        if storage not in self._memory:
            constant = isinstance(storage, ConstOp)
            made = storage.array() if constant else np.zeros(math.prod(storage.type.shape), dtype_of(storage.type.element))
            self._memory[storage] = made.reshape(-1)
        return self._memory[storage]

    def bind(self, parameter: ParamOp, value: SSAValue) -> None:
        begin = view_of(value).offset
        self._memory[parameter] = self.memory(value)[begin : begin + math.prod(parameter.type.shape)]

    # -- compile

    def compile(self, family: FamilyOp) -> list[Run]:
        return self.by_numpy(family, self.workspace)

    # -- launch

    def launch(self, op: Operation, calls: Sequence[Run], written: Written) -> StepNode:
        families = op.families() if isinstance(op, ExecuteOp) else []
        count = self.counts.setdefault("+".join(f.codelet.data for f in families) or "copy", Count())
        operations = sum(flops(Vertex.of(f, self.graph.machine)) for f in families)
        size = sum(array.nbytes for _, array in written)

        def run() -> None:
            begun = perf_counter_ns()
            for call in calls:
                call()
            count.time += perf_counter_ns() - begun
            count.launches += 1
            count.operations += operations
            count.bytes += size

        return super().launch(op, [run], written)

    # -- report

    def report(self) -> str:
        """Lists the counts of all runs so far, the most operations first."""
        rows = sorted(self.counts.items(), key=lambda row: (-row[1].operations, row[0]))
        lines = [f"{'codelet':16} {'launches':>9} {'operations':>12} {'bytes':>12}"]
        lines += [f"{name:16} {c.launches:9} {c.operations:12} {c.bytes:12}" for name, c in rows]
        return "\n".join(lines)
