"""Kernels of rows by index (`multi_slice`, `dynamic_update`, `multi_update`) and of constants (`fill`, `iota`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from populus.dialects.poplar.partition import ALL
from populus.runtime.codelets import fill as constants
from populus.runtime.codelets import indexed, slices
from populus.runtime.codelets.task import Piece, Run, Task
from populus.runtime.endings import TYPES
from populus.runtime.engine.native.codegen.cpu import Machine
from populus.runtime.engine.native.codegen.jit import Kernel, Library
from populus.runtime.engine.native.codegen.llvm_builder import Function
from populus.runtime.engine.native.codegen.touched import Arguments, Elements, Touched
from populus.runtime.engine.native.kernels.copies import copy, dense, near
from populus.runtime.engine.native.kernels.launch import Launch
from populus.runtime.engine.native.kernels.native_support import of_numpy
from populus.runtime.engine.native.kernels.operands import WHOLE, Walk, axes_of, run_of, step_of, walk_over
from populus.runtime.engine.native.kernels.rows import combine


def _index(f: Function, width: int, indices: str, i: str) -> str:
    """Emits index i, of `width` bytes."""
    type = f"i{8 * width}"
    value = f.load(type, f.at(indices, i, type))
    return f.let(f"sext {type} {value} to i64") if width < 8 else value


def _outside(f: Function, index: Callable[[str], str], first: str | int, end: str | int, n: str) -> str:
    """Emits whether one of the indices from `first` to `end` is not of 0 .. n: then it, or n - 1 less it, has the sign of negative numbers.

    So a vector of indices takes a subtraction and two `or`, and nothing is compared before the end.
    """
    last = f.sub(n, 1)

    def look(i: str, signs: str) -> list[str]:
        at = index(i)
        return [f.let(f"or i64 {signs}, {f.let(f'or i64 {at}, {f.sub(last, at)}')}")]

    [signs] = f.loop(first, end, look, [("i64", "0")])
    return f.let(f"icmp slt i64 {signs}, 0")


def _take(width: int, item: int, name: str, machine: Machine) -> str:
    """Emits a gather of rows; of `item` bytes each, or if it is 0, of any size. Units are indices of `width` bytes.

    It returns 1 for an index outside the table, before any read outside.
    """
    f = Function(name)
    table, indices, y, outer_x, outer_y, outers, n, row, step, leap = f.args("pppppiiiii")
    f.line("br label %start")
    f.start("start")
    index = partial(_index, f, width, indices)
    f.line(f"br i1 {_outside(f, index, '%first', '%end', n)}, label %refuse, label %copy")
    f.lines += ["refuse:", "  ret i64 1"]
    f.start("copy")

    def ends(o: str) -> tuple[str, str]:
        return f.beyond(table, f.load("i64", f.at(outer_x, o, "i64"))), f.beyond(y, f.load("i64", f.at(outer_y, o, "i64")))

    def one(x: str, to: str, i: str) -> None:
        source, target = f.beyond(x, f.mul(index(i), step)), f.beyond(to, f.mul(i, leap))
        if item:
            f.store(f"i{8 * item}", f.load(f"i{8 * item}", source), target)
        else:
            f.call("void", "llvm.memcpy.p0.p0.i64", ("ptr", target), ("ptr", source), ("i64", row), ("i1 immarg", "false"))

    def along(o: str) -> None:
        f.loop("%first", "%end", partial(one, *ends(o)))

    def across(i: str) -> None:
        def part(o: str) -> None:
            one(*ends(o), i)

        f.loop(0, outers, part)

    if item:  # elements of a row of the table are neighbours
        f.loop(0, outers, along)
    else:
        f.loop("%first", "%end", across)
    return f.done()


def _taken(args: Arguments, units: int) -> Touched:
    """States what a launch of `_take` touches: any rows of the table."""
    table, indices, y, outer_x, outer_y, outers, n, row, step, leap = args
    reads = [Elements.at(table, row, outer_x[:outers], (n, step)), Elements.at(indices, indices.itemsize, (units, indices.itemsize))]
    return Touched(reads, [Elements.at(y, row, outer_y[:outers], (units, leap))])


def multi_slice(library: Library, task: Task) -> list[Launch] | None:
    """Computes `y[t.., i.., t..] = table[t.., indices[i..], t..]`. The launch refuses an index outside the table."""
    table, indices, y = (task.fields[name] for name in ("table", "indices", "y"))
    item, width = y.array.itemsize, indices.array.itemsize
    if y.array.size == 0:
        return []
    if table.array.size == 0 or table.array.dtype != y.array.dtype or indices.array.dtype.name not in ("int32", "int64"):
        return None
    dim = table.access.index(ALL)
    outer, row, selected = axes_of(table.access[:dim]), axes_of(table.access[dim + 1 :]), axes_of(indices.access)
    before: list[Launch] | None = []
    after: list[Launch] | None = []
    if run_of(selected, width, walk_over(task, indices))[0]:
        far, indices = indices.array, replace(indices, array=task.scratch(indices.array.shape, indices.array.dtype))
        before = copy(library, far, indices.array)
    if before is not None and run_of(row, item, walk_over(task, table))[0]:
        far, table = table.array, near(task, table, dim, 0)
        copied = copy(library, far, table.array)
        before = None if copied is None else [*before, *copied]
    leap = _leap(walk_over(task, y), selected, row, item)
    if leap is None:  # rows of y lie apart: they are computed together, and copied
        far, y = y.array, replace(y, array=task.scratch(y.array.shape, y.array.dtype))
        after, leap = copy(library, y.array, far), _leap(walk_over(task, y), selected, row, item)
    if before is None or after is None or leap is None:
        return None
    along_table, along_y = walk_over(task, table), walk_over(task, y)
    outer_x, outer_y = along_table.table(*outer), along_y.table(*outer)
    n, step, bytes = along_table.points[WHOLE], along_table.bytes[WHOLE], run_of(row, item, along_table)[1] * item
    args = [table.array, indices.array, y.array, outer_x, outer_y, len(outer_x), n, bytes, step, leap]
    single = bytes if bytes == item <= 8 else 0
    kernel = Kernel(f"take {width} of {single}", partial(_take, width, single), _taken)
    return [*before, Launch(library, kernel, args, indices.array.size, y.array.nbytes // 8, slices.multi_slice(task)), *after]


def _leap(y: Walk, selected: Sequence[str], row: Sequence[str], item: int) -> int | None:
    """Finds the bytes from one selected row of y to the next; None if they vary, or if a row's elements are not adjacent."""
    return None if run_of(row, item, y)[0] else step_of(y, *selected)


