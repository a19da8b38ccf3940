"""`Launch`: a kernel with its arguments."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from populus.runtime.engine.native.codegen.jit import Code, Kernel, Library
from populus.runtime.engine.native.codegen.touched import Touched

Array = NDArray[Any]

_ENTRY = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)


@dataclass
class Launch:
    """Kernel `i64 kernel(ptr args, i64 first, i64 end)` on units first to end, with its arguments.

    An argument is a number, an array (its address), or another kernel (its address). `work`: an estimate of its time
    in ns. `refused`: called when the kernel returns anything but 0; it raises the error.
    """

    library: Library
    kernel: Kernel
    args: Sequence[int | Array | Kernel]
    units: int
    work: int = 0
    refused: Callable[[], object] | None = None
    words: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    code: tuple[Code, ...] = ()  # that `words` have addresses of

    @property
    def kernels(self) -> list[Kernel]:
        """Lists the kernels that must be loaded before the launch runs."""
        return [self.kernel, *(a for a in self.args if isinstance(a, Kernel))]

    def bind(self) -> None:
        """Writes the arguments as machine words, once the kernels are loaded."""
        if not self.words.size:
            self.words = np.array([self._word(a) for a in self.args], np.int64)

    def _word(self, arg: int | Array | Kernel) -> int:
        if isinstance(arg, Kernel):
            return self.library.address(arg)
        if isinstance(arg, np.ndarray):
            return arg.ctypes.data
        return int(arg)

    def __call__(self) -> None:
        """Runs all units on this thread, now. Raises the error of a refusal."""
        self.code = self.code or self.library.load(self.kernels)
        self.bind()
        if _ENTRY(self.library.address(self.kernel))(self.words.ctypes.data, 0, self.units):
            self.refuse()

    @property
    def touched(self) -> Touched | None:
        """Elements that it reads and writes, as its kernel states them; None if it does not."""
        return None if self.kernel.touches is None else self.kernel.touches(self.args, self.units)

    def refuse(self) -> None:
        """Raises the error of a kernel that returned anything but 0."""
        assert self.refused is not None, self.kernel.key
        self.refused()
        raise AssertionError(self.kernel.key)
