"""Kernel of `top_k`: positions of a row's largest or smallest elements, of which equal ones keep their order.

An element and its position become one unsigned integer, the position last. No two are equal, so any method that finds the smallest
gives the same positions: a few by insertion, more by merging.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np

from populus.dialects.expr import Arg, cast
from populus.dialects.support.element_types import element_of
from populus.runtime.codelets.task import Task, arithmetic
from populus.runtime.engine.native.codegen.cpu import Machine
from populus.runtime.engine.native.codegen.jit import Kernel, Library
from populus.runtime.engine.native.codegen.llvm_builder import Function
from populus.runtime.engine.native.codegen.touched import Arguments, Elements, Touched
from populus.runtime.engine.native.kernels.elementwise import formula
from populus.runtime.engine.native.kernels.launch import Launch
from populus.runtime.engine.native.kernels.native_support import of_numpy
from populus.runtime.engine.native.kernels.operands import WHOLE, axes_of, walk_over

FEW = 16  # up to so many are kept in order while a row is read
UNITS = 16  # parts of the rows that threads share, each with memory of its own


def _key(f: Function, kind: str, bits: int, value: str, largest: bool) -> str:
    """Emits an unsigned integer that orders as the element does; for the largest elements, the other way round. NaN is the largest."""
    type, top = f"i{bits}", -(1 << (bits - 1))
    if kind == "f":
        real = "float" if bits == 32 else "double"
        number = f.let(f"fadd {real} {f.let(f'bitcast {type} {value} to {real}')}, 0.0")  # -0 is 0
        word = f.let(f"bitcast {real} {number} to {type}")
        turned = f.let(f"or {type} {f.let(f'ashr {type} {word}, {bits - 1}')}, {top}")
        nan = f.let(f"fcmp uno {real} {number}, {number}")
        key = f.let(f"select i1 {nan}, {type} -1, {type} {f.let(f'xor {type} {word}, {turned}')}")
    else:
        key = f.let(f"xor {type} {value}, {top}") if kind == "i" else value
    return f.let(f"xor {type} {key}, -1") if largest else key


# long: one kernel; its parts share the values of the function
def _order(kind: str, bits: int, index: int, largest: bool, few: bool, name: str, machine: Machine) -> str:
    """Emits the positions (of `index` bits) of the first k elements of each row. Units are `per` rows."""
    f = Function(name)
    x, y, xs, ys, room, rows, per, n, k, step, leap, levels = f.args("pppppiiiiiii")
    type, wide, place = f"i{bits}", "i64" if bits <= 32 else "i128", 32 if bits <= 32 else 64

    def element(source: str, i: str) -> str:
        key = _key(f, kind, bits, f.load(type, f.beyond(source, f.mul(i, step))), largest)
        key = key if type == wide else f.let(f"zext {type} {key} to {wide}")
        at = i if wide == "i64" else f.let(f"zext i64 {i} to {wide}")
        return f.let(f"or {wide} {f.let(f'shl {wide} {key}, {place}')}, {at}")

    def smaller(a: str, b: str) -> str:
        return f.let(f"icmp ult {wide} {a}, {b}")

    def first_few(source: str, kept: str) -> str:
        def empty(j: str) -> None:
            f.store(wide, "-1", f.at(kept, j, wide))

        f.loop(0, k, empty)
        last = f.at(kept, f.sub(k, 1), wide)

        def one(i: str) -> None:
            found = element(source, i)

            def insert() -> None:
                def exchange(j: str, carried: str) -> list[str]:
                    here = f.at(kept, j, wide)
                    held = f.load(wide, here)
                    less = smaller(carried, held)
                    f.store(wide, f.let(f"select i1 {less}, {wide} {carried}, {wide} {held}"), here)
                    return [f.let(f"select i1 {less}, {wide} {held}, {wide} {carried}")]

                f.loop(0, k, exchange, [(wide, found)])

            f.when(smaller(found, f.load(wide, last)), insert)

        f.loop(0, n, one)
        return kept

    def sorted_row(source: str, kept: str) -> str:
        def fill(i: str) -> None:
            f.store(wide, element(source, i), f.at(kept, i, wide))

        f.loop(0, n, fill)

        def level(s: str, a: str, b: str) -> list[str]:
            width = f.let(f"shl i64 1, {s}")

            def bound(at: str) -> str:
                return f.call("i64", "llvm.smin.i64", ("i64", at), ("i64", n))

            def pair(low: str) -> None:
                middle = bound(f.add(low, width))
                end = bound(f.add(middle, width))

                def merge(o: str, i: str, j: str) -> list[str]:
                    left = f.load(wide, f.at(a, f.call("i64", "llvm.smin.i64", ("i64", i), ("i64", f.sub(middle, 1))), wide))
                    right = f.load(wide, f.at(a, f.call("i64", "llvm.smin.i64", ("i64", j), ("i64", f.sub(end, 1))), wide))
                    over = f.let(f"icmp sge i64 {j}, {end}")
                    ahead = f.let(f"and i1 {f.let(f'icmp slt i64 {i}, {middle}')}, {f.let(f'or i1 {over}, {smaller(left, right)}')}")
                    f.store(wide, f.let(f"select i1 {ahead}, {wide} {left}, {wide} {right}"), f.at(b, o, wide))
                    moved = f.let(f"zext i1 {ahead} to i64")
                    return [f.add(i, moved), f.add(f.sub(j, moved), 1)]

                f.loop(low, end, merge, [("i64", low), ("i64", middle)])

            f.loop(0, n, pair, step=f.let(f"shl i64 {width}, 1"))
            return [b, a]

        return f.loop(0, levels, level, [("ptr", kept), ("ptr", f.at(kept, n, wide))])[0]

    def unit(u: str) -> None:
        size = f.mul(k if few else n, (1 if few else 2) * (8 if wide == "i64" else 16))
        kept = f.beyond(room, f.mul(u, size))
        begin = f.mul(u, per)

        def row(r: str) -> None:
            source, target = f.beyond(x, f.load("i64", f.at(xs, r, "i64"))), f.beyond(y, f.load("i64", f.at(ys, r, "i64")))
            found = (first_few if few else sorted_row)(source, kept)

            def put(j: str) -> None:
                at = f.load(wide, f.at(found, j, wide))
                if wide == "i64":
                    at = f.let(f"and i64 {at}, 4294967295")
                at = at if wide == f"i{index}" else f.let(f"trunc {wide} {at} to i{index}")
                f.store(f"i{index}", at, f.beyond(target, f.mul(j, leap)))

            f.loop(0, k, put)

        f.loop(begin, f.call("i64", "llvm.smin.i64", ("i64", f.add(begin, per)), ("i64", rows)), row)

    f.loop("%first", "%end", unit)
    return f.done()


def _touches(args: Arguments, units: int) -> Touched:
    """States what a launch of `_order` touches."""
    x, y, xs, ys, _, rows, _, n, k, x_step, y_step = args[:11]
    read, written = Elements.at(x, x.itemsize, xs[:rows], (n, x_step)), Elements.at(y, y.itemsize, ys[:rows], (k, y_step))
    return Touched([read], [written])


def top_k(library: Library, task: Task) -> list[Launch] | None:
    """Finds the positions of the `k` largest (or smallest) elements of each row."""
    piece, y, largest = task.fields["x"], task["y"], bool(task.number("largest"))
    x = piece.array
    if y.size == 0:
        return []
    before: list[Launch] = []
    wide = arithmetic(x.dtype)
    if wide != x.dtype:
        near = task.scratch(x.shape, wide)
        made = formula(library, cast(Arg(1), element_of(wide)), [x], near)
        if made is None:
            return None
        x, before = near, made
    along_x, along_y = walk_over(task, replace(piece, array=x)), walk_over(task, task.fields["y"])
    n, k = along_x.points[WHOLE], along_y.points["k"]
    kind = "u" if x.dtype.kind == "b" else x.dtype.kind
    if kind not in "fiu" or not of_numpy(x.dtype) or y.dtype.kind not in "iu" or n >= 1 << 31:
        return None
    xs, ys = (w.table(*axes_of(piece.access)) for w in (along_x, along_y))
    bits, few = 8 * x.itemsize, k <= FEW
    per = -(-len(xs) // UNITS)
    units = -(-len(xs) // per)
    levels = 0 if few else (n - 1).bit_length()
    room = task.scratch((units * (k if few else 2 * n) * (1 if bits <= 32 else 2),), np.int64)
    args = [x, y, xs, ys, room, len(xs), per, n, k, along_x.bytes[WHOLE], along_y.bytes["k"], levels]
    index = 8 * y.itemsize
    kernel = Kernel(f"order {kind}{bits} {index} {largest} {few}", partial(_order, kind, bits, index, largest, few), _touches)
    return [*before, Launch(library, kernel, args, units, x.size * (2 + 4 * levels))]
