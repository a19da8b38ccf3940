"""Products of 8-bit integers in tile registers (AMX of x86): 16 rows by 64 bytes times 64 bytes by 16 columns; always exact.

A process asks the system for these registers once. `Machine.tiles` tells whether it has them. Each register is a number in the
text, so a kernel that uses them calls none that does.

| register | content |
|---|---|
| 0 to 3 | sums: two blocks of rows by two vectors of columns |
| 4, 5 | left-hand side: 16 rows by up to 64 bytes of k, unsigned |
| 6, 7 | right-hand side: up to 16 rows, each with four bytes of k for 16 columns, signed; as panels are packed for `vpdpbusd` |
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from populus.runtime.engine.native.codegen.llvm_builder import Function

ROWS, VECTORS = 32, 2  # of a block of sums in four registers
LINE = 64  # bytes of a register's row
LEFT, RIGHT = 4, 6


def shape_of(groups: int) -> NDArray[np.uint8]:
    """Gives the shapes of the registers, as the CPU reads them, for steps of `groups` times four bytes of k."""
    shape = np.zeros(LINE, np.uint8)
    shape[0] = 1  # the only palette
    bytes, rows = shape[16:32].view(np.uint16), shape[48:56]
    bytes[:8], rows[:] = LINE, 16
    bytes[LEFT:RIGHT], rows[RIGHT:] = 4 * groups, groups
    return shape


def begin(f: Function, shape: str) -> None:
    """Emits the beginning of the use of registers; all become 0."""
    f.call("void", "llvm.x86.ldtilecfg", ("ptr", shape))


def end(f: Function) -> None:
    """Emits the end of the use of registers."""
    f.call("void", "llvm.x86.tilerelease")


def load(f: Function, register: int, place: str, step: str | int) -> None:
    """Loads a register whose rows are `step` bytes apart; 0 gives all rows the same content."""
    f.call("void", "llvm.x86.tileloadd64", ("i8 immarg", str(register)), ("ptr", place), ("i64", str(step)))


def store(f: Function, register: int, place: str, step: str | int) -> None:
    """Stores a register whose rows are `step` bytes apart."""
    f.call("void", "llvm.x86.tilestored64", ("i8 immarg", str(register)), ("ptr", place), ("i64", str(step)))


def add_product(f: Function, sums: int, left: int, right: int) -> None:
    """Adds the product of ui8 by i8 to the sums."""
    f.call("void", "llvm.x86.tdpbusd", ("i8 immarg", str(sums)), ("i8 immarg", str(left)), ("i8 immarg", str(right)))
