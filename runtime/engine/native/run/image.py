"""Program as words: steps of eight, then the arguments of launches. A word is a number, or a place in one of the program's memories.

Places stay symbolic, a target and an offset, until `bound` is told where the targets are. So one image serves a process, which
binds the addresses of its own memory, and a file, which other processes bind to theirs.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from populus.runtime.built.steps import AIMS, IN, LEAST, OUT, WORDS
from populus.runtime.engine.native.codegen.jit import Kernel
from populus.runtime.engine.native.kernels.launch import Launch
from populus.runtime.engine.native.kernels.panels import Memory

Array = NDArray[Any]
Word: TypeAlias = int | Array | Kernel


class Region(IntEnum):
    """Kind of memory: constants, variables, scratch memory of one task, and what belongs to a launch or a loop from run to run.

    In a program that packs constants when it is loaded, RAW is what it packs, and PACKED what it gets.
    """

    DATA, ARENA, WORKSPACE, PLACES, RAW, PACKED = range(6)


@dataclass(frozen=True, eq=False)
class Block:
    """Memory of a region. The array is referenced, so the memory stays."""

    region: Region
    memory: Array
    address: int


class Blocks:
    """Memories of a program by address."""

    def __init__(self) -> None:
        self._begins: list[int] = []
        self._blocks: list[Block] = []

    def add(self, region: Region, memory: Array) -> Block:
        """Adds the memory of a contiguous array."""
        block = Block(region, memory, memory.__array_interface__["data"][0])
        at = bisect_right(self._begins, block.address)
        self._begins.insert(at, block.address)
        self._blocks.insert(at, block)
        return block

    def found(self, array: Array) -> tuple[Block, int] | None:
        """Finds the block of an array and the array's offset in bytes. Returns None for memory that was not added."""
        address = array.__array_interface__["data"][0]
        at = bisect_right(self._begins, address) - 1
        if at >= 0 and address - self._begins[at] < max(self._blocks[at].memory.nbytes, 1):
            return self._blocks[at], address - self._begins[at]
        return None

    def of(self, array: Array) -> tuple[Block, int]:
        """Finds the block of an array and the array's offset in bytes. Memory that was not added is a constant's."""
        if (found := self.found(array)) is not None:
            return found
        address = array.__array_interface__["data"][0]
        low, high = _extent(owner(array))
        if not low <= address < high:
            low, high = _extent(array)
        return self.add(Region.DATA, np.asarray(Memory(low, high - low, array))), address - low


def owner(array: Array) -> Array:
    """Gives the array whose memory an array is a part of, or all."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


def _extent(array: Array) -> tuple[int, int]:
    """Returns the first address of an array's elements, and the end."""
    low = high = array.__array_interface__["data"][0]
    if array.size:
        low += sum((n - 1) * s for n, s in zip(array.shape, array.strides) if s < 0)
        high += sum((n - 1) * s for n, s in zip(array.shape, array.strides) if s > 0)
    return low, high + array.itemsize


@dataclass(frozen=True)
class Transfer:
    """Step that moves an input or output of the caller, in a program for a file: its kind and its words."""

    kind: int
    words: tuple[Word, ...]

    def __call__(self) -> None:
        raise AssertionError("a step that only a built program runs")


OWN = "words"  # the target of places in the words themselves
Target: TypeAlias = "Kernel | Block | str"


class Image:
    """Words of a program, and which of them are places.

    `steps`: number of steps. `words`: numbers, and offsets of places. `at`: positions of places. `target`: the number of each
    place's target in `targets`.
    """

    def __init__(self, rows: Sequence[Sequence[Word]], launches: dict[int, Launch], blocks: Blocks):
        self.steps = len(rows)
        self.targets: list[Target] = [OWN]
        self._numbers: dict[int, int] = {}  # of targets, by identity: kernels of equal keys are made one first
        self._kernels: dict[Kernel, Kernel] = {}
        words: list[int] = []
        places: list[tuple[int, int]] = []

        def add(word: Word) -> None:
            if isinstance(word, Kernel):
                places.append((len(words), self._number(self._kernels.setdefault(word, word))))
                words.append(0)
            elif isinstance(word, np.ndarray) and not word.size:
                words.append(0)
            elif isinstance(word, np.ndarray):
                block, offset = blocks.of(word)
                places.append((len(words), self._number(block)))
                words.append(offset)
            else:
                words.append(int(word))

        end = WORDS * len(rows)
        for number, row in enumerate(rows):
            for word in row:
                add(word)
            if number in launches:
                launch = launches[number]
                add(launch.kernel)
                places.append((len(words), 0))
                for word in (8 * end, launch.units, max(launch.work, LEAST)):
                    add(word)
                end += len(launch.args)
            words.extend([0] * (WORDS * (number + 1) - len(words)))
        for launch in launches.values():
            for word in launch.args:
                add(word)
        self.words = np.array(words, np.int64)
        found = np.array(places, np.int64).reshape(-1, 2)
        self.at, self.target = found[:, 0], found[:, 1]

    @staticmethod
    def joined(images: Sequence[Image], first: Sequence[tuple[int, int]]) -> Image:
        """Joins the words of programs: all steps, then all arguments. `first`: the numbers of each program's first input and output."""
        whole, steps = Image([], {}, Blocks()), sum(image.steps for image in images)
        rows, args, at, target = list[Array](), list[Array](), list[Array](), list[Array]()
        begin, behind = 0, WORDS * steps  # of an image: its first step, its first argument
        for image, numbers in zip(images, first, strict=True):
            end = WORDS * image.steps

            def moved(places: Array, end: int = end, begin: int = begin, behind: int = behind) -> Array:
                return places + np.where(places < end, WORDS * begin, behind - end)

            words = image.words.copy()
            table = words[:end].reshape(-1, WORDS)
            for kind, word in AIMS.items():
                table[table[:, 0] == kind, word] += begin
            for kind, number in zip((IN, OUT), numbers):
                table[table[:, 0] == kind, 1] += number
            own = image.at[image.target == 0]
            words[own] = 8 * moved(words[own] // 8)
            rows.append(words[:end])
            args.append(words[end:])
            at.append(moved(image.at))
            target.append(np.where(image.target == 0, 0, image.target + len(whole.targets) - 1))
            whole.targets += image.targets[1:]
            begin, behind = begin + image.steps, behind + len(words) - end
        whole.steps, whole.words = steps, np.concatenate([*rows, *args])
        whole.at, whole.target = np.concatenate(at), np.concatenate(target)
        return whole

    def _number(self, target: Kernel | Block) -> int:
        if id(target) not in self._numbers:
            self._numbers[id(target)] = len(self.targets)
            self.targets.append(target)
        return self._numbers[id(target)]

    def bound(self, address: Callable[[Kernel | Block], int]) -> NDArray[np.int64]:
        """Gives a copy of the words with addresses."""
        words = self.words.copy()
        own: int = words.ctypes.data
        bases = np.array([own if isinstance(t, str) else address(t) for t in self.targets], np.int64)
        words[self.at] += bases[self.target]
        return words