def _put(width: int, name: str, machine: Machine) -> str:
    """Emits a store of a row. Units are pieces of the row. It returns 1 for an index outside the table."""
    f = Function(name)
    table, index, row, outer_x, outer_y, n, step, bytes = f.args("pppppiii")
    type = f"i{8 * width}"
    i = f.load(type, index)
    i = f.let(f"sext {type} {i} to i64") if width < 8 else i
    f.line(f"br i1 {f.let(f'icmp uge i64 {i}, {n}')}, label %refuse, label %copy")
    f.lines += ["refuse:", "  ret i64 1"]
    f.start("copy")
    target = f.beyond(table, f.mul(i, step))

    def part(o: str) -> None:
        x = f.beyond(row, f.load("i64", f.at(outer_x, o, "i64")))
        to = f.beyond(target, f.load("i64", f.at(outer_y, o, "i64")))
        f.call("void", "llvm.memcpy.p0.p0.i64", ("ptr", to), ("ptr", x), ("i64", bytes), ("i1 immarg", "false"))

    f.loop("%first", "%end", part)
    return f.done()


def _put_in(args: Arguments, units: int) -> Touched:
    """States what a launch of `_put` touches: any row of the table."""
    table, index, row, outer_x, outer_y, n, step, bytes = args
    reads = [Elements.at(row, bytes, outer_x[:units]), Elements.at(index, index.itemsize)]
    return Touched(reads, [Elements.at(table, bytes, outer_y[:units], (n, step))])


