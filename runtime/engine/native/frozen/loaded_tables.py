"""Tables of offsets that loading makes from their counts and steps, so that a page does not ship them."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from populus.runtime.codelets.task import Array
from populus.runtime.engine.native.codegen.cpu import Machine
from populus.runtime.engine.native.codegen.jit import Kernel, Library
from populus.runtime.engine.native.codegen.llvm_builder import Function
from populus.runtime.engine.native.codegen.touched import Arguments, Elements, Touched
from populus.runtime.engine.native.kernels.launch import Launch
from populus.runtime.engine.native.run.image import Blocks, owner

LEAST = 4096  # bytes of a table that is worth a launch


def tables(library: Library, launches: Iterable[Launch], blocks: Blocks) -> list[tuple[Array, Array, Launch]]:
    """Lists the tables that launches read and that counts and steps determine: these, the table, and the launch that fills it.

    `blocks`: memory that is no constant's.
    """
    found: dict[int, tuple[Array, Array, Launch]] = {}
    for launch in launches:
        for table in launch.args:
            if not isinstance(table, np.ndarray) or table.ctypes.data in found or not _is_whole(table) or blocks.found(table):
                continue
            if (sides := sides_of(table.reshape(-1))) is not None:
                form = np.array([table.flat[0], *(word for side in sides for word in side)], np.int64)
                found[table.ctypes.data] = form, table, Launch(library, FILL, [form, table, len(sides)], 1, table.nbytes // 8)
    return list(found.values())


def _is_whole(array: Array) -> bool:
    """Tells whether an array of words is no part of another one."""
    return array.dtype == np.int64 and array.flags.c_contiguous and array.nbytes >= max(LEAST, owner(array).nbytes)


def sides_of(table: Array) -> list[tuple[int, int]] | None:
    """Gives counts and steps, from the last, of the sides of a box: a table lists their sums in row-major order, plus its first element.

    Returns None if it lists others.
    """
    found, length = list[tuple[int, int]](), 1
    while length < len(table):
        step = int(table[length] - table[0])
        rows = table[: len(table) // length * length].reshape(-1, length)
        wrong = np.flatnonzero((rows != rows[0] + step * np.arange(len(rows))[:, None]).any(1))
        count = int(wrong[0]) if wrong.size else len(rows)
        if count == 1 or len(table) % (count * length):
            return None
        found.append((count, step))
        length *= count
    return found


def _filled(name: str, machine: Machine) -> str:
    """Emits a table: each side repeats what is there, a step further each time."""
    f = Function(name)
    form, table, count = f.args("ppi")
    f.store("i64", f.load("i64", form), table)

    def side(d: str, length: str) -> list[str]:
        place = f.at(form, f.mul(d, 2), "i64")
        n, step = (f.load("i64", f.at(place, i, "i64")) for i in (1, 2))

        def row(i: str) -> None:
            moved, into = f.mul(i, step), f.at(table, f.mul(i, length), "i64")

            def one(j: str) -> None:
                f.store("i64", f.add(f.load("i64", f.at(table, j, "i64")), moved), f.at(into, j, "i64"))

            f.loop(0, length, one)

        f.loop(1, n, row)
        return [f.mul(length, n)]

    f.loop(0, count, side, [("i64", "1")])
    return f.done()


def _touched(args: Arguments, units: int) -> Touched:
    """States what a launch touches."""
    form, table, _ = args
    return Touched([Elements.of(form)], [Elements.of(table)])


FILL = Kernel("table of offsets", _filled, _touched, vectors=True)
