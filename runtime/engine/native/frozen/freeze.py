"""Freezes a tile program: binds it as the native engine does, and gives its image, constants and kernels as a `Form`.

Nothing runs but the packing of constants, so the program may be for a CPU that this one is not.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from xdsl.ir import Operation

from populus.dialects.poplar.compute import CopyOp, FamilyOp
from populus.dialects.poplar.outside import HostCallOp, OutsideOp
from populus.dialects.poplar.program import GraphOp, StreamInOp, StreamOutOp
from populus.dialects.support.diagnostics import PopulusError, where
from populus.dialects.support.element_types import dtype_of
from populus.runtime.built.form import ALIGNMENT, FEATURES, MACHINES, Base, Form, Tensor
from populus.runtime.built.steps import IN, OUT, SHARED
from populus.runtime.codelets.task import Filling, Run
from populus.runtime.engine.native.codegen.cpu import WASM, Machine, machine
from populus.runtime.engine.native.codegen.jit import Kernel, library_of
from populus.runtime.engine.native.kernels.copies import copy
from populus.runtime.engine.native.kernels.launch import Launch
from populus.runtime.engine.native.run.assembly import assembled
from populus.runtime.engine.native.run.constants import Constants
from populus.runtime.engine.native.run.image import Block, Blocks, Region, Transfer
from populus.runtime.engine.native.run.program import NativeProgram
from populus.runtime.engine.program import BlockNode, LoadedProgram, StepNode
from populus.runtime.tasks import with_tasks
from populus.runtime.views import PlacedError

Array = NDArray[Any]
Types = Mapping[str, "tuple[tuple[int, ...], np.dtype[Any]]"]

# What the runtime converts between a caller's elements and those in memory: (caller's, memory's).
CONVERTED = {("int64", "int32"), ("uint64", "uint32"), ("float64", "float32")}
THREADS = 2  # that a program is cut for by default, on every machine
SMALL = 1 << 20  # bytes of constants that are kept once if their content is equal


class LoadedConstants(Constants):
    """Constants of a program that packs some when it is loaded. `filling`: by source and form the elements, their form and the launch."""

    def __init__(self, host: Machine):
        super().__init__(host)
        self.filling: dict[Hashable, tuple[Array, Array, Launch]] = {}

    def filled(self, source: Array, key: Hashable, room: Callable[[], Array], filling: Filling) -> Array:
        place = source.ctypes.data, key
        if place not in self.filling:
            if (storage := self.holder(source.ctypes.data)) is not None:
                self.array(storage)  # has content from here on
            dense, made = np.array(source, order="C"), room()
            launch = filling(dense, made)
            assert isinstance(launch, Launch), launch
            self.filling[place] = dense, made, launch
        return self.filling[place][1]


class FreezingProgram(NativeProgram):
    """A graph bound for a file: streams are steps, and what only Python can do is refused.

    `plan`: the CPU. `given`, `taken`: the callers' inputs and outputs in order.
    """

    name = "frozen"
    guards = False  # it does not run; the file has offsets in one arena
    trades = False  # the file's steps copy next values

    def __init__(
        self, graph: GraphOp, plan: Machine, given: Sequence[str], taken: Sequence[str], states: Mapping[str, str], threads: int | None
    ):
        self.plan, self.given, self.taken = plan, list(given), list(taken)
        self.refusals: dict[int, str] = {}  # texts of launches, by identity
        super().__init__(graph, threads=threads, states=states)

    def begin(self, cpu: str | None, threads: int | None) -> None:
        here, self.threads = machine(), threads or THREADS
        runs = self.plan.architecture == here.architecture and self.plan.enabled <= here.enabled
        self.library = library_of(self.plan, None if runs else here)

    def stores(self) -> type[Constants]:
        return LoadedConstants if self.plan.architecture == WASM else Constants  # a library's file is mapped, and is not to be written

    def load(self) -> None:
        LoadedProgram.load(self)
        self.body = BlockNode([self.body, *self._committed()])
        self.table, self.times = assembled(self.library, self.body, self.blocks(), [launch for _, _, launch in self.filling()])
        self.constants.release_all(set(self._memory))

    def filling(self) -> list[tuple[Array, Array, Launch]]:
        """Lists constants that loading packs: their elements, their packed form, and the launch that makes it."""
        return list(self.constants.filling.values()) if isinstance(self.constants, LoadedConstants) else []

    def blocks(self) -> Blocks:
        blocks = super().blocks()
        for source, room, _ in self.filling():
            blocks.add(Region.RAW, source)
            blocks.add(Region.PACKED, room)
        return blocks

    # -- steps

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
        moved = [(self.states.next[o], now[i]) for i, o in pairs.items()]
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


@dataclass(frozen=True)
class Frozen:
    """A form and the kernels that its words name, by number.

    `in_constants`: the constant that a word is in, by the word's number. `checks`: of files that stay mapped, before each run.
    """

    form: Form
    kernels: tuple[Kernel, ...]
    plan: Machine
    in_constants: Mapping[int, int]
    checks: Sequence[Callable[[], None]]


def write_weights(frozen: Frozen, folder: Path, name: str) -> bytes:
    """Writes `<name>.bin`. Returns the identity of the build, which the code beside it has too."""
    identity = frozen.form.identity(kernel.key.encode() for kernel in frozen.kernels)
    frozen.form.write(folder / f"{name}.bin", identity)
    return identity


def freeze(graph: GraphOp, plan: Machine, inputs: Types, outputs: Types, states: Mapping[str, str], threads: int | None = None) -> Frozen:
    """Freezes a graph for a CPU.

    `inputs` and `outputs`: (shape, dtype) by name, in order, with the states among them. `threads`: the number that work is cut for
    where memory depends on it; any number may run the program, with the same results. Raises PopulusError for a CPU that programs
    are not built for, and for a step that only Python runs; the error names its node.
    """
    if plan.architecture not in MACHINES:
        raise PopulusError(f"programs are built for {' and '.join(MACHINES)}, not for {plan.architecture}")
    given = [name for name in inputs if name not in states]
    taken = [name for name in outputs if name not in states.values()]
    program = FreezingProgram(with_tasks(graph), plan, given, taken, states, threads)
    tensors = (
        [Tensor(name, inputs[name][1].name, inputs[name][0]) for name in given],
        [Tensor(name, outputs[name][1].name, outputs[name][0]) for name in taken],
    )
    return _Layout(program).frozen(*tensors, inputs)


def _aligned(bytes: int) -> int:
    return -(-bytes // ALIGNMENT) * ALIGNMENT


class _Layout:
    """Offsets of a frozen program's memories."""

    def __init__(self, program: FreezingProgram):
        self.program, self.image = program, program.table.image
        self.constants: list[Array] = []
        self._known: dict[bytes, int] = {}
        self._at: dict[int, int] = {}  # offset of a block in the memory
        self._raw: dict[int, int] = {}  # number of a block of constants that are packed, after all others
        self.memory = 0
        self._place_packed()
        self._arena = self.packed = self._reserve(0) if self._raw else 0
        self.memory = self._arena + program.arena_bytes
        for target in self.image.targets:
            if isinstance(target, Block) and target.region is Region.PLACES:
                assert not target.memory.any(), target
                self._at[id(target)] = self._reserve(target.memory.nbytes)
        self._workspace = self._reserve(program.workspace.needed)
        self._hold_raw()

    def _place_packed(self) -> None:
        """Places what loading packs at the front of the memory, and numbers what it is packed from."""
        blocks = {t.address: t for t in self.image.targets if isinstance(t, Block)}
        for source, room, _ in self.program.filling():
            self._raw[source.ctypes.data] = len(self._raw)
            self._at[id(blocks[room.ctypes.data])] = self._reserve(room.nbytes)

    def _hold_raw(self) -> None:
        """Makes the memory so large that its end holds all that is packed, and no part of it is written over before it is read."""
        filling = self.program.filling()
        begins = list(accumulate((_aligned(source.nbytes) for source, _, _ in filling), initial=0))
        blocks = {t.address: t for t in self.image.targets if isinstance(t, Block)}
        for (_, room, _), begin in zip(filling, begins):
            self.memory = max(self.memory, self._at[id(blocks[room.ctypes.data])] + room.nbytes + begins[-1] - begin)
        self.memory = _aligned(self.memory)

    def _reserve(self, bytes: int) -> int:
        at = _aligned(self.memory)
        self.memory = at + max(bytes, 8)
        return at

    def _constant(self, array: Array) -> int:
        """Numbers a constant. Small ones of equal content are one."""
        if array.nbytes <= SMALL:
            number = self._known.setdefault(array.tobytes(), len(self.constants))
            if number < len(self.constants):
                return number
        self.constants.append(array)
        return len(self.constants) - 1

    def _base(self, block: Block) -> tuple[Base, int, int | None]:
        """Gives what a block's places are counted from, the block's offset in it, and its constant."""
        match block.region:
            case Region.DATA:
                return Base.DATA, 0, self._constant(block.memory)
            case Region.RAW:
                return Base.DATA, 0, -1 - self._raw[block.address]
            case Region.ARENA:
                return Base.MEMORY, self._arena, None
            case Region.PLACES | Region.PACKED:
                return Base.MEMORY, self._at[id(block)], None
            case Region.WORKSPACE:
                return Base.MEMORY, self._workspace, None

    def frozen(self, inputs: Sequence[Tensor], outputs: Sequence[Tensor], types: Types) -> Frozen:
        """Builds the form."""
        image, program = self.image, self.program
        kernels: list[Kernel] = []
        bases: list[tuple[Base, int, int | None]] = []  # of each target: base, offset, constant
        for target in image.targets:
            match target:
                case Kernel():
                    bases.append((Base.CODE, len(kernels), None))
                    kernels.append(target)
                case Block():
                    bases.append(self._base(target))
                case _:
                    bases.append((Base.WORDS, 0, None))
        words, places, in_constants = image.words.copy(), list[tuple[int, Base]](), dict[int, int]()
        positions: list[int] = image.at.tolist()
        numbers: list[int] = image.target.tolist()
        for at, number in zip(positions, numbers):
            base, offset, constant = bases[number]
            words[at] += offset
            places.append((at, base))
            if constant is not None:
                in_constants[at] = constant if constant >= 0 else len(self.constants) - 1 - constant
        texts = {n: program.refusals.get(id(launch), "") for n, launch in program.table.launches.items() if launch.refused is not None}
        plan = program.plan
        form = Form(
            plan.architecture, plan.enabled & frozenset(FEATURES[plan.architecture]), image.steps, words, places, self.memory,
            (inputs, outputs, self._states(types)), texts, [*self.constants, *(source for source, _, _ in program.filling())], len(kernels),
            self._shared(), program.table.end + 1 if self._raw else 0, len(self._raw), self.packed,
        )  # fmt: skip
        form.close(in_constants)
        return Frozen(form, tuple(kernels), plan, in_constants, program.unchanged)

    def _states(self, types: Types) -> list[Tensor]:
        """Describes the states, each at its place in the memory."""
        found: list[Tensor] = []
        for name, array in self.program.states.now.items():
            assert array.flags.c_contiguous, name
            block, offset = self.program.blocks().of(array)
            assert block.region is Region.ARENA, name
            shape, dtype = types[name]
            found.append(Tensor(name, dtype.name, shape, array.dtype.name, self._arena + offset))
        return found

    def _shared(self) -> int:
        """Estimates the ns of a run that threads may share."""
        launches = self.program.table.launches
        return sum(launch.work * self.program.times[n] for n, launch in launches.items() if launch.work >= SHARED and launch.units > 1)
