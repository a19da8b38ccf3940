"""What a kernel works on: one box of a family's iteration space, with a piece of each field.

    def bind(task: Task) -> Run:
        x, y = task["x"], task["y"]
        return lambda: np.negative(x, out=y)

`bind` runs once, when the program is loaded; what it returns runs in each execute. It writes all of its outputs and nothing
else, and finds in them nothing that it left there. What it gives must not depend on how the parallel axes were cut.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import DTypeLike, NDArray

from populus.dialects.expr import Expr
from populus.dialects.poplar.partition import Access, Box

Array: TypeAlias = NDArray[Any]
Run: TypeAlias = Callable[[], object]
Param: TypeAlias = "bool | int | float | str | Expr | tuple[Param, ...]"


@dataclass(frozen=True, slots=True)
class Piece:
    """What a task sees of one field.

    `array`: the part of the view that the box touches, one dimension for each of the view's; inputs are read-only. `access`:
    that of the field. `pads`: for each dimension how far the box hangs over the view (before, behind), which the array
    leaves out. `constant`: the elements never change, so they may be converted or packed while binding.
    """

    array: Array
    access: tuple[Access, ...]
    pads: tuple[tuple[int, int], ...]
    constant: bool = False

    def dimension(self, axis: str) -> int:
        """The dimension whose access is just `axis`. Raises ValueError if there is none."""
        for d, access in enumerate(self.access):
            if len(access.terms) == 1 and access.terms[0][0] == axis and not access.part:
                return d
        raise ValueError(f"no dimension is accessed by {axis} in [{', '.join(map(str, self.access))}]")

    def without_parts(self) -> Array:
        """The array without its leading `at axis` dimensions, which have one element."""
        lead = 0
        while lead < len(self.access) and self.access[lead].part:
            lead += 1
        return self.array.reshape(self.array.shape[lead:], copy=False) if lead else self.array


class Workspace:
    """Memory that the tasks of an engine share, one after the other: what a task finds in it is anything."""

    def __init__(self, bytes: int = 1 << 23):
        # Pages that no task writes cost nothing, so the first guess is generous.
        self._memory: NDArray[np.uint8] = np.empty(bytes, np.uint8)

    def reserve(self, begin: int, bytes: int) -> NDArray[np.uint8]:
        """`bytes` bytes from `begin`; of a new and larger memory if need be, which earlier tasks do not see."""
        if begin + bytes > self._memory.size:
            self._memory = np.empty(2 * (begin + bytes), np.uint8)
        return self._memory[begin : begin + bytes]


@dataclass(slots=True)
class Task:
    """One box of a family: the codelet's parameters, the box (axis -> first, end, part), and the pieces by field name."""

    params: Mapping[str, Param]
    box: Box
    fields: Mapping[str, Piece]
    workspace: Workspace = field(default_factory=Workspace)
    used: int = 0
    packed: list[object] = field(default_factory=list[object])  # forms of constants that were made while binding

    def __getitem__(self, name: str) -> Array:
        return self.fields[name].array

    def size(self, axis: str) -> int:
        """How many elements of `axis` the box has."""
        first, end, _ = self.box[axis]
        return end - first

    def ints(self, name: str) -> tuple[int, ...]:
        """A parameter that is a list of integers."""
        value = self.params[name]
        assert isinstance(value, tuple), (name, value)
        return tuple(v for v in value if isinstance(v, int))

    def number(self, name: str) -> float | int:
        """A parameter that is a number."""
        value = self.params[name]
        assert isinstance(value, bool | int | float), (name, value)
        return value

    def text(self, name: str) -> str:
        """A parameter that is a string."""
        value = self.params[name]
        assert isinstance(value, str), (name, value)
        return value

    def scratch(self, shape: Sequence[int], dtype: DTypeLike) -> Array:
        """Memory of this task until it is done; the next task, and the next run, find it changed."""
        type = np.dtype(dtype)
        count = 1
        for n in shape:
            count *= n
        bytes = count * type.itemsize
        memory = self.workspace.reserve(self.used, bytes)
        self.used += -(-bytes // 64) * 64
        return np.ndarray(tuple(shape), type, memory)


SMALL_FLOATS = frozenset(
    ("float16", "bfloat16", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu", "float4_e2m1fn")
)  # kept in these, computed in float32


def arithmetic(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The dtype in which values of `dtype` are summed: float32 for the 16- and 8-bit floats, else itself."""
    return np.dtype(np.float32) if dtype.name in SMALL_FLOATS else dtype


def seen_as(array: Array, shape: tuple[int, ...]) -> Array | None:
    """The same memory under another shape; None where its strides cannot say that."""
    try:
        return array.reshape(shape, copy=False)
    except ValueError:
        return None


def nothing() -> None:
    """The run of a task without elements."""


def sequence(steps: Sequence[Run]) -> Run:
    """One run after the other."""
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
