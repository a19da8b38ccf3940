"""Binds a tile program for a file, as the native engine does for a process. Nothing runs but the packing of constants."""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray
from xdsl.ir import Operation

from populus.dialects.poplar.compute import CopyOp, ExecuteOp, FamilyOp
from populus.dialects.poplar.memory import VarOp
from populus.dialects.poplar.outside import HostCallOp, OutsideOp
from populus.dialects.poplar.program import GraphOp, StreamInOp, StreamOutOp
from populus.dialects.poplar.task import TaskOp
from populus.dialects.support.diagnostics import PopulusError, where
from populus.dialects.support.element_types import dtype_of
from populus.runtime.built.form import ALIGNMENT
from populus.runtime.built.steps import IN, OUT
from populus.runtime.codelets.task import Filling, Run
from populus.runtime.engine.native.codegen.cpu import WASM, Machine, machine
from populus.runtime.engine.native.codegen.jit import library_of
from populus.runtime.engine.native.frozen.loaded_tables import tables
from populus.runtime.engine.native.frozen.scratch import Gaps
from populus.runtime.engine.native.kernels.copies import copy
from populus.runtime.engine.native.kernels.launch import Launch
from populus.runtime.engine.native.run.assembly import assembled
from populus.runtime.engine.native.run.constants import Constants
from populus.runtime.engine.native.run.image import Blocks, Region, Transfer
from populus.runtime.engine.native.run.program import NativeProgram
from populus.runtime.engine.program import BlockNode, LoadedProgram, Node, StepNode
from populus.runtime.engine.states import front
from populus.runtime.views import PlacedError

Array = NDArray[Any]
Types = Mapping[str, "tuple[tuple[int, ...], np.dtype[Any]]"]
Pool = dict[Hashable, Array]  # elements that are packed, and their forms, by their content

# What the runtime converts between a caller's elements and those in memory: (caller's, memory's).
CONVERTED = {("int64", "int32"), ("uint64", "uint32"), ("float64", "float32")}
BOUND = (ExecuteOp, CopyOp, StreamInOp, StreamOutOp, OutsideOp, TaskOp)  # steps that are bound, each as a whole
THREADS = 2  # that a program is cut for by default, on every machine


class LoadedConstants(Constants):
    """Constants of a program that packs some when it is loaded. `filling`: by source and form the elements, their form and the launch.

    `pool`: what the programs of a file pack; `shared`: the forms in it that this program reads and another one fills.
    """

    def __init__(self, host: Machine, pool: Pool | None = None):
        super().__init__(host)
        self.filling: dict[Hashable, tuple[Array, Array, Launch]] = {}
        self.shared: dict[Hashable, Array] = {}
        self._pool = pool

    def filled(self, source: Array, key: Hashable, room: Callable[[], Array], filling: Filling) -> Array:
        place = source.ctypes.data, key
        if place in self.shared:
            return self.shared[place]
        if place not in self.filling:
            if (storage := self.holder(source.ctypes.data)) is not None:
                self.array(storage)  # has content from here on
            dense = np.array(source, order="C")
            alike: Hashable = None
            if self._pool is not None:
                content = dense.dtype, dense.shape, blake2b(dense.reshape(-1).view(np.uint8).data).digest()
                dense, alike = self._pool.setdefault(content, dense), (*content, key)
                if alike in self._pool:
                    return self.shared.setdefault(place, self._pool[alike])
            made = room()
            launch = filling(dense, made)
            assert isinstance(launch, Launch), launch
            self.filling[place] = dense, made, launch
            if self._pool is not None:
                self._pool[alike] = made
        return self.filling[place][1]


