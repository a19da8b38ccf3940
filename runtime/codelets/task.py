"""The task of a kernel: one box of a family's iteration space, with a piece of each field.

    def bind(task: Task) -> Run:
        x, y = task["x"], task["y"]
        return lambda: np.negative(x, out=y)

`bind` runs once, when the program is loaded. The run that it returns is called in each execute. A run writes all
elements of its outputs and nothing else, and assumes nothing about their earlier contents. Its results must not
depend on the cuts of parallel axes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np
from numpy.typing import DTypeLike, NDArray

from populus.dialects.expr import Expr
from populus.dialects.poplar.partition import Access, Box
from populus.runtime.codelets.undefined import marked

Array: TypeAlias = NDArray[Any]
Run: TypeAlias = Callable[[], object]
Param: TypeAlias = "bool | int | float | str | Expr | tuple[Param, ...]"


class Window(NamedTuple):
    """The windows along one dimension: element `o stride + k dilation - before`."""

    stride: int
    dilation: int
    before: int


@dataclass(frozen=True, slots=True)
class Piece:
    """The part of one field that a task reads or writes.

    `array`: the part of the view that the box touches, with the view's number of dimensions; inputs are read-only.
    `access`: the field's access. `pads`: for each dimension the extent of the box beyond the view (before, after),
    which the array leaves out. `constant`: the elements never change, so binding may convert or pack them. `whole`: the
    shape of the whole view.
    """

    array: Array
    access: tuple[Access, ...]
    pads: tuple[tuple[int, int], ...]
    constant: bool = False
    whole: tuple[int, ...] = ()

    def windows(self, outs: str, taps: str) -> tuple[Window, ...]:
        """Lists the windows of the dimensions that axes `outs` and `taps`, each with a number, walk over."""
        found: list[Window] = []
        for access in self.access:
            steps = {axis[0]: c for axis, c in access.terms}
            if len(access.terms) == 2:
                found.append(Window(steps[outs], steps[taps], -access.offset))
        return tuple(found)

    def dimension(self, axis: str) -> int:
        """Finds the dimension whose access is exactly `axis`. Raises ValueError if there is none."""
        for d, access in enumerate(self.access):
            if len(access.terms) == 1 and access.terms[0][0] == axis and not access.part:
                return d
        raise ValueError(f"no dimension is accessed by {axis} in [{', '.join(map(str, self.access))}]")

    def without_parts(self) -> Array:
        """Drops the leading `at axis` dimensions, which have one element, from the array."""
        lead = 0
        while lead < len(self.access) and self.access[lead].part:
            lead += 1
        return self.array.reshape(self.array.shape[lead:], copy=False) if lead else self.array


class Workspace:
    """Scratch memory that an engine's tasks share one after the other. Its initial contents are undefined."""

    def __init__(self, bytes: int = 1 << 23):
        # Untouched pages cost nothing, so the initial size is generous.
        self._memory: NDArray[np.uint8] = marked(np.empty(bytes, np.uint8))
        self.memories: list[NDArray[np.uint8]] = [self._memory] if bytes else []  # all that tasks have parts of
        self.owned: list[NDArray[np.uint8]] = []
        self.needed = 0  # bytes that the tasks have reserved so far
        self.busy: NDArray[np.int64] | None = None  # places that chunks hold, a bit each; None: each chunk has its own
        self.places = 0  # as many as there are with `busy`

    def reserve(self, begin: int, bytes: int) -> NDArray[np.uint8]:
        """Reserves `bytes` bytes from `begin`. Larger memory is new, and earlier tasks keep the old."""
        self.needed = max(self.needed, begin + bytes)
        if begin + bytes > self._memory.size:
            self._memory = marked(np.empty(2 * (begin + bytes), np.uint8))
            self.memories.append(self._memory)
        return self._memory[begin : begin + bytes]

    def own(self, bytes: int) -> NDArray[np.uint8]:
        """Makes zeroed memory that keeps its content from run to run."""
        self.owned.append(np.zeros(bytes, np.uint8))
        return self.owned[-1]


