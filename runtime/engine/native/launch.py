"""Kernels with their arguments, and the table of them that one native call walks."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from populus.runtime.engine.native.jit import Kernel, Library
from populus.runtime.engine.native.machine import Machine

Array = NDArray[Any]


def steps_text(name: str, machine: Machine) -> str:
    """`i64 steps(table, first, end)`: calls each step's kernel on all of its units; the number of a step that failed, else -1.

    A step is three words: the kernel, its arguments, its units.
    """
    return f"""
define i64 @{name}(ptr %table, i64 %first, i64 %end) {{
entry:
  br label %head
head:
  %i = phi i64 [ %first, %entry ], [ %next, %done ]
  %more = icmp slt i64 %i, %end
  br i1 %more, label %body, label %out
body:
  %at = mul i64 %i, 3
  %p = getelementptr i64, ptr %table, i64 %at
  %kernel = load ptr, ptr %p
  %p1 = getelementptr i64, ptr %p, i64 1
  %args = load ptr, ptr %p1
  %p2 = getelementptr i64, ptr %p, i64 2
  %units = load i64, ptr %p2
  %status = call i64 %kernel(ptr %args, i64 0, i64 %units)
  %failed = icmp ne i64 %status, 0
  br i1 %failed, label %stop, label %done
done:
  %next = add i64 %i, 1
  br label %head
stop:
  ret i64 %i
out:
  ret i64 -1
}}
"""


STEPS = Kernel("steps", steps_text)


@dataclass
class Launch:
    """A kernel `i64 kernel(ptr args, i64 first, i64 end)` on units first to end, and its arguments.

    An argument is a number, an array (its address), or another kernel (its address). `refused`: what to call when the kernel
    returns anything but 0, to say why.
    """

    library: Library
    kernel: Kernel
    args: Sequence[int | Array | Kernel]
    units: int
    refused: Callable[[], object] | None = None
    words: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))

    @property
    def kernels(self) -> list[Kernel]:
        return [self.kernel, *(a for a in self.args if isinstance(a, Kernel))]

    def bind(self) -> None:
        """Writes the arguments down, once the kernels are loaded."""
        self.words = np.array([self._word(a) for a in self.args], np.int64)

    def _word(self, arg: int | Array | Kernel) -> int:
        if isinstance(arg, Kernel):
            return self.library.address(arg)
        if isinstance(arg, np.ndarray):
            return arg.ctypes.data
        return int(arg)

    def __call__(self) -> None:
        Batch(self.library, [self])()


class Batch:
    """Launches in order, as one native call."""

    def __init__(self, library: Library, launches: Sequence[Launch]):
        library.load([STEPS, *(k for launch in launches for k in launch.kernels)])
        self.launches = list(launches)
        for launch in launches:
            if not launch.words.size:
                launch.bind()
        rows = [(library.address(l.kernel), l.words.ctypes.data, l.units) for l in launches]
        self._table = np.array(rows, np.int64).reshape(-1, 3)
        prototype = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
        self._steps = prototype(library.address(STEPS))
        self._at, self._count = self._table.ctypes.data, len(self.launches)

    def __call__(self) -> None:
        failed = int(self._steps(self._at, 0, self._count))
        if failed >= 0:
            refused = self.launches[failed].refused
            assert refused is not None, self.launches[failed].kernel.key
            refused()
            raise AssertionError(self.launches[failed].kernel.key)
