"""The `numpy` engine: runs each family in as few boxes as its contracted axes allow, with all variables in one arena."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from xdsl.ir import Operation, SSAValue

from populus.dialects.data import TABLE, StoredAttr
from populus.dialects.poplar.compute import ExecuteOp, FamilyOp
from populus.dialects.poplar.memory import ConstOp, ParamOp, StorageOp, VarOp, ViewOp, storage_of, view_of
from populus.dialects.poplar.outside import OutsideOp
from populus.dialects.poplar.program import GraphOp, StreamInOp, StreamOutOp
from populus.dialects.poplar.types import TensorType
from populus.dialects.support import mmap_file
from populus.dialects.support.budget import check_bytes
from populus.dialects.support.element_types import bytes_of, dtype_of
from populus.runtime.codelets.task import Run, Workspace
from populus.runtime.engine.arena import assign_offsets, give_back, memory
from populus.runtime.engine.engine import Engine
from populus.runtime.engine.guarded_memory import GuardedMemory, GuardedWorkspace, guarded
from populus.runtime.engine.program import StepNode, Written
from populus.runtime.engine.states import States
from populus.runtime.liveness import Span, liveness

Array = NDArray[Any]

MAPPED = 64 << 20  # bytes of a table of rows from which it stays in its file


class NumpyProgram(Engine):
    """A graph whose families run whole: one kernel call for each part of a family's contracted axes."""

    name = "numpy"
    guards = True  # where POPULUS_GUARD asks for it

    def __init__(self, graph: GraphOp, views: bool = False, states: Mapping[str, str] = {}):
        super().__init__(graph)
        self.views = views
        self.states = States(states)
        self.guard = GuardedMemory() if self.guards and guarded() else None
        self.workspace = Workspace() if self.guard is None else GuardedWorkspace(self.guard)
        self.live_spans = spans = self.spans()
        sizes = {var: bytes_of(var.type.shape, var.type.element) for var in spans}
        offsets, total = assign_offsets(sizes, spans)
        check_bytes(total, "the program's variables")
        self.arena_bytes = total
        self._tables = mapped_tables(graph)
        self.unchanged: list[Callable[[], None]] = []
        self._constants: set[StorageOp] = {op for op in graph.walk() if isinstance(op, ConstOp)}
        self._memory: dict[StorageOp, Array] = {}
        self._arena = arena = memory(total) if self.guard is None else None
        for var, offset in offsets.items():
            dtype = dtype_of(var.type.element)
            own = self._guarded_block(var, sizes[var]) if arena is None else arena[offset : offset + sizes[var]]
            self._memory[var] = own.view(dtype)
        self.load()
        mmap_file.release()  # constants that steps read are copied by now

    def walk(self) -> None:
        for check in self.unchanged:
            check()
        self.compute()

    def compute(self) -> None:
        """Runs the steps."""
        super().walk()

    # -- memory

    def rest(self, states: bool) -> None:
        if states:
            for array in self.states.now.values():
                array[...] = 0  # here, as the system may not take the memory back
        if self._arena is not None and (states or not self.states.pairs) and not self.views:
            give_back(self._arena)

    def _guarded_block(self, storage: StorageOp, bytes: int) -> NDArray[np.uint8]:
        """Allocates guarded memory for a variable or constant."""
        assert self.guard is not None, storage
        return self.guard.block(bytes, storage.label.data)

    def spans(self) -> dict[VarOp, tuple[Span, ...]]:
        """Gives the live range of each variable, in steps.

        Outputs that are returned as views, and next values of states, live to the end; states live throughout.
        """
        live = liveness(self.graph, shared=True)
        self.steps: Sequence[Operation] = live.steps
        spans = {op: spans for op, spans in live.spans.items() if isinstance(op, VarOp)}
        kept, read = self.states.variables(self.graph)
        spans |= {var: ((spans[var][0][0], len(live.steps)),) for var in read}
        spans |= {var: ((0, len(live.steps)),) for var in kept}
        if self.views:
            for step in live.steps:
                if isinstance(step, StreamOutOp) and isinstance(storage := storage_of(step.src), VarOp):
                    spans[storage] = ((spans[storage][0][0], len(live.steps)),)
        return spans

    def memory(self, value: SSAValue) -> Array:
        """Gives the memory of a view's variable, constant or argument: [elements], row-major."""
        storage = storage_of(value)
        if storage not in self._memory:
            assert isinstance(storage, ConstOp), storage
            array = self.constant(storage)
            uniform = array.size > 1 and not any(array.strides)
            if self.guard is not None and not uniform:
                kept = self._guarded_block(storage, array.nbytes).view(array.dtype).reshape(array.shape)
                np.copyto(kept, array)
                kept.flags.writeable = False
                array = kept
            self._memory[storage] = np.broadcast_to(array.reshape(-1)[:1], array.size) if uniform else array.reshape(-1)
        return self._memory[storage]

    def is_constant(self, value: SSAValue) -> bool:
        """Tells if a view shows a constant, or an argument that is one."""
        return storage_of(value) in self._constants

    def bind(self, parameter: ParamOp, value: SSAValue) -> None:
        begin = view_of(value).offset
        self._memory[parameter] = self.memory(value)[begin : begin + math.prod(parameter.type.shape)]
        (self._constants.add if self.is_constant(value) else self._constants.discard)(parameter)

    def constant(self, storage: ConstOp) -> Array:
        """Gives the elements of a constant, copied out of a mapped file: later changes of the file do not reach the
        program. A large table of rows stays mapped, and each run checks that its file is unchanged.
        """
        if isinstance(storage.value, StoredAttr):
            if storage in self._tables:
                self.unchanged.append(partial(TABLE.check_file, storage.value.data))
            else:
                TABLE.take_in(storage.value.data)
        return storage.array()

    # -- steps

    def host(self, op: StreamInOp | StreamOutOp | OutsideOp) -> StepNode:
        if isinstance(op, StreamInOp) and self.states.holds(op):
            self.states.now[op.stream.data] = self.array(op.dst)
            return StepNode(op, [])
        if isinstance(op, StreamOutOp) and self.states.replaces(op):
            self.states.next[op.stream.data] = self.array(op.src)
            return StepNode(op, [])
        return super().host(op)

    def launch(self, op: Operation, calls: Sequence[Run], written: Written) -> StepNode:
        guards = [] if self.guard is None or not isinstance(op, ExecuteOp) else [self.guard.check]
        return super().launch(op, [*calls, *guards], written)

    def compile(self, family: FamilyOp) -> list[Run]:
        return self.by_numpy(family, self.workspace)


def mapped_tables(graph: GraphOp) -> set[ConstOp]:
    """Finds the constants of MAPPED bytes and more that only lookups of rows read, from a file: a run reads few of their rows."""
    found = {
        op: set[tuple[str, str]]()
        for op in graph.walk()
        if isinstance(op, ConstOp) and isinstance(op.value, StoredAttr) and TABLE.is_mapped(op.value.data)
        and bytes_of(op.type.shape, op.type.element) >= MAPPED
    }  # fmt: skip
    if not found:
        return set()
    for op in graph.walk():
        if isinstance(op, FamilyOp):
            uses = [(value, (op.codelet.data, field.name)) for field, value in op.connections()]
        else:
            uses = [] if isinstance(op, ViewOp) else [(value, (op.name, "")) for value in op.operands if isinstance(value.type, TensorType)]
        for value, use in uses:
            storage = storage_of(value)
            if isinstance(storage, ConstOp) and storage in found:
                found[storage].add(use)
    return {op for op, uses in found.items() if uses == {("multi_slice", "table")}}
