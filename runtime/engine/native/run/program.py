"""Program whose families run as machine code if there is a kernel for them, and on NumPy otherwise."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from xdsl.ir import Operation, SSAValue

from populus.dialects.data import StoredAttr
from populus.dialects.expr import Expr
from populus.dialects.poplar.compute import CopyOp, ExecuteOp, FamilyOp
from populus.dialects.poplar.memory import ConstOp, ParamOp, StorageOp, VarOp, ViewOp, storage_of, type_of, view_of
from populus.dialects.poplar.program import CallOp, GraphOp
from populus.dialects.poplar.task import Chain, TaskOp, shows
from populus.dialects.poplar.types import TensorType
from populus.dialects.support.element_types import dtype_of, is_byte
from populus.runtime.codelets.task import Piece, Run, Task
from populus.runtime.codelets.undefined import checks
from populus.runtime.engine.arena import memory
from populus.runtime.engine.codelet_vertices import named
from populus.runtime.engine.native import NoMachineCodeError
from populus.runtime.engine.native.codegen.cpu import Machine
from populus.runtime.engine.native.codegen.jit import library
from populus.runtime.engine.native.kernels import native_form
from populus.runtime.engine.native.kernels.copies import copy
from populus.runtime.engine.native.kernels.launch import Launch
from populus.runtime.engine.native.kernels.native_support import HALVES
from populus.runtime.engine.native.kernels.operands import Formula
from populus.runtime.engine.native.run.assembly import assembled
from populus.runtime.engine.native.run.constants import Constants
from populus.runtime.engine.native.run.image import Blocks, Region
from populus.runtime.engine.native.run.launch_check import HOLDING, LaunchCheck
from populus.runtime.engine.native.run.slices import slices_of
from populus.runtime.engine.native.run.thread_pool import team, threads_of
from populus.runtime.engine.numpy import NumpyProgram
from populus.runtime.engine.program import BlockNode, Node, Observer, StepNode
from populus.runtime.engine.states import touched
from populus.runtime.liveness import Span
from populus.runtime.views import collapsed, params_of, piece_of, view_array

Array = NDArray[Any]


class NativeProgram(NumpyProgram):
    """Graph whose steps between two host steps, loops and branches included, are one native call.

    `fallbacks`: for each codelet the number of families that run on NumPy, for lack of a native kernel for their types
    or form. `cpu`: as for `cpu.machine`; `threads`: as for `threads_of`. Raises NoMachineCodeError without llvmlite,
    or if LLVM has no code for the CPU.
    """

    name = "native"
    trades = True  # states may trade memory with their next values
    as_run = False  # observers see fused steps as they run, without the values that these do not store

    def __init__(
        self,
        graph: GraphOp,
        cpu: str | None = None,
        threads: int | None = None,
        views: bool = False,
        states: Mapping[str, str] = {},
    ):
        try:
            self.begin(cpu, threads)
        except ImportError:
            raise NoMachineCodeError("the native engine needs llvmlite, which is not installed; install xdsl[llvm], or use numpy") from None
        except (RuntimeError, OSError) as error:
            raise NoMachineCodeError(f"the native engine cannot make code for this CPU ({error}); use numpy") from error
        self._touching: dict[StorageOp, set[Operation]] | None = None
        self._shown: dict[StorageOp, SSAValue] = {}  # arguments bound to a stored constant
        self._unbound: dict[ConstOp, set[Operation]] = {}  # readers of a constant that are not bound yet
        self.constants = self.stores(self.library.host)
        self.check: LaunchCheck | None = None
        super().__init__(graph, views, states)

    def begin(self, cpu: str | None, threads: int | None) -> None:
        """Finds the library of the CPU, and the threads."""
        self.library = library(cpu)
        self.threads = threads_of(threads)
        self.team = team(self.library, self.threads)

    def stores(self, host: Machine) -> Constants:
        """Makes the store of the program's constants, packed for a CPU."""
        return Constants(host)

    def load(self) -> None:
        self.workspace.busy, self.workspace.places = self.workspace.own(8).view(np.int64), self.threads
        if checks() or HOLDING.get():
            arena = [self._arena] if self._arena is not None else [a for s, a in self._memory.items() if s not in self._constants]
            self.check = LaunchCheck(lambda v: None if self.is_constant(v) else self.array(v), self._users, self.workspace.memories, arena)
        super().load()
        self.table, times = assembled(self.library, self.body, self.blocks())
        self.table.bind(times, memory(self.workspace.needed))
        if trading := self._trading():
            self.states.trading = frozenset(trading)
            self.table.trade([(self._memory[now], self._memory[next]) for now, next in trading.values()])
        self.constants.release_all(set(self._memory))

    def _trading(self) -> dict[str, tuple[VarOp, VarOp]]:
        """Finds the states that trade memory with their next values: only machine code touches them, whose addresses can be exchanged."""
        found = self.states.tradable(self.graph) if self.trades else {}
        fixed = {storage for op in self.table.stopping for storage in touched(op)} if found else set[StorageOp]()
        if any(isinstance(storage, ParamOp) for storage in fixed):
            return {}
        return {name: pair for name, pair in found.items() if fixed.isdisjoint(pair)}

    def commit(self) -> None:
        super().commit()
        if self.states.trading:
            self.table.turn()

    def observed(self, observe: Observer) -> None:
        if self.table.turned:  # single launches have the first addresses
            self.states.go_home()
            self.table.turn()
        super().observed(observe)

    def blocks(self) -> Blocks:
        """Lists the memories that steps write. All other memory that steps name is a constant's."""
        blocks = Blocks()
        if self._arena is not None:
            blocks.add(Region.ARENA, self._arena)
        for scratch in self.workspace.memories:
            blocks.add(Region.WORKSPACE, scratch)
        for own in self.workspace.owned:
            blocks.add(Region.PLACES, own)
        return blocks

    def compute(self) -> None:
        assert self.workspace.busy is not None
        self.workspace.busy[0] = 0  # in a forked child, those of the parent's threads
        self.table.run(self.team)

    def compile(self, family: FamilyOp) -> list[Run]:
        launches = self.launches(family)
        if launches is not None:
            self.done(family)
            return list[Run](launches)
        codelet = family.codelet.data
        self.fallbacks[codelet] = self.fallbacks.get(codelet, 0) + 1
        return super().compile(family)

    def launches(self, family: FamilyOp) -> list[Launch] | None:
        """Binds the native kernel to each box. Returns None if there is none for the family."""
        native = native_form(family.codelet.data)
        if native is None:
            return None
        params = params_of(family.params)
        fields = [(field, self.glance(family, value), self.is_constant(value)) for field, value in family.connections()]
        launches: list[Launch] = []
        for box in collapsed(family).boxes():
            pieces = {field.name: piece_of(family, field, array, box, constant) for field, array, constant in fields}
            task = Task(params, box, pieces, self.workspace, constants=self.constants, threads=self.threads)
            bound = native(self.library, task)
            if bound is None:
                return None
            for launch in bound:
                launch.refused = None if launch.refused is None else named(family, box, launch.refused)
            launches += self.settled(family, task, bound)
        if self.check is not None:
            self.check.task([family], launches)
        return launches

    # -- constants that are packed, or that a file backs

    def bind(self, parameter: ParamOp, value: SSAValue) -> None:
        self._memory.pop(parameter, None)
        self._shown.pop(parameter, None)
        if self.stored(value) is None:
            super().bind(parameter, value)
        else:
            self._shown[parameter] = value
            self._constants.add(parameter)

    def stored(self, value: SSAValue, hollow: bool = True) -> tuple[ConstOp, Array] | None:
        """Finds the large constant under a view or an argument. Returns it and its elements from the start of the
        storage; with `hollow`, as `Constants.array` does.

        Returns None if a step is known to read the constant in its original form.
        """
        storage = storage_of(value)
        if storage in self._memory:
            return None
        if storage in self._shown:
            source = self._shown[storage]
            constant = self.stored(source, hollow)
            return None if constant is None else (constant[0], constant[1][view_of(source).offset :])
        assert isinstance(storage, ConstOp), storage
        if not isinstance(storage.value, StoredAttr) or view_of(value).repeats:
            return None
        return storage, self.constants.array(storage, hollow)

    def memory(self, value: SSAValue) -> Array:
        storage = storage_of(value)
        if storage not in self._shown:
            return super().memory(value)
        source = self._shown[storage]
        return self.memory(source)[view_of(source).offset :]

    def glance(self, family: FamilyOp, value: SSAValue) -> Array:
        """Returns a view's memory while the steps of a family are bound.

        A constant may be packed, so its memory is retained only if `settled` finds a launch that reads it. Only
        products of full floats ask for packed forms first; other kernels may read constants while they are bound.
        """
        asks = family.declaration.is_product and dtype_of(type_of(value).element).name not in HALVES
        constant = self.stored(value, hollow=asks)
        return self.array(value) if constant is None else view_array(constant[1], view_of(value))

    def settled(self, family: FamilyOp, task: Task, launches: list[Launch]) -> list[Launch]:
        """Replaces constants that launches read unpacked by arrays that no file backs."""
        self.constants.note(task.packed)
        for value in family.operands:
            if (constant := self.stored(value)) is None:
                continue
            begin, end = constant[1].ctypes.data, constant[1].ctypes.data + constant[1].nbytes
            for launch in launches:
                if any(isinstance(a, np.ndarray) and begin <= a.ctypes.data < end for a in launch.args):
                    own = self.memory(value).view(np.uint8)
                    launch.args = [
                        own[a.ctypes.data - begin :] if isinstance(a, np.ndarray) and begin <= a.ctypes.data < end else a
                        for a in launch.args
                    ]
        return launches

    def done(self, reader: FamilyOp | CallOp) -> None:
        """Releases the constants whose readers are all families and calls that are bound."""
        for storage in {storage_of(value) for value in reader.operands}:
            if isinstance(storage, ConstOp):
                left = self._unbound.setdefault(storage, set(self._users(storage)))
                left.discard(reader)
                if not left and storage not in self._memory:
                    self.constants.release(storage)

    # -- steps

    def _call(self, op: CallOp) -> Node:
        node = super()._call(op)
        self.done(op)
        return node

    def copy(self, op: CopyOp) -> StepNode:
        source, target = self.array(op.src), self.array(op.dst)
        launches = copy(self.library, source, target)
        if self.check is not None and launches is not None:
            self.check.task([op], launches)
        return super().copy(op) if launches is None else StepNode(op, launches, [(op.dst, target)])

    def spans(self) -> dict[VarOp, tuple[Span, ...]]:
        """Extends the live ranges of next values that trade memory with their states."""
        spans = super().spans()
        if self.trades:
            for now, next in self.states.tradable(self.graph).values():
                spans[next] = spans[now]
        return spans

    # -- tasks

    def task(self, op: TaskOp) -> Node:
        """Binds a task: as many of its families as there is code for, from the product on, are one launch of the product's."""
        families = op.families()
        for count in range(len(families), 1, -1):
            if (launches := self.joined(Chain.of(families[:count]))) is not None:
                break
        else:
            return super().task(op)
        instead = {family: launches if family is families[0] else [] for family in families[:count]}
        nodes: list[Node] = []
        for step in (s for s in op.body.block.ops if isinstance(s, ExecuteOp)):
            runs = [run for f in step.families() for run in (instead[f] if f in instead else self.compile(f))]
            stored = [v for f in step.families() if f not in families[: count - 1] for _, v in f.written()]
            nodes.append(StepNode(step, runs, [(v, self.array(v)) for v in stored]))
        bound = {p: m for p, m in self._memory.items() if isinstance(p, ParamOp)}, dict(self._shown)
        return _TaskNode(nodes, lambda: self.as_run, cache(partial(self._apart, op, *bound)))

    def joined(self, chain: Chain) -> list[Launch] | None:
        """Binds a chain of families as one product, which keeps sums in registers.

        The arithmetic is the same. Returns None if there is no code for it, or no strides.
        """
        family, ending, sums = chain.product, chain.ending, chain.sums_seen()
        seen = [] if ending is None else chain.ending_seen()
        if sums is None or seen is None:
            return None
        target = made = view_array(self.memory(chain.sums), sums)
        formula = None
        if ending is not None:
            arrays = [view_array(self.memory(v), view) for v, view in zip(ending.views, seen)]
            fields = list(zip(ending.fields.data, ending.views, arrays))
            target = next(a for f, _, a in fields if f.kind != "in")
            expr = params_of(ending.params)["expr"]
            assert isinstance(expr, Expr), expr
            formula = Formula(expr, [None if shows(v, chain.sums) else a for f, v, a in fields if f.kind != "out"], target)
        [box] = family.space.collapse(frozenset()).boxes()
        pieces: dict[str, Piece] = {}
        for field, value in family.connections():
            if field.kind == "out":
                pieces[field.name] = Piece(made, tuple(a for a in field.access if not a.part), ((0, 0),) * made.ndim)
                continue
            array = self.glance(family, value)
            if np.may_share_memory(array, target) or (chain.total is not None and array.dtype.name in HALVES):
                return None
            pieces[field.name] = piece_of(family, field, array, box, self.is_constant(value))
        product = native_form(family.codelet.data)
        assert product is not None, family.codelet.data
        task = Task(params_of(family.params), box, pieces, self.workspace, constants=self.constants, threads=self.threads)
        exact = is_byte(type_of(family.operands[0]).element)  # integers have no order of sums
        launches = product(self.library, task, None if exact or chain.total is None else slices_of(chain), formula)
        if launches is None:
            return None
        for one in chain.families:
            launches = self.settled(one, task, launches)
            self.done(one)
        if self.check is not None:
            self.check.task(chain.families, launches)
        return launches

    def _apart(self, op: TaskOp, arguments: dict[StorageOp, Array], shown: dict[StorageOp, SSAValue]) -> Node:
        """Builds a task's executes one by one with these arguments, for observers only.

        Their NumPy fallbacks are not counted, because they never run otherwise.
        """
        counted = dict(self.fallbacks)
        self._shown = shown
        self._memory = {s: m for s, m in self._memory.items() if not isinstance(s, ParamOp)} | arguments
        node = super().task(op)
        self.fallbacks = counted
        return node

    def _users(self, storage: StorageOp) -> set[Operation]:
        """Collects the ops that touch a variable, through any view."""
        if self._touching is None:
            self._touching = {}
            for op in self.graph.walk():
                if not isinstance(op, ViewOp):
                    for operand in op.operands:
                        if isinstance(operand.type, TensorType):
                            self._touching.setdefault(storage_of(operand), set()).add(op)
        return self._touching[storage]


class _TaskNode(BlockNode):
    """Executes of a task whose families are one launch. Observers see the families one by one, unless `as_run()`."""

    def __init__(self, nodes: Sequence[Node], as_run: Callable[[], bool], apart: Callable[[], Node]):
        super().__init__(nodes)
        self.as_run, self.apart = as_run, apart

    def observed(self, observe: Observer) -> None:
        if self.as_run():
            super().observed(observe)
        else:
            self.apart().observed(observe)
