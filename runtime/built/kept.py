"""`KeptProgram`: a frozen program that this process runs from Python, without a C compiler, from memory or from its files.

<name>.bin as `form.py` writes it · <name>.code the kernels as `code.py` writes them
"""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from populus.dialects.support.errors import ProgramError
from populus.dialects.support.guard import Guard
from populus.runtime.built.code import Flat, MappedCode
from populus.runtime.built.form import HEAD, MAGIC, SUMS, VERSION, Base, folded
from populus.runtime.built.library import Array, Runner, Type, type_of
from populus.runtime.built.steps import BUDGET, IN, OUT, WORDS, Step, Why
from populus.runtime.built.team import Team, shared_team

if TYPE_CHECKING:
    from numpy.typing import NDArray

_POPULATE = 22  # MADV_POPULATE_READ: Linux 5.14; an older one refuses it
_HUGE = 2 << 20  # bytes of a piece of a file, and of a memory that gets huge pages
_LARGE = 1 << 30  # bytes of a file from which only what runs read stays mapped
_MOST = 250


class Placed(NamedTuple):
    """A frozen program whose words have the addresses of its code and constants.

    `at`: the positions of words that are places, by what they are in: a session's memory, the words. `memory`: bytes of a session;
    `texts`: errors of steps that refuse; `kernels`: addresses of those that the runner calls, which are in `code`; `data`: the constants.
    `checks`: called before each run.
    """

    words: NDArray[np.int64]
    at: Mapping[Base, NDArray[np.int64]]
    steps: int
    memory: int
    inputs: dict[str, Type]
    outputs: dict[str, Type]
    texts: Mapping[int, str]
    shared: int
    kernels: Mapping[str, int]
    code: object
    data: object
    checks: Sequence[Callable[[], None]] = ()


