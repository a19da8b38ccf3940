"""`multi_slice`, `fill` and `iota`: rows by index, and what is known when the program is loaded."""

from __future__ import annotations

from functools import partial

import numpy as np

from populus.runtime.codelets import KERNELS
from populus.runtime.codelets.task import Piece, Task
from populus.runtime.engine.native.contraction import offsets
from populus.runtime.engine.native.copies import copy
from populus.runtime.engine.native.jit import Kernel, Library
from populus.runtime.engine.native.launch import Launch
from populus.runtime.engine.native.machine import Machine
from populus.runtime.engine.native.text import Function


def _take(width: int, name: str, machine: Machine) -> str:
    """Units are indices of `width` bytes. 1 for one outside the table, before anything beyond it is read."""
    f = Function(name)
    table, indices, y, outer_x, outer_y, outers, n, row, step, leap = f.args("pppppiiiii")
    f.line("br label %start")
    f.start("start")
    type = f"i{8 * width}"

    def check(i: str, bad: str) -> list[str]:
        index = f.load(type, f.at(indices, i, type))
        index = f.let(f"sext {type} {index} to i64") if width < 8 else index
        return [f.let(f"or i1 {bad}, {f.let(f'icmp uge i64 {index}, {n}')}")]

    [bad] = f.loop("%first", "%end", check, [("i1", "false")])
    f.line(f"br i1 {bad}, label %refuse, label %copy")
    f.lines += ["refuse:", "  ret i64 1"]
    f.start("copy")

    def one(i: str) -> None:
        index = f.load(type, f.at(indices, i, type))
        index = f.let(f"sext {type} {index} to i64") if width < 8 else index
        source, target = f.beyond(table, f.mul(index, step)), f.beyond(y, f.mul(i, leap))

        def part(o: str) -> None:
            x = f.beyond(source, f.load("i64", f.at(outer_x, o, "i64")))
            to = f.beyond(target, f.load("i64", f.at(outer_y, o, "i64")))
            f.call("void", "llvm.memcpy.p0.p0.i64", ("ptr", to), ("ptr", x), ("i64", row), ("i1 immarg", "false"))

        f.loop(0, outers, part)

    f.loop("%first", "%end", one)
    return f.done()


def multi_slice(library: Library, task: Task) -> list[Launch] | None:
    """`y[t.., i.., t..] = table[t.., indices[i..], t..]`. The launch is refused for an index outside the table."""
    table, indices, y, dim = task["table"], task["indices"], task["y"], int(task.number("dim"))
    inner = table[(0,) * (dim + 1)] if table.size else table
    count = indices.ndim
    if (
        0 in (table.size, y.size)
        or table.dtype != y.dtype
        or not indices.flags.c_contiguous
        or indices.dtype.name not in ("int32", "int64")
    ):
        return None
    tail = y[(0,) * (dim + count)]
    middle = y[(0,) * dim][(..., *(0,) * tail.ndim)]
    if not inner.flags.c_contiguous or not tail.flags.c_contiguous or inner.shape != tail.shape:
        return None
    steps = offsets(middle.shape, middle.strides)
    leap = int(steps[1]) if len(steps) > 1 else 0
    if (np.diff(steps) != leap).any():
        return None
    outer_x, outer_y = offsets(table.shape[:dim], table.strides[:dim]), offsets(y.shape[:dim], y.strides[:dim])
    width = indices.itemsize
    refused = KERNELS["multi_slice"](task)
    args = [table, indices, y, outer_x, outer_y, len(outer_x), table.shape[dim], inner.nbytes, table.strides[dim], leap]
    return [Launch(library, Kernel(f"take {width}", partial(_take, width)), args, indices.size, y.nbytes // 8, refused)]


def _known(codelet: str, library: Library, task: Task) -> list[Launch] | None:
    """A copy of what the codelet writes, which is known already."""
    piece = task.fields["y"]
    values = np.empty(piece.array.shape, piece.array.dtype)
    if values.size == 0:
        return []
    KERNELS[codelet](Task(task.params, task.box, {"y": Piece(values, piece.access, piece.pads)}))()
    if codelet == "fill":
        values = np.broadcast_to(values.reshape(-1)[:1].reshape(()), values.shape)
    return copy(library, values, piece.array)


fill = partial(_known, "fill")
iota = partial(_known, "iota")