class FreezingProgram(NativeProgram):
    """A graph bound for a file: streams are steps, and what only Python can do is refused.

    `plan`: the CPU. `given`, `taken`: the callers' inputs and outputs in order. `pool`: what programs of the same file pack.
    `here`: this machine runs it, so chunks take places in scratch memory in turn; elsewhere any number of threads may.
    """

    name = "frozen"
    guards = False  # it does not run; the file has offsets in one arena
    trades = False  # the file's steps copy next values

    def __init__(
        self,
        graph: GraphOp,
        plan: Machine,
        given: Sequence[str],
        taken: Sequence[str],
        states: Mapping[str, str],
        threads: int | None,
        pool: Pool | None = None,
        here: bool = False,
    ):
        self.plan, self.given, self.taken = plan, list(given), list(taken)
        self._pool, self._here = pool, here
        self._gaps: Gaps | None = None
        self.overlaid = pool is None  # states of other programs lie where this one's arena has ended
        self.refusals: dict[int, str] = {}  # texts of launches, by identity
        self._tables: list[tuple[Array, Array, Launch]] = []
        super().__init__(graph, threads=threads, states=states)

    def begin(self, cpu: str | None, threads: int | None) -> None:
        here, self.threads = machine(), threads or THREADS
        runs = self.plan.architecture == here.architecture and self.plan.enabled <= here.enabled
        self.library = library_of(self.plan, None if runs else here)

    def stores(self, host: Machine) -> Constants:
        wasm = self.plan.architecture == WASM
        return LoadedConstants(host, self._pool) if wasm else super().stores(host)  # a library's file is mapped, and is not to be written

    def load(self) -> None:
        if self.overlaid:
            self.workspace = self._gaps = Gaps(self.steps, ((self._place(v), spans) for v, spans in self.live_spans.items()))
        if self._here:
            self.workspace.busy = self.workspace.own(8).view(np.int64)
            self.workspace.places = max(self.threads, os.cpu_count() or 1)
        LoadedProgram.load(self)
        self.body = BlockNode([self.body, *self._committed()])
        # Programs of one file share tables in it, so each would have memory for those of its own.
        if isinstance(self.constants, LoadedConstants) and self._pool is None:
            self._tables = tables(self.library, [run for run, _ in self.body.calls() if isinstance(run, Launch)], self.blocks())
        self.table, self.times = assembled(self.library, self.body, self.blocks(), [launch for _, _, launch in self.filling()])
        self.constants.release_all(set(self._memory))

    def _place(self, variable: VarOp) -> tuple[int, int]:
        assert self._arena is not None, "a frozen program has an arena"
        array = self._memory[variable]
        begin = array.ctypes.data - self._arena.ctypes.data
        return begin, begin + array.nbytes

    def filling(self) -> list[tuple[Array, Array, Launch]]:
        """Lists constants that loading packs: their elements, their packed form, and the launch that makes it."""
        return [*(self.constants.filling.values() if isinstance(self.constants, LoadedConstants) else ()), *self._tables]

    def blocks(self) -> Blocks:
        blocks = super().blocks()
        for source, room, _ in self.filling():
            blocks.add(Region.RAW, source)
            blocks.add(Region.PACKED, room)
        for room in self.constants.shared.values() if isinstance(self.constants, LoadedConstants) else ():
            blocks.add(Region.PACKED, room)
        return blocks

    # -- steps

    def _nodes(self, op: Operation) -> Iterator[Node]:
        if self._gaps is None or not isinstance(op, BOUND):
            return super()._nodes(op)
        self._gaps.enter(op)
        nodes = list(super()._nodes(op))
        self._gaps.leave()
        return iter(nodes)

    def compile(self, family: FamilyOp) -> list[Run]:
        launches = self.launches(family)
        if launches is None:
            types = ", ".join(dict.fromkeys(str(self.array(v).dtype) for _, v in family.connections()))
            raise PlacedError(f"{where(family)}: '{family.codelet.data}' on {types} has no machine code yet, so the model cannot be built")
        self.done(family)
        return list[Run](launches)

    def launches(self, family: FamilyOp) -> list[Launch] | None:
        launches = super().launches(family)
        for launch in launches or ():
            if launch.refused is not None:
                what = "a check in" if family.declaration.code is not None else "an index outside of its table, for"
                self.refusals[id(launch)] = f"{where(family)}: {what} '{family.codelet.data}'"
        return launches

    def copy(self, op: CopyOp) -> StepNode:
        return StepNode(op, self._moved(op, self.array(op.src), self.array(op.dst)))

    def _moved(self, op: Operation, source: Array, target: Array) -> list[Launch]:
        launches = copy(self.library, source, target)
        if launches is None:
            raise PlacedError(f"{where(op)}: this copy of {source.dtype} has no machine code yet, so the model cannot be built")
        return launches

    def host(self, op: StreamInOp | StreamOutOp | OutsideOp) -> StepNode:
        if isinstance(op, OutsideOp):
            name = op.function.data if isinstance(op, HostCallOp) else op.name
            raise PlacedError(f"{where(op)}: {name} runs in Python, which a built program does without")
        if isinstance(op, StreamInOp):
            if self.states.holds(op):
                return super().host(op)
            array, staged, launches = self._staged(op, self.array(op.dst))
            row = self._transfer(op, IN, self.given.index(op.stream.data), staged, dtype_of(op.host_element), array.dtype)
            return StepNode(op, [row, *launches])
        if self.states.replaces(op):
            return super().host(op)
        array, staged, launches = self._staged(op, self.array(op.src), out=True)
        row = self._transfer(op, OUT, self.taken.index(op.stream.data), staged, array.dtype, dtype_of(op.host_element))
        return StepNode(op, [*launches, row])

    def _staged(self, op: Operation, array: Array, out: bool = False) -> tuple[Array, Array, list[Launch]]:
        """Gives the array, dense memory for it, and the launches that copy between the two: none if it is dense."""
        if array.flags.c_contiguous:
            return array, array, []
        dense = np.ndarray(array.shape, array.dtype, self.workspace.reserve(0, array.nbytes))
        return array, dense, self._moved(op, *((array, dense) if out else (dense, array)))

    def _transfer(self, op: Operation, kind: int, number: int, place: Array, source: np.dtype[Any], target: np.dtype[Any]) -> Transfer:
        pair = (source.name, target.name) if kind == IN else (target.name, source.name)
        if source != target and pair not in CONVERTED:
            raise PlacedError(f"{where(op)}: {source} as {target} is not converted by a built program")
        return Transfer(kind, (number, place, place.size, type_number(source), type_number(target)))

    def _committed(self) -> list[StepNode]:
        """Builds the steps that replace states by their next values: all that share memory with a state are read first."""
        now, pairs = self.states.now, self.states.pairs
        moved = [(front(self.states.next[o], now[i].shape), now[i]) for i, o in pairs.items()]
        moved = [(s, t) for s, t in moved if s.__array_interface__["data"][0] != t.__array_interface__["data"][0] or s.strides != t.strides]
        op, at = self.graph, 0
        first: list[Launch] = []
        then: list[Launch] = []
        for source, target in moved:
            if any(np.may_share_memory(source, t) for t in now.values()):
                dense = np.ndarray(source.shape, source.dtype, self.workspace.reserve(at, source.nbytes))
                at += -(-source.nbytes // ALIGNMENT) * ALIGNMENT
                first += self._moved(op, source, dense)
                source = dense
            then += self._moved(op, source, target)
        return [StepNode(op, [*first, *then])]


def type_number(dtype: np.dtype[Any]) -> int:
    """Gives the number of an element type. Raises PopulusError for one that built programs do not have."""
    from populus.runtime.built.types import TYPES

    if dtype.name not in TYPES:
        raise PopulusError(f"elements of {dtype} cannot be inputs or outputs of a built program")
    return TYPES[dtype.name]