class KeptProgram(Runner):
    """A frozen program, ready to run. Threads may share it; their runs take turns, and Ctrl-C ends one between its launches."""

    def __init__(self, placed: Placed, threads: int):
        self._placed, self.inputs, self.outputs = placed, placed.inputs, placed.outputs
        self._lock = Guard()
        self._memory = mmap.mmap(-1, max(placed.memory, 1), mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        if placed.memory >= _HUGE and hasattr(mmap, "MADV_HUGEPAGE"):
            with suppress(OSError):
                self._memory.madvise(mmap.MADV_HUGEPAGE)
        self._moved = len(placed.inputs)
        steps = placed.words[: WORDS * placed.steps].reshape(-1, WORDS)
        self._words = placed.words.copy()
        self._words[placed.at[Base.MEMORY]] += np.frombuffer(self._memory, np.uint8).ctypes.data
        self._words[placed.at[Base.WORDS]] += self._words.ctypes.data
        rows = self._words[: WORDS * placed.steps].reshape(-1, WORDS)
        moves = np.flatnonzero((steps[:, 0] == IN) | (steps[:, 0] == OUT)).tolist()
        self._arrays = len(placed.inputs) + len(placed.outputs)
        self._slots = (ctypes.c_int64 * (self._arrays + 1))()  # the addresses of a run's arrays; of ctypes, which takes them in 0.2 us
        self._arguments = np.zeros((len(moves) + 1, 3), np.int64)
        self._converts: dict[int, tuple[int, Array]] = {}  # by step: the slot of the caller's array, and the program's elements
        for step, arguments in zip(moves, self._arguments):
            self._move(step, rows[step], arguments)
        cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        size = min(threads or cpus, _MOST)
        k = placed.kernels
        self._team = shared_team(size, lambda: Team(k["walk"], k["worker"], placed.code, size))
        self._wakes, self._at = placed.shared > 0, self._words.ctypes.data
        self._process = os.getpid()

    def _move(self, step: int, row: NDArray[np.int64], arguments: NDArray[np.int64]) -> None:
        """Makes a step that moves a caller's array a launch, or one of Python where it converts elements."""
        kind, number, place, elements, source, target = row.tolist()[:6]
        slot = number if kind == IN else self._moved + number
        own = type_of(target if kind == IN else source)
        if source != target:
            memory = (ctypes.c_char * (elements * own.itemsize)).from_address(place) if elements else b""
            self._converts[step] = slot, np.frombuffer(memory, own)
            row[0] = Step.STOP
            return
        arguments[:] = ctypes.addressof(self._slots) + 8 * slot, place, elements * own.itemsize
        row[:] = Step.LAUNCH, self._placed.kernels["in" if kind == IN else "out"], arguments.ctypes.data, 1, 50, 1, 0, 0

    def rest(self) -> None:
        """Gives the memory of its variables back to the system, until the next run."""
        with self._lock.lock, suppress(OSError):
            self._memory.madvise(mmap.MADV_DONTNEED)

    def start(self, given: Sequence[Array], taken: Sequence[Array]) -> None:
        arrays = [*given, *taken]
        addresses = [array.__array_interface__["data"][0] for array in arrays]
        with self._lock.lock:
            self._walk(addresses, arrays)

    def started(self, given: Sequence[Array], taken: Sequence[Array]) -> Callable[[], None]:
        arrays = [*given, *taken]
        addresses = [array.__array_interface__["data"][0] for array in arrays]

        def run() -> None:
            with self._lock.lock:
                self._walk(addresses, arrays)

        return run

    def _walk(self, addresses: Sequence[int], arrays: Sequence[Array]) -> None:
        for check in self._placed.checks:
            check()
        self._slots[: self._arrays] = addresses
        if self._process != os.getpid():  # a forked child: threads that it does not have may hold places in scratch memory
            self._process = os.getpid()
            self._memory.madvise(mmap.MADV_DONTNEED)
        step = 0
        while True:
            came = self._team.walk(self._at, step, BUDGET, self._wakes)
            step, why = came >> 2, came & 3
            if why == Why.STOPPED:
                if step not in self._converts:
                    return
                slot, own = self._converts[step]
                if slot < self._moved:
                    _narrowed(list(self.inputs)[slot], arrays[slot].reshape(-1), own)
                else:
                    arrays[slot].reshape(-1)[...] = own
                step += 1
            elif why == Why.REFUSED:
                raise ProgramError(self._placed.texts.get(step, f"step {step} refused a value"))


def _narrowed(name: str, array: Array, to: Array) -> None:
    """Converts an input's elements. Raises ProgramError for a value that the narrower type does not hold."""
    with np.errstate(all="ignore"):
        np.copyto(to, array, casting="unsafe")
        lost = np.isfinite(array) & ~np.isfinite(to) if array.dtype.kind == "f" else to != array
    if lost.any():
        raise ProgramError(f"input '{name}' has a value that the program cannot hold; it was built for narrower types")


def load_kept(data: str, code: Flat, threads: int, identity: str) -> KeptProgram:
    """Loads a program from its file and its code, which has a kernel `number` for each of its own, and those of the runner by name.

    Raises ProgramError for a file that is damaged or another build's, and OSError if it cannot be read.
    """
    with open(data, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size < HEAD or size % 64:
            raise ProgramError(f"{data}: is not a program's data")
        content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    head: list[int] = np.frombuffer(content, np.uint64, HEAD // 8).tolist()
    if head[:2] != [MAGIC, VERSION] or content[16:32].hex() != identity or head[6] != size:
        raise ProgramError(f"{data}: is not this program's data")
    mapped = MappedCode(code)
    if size <= _LARGE:
        with suppress(OSError):
            content.madvise(_POPULATE)
    if _sums(content, mapped.addresses["sums"]) != content[8 * SUMS : 8 * SUMS + 16]:
        raise ProgramError(f"{data}: is damaged")
    steps, words, relocs, memory = head[9:13]
    counts, at, (texts, _, shared, kernels) = head[13:16], head[16:20], head[20:24]
    own = np.frombuffer(content, np.int64, words, at[0]).copy()
    places = np.frombuffer(content, np.uint32, relocs, at[1])
    positions = {base: (places[(places & 3) == base] >> 2).astype(np.int64) for base in Base}
    addresses = np.array([mapped.addresses[str(i)] for i in range(kernels)], np.int64)
    own[positions[Base.CODE]] = addresses[own[positions[Base.CODE]]]
    own[positions[Base.DATA]] += np.frombuffer(content, np.uint8).ctypes.data
    records = np.frombuffer(content, np.int64, 7 * sum(counts), at[2]).reshape(-1, 7).tolist()
    types = [_described(content, record) for record in records]
    said = np.frombuffer(content, np.int64, 2 * texts, at[3]).reshape(-1, 2).tolist()
    placed = Placed(
        own, positions, steps, memory, dict(types[: counts[0]]), dict(types[counts[0] : counts[0] + counts[1]]),
        {step: _text(content, place) for step, place in said}, shared, mapped.addresses, mapped, content,
    )  # fmt: skip
    return KeptProgram(placed, threads)


def _sums(content: mmap.mmap, kernel: int) -> bytes:
    """Computes the sums of a file, as `form.checksum` does, at the speed of memory."""
    call = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p)(kernel)
    head = np.frombuffer(content, np.uint64, HEAD // 8).copy()
    head[SUMS : SUMS + 2] = 0
    found, size = np.zeros(16, np.uint64), len(content)

    call(head.ctypes.data, HEAD // 64, found.ctypes.data)
    begin = np.frombuffer(content, np.uint8).ctypes.data
    for at in range(0, size, _HUGE):
        first, end = max(at, HEAD), min(at + _HUGE, size)
        call(begin + first, (end - first) // 64, found.ctypes.data)
        if size > _LARGE:
            content.madvise(mmap.MADV_DONTNEED, at, end - at)
    return b"".join(folded(columns).to_bytes(8, "little") for columns in (found[:8].tolist(), found[8:].tolist()))


def _described(content: mmap.mmap, record: Sequence[int]) -> tuple[str, Type]:
    name, shape, type, rank = record[:4]
    return _text(content, name), (tuple(np.frombuffer(content, np.int64, rank, shape).tolist()), type_of(type))


def _text(content: mmap.mmap, at: int) -> str:
    return content[at : content.find(b"\0", at)].decode(errors="replace")
