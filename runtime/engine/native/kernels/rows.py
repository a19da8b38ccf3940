"""Kernels of whole rows: `softmax` and `whiten`. A row's sum adds 16 running sums; element i goes to sum i mod 16.

So it depends neither on the cut nor on the CPU. Rows may lie anywhere; the elements of a row are adjacent.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from populus.runtime.codelets.task import Array, Task
from populus.runtime.engine.native.codegen.cpu import Machine
from populus.runtime.engine.native.codegen.jit import Kernel, Library
from populus.runtime.engine.native.codegen.llvm_builder import Function, number
from populus.runtime.engine.native.kernels.endings import SUFFIX, TYPES
from populus.runtime.engine.native.kernels.f16 import through_f32
from populus.runtime.engine.native.kernels.launch import Launch
from populus.runtime.engine.native.kernels.native_support import HALVES
from populus.runtime.engine.native.kernels.panels import offsets

LANES = 16
CHAINS = 4  # independent maxima of a row: each waits for the one before


def size(type: str) -> int:
    """Returns the bytes of an LLVM float type."""
    return 4 if type == "float" else 8


def combine(f: Function, op: str, type: str, a: str, b: str) -> str:
    """Emits `add`, `mul`, or a `max` or `min` that propagates NaN."""
    if op in ("add", "mul"):
        return f.let(f"f{op} {type} {a}, {b}")
    mask = f"{type.split(maxsplit=1)[0]} x i1>" if type.startswith("<") else "i1"
    better = f.let(f"fcmp {'ogt' if op == 'max' else 'olt'} {type} {b}, {a}")
    value = f.let(f"select {mask} {better}, {type} {b}, {type} {a}")
    nan = f.let(f"fcmp uno {type} {b}, {b}")
    return f.let(f"select {mask} {nan}, {type} {b}, {type} {value}")


def identity(op: str, type: str) -> str:
    """Returns the neutral element of a fold."""
    return {"add": "0.0", "mul": "1.0", "max": number(-np.inf, type), "min": number(np.inf, type)}[op]


def folded(f: Function, op: str, type: str, row: str, n: str, change: Callable[[str, str], str] | None = None) -> str:
    """Emits the fold of a row of n elements. `change(value, type)` is applied to each element first."""
    vector, item = f"<{LANES} x {type}>", size(type)
    whole = f.let(f"and i64 {n}, {-LANES}")
    neutral = identity(op, type)

    def some(i: str, total: str) -> list[str]:
        value = f.load(vector, f.at(row, i, type), item)
        return [combine(f, op, vector, total, change(value, vector) if change else value)]

    start, done = f"splat ({type} {neutral})", "0"
    if op in ("max", "min"):  # of which the order does not matter
        done = f.let(f"and i64 {n}, {-LANES * CHAINS}")

        def several(i: str, *totals: str) -> list[str]:
            return [found for c, total in enumerate(totals) for found in some(f.add(i, c * LANES), total)]

        totals = f.loop(0, done, several, [(vector, start)] * CHAINS, LANES * CHAINS)
        start = totals[0]
        for total in totals[1:]:
            start = combine(f, op, vector, start, total)
    [lanes] = f.loop(done, whole, some, [(vector, start)], LANES)

    def one(i: str, total: str) -> list[str]:
        value = f.load(type, f.at(row, i, type))
        return [combine(f, op, type, total, change(value, type) if change else value)]

    [rest] = f.loop(whole, n, one, [(type, neutral)])
    parts = [f.let(f"extractelement {vector} {lanes}, i64 {i}") for i in range(LANES)]
    while len(parts) > 1:
        half = len(parts) // 2
        parts = [combine(f, op, type, a, b) for a, b in zip(parts[:half], parts[half:])]
    return combine(f, op, type, parts[0], rest)


def scalar_function(name: str, function: str) -> str:
    """Emits LLVM text of `float name(float)`, which LLVM inlines into its callers."""
    from xdsl.backend.llvm.convert import convert_module
    from xdsl.context import Context
    from xdsl.dialects import func
    from xdsl.dialects.builtin import ModuleOp, f32
    from xdsl.ir import Block, Region

    from populus.runtime.engine.native.codegen.to_llvm import lower
    from populus.runtime.engine.native.kernels.formulas import Formula

    entry = Block(arg_types=[f32])
    made = getattr(Formula(entry.add_op), function)(entry.args[0])
    entry.add_op(func.ReturnOp(made))
    module = ModuleOp([func.FuncOp(name, ([f32], [f32]), Region(entry))])
    lower(Context(), module)
    text = str(convert_module(module, fallback_target_triple=""))
    lines = [line for line in text.splitlines() if not line.startswith(("target", "source_filename", ";"))]
    return "\n".join(lines).replace(f'define float @"{name}"', f'define internal float @"{name}"') + "\n"


def _softmax(log: bool, half: str, name: str, machine: Machine) -> str:
    """Emits softmax in f32. `half`: the 16-bit type to which each step rounds, or none; sums are wider."""
    f = Function(name)
    x, y, xs, ys, n = f.args("ppppi")
    exp, ln, nearest = f"{name}_exp", f"{name}_log", f"{name}_nearest"

    def rounded(value: str) -> str:
        return f.let(f"call float @{nearest}(float {value})") if half and not log else value

    def row(r: str) -> None:
        source = f.beyond(x, f.load("i64", f.at(xs, r, "i64")))
        target = f.beyond(y, f.load("i64", f.at(ys, r, "i64")))
        largest = folded(f, "max", "float", source, n)

        def one(i: str) -> None:
            shifted = f.let(f"fsub float {f.load('float', f.at(source, i, 'float'))}, {largest}")
            f.store("float", rounded(f.let(f"call float @{exp}(float {rounded(shifted)})")), f.at(target, i, "float"))

        f.each(0, n, one)
        total = rounded(folded(f, "add", "float", target, n))
        inverse = f.let(f"fdiv float 1.0, {total}")  # dividing each element would take a third of the time
        if log:
            total = f.let(f"call float @{ln}(float {total})")

        def last(i: str) -> None:
            place = f.at(target, i, "float")
            if log:
                shifted = f.let(f"fsub float {f.load('float', f.at(source, i, 'float'))}, {largest}")
                f.store("float", f.let(f"fsub float {shifted}, {total}"), place)
            elif half:
                f.store("float", f.let(f"fdiv float {f.load('float', place)}, {total}"), place)
            else:
                f.store("float", f.let(f"fmul float {f.load('float', place)}, {inverse}"), place)

        f.each(0, n, last)

    f.loop("%first", "%end", row)
    used = {exp: "exp", **({ln: "log"} if log else {nearest: half} if half else {})}
    return "".join(scalar_function(name, function) for name, function in used.items()) + f.done()


def _whiten(type: str, name: str, machine: Machine) -> str:
    f = Function(name)
    x, y, xs, ys, n = f.args("ppppi")
    epsilon = f.load(type, f.arg(5, "ptr"))
    count = f.let(f"sitofp i64 {n} to {type}")

    def row(r: str) -> None:
        source = f.beyond(x, f.load("i64", f.at(xs, r, "i64")))
        target = f.beyond(y, f.load("i64", f.at(ys, r, "i64")))
        mean = f.let(f"fdiv {type} {folded(f, 'add', type, source, n)}, {count}")
        means = f.splat(type, LANES, mean)

        def squared(value: str, of: str) -> str:
            away = f.let(f"fsub {of} {value}, {mean if of == type else means}")
            return f.let(f"fmul {of} {away}, {away}")

        variance = f.let(f"fdiv {type} {folded(f, 'add', type, source, n, squared)}, {count}")
        deviation = f.call(type, f"llvm.sqrt.{SUFFIX[type]}", (type, f.let(f"fadd {type} {variance}, {epsilon}")))

        def one(i: str) -> None:
            away = f.let(f"fsub {type} {f.load(type, f.at(source, i, type))}, {mean}")
            f.store(type, f.let(f"fdiv {type} {away}, {deviation}"), f.at(target, i, type))

        f.each(0, n, one)

    f.loop("%first", "%end", row)
    return f.done()


def _rows(task: Task) -> tuple[Array, Array] | None:
    """Returns x and y as [.., r], with adjacent elements of f32 or f64 in rows; None if they are not so."""
    x, y = (np.moveaxis(piece.array, piece.dimension("r"), -1) for piece in (task.fields["x"], task.fields["y"]))
    if x.dtype != y.dtype or y.dtype.name not in TYPES or y.size == 0:
        return None
    if y.shape[-1] > 1 and not x.strides[-1] == y.strides[-1] == y.itemsize:
        return None
    return x, y


def _launch(library: Library, kernel: Kernel, x: Array, y: Array, *more: Array) -> list[Launch]:
    tables = [offsets(a.shape[:-1], a.strides[:-1]) for a in (x, y)]
    return [Launch(library, kernel, [x, y, *tables, y.shape[-1], *more], len(tables[0]), y.size // 2)]


def softmax(library: Library, task: Task) -> list[Launch] | None:
    """Computes `y = exp(x - max) / sum of exp(x - max)` along r, or its logarithm, in f32 or rounding each step to 16 bits."""
    dtype = task.fields["y"].array.dtype
    return _softmax_in_f32(library, task, dtype.name if dtype.name in HALVES else "")


@through_f32
def _softmax_in_f32(library: Library, task: Task, half: str) -> list[Launch] | None:
    rows = _rows(task)
    if rows is None or rows[1].dtype != np.float32:
        return None
    log = bool(task.number("log"))
    return _launch(library, Kernel(f"softmax {log} {half}", partial(_softmax, log, half)), *rows)


@through_f32
def whiten(library: Library, task: Task) -> list[Launch] | None:
    """Computes `y = (x - mean) / sqrt(variance + epsilon)` along r, in f32 and f64."""
    rows = _rows(task)
    if rows is None:
        return None
    x, y = rows
    type = TYPES[y.dtype.name]
    return _launch(library, Kernel(f"whiten {type}", partial(_whiten, type)), x, y, np.array([task.number("epsilon")], y.dtype))
