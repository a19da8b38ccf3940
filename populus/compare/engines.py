"""Runs a program's tiles on the native engine and on numpy, and finds the first step whose result differs.

The native engine fuses steps, and runs all of them in one call. So its outputs are compared first, of such a run. Then it runs step
by step, as fused. NumPy follows: each of its steps reads what the native engine has computed, so rounding does not add up.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from xdsl.ir import Operation, SSAValue

from populus.compare.levels import Comparison, rounding
from populus.dialects.poplar.compute import CopyOp, ExecuteOp
from populus.dialects.poplar.memory import storage_of
from populus.dialects.poplar.outside import OutsideOp
from populus.dialects.poplar.program import GraphOp, StreamInOp, StreamOutOp
from populus.program.open_program import OpenProgram
from populus.runtime.differences import RTOL, largest_difference
from populus.runtime.engine.native import NoMachineCodeError
from populus.runtime.engine.numpy import NumpyProgram
from populus.runtime.engine.program import Observer, StepNode, Written, located
from populus.runtime.tasks import with_tasks
from populus.runtime.traces import TIMES, place

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from populus.program.program import Program

    Array: TypeAlias = NDArray[Any]

Steps: TypeAlias = "dict[tuple[Operation, int], dict[SSAValue, Array]]"
"""Values that a step has written, by the number of its earlier runs."""


def compare_engines(program: Program, inputs: Mapping[str, Array], rtol: float = RTOL) -> Comparison:
    """Compares the native engine with numpy, on the tile program of these inputs.

    `rtol`: tolerance relative to a value's largest element. Without a compiler the comparison is skipped, with the reason. Raises
    PopulusError for inputs that do not match the model.
    """
    if isinstance(program, OpenProgram):
        program = program.sized_for(inputs)
    checked = program.signature.checked(inputs)
    padding = program.signature.padding
    with program.signature.handled(checked) as (_, handled):
        arrays = handled if padding is None else padding.padded(handled, padding.sizes(checked))
        try:
            return Engines(program.session.graph).compare(arrays, rtol)
        except NoMachineCodeError as error:
            return Comparison("native", "numpy", 0, None, 0.0, str(error))


class Engines:
    """A tile program on both engines. Raises NoMachineCodeError without a compiler."""

    def __init__(self, graph: GraphOp):
        from populus.runtime.engine.native.run.program import NativeProgram

        graph = with_tasks(graph)  # the steps of both are those that the native engine runs
        self._native, self._numpy = NativeProgram(graph), _Follower(graph)
        self.inputs = self._native.inputs

    def compare(self, inputs: Mapping[str, Array], rtol: float = RTOL) -> Comparison:
        """Compares the native engine with numpy on these inputs."""
        steps: Steps = {}
        times = Counter[Operation]()

        def keep(step: Operation, written: Written) -> None:
            if times[step] < TIMES:
                steps[step, times[step]] = dict(written)
            times[step] += 1

        self._native.as_run = False
        outputs = self._native.run(inputs)
        self._native.as_run = True
        by_step = self._native.run(inputs, keep)
        follower = self._numpy.follows(steps, rtol)
        follower.run(inputs, follower.follow)
        if follower.first is not None:
            return follower.first
        for name, array in outputs.items():
            far = largest_difference(array, by_step[name]).relative
            if not far <= max(rtol, rounding(array)):
                return Comparison("native", "numpy", follower.places, f"output {name}", far, note="though each step by itself agrees")
        return Comparison("native", "numpy", follower.places + len(outputs), None, 0.0)


@dataclass
class _Open(StepNode):
    """A step whose observer gets the memory that it wrote, not copies."""

    def observed(self, observe: Observer) -> None:
        with located(self.op):
            for run in self.runs:
                run()
        observe(self.op, self.written)


class _Follower(NumpyProgram):
    """The numpy engine, whose steps are compared with those of another run, and then have its results."""

    def follows(self, steps: Steps, rtol: float) -> _Follower:
        """Begins to follow another run."""
        self.first: Comparison | None = None
        self.places = 0
        self._steps, self._rtol, self._times = steps, rtol, Counter[Operation]()
        return self

    def execute(self, op: ExecuteOp) -> StepNode:
        return _opened(super().execute(op))

    def copy(self, op: CopyOp) -> StepNode:
        return _opened(super().copy(op))

    def host(self, op: StreamInOp | StreamOutOp | OutsideOp) -> StepNode:
        return _opened(super().host(op))

    def follow(self, step: Operation, written: Written) -> None:
        """Compares what a step wrote with the other run's, and replaces it."""
        times = self._times[step]
        found = self._steps.get((step, times), {})
        self._times[step] += 1
        for value, memory in written:
            if value not in found:
                continue
            self.places += 1
            far = largest_difference(found[value], memory).relative
            if self.first is None and not far <= max(self._rtol, rounding(memory)):
                self.first = Comparison("native", "numpy", self.places, _name(step, value), far, times=times, note=_tensor(value))
            np.copyto(memory, found[value])


def _opened(node: StepNode) -> StepNode:
    return _Open(node.op, node.runs, node.written)


def _name(step: Operation, value: SSAValue) -> str:
    """Names the op that wrote a value: by its node of the model, else by its step's name or its own."""
    families = step.families() if isinstance(step, ExecuteOp) else []
    maker = next((f for f in families if any(v is value for _, v in f.written())), step)
    return place(maker) or place(step) or (step.label.data if isinstance(step, ExecuteOp) else step.name)


def _tensor(value: SSAValue) -> str:
    return f"in '{storage_of(value).label.data}'"