def dynamic_update(library: Library, task: Task) -> list[Launch] | None:
    """Computes `table[index] = row`. The launch refuses an index outside the table."""
    table, index, row = task["table"], task["index"], task["row"]
    if table.size == 0:
        return []
    if index.dtype.name not in ("int32", "int64") or table.dtype != row.dtype or np.may_share_memory(table, row):
        return None
    along_row, along_table = (walk_over(task, task.fields[name]) for name in ("row", "table"))
    outer, n = run_of(axes_of(task.fields["row"].access), row.itemsize, along_row, along_table)
    outer_x, outer_y = along_row.table(*outer), along_table.table(*outer)
    args = [table, index, row, outer_x, outer_y, along_table.points[WHOLE], along_table.bytes[WHOLE], n * table.itemsize]
    kernel = Kernel(f"put {index.itemsize}", partial(_put, index.itemsize), _put_in)
    return [Launch(library, kernel, args, len(outer_x), row.nbytes // 8, slices.dynamic_update(task))]


def _update(op: str, type: str, width: int, name: str, machine: Machine) -> str:
    """Emits the updates, one after the other, in one unit. Each changes its row of y if that is one of `low` to
    `high`.

    It returns 1 for an index outside 0 .. n.
    """
    f = Function(name)
    y, indices, updates, count, n, low, high, step, leap, elements = f.args("pppiiiiiii")
    index = partial(_index, f, width, indices)
    f.line(f"br i1 {_outside(f, index, 0, count, n)}, label %refuse, label %update")
    f.lines += ["refuse:", "  ret i64 1"]
    f.start("update")

    def one(i: str) -> None:
        at = index(i)
        own = f.let(f"and i1 {f.let(f'icmp sge i64 {at}, {low}')}, {f.let(f'icmp slt i64 {at}, {high}')}")

        def combine_row() -> None:
            target, source = f.beyond(y, f.mul(f.sub(at, low), step)), f.beyond(updates, f.mul(i, leap))

            def element(e: str) -> None:
                place, value = f.at(target, e, type), f.load(type, f.at(source, e, type))
                f.store(type, value if op == "set" else _combined(f, op, type, f.load(type, place), value), place)

            f.each(0, elements, element)

        f.when(own, combine_row)

    f.loop(0, count, one)
    return f.done()


def _updated(args: Arguments, units: int) -> Touched:
    """States what a launch of `_update` touches: any rows of y, which are there already."""
    y, indices, updates, count, _, low, high, step, leap, elements = args
    item = y.itemsize
    rows = Elements.at(y, item, (high - low, step), (elements, item))
    reads = [Elements.at(updates, item, (count, leap), (elements, item)), Elements.at(indices, indices.itemsize, (count, indices.itemsize))]
    return Touched([rows, *reads], [rows])


def _combined(f: Function, op: str, type: str, a: str, b: str) -> str:
    return combine(f, op, type, a, b)


def multi_update(library: Library, task: Task) -> list[Launch] | None:
    """Copies `table` to y and combines its rows at `indices` with `updates`, in order.

    Sums, products and extremes of f32, f64 and integers, and `set` of any type have kernels.
    """
    table, indices, updates, y, op = task["table"], task["indices"], task["updates"], task["y"], task.text("op")
    if y.size == 0:
        return []
    integer = y.dtype.kind in "iu" and of_numpy(y.dtype)
    type = TYPES.get(y.dtype.name) or (f"i{8 * y.itemsize}" if op == "set" or integer else None)
    if integer and op in ("max", "min"):
        op = ("s" if y.dtype.kind == "i" else "u") + op
    before: list[Launch] = []
    after: list[Launch] = []
    out, item, (rows, *row) = y, y.itemsize, axes_of(task.fields["y"].access)
    along_y, along_updates = (walk_over(task, task.fields[name]) for name in ("y", "updates"))
    if run_of(row, item, along_y)[0]:
        y = task.scratch(y.shape, y.dtype)
        after = copy(library, y, out) or []
        if not after:
            return None
        along_y = walk_over(task, replace(task.fields["y"], array=y))
    if updates.size and run_of((WHOLE, *row), item, along_updates)[0]:
        copied = dense(library, task, updates)
        if copied is None:
            return None
        updates, before = copied
        along_updates = walk_over(task, replace(task.fields["updates"], array=updates))
    elements = run_of(row, item, along_y)[1]
    if (
        type is None
        or y.itemsize not in (1, 2, 4, 8)
        or not table.dtype == updates.dtype == y.dtype
        or indices.dtype.name not in ("int32", "int64")
        or not indices.flags.c_contiguous
        or any(np.may_share_memory(y, a) for a in (table, indices, updates))
    ):
        return None
    launches = copy(library, table, y)
    if launches is None:
        return None
    first, end, _ = task.box["d0"]
    steps = along_y.bytes[rows], along_updates.bytes[WHOLE]
    args = [y, indices, updates, indices.size, task.fields["table"].whole[0], first, end, *steps, elements]
    kernel = Kernel(f"update {op} {type} {indices.itemsize}", partial(_update, op, type, indices.itemsize), _updated)
    return [*before, *launches, Launch(library, kernel, args, 1, updates.nbytes // 8, indexed.multi_update(task)), *after]


def _constant(library: Library, task: Task, bind: Callable[[Task], Run], uniform: bool) -> list[Launch] | None:
    """Copies a result that depends on no input and that the NumPy kernel computes while binding.

    `uniform`: all elements are equal.
    """
    piece = task.fields["y"]
    values = np.empty(piece.array.shape, piece.array.dtype)
    if values.size == 0:
        return []
    bind(Task(task.params, task.box, {"y": Piece(values, piece.access, piece.pads)}))()
    if uniform:
        values = np.broadcast_to(values.reshape(-1)[:1].copy().reshape(()), values.shape)  # a view would keep them all, in a file too
    return copy(library, values, piece.array)


fill = partial(_constant, bind=constants.fill, uniform=True)
iota = partial(_constant, bind=constants.iota, uniform=False)
