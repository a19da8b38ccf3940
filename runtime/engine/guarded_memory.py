"""Guarded memory: each variable between pages that cannot be touched, with patterned gaps that are compared after each step.

`POPULUS_GUARD=1` runs the `numpy` and `native` engines on it. A kernel that leaves its variables by more than a gap ends the
process with SIGSEGV, at the very instruction; one that stays in the gap is found after its step. Variables share no memory then.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from typing import Any

import numpy as np
from numpy.typing import NDArray

from populus.dialects.support.diagnostics import PopulusError
from populus.runtime.codelets.task import Workspace
from populus.runtime.engine.arena import ALIGNMENT

VARIABLE = "POPULUS_GUARD"
PAGE = mmap.PAGESIZE
_PATTERN = 0xC9
_NO_ACCESS = 0  # PROT_NONE


def guarded() -> bool:
    """Tells whether programs are to run on guarded memory."""
    return os.environ.get(VARIABLE, "") not in ("", "0")


class GuardedMemory:
    """Blocks of memory, each followed by a gap of less than ALIGNMENT bytes and by a page without access; before it is one too."""

    def __init__(self) -> None:
        self._gaps: list[tuple[str, NDArray[np.uint8]]] = []
        self._protect = _mprotect()

    def block(self, bytes: int, name: str) -> NDArray[np.uint8]:
        """Allocates zeroed memory that ends as near to the page without access as ALIGNMENT allows: [bytes]."""
        room = -(-bytes // ALIGNMENT) * ALIGNMENT
        pages = -(-room // PAGE) + 2
        whole = np.frombuffer(mmap.mmap(-1, pages * PAGE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS), np.uint8)
        end = (pages - 1) * PAGE
        begin = end - room
        before, after = whole[PAGE:begin], whole[begin + bytes : end]
        for gap in (before, after):
            if gap.size:
                gap[:] = _PATTERN
                self._gaps.append((name, gap))
        for at in (0, end):
            if self._protect(ctypes.c_void_p(whole.ctypes.data + at), ctypes.c_size_t(PAGE), _NO_ACCESS):
                raise PopulusError(f"{VARIABLE}: the system refuses to protect a page; run without it")
        return whole[begin : begin + bytes]

    def check(self) -> None:
        """Raises AssertionError, naming the variable, if bytes beside one were written."""
        for name, gap in self._gaps:
            assert (gap == _PATTERN).all(), f"{int((gap != _PATTERN).sum())} bytes beside '{name}' were written"


class GuardedWorkspace(Workspace):
    """Scratch memory of which each piece is a block of its own."""

    def __init__(self, memory: GuardedMemory):
        super().__init__(0)
        self._guarded = memory

    def reserve(self, begin: int, bytes: int) -> NDArray[np.uint8]:
        """Allocates a block; nothing is shared."""
        return self._guarded.block(bytes, "scratch memory")


def _mprotect() -> Any:
    try:
        return ctypes.CDLL(None, use_errno=True).mprotect
    except (AttributeError, OSError, TypeError):
        raise PopulusError(f"{VARIABLE} needs mprotect, which this system does not have; run without it") from None
