"""Layout of frozen programs as one file: their words, their constants, each once, and one memory that they use in turns."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from populus.runtime.built.form import ALIGNMENT, FEATURES, Base
from populus.runtime.built.steps import SHARED, WOKEN, WORDS, Step
from populus.runtime.built.writer import Form, Tensor
from populus.runtime.engine.native.codegen.jit import Kernel
from populus.runtime.engine.native.frozen.binding import FreezingProgram, Types
from populus.runtime.engine.native.run.image import Block, Image, Region

Array = NDArray[Any]
Begin: TypeAlias = tuple[int, int, int, int]  # numbers of a step, an input, an output and a state

SMALL = 1 << 20  # bytes of constants of one program that are compared
SAMPLES = 61  # bytes of a constant that are compared first


def _aligned(bytes: int) -> int:
    return -(-bytes // ALIGNMENT) * ALIGNMENT


class Layout:
    """Offsets of the memories of frozen programs, of which one runs at a time: all have their variables in the same memory.

    `begins`: for each program the numbers of its first step, input, output and state.
    """

    def __init__(self, programs: Sequence[FreezingProgram]):
        self.programs = programs
        self.begins: list[Begin] = []
        steps = inputs = outputs = states = 0
        for program in programs:
            self.begins.append((steps, inputs, outputs, states))
            steps, inputs = steps + program.table.image.steps, inputs + len(program.given)
            outputs, states = outputs + len(program.taken), states + len(program.states.now)
        self.image = programs[0].table.image
        if len(programs) > 1:
            self.image = Image.joined([p.table.image for p in programs], [(begin[1], begin[2]) for begin in self.begins])
        self.constants: list[Array] = []
        self._known: dict[tuple[int, bytes], list[int]] = {}  # numbers by length and sample
        self._at: dict[int, int] = {}  # offset of a block in the memory, by its address
        self._filling = [filling for p in programs for filling in p.filling()]
        self._raw: dict[int, Array] = {}  # constants that are packed, which come after all others, by address
        self.memory = 0
        self._place_packed()
        self._arena = self.packed = self._reserve(0) if self._raw else 0
        self.memory = self._arena + max(p.arena_bytes for p in programs)
        needed = max(p.workspace.needed for p in programs)
        if all(p.overlaid for p in programs):
            self._workspace, self.memory = self._arena, max(self.memory, self._arena + needed)
        else:
            self._workspace = self._reserve(needed)
        for target in self.image.targets:
            if isinstance(target, Block) and target.region is Region.PLACES:
                assert not target.memory.any(), target
                self._at[target.address] = self._reserve(target.memory.nbytes)
        self._hold_raw()

    def _place_packed(self) -> None:
        """Places what loading packs at the front of the memory, and numbers what it is packed from."""
        for source, room, _ in self._filling:
            self._raw.pop(source.ctypes.data, None)  # in the order of their last uses
            self._raw[source.ctypes.data] = source
            self._at[room.ctypes.data] = self._reserve(room.nbytes)
        self._numbers = {address: number for number, address in enumerate(self._raw)}

    def _hold_raw(self) -> None:
        """Makes the memory so large that its end holds all that is packed, and no part of it is written over before it is read."""
        begins = list(accumulate((_aligned(source.nbytes) for source in self._raw.values()), initial=0))
        later = len(self._raw)  # the number of the first source that is read from a step on
        for source, room, _ in reversed(self._filling):
            later = min(later, self._numbers[source.ctypes.data])
            self.memory = max(self.memory, self._at[room.ctypes.data] + room.nbytes + begins[-1] - begins[later])
        self.memory = _aligned(self.memory)

    def _reserve(self, bytes: int) -> int:
        at = _aligned(self.memory)
        self.memory = at + max(bytes, 8)
        return at

    def _constant(self, array: Array) -> int:
        """Numbers a constant. Small ones of equal content are one; of several programs also large ones."""
        if array.nbytes <= SMALL or len(self.programs) > 1:
            content = array.reshape(-1).view(np.uint8)
            alike = self._known.setdefault((array.nbytes, content[:: array.nbytes // SAMPLES + 1].tobytes()), [])
            for number in alike:
                if np.array_equal(content, self.constants[number].reshape(-1).view(np.uint8)):
                    return number
            alike.append(len(self.constants))
        self.constants.append(array)
        return len(self.constants) - 1

    def _base(self, block: Block) -> tuple[Base, int, int | None]:
        """Gives what a block's places are counted from, the block's offset in it, and its constant."""
        match block.region:
            case Region.DATA:
                return Base.DATA, 0, self._constant(block.memory)
            case Region.RAW:
                return Base.DATA, 0, -1 - self._numbers[block.address]
            case Region.ARENA:
                return Base.MEMORY, self._arena, None
            case Region.PLACES | Region.PACKED:
                return Base.MEMORY, self._at[block.address], None
            case Region.WORKSPACE:
                return Base.MEMORY, self._workspace, None

    def form(
        self, inputs: Sequence[Tensor], outputs: Sequence[Tensor], types: Sequence[Types]
    ) -> tuple[Form, tuple[Kernel, ...], dict[int, int]]:
        """Builds the form. Returns it, the kernels that its words name, and the constants that words are in, by the words' numbers."""
        image, programs, plan = self.image, self.programs, self.programs[0].plan
        kernels: dict[Kernel, int] = {}
        bases: list[tuple[Base, int, int | None]] = []  # of each target: base, offset, constant
        for target in image.targets:
            match target:
                case Kernel():
                    bases.append((Base.CODE, kernels.setdefault(target, len(kernels)), None))
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
        texts = {
            begin + n: p.refusals.get(id(launch), "")
            for p, (begin, *_) in zip(programs, self.begins)
            for n, launch in p.table.launches.items()
            if launch.refused is not None
        }
        form = Form(
            plan.architecture, plan.enabled & frozenset(FEATURES[plan.architecture]), image.steps, words, places, self.memory,
            (inputs, outputs, [state for p, t in zip(programs, types) for state in self._states(p, t)]), texts,
            [*self.constants, *self._raw.values()], len(kernels), max(map(_shared, programs)),
            self._loading(words), len(self._raw), self.packed,
        )  # fmt: skip
        form.close(in_constants)
        return form, tuple(kernels), in_constants

    def _loading(self, words: NDArray[np.int64]) -> int:
        """Joins the parts of the programs that pack constants when they are loaded. Returns the first step of them; 0: there is none."""
        loads = [
            (begin + program.table.end + 1, begin + program.table.image.steps - 1)
            for program, (begin, *_) in zip(self.programs, self.begins)
            if program.filling()
        ]
        for (_, stop), (begin, _) in pairwise(loads):
            words[WORDS * stop : WORDS * stop + 2] = Step.JUMP, begin
        return loads[0][0] if loads else 0

    def _states(self, program: FreezingProgram, types: Types) -> list[Tensor]:
        """Describes the states, each at its place in the memory."""
        found: list[Tensor] = []
        for name, array in program.states.now.items():
            assert array.flags.c_contiguous, name
            block, offset = program.blocks().of(array)
            assert block.region is Region.ARENA, name
            shape, dtype = types[name]
            found.append(Tensor(name, dtype.name, shape, array.dtype.name, self._arena + offset))
        return found


def _shared(program: FreezingProgram) -> int:
    """Estimates the ns of a run that threads may share; 0 if none are woken for it."""
    launches = program.table.launches
    found = sum(launch.work * program.times[n] for n, launch in launches.items() if launch.work >= SHARED and launch.units > 1)
    return found if found >= WOKEN else 0