Filling: TypeAlias = "Callable[[Array, Array], Callable[[], None]]"  # of constant elements and new memory: what packs them into it


class PackedForms(Protocol):
    """Constants that keep packed forms of themselves, which programs may share."""

    def form(self, begin: int, key: Hashable, pack: Callable[[], Array]) -> Array:
        """Gives the form `key` of the elements at the address `begin`. `pack` makes it where there is none."""
        ...

    def filled(self, source: Array, key: Hashable, room: Callable[[], Array], filling: Filling) -> Array:
        """Gives the form `key` of constant elements, which a launch fills: `filling(source, room())`."""
        ...


@dataclass(slots=True)
class Task:
    """One box of a family: the codelet's parameters, the box (axis -> first, end, part), and the pieces by field."""

    params: Mapping[str, Param]
    box: Box
    fields: Mapping[str, Piece]
    workspace: Workspace = field(default_factory=Workspace)
    used: int = 0
    packed: list[object] = field(default_factory=list[object])  # packed constants, made while binding
    constants: PackedForms | None = None  # which keep what is packed from them
    threads: int = 1  # that share the launches of a native program

    def __getitem__(self, name: str) -> Array:
        return self.fields[name].array

    def size(self, axis: str) -> int:
        """Counts the box's elements along `axis`."""
        first, end, _ = self.box[axis]
        return end - first

    def ints(self, name: str) -> tuple[int, ...]:
        """Reads a parameter that is a list of integers."""
        value = self.params[name]
        assert isinstance(value, tuple), (name, value)
        return tuple(v for v in value if isinstance(v, int))

    def number(self, name: str) -> float | int:
        """Reads a parameter that is a number."""
        value = self.params[name]
        assert isinstance(value, bool | int | float), (name, value)
        return value

    def text(self, name: str) -> str:
        """Reads a parameter that is a string."""
        value = self.params[name]
        assert isinstance(value, str), (name, value)
        return value

    def scratch(self, shape: Sequence[int], dtype: DTypeLike) -> Array:
        """Allocates memory that this task owns until its run ends; other tasks and runs overwrite it."""
        type = np.dtype(dtype)
        count = 1
        for n in shape:
            count *= n
        bytes = count * type.itemsize
        memory = self.workspace.reserve(self.used, bytes)
        self.used += -(-bytes // 64) * 64
        return np.ndarray(tuple(shape), type, memory)

    def own(self, shape: Sequence[int], dtype: DTypeLike) -> Array:
        """Allocates zeroed memory that only this task uses, and that keeps its content."""
        type = np.dtype(dtype)
        return self.workspace.own(math.prod(shape) * type.itemsize).view(type).reshape(tuple(shape))


SMALL_FLOATS = frozenset(
    ("float16", "bfloat16", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu", "float4_e2m1fn")
)  # stored in these types, computed in float32


def arithmetic(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Returns the dtype in which values of `dtype` are summed: float32 for the 16- and 8-bit floats, else itself."""
    return np.dtype(np.float32) if dtype.name in SMALL_FLOATS else dtype


def seen_as(array: Array, shape: tuple[int, ...]) -> Array | None:
    """Reshapes an array without a copy. Returns None if its strides do not allow it."""
    try:
        return array.reshape(shape, copy=False)
    except ValueError:
        return None


def nothing() -> None:
    """Does nothing: the run of a task without elements."""


def sequence(steps: Sequence[Run]) -> Run:
    """Joins runs into one that calls them in order."""
    match steps:
        case []:
            return nothing
        case [only]:
            return only
        case [first, second]:

            def two() -> None:
                first()
                second()

            return two
        case _:
            frozen = tuple(steps)

            def run() -> None:
                for step in frozen:
                    step()

            return run
