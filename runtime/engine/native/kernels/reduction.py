"""Kernel of `reduce` in floats, integers and booleans.

The family alone decides the order of a sum, as in `codelets/reduce.py`: trailing reduced dimensions are a row, which is folded
as those of a softmax; leading ones follow one after the other. Elements that lie otherwise in memory are copied first.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from populus.runtime.codelets.reduce import identity_of
from populus.runtime.codelets.task import Task
from populus.runtime.endings import TYPES
from populus.runtime.engine.native.codegen.cpu import Machine
from populus.runtime.engine.native.codegen.jit import Kernel, Library
from populus.runtime.engine.native.codegen.llvm_builder import Function
from populus.runtime.engine.native.codegen.touched import Arguments, Elements, Touched
from populus.runtime.engine.native.kernels.copies import copy, dense
from populus.runtime.engine.native.kernels.f16 import through_f32
from populus.runtime.engine.native.kernels.launch import Launch
from populus.runtime.engine.native.kernels.native_support import of_numpy
from populus.runtime.engine.native.kernels.operands import Walk, axes_of, run_of, walk_over
from populus.runtime.engine.native.kernels.rows import combine, folded, identity

OPS = {"add": "add", "and": "and", "max": "max", "min": "min", "mul": "mul", "or": "or", "square_add": "add"}
OF_BOOLEANS = {"and": "and", "max": "or", "min": "and", "or": "or"}
BLOCK = 2048  # elements of y per unit, so that they stay in cache while slices are added


def _across(op: str, square: bool, type: str, name: str, machine: Machine) -> str:
    """Emits a fold across runs: y has runs of n elements, each the fold of the run of x shifted by every offset of a
    table.

    Units are blocks of runs.
    """
    f = Function(name)
    x, y, xs, ys, slices, count, n = f.args("pppppii")

    blocks = f.let(f"sdiv i64 {f.add(n, BLOCK - 1)}, {BLOCK}")

    def block(unit: str) -> None:
        r = f.let(f"sdiv i64 {unit}, {blocks}")
        source = f.beyond(x, f.load("i64", f.at(xs, r, "i64")))
        target = f.beyond(y, f.load("i64", f.at(ys, r, "i64")))
        begin = f.mul(f.sub(unit, f.mul(r, blocks)), BLOCK)
        end = f.call("i64", "llvm.smin.i64", ("i64", f.add(begin, BLOCK)), ("i64", n))

        def slice(s: str) -> None:
            line = f.beyond(source, f.load("i64", f.at(slices, s, "i64")))

            def one(i: str, first: bool) -> None:
                value = f.load(type, f.at(line, i, type))
                if square:
                    value = combine(f, "mul", type, value, value)
                place = f.at(target, i, type)
                f.store(type, value if first else combine(f, op, type, f.load(type, place), value), place)

            def all(first: bool) -> None:
                f.each(begin, end, lambda i: one(i, first))

            f.when(f.let(f"icmp eq i64 {s}, 0"), lambda: all(True), lambda: all(False))

        f.loop(0, count, slice)

    f.loop("%first", "%end", block)
    return f.done()


def _along(op: str, square: bool, type: str, name: str, machine: Machine) -> str:
    """Emits a fold along rows: each element of y folds rows of n elements of x, in order. Units are elements of y."""
    f = Function(name)
    x, y, xs, ys, slices, count, n = f.args("pppppii")

    def squared(value: str, of: str) -> str:
        return combine(f, "mul", of, value, value)

    def element(r: str) -> None:
        source = f.beyond(x, f.load("i64", f.at(xs, r, "i64")))

        def row(s: str, total: str) -> list[str]:
            line = f.beyond(source, f.load("i64", f.at(slices, s, "i64")))
            return [combine(f, op, type, total, folded(f, op, type, line, n, squared if square else None))]

        [total] = f.loop(0, count, row, [(type, identity(op, type))])
        f.store(type, total, f.beyond(y, f.load("i64", f.at(ys, r, "i64"))))

    f.loop("%first", "%end", element)
    return f.done()


def _touches(along: bool, args: Arguments, units: int) -> Touched:
    """States what a launch of a fold touches: of y an element each, or runs of n."""
    x, y, xs, ys, slices, count, n = args
    item, runs = y.itemsize, units if along else units // -(-n // BLOCK)
    written = Elements.at(y, item, ys[:runs]) if along else Elements.at(y, item, ys[:runs], (n, item))
    return Touched([Elements.at(x, item, xs[:runs], slices[:count], (n, item))], [written])


@through_f32
def reduce(library: Library, task: Task) -> list[Launch] | None:
    """Computes `y = op of x along the axes that y does not have`."""
    op, piece = task.text("op"), task.fields["x"]
    x, y = piece.array, task["y"]
    kind = _kind(op, y.dtype)
    if kind is None or x.dtype != y.dtype:
        return None
    if y.size == 0:
        return []
    axes, own = axes_of(piece.access), axes_of(task.fields["y"].access)
    reduced = [a for a in axes if a not in own]
    if x.size == 0:
        return copy(library, identity_of(op, y.dtype), y)
    fold, type = kind
    before: list[Launch] = []
    ordered = y.dtype.kind == "f" and op not in ("max", "min")
    item, (along_x, along_y) = x.itemsize, (walk_over(task, task.fields[name]) for name in "xy")
    row = axes[1 + max((i for i, a in enumerate(axes) if a in own and along_x.points[a] > 1), default=-1) :]
    if ordered and (run_of(row, item, along_x)[0] or _lies_across(axes, own, item, along_x, along_y)):
        made = dense(library, task, x)
        if made is None:
            return None
        x, before = made
        along_x = walk_over(task, replace(piece, array=x))
    fixed = [a for a in reduced if a not in row] if ordered else []
    lead, n = run_of(reduced[len(fixed) :], item, along_x)
    along = n > 1
    firsts = own
    if not along:
        firsts, n = run_of(own, item, along_x, along_y)
    name, emit = ("along", _along) if along else ("across", _across)
    kernel = Kernel(f"reduce {name} {op} {fold} {type}", partial(emit, fold, op == "square_add", type), partial(_touches, along))
    xs, ys, slices = along_x.table(*firsts), along_y.table(*firsts), along_x.table(*fixed, *lead)
    units = len(xs) if along else len(xs) * -(-n // BLOCK)
    return [*before, Launch(library, kernel, [x, y, xs, ys, slices, len(slices), n], units, x.nbytes // 12)]


def _lies_across(axes: list[str], own: list[str], item: int, along_x: Walk, along_y: Walk) -> bool:
    """Tells whether results that are adjacent in y and in x's own order are apart in x's memory."""
    last = [a for a in axes if along_x.points[a] > 1][-1:]
    return last == own[-1:] != [] and along_y.bytes[own[-1]] == item != along_x.bytes[own[-1]]


def _kind(op: str, dtype: np.dtype[Any]) -> tuple[str, str] | None:
    """Returns the fold of an op and LLVM's type of its elements; None if there is no code for them."""
    if dtype.kind == "b":
        return (OF_BOOLEANS[op], "i8") if op in OF_BOOLEANS else None
    if op in ("and", "or"):
        return None
    if dtype.kind in "iu" and of_numpy(dtype):
        sign = "s" if dtype.kind == "i" else "u"
        return sign + op if op in ("max", "min") else OPS[op], f"i{8 * dtype.itemsize}"
    return (OPS[op], TYPES[dtype.name]) if dtype.name in TYPES else None
