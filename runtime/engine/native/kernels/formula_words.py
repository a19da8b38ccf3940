"""Formulas of a `map` on sums that a kernel holds: the words of their arguments, and the call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from populus.runtime.codelets.task import Array
from populus.runtime.engine.native.codegen.jit import Kernel
from populus.runtime.engine.native.codegen.llvm_builder import Function
from populus.runtime.engine.native.codegen.touched import Arguments, Elements
from populus.runtime.engine.native.kernels.panels import Table

WORDS = 64  # arguments of a formula, at most


@dataclass(frozen=True)
class Epilogue:
    """A formula's kernel and its arguments: addresses of `arrays`, which are the first `words`, then sizes and strides.

    `moves`: for each address the bytes between rows and between columns of the sums. `sums`, `width`, `step`: which words are
    the address of the sums, the number of columns, and the elements between rows of the sums.
    """

    kernel: Kernel
    words: Table
    moves: Table
    sums: int
    width: int
    step: int
    arrays: Sequence[Array]

    def arguments(self) -> list[int | Array | Kernel]:
        """Lists the arguments as `call_formula` takes them."""
        numbers = len(self.moves), len(self.words), self.sums, self.width, self.step
        return [self.kernel, self.words, self.moves, *numbers, *self.arrays]


def formula_touches(args: Arguments, rows: int, columns: int) -> tuple[list[Elements], list[Elements]]:
    """States what a formula on sums [rows, columns] reads beside them, and writes. `args`: as `Epilogue.arguments` lists them."""
    kernel, words, moves, pointers, _, sums, width, _, *arrays = args
    assert isinstance(kernel, Kernel), kernel
    assert kernel.touches is not None, kernel.key
    given: list[Any] = [*arrays, *words[pointers:].tolist()]
    given[width] = columns
    inner = kernel.touches(given, rows)
    starts = [Elements.at(a, a.itemsize, (rows, int(i)), (columns, int(j))) for a, (i, j) in zip(arrays, moves)]
    reads = [e for i, pair in enumerate(zip(inner.reads, starts)) if i != sums for e in pair]
    written, start = inner.writes[0], starts[-1]
    same = all(np.array_equal(a, b) for a, b in zip(written.tables, start.tables))
    return reads, [written] if same else [written, start]


def call_formula(f: Function, first: int, room: str, row: str, column: str, rows: str, width: str, step: str, sums: str) -> None:
    """Emits the call of a formula on sums [rows, width], `step` elements from row to row, which begin at a row and column.

    Argument `first` of the kernel and those after it are `Epilogue.arguments`. `room`: memory for WORDS words.
    """
    call, words, moves, pointers, count, place_of_sums, place_of_width, place_of_step = f.args_from(first, "pppiiiii")

    def word(w: str) -> None:
        f.store("i64", f.load("i64", f.at(words, w, "i64")), f.at(room, w, "i64"))

    def advance(p: str) -> None:
        by_row, by_column = (f.load("i64", f.at(moves, f.add(f.mul(p, 2), i), "i64")) for i in range(2))
        base = f.load("i64", f.at("%args", f.add(p, first + 8), "i64"))
        f.store("i64", f.add(base, f.add(f.mul(by_row, row), f.mul(by_column, column))), f.at(room, p, "i64"))

    f.loop(0, count, word)
    f.loop(0, pointers, advance)
    f.store("ptr", sums, f.at(room, place_of_sums, "i64"))
    f.store("i64", width, f.at(room, place_of_width, "i64"))
    f.store("i64", step, f.at(room, place_of_step, "i64"))
    f.let(f"call i64 {call}(ptr {room}, i64 0, i64 {rows})")
