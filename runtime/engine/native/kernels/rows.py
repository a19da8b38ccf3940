"""Kernels of whole rows: `softmax` and `whiten`. A row's sum adds 16 running sums; element i goes to sum i mod 16.

So it depends neither on the cut nor on the CPU. Rows may lie anywhere; the elements of a row are adjacent.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from populus.runtime.codelets.task import Array, Task
from populus.runtime.endings import TYPES
from populus.runtime.engine.native.codegen.cpu import Machine
from populus.runtime.engine.native.codegen.jit import Kernel, Library
from populus.runtime.engine.native.codegen.llvm_builder import Function, number
from populus.runtime.engine.native.codegen.touched import Arguments, Elements, Touched
from populus.runtime.engine.native.kernels.copies import copy, near
from populus.runtime.engine.native.kernels.endings import SUFFIX, rounded
from populus.runtime.engine.native.kernels.f16 import through_f32
from populus.runtime.engine.native.kernels.launch import Launch
from populus.runtime.engine.native.kernels.native_support import HALVES
from populus.runtime.engine.native.kernels.operands import axes_of, run_of, walk_over

LANES = 16
CHAINS = 4  # independent maxima of a row: each waits for the one before


INTEGER_EXTREMES = {"smax": "sgt", "smin": "slt", "umax": "ugt", "umin": "ult"}


def size(type: str) -> int:
    """Returns the bytes of an LLVM type of numbers."""
    return int(type[1:]) // 8 if type.startswith("i") else 4 if type == "float" else 8


def combine(f: Function, op: str, type: str, a: str, b: str) -> str:
    """Emits `add`, `mul`, or a `max` or `min` that propagates NaN. Of integers also `and` and `or`; extremes have a sign: `smax`."""
    if type.rsplit(maxsplit=1)[-1].startswith("i"):
        if op not in INTEGER_EXTREMES:
            return f.let(f"{op} {type} {a}, {b}")
        mask = f"{type.split(maxsplit=1)[0]} x i1>" if type.startswith("<") else "i1"
        return f.let(f"select {mask} {f.let(f'icmp {INTEGER_EXTREMES[op]} {type} {b}, {a}')}, {type} {b}, {type} {a}")
    if op in ("add", "mul"):
        return f.let(f"f{op} {type} {a}, {b}")
    mask = f"{type.split(maxsplit=1)[0]} x i1>" if type.startswith("<") else "i1"
    better = f.let(f"fcmp {'ogt' if op == 'max' else 'olt'} {type} {b}, {a}")
    value = f.let(f"select {mask} {better}, {type} {b}, {type} {a}")
    nan = f.let(f"fcmp uno {type} {b}, {b}")
    return f.let(f"select {mask} {nan}, {type} {b}, {type} {value}")


def identity(op: str, type: str) -> str:
    """Returns the neutral element of a fold; of a sum it is -0.0, as 0.0 would make 0.0 of a sum of -0.0 alone."""
    if type.startswith("i"):
        half = 1 << (8 * size(type) - 1)
        neutral = {"add": 0, "and": -1, "mul": 1, "or": 0, "smax": -half, "smin": half - 1, "umax": 0, "umin": -1}
        return str(neutral[op])
    return {"add": "-0.0", "mul": "1.0", "max": number(-np.inf, type), "min": number(np.inf, type)}[op]


def window_start(kind: str, type: str) -> str:
    """Returns what stands for elements outside a window: in a maximum, mean or sum nothing; squares and products begin at 0.0."""
    return identity("max" if kind == "max" else "add", type) if kind in ("max", "average", "sum") else "0.0"


def folded(f: Function, op: str, type: str, row: str, n: str, change: Callable[[str, str], str] | None = None, chains: int = CHAINS) -> str:
    """Emits the fold of a row of n elements. `change(value, type)` is applied to each element first. `chains`: of maxima."""
    vector, item = f"<{LANES} x {type}>", size(type)
    whole = f.let(f"and i64 {n}, {-LANES}")
    neutral = identity(op, type)

    def some(i: str, total: str) -> list[str]:
        value = f.load(vector, f.at(row, i, type), item)
        return [combine(f, op, vector, total, change(value, vector) if change else value)]

    start, done = f"splat ({type} {neutral})", "0"
    if op in ("max", "min") and chains > 1:  # of which the order does not matter
        done = f.let(f"and i64 {n}, {-LANES * chains}")

        def several(i: str, *totals: str) -> list[str]:
            return [found for c, total in enumerate(totals) for found in some(f.add(i, c * LANES), total)]

        totals = f.loop(0, done, several, [(vector, start)] * chains, LANES * chains)
        start = totals[0]
        for total in totals[1:]:
            start = combine(f, op, vector, start, total)
    [lanes] = f.loop(done, whole, some, [(vector, start)], LANES)

    def one(i: str, total: str) -> list[str]:
        value = f.load(type, f.at(row, i, type))
        return [combine(f, op, type, total, change(value, type) if change else value)]

    [rest] = f.loop(whole, n, one, [(type, neutral)])
    width = LANES  # halves are combined as vectors: lane i with lane i + width / 2
    while width > 1:
        half, now = width // 2, f"<{width} x {type}>"
        low, high = (", ".join(f"i32 {first + i}" for i in range(half)) for first in (0, half))
        a, b = (f.let(f"shufflevector {now} {lanes}, {now} poison, <{half} x i32> <{part}>") for part in (low, high))
        lanes, width = combine(f, op, f"<{half} x {type}>", a, b), half
    return combine(f, op, type, f.let(f"extractelement <1 x {type}> {lanes}, i64 0"), rest)


def scalar_function(name: str, function: str | Callable[..., Any], type: str = "float") -> str:
    """Emits LLVM text of `float name(float)` or of a `double`, which LLVM inlines into its callers.

    `function`: the name of a method of `Formula`, or a function of a `Formula` and an operand.
    """
    from xdsl.backend.llvm.convert import convert_module
    from xdsl.context import Context
    from xdsl.dialects import func
    from xdsl.dialects.builtin import ModuleOp, f32, f64
    from xdsl.ir import Block, Region

    from populus.runtime.engine.native.codegen.to_llvm import lower
    from populus.runtime.engine.native.kernels.formulas import Formula

    element = f32 if type == "float" else f64
    entry = Block(arg_types=[element])
    formula = Formula(entry.add_op)
    made = getattr(formula, function)(entry.args[0]) if isinstance(function, str) else function(formula, entry.args[0])
    entry.add_op(func.ReturnOp(made))
    module = ModuleOp([func.FuncOp(name, ([element], [element]), Region(entry))])
    lower(Context(), module)
    text = str(convert_module(module, fallback_target_triple=""))
    lines = [line for line in text.splitlines() if not line.startswith(("target", "source_filename", ";"))]
    return "\n".join(lines).replace(f'define {type} @"{name}"', f'define internal {type} @"{name}"') + "\n"


def _softmax(log: bool, half: str, type: str, name: str, machine: Machine) -> str:
    """Emits softmax in f32 or f64. `half`: the 16-bit type to which each step rounds, or none; sums are wider."""
    f = Function(name)
    x, y, xs, ys, n = f.args("ppppi")
    exp, ln = f"{name}_exp", f"{name}_log"

    def near(value: str) -> str:
        return rounded(f, 0, value, half, machine.converts_halves) if half and not log else value

    def row(r: str) -> None:
        source = f.beyond(x, f.load("i64", f.at(xs, r, "i64")))
        target = f.beyond(y, f.load("i64", f.at(ys, r, "i64")))
        largest = folded(f, "max", type, source, n, chains=1 if machine.few_registers else CHAINS)

        def one(i: str) -> None:
            shifted = f.let(f"fsub {type} {f.load(type, f.at(source, i, type))}, {largest}")
            f.store(type, near(f.let(f"call {type} @{exp}({type} {near(shifted)})")), f.at(target, i, type))

        f.each(0, n, one)
        total = near(folded(f, "add", type, target, n))
        inverse = f.let(f"fdiv {type} 1.0, {total}")  # dividing each element would take a third of the time
        if log:
            total = f.let(f"call {type} @{ln}({type} {total})")

        def last(i: str) -> None:
            place = f.at(target, i, type)
            if log:
                shifted = f.let(f"fsub {type} {f.load(type, f.at(source, i, type))}, {largest}")
                f.store(type, f.let(f"fsub {type} {shifted}, {total}"), place)
            elif half:
                f.store(type, f.let(f"fdiv {type} {f.load(type, place)}, {total}"), place)
            else:
                f.store(type, f.let(f"fmul {type} {f.load(type, place)}, {inverse}"), place)

        f.each(0, n, last)

    f.loop("%first", "%end", row)
    used: dict[str, Any] = {exp: "exp", **({ln: "log"} if log else {})}
    if type == "double":
        from populus.runtime.engine.native.kernels import wide_formulas

        used = {name: getattr(wide_formulas, function) for name, function in used.items()}
    return "".join(scalar_function(name, function, type) for name, function in used.items()) + f.done()


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


def _touches(args: Arguments, units: int) -> Touched:
    """States what a launch of rows touches."""
    x, y, xs, ys, n = args[:5]
    read, written = (Elements.at(a, y.itemsize, places[:units], (n, y.itemsize)) for a, places in ((x, xs), (y, ys)))
    return Touched([read], [written])


def _launch(library: Library, task: Task, kernel: Callable[[str], Kernel], *more: Array) -> list[Launch] | None:
    """Builds the launches of a kernel of f32 or f64 on x and y as [.., r]; None for other types.

    If the elements of a row are not adjacent, they are copied together first, and the results back: LLVM has no fast code for them.
    """
    x, y = task.fields["x"], task.fields["y"]
    type = y.array.dtype
    if x.array.dtype != type or type.name not in TYPES or y.array.size == 0:
        return None
    before: list[Launch] | None = []
    after: list[Launch] | None = []
    walks = [walk_over(task, piece) for piece in (x, y)]
    if run_of(["r"], type.itemsize, *walks)[0]:
        far, d = (x.array, y.array), x.dimension("r")
        x, y = near(task, x, d, -1), near(task, y, d, -1)
        before, after = copy(library, far[0], x.array), copy(library, y.array, far[1])
        if before is None or after is None:
            return None
        walks = [walk_over(task, piece) for piece in (x, y)]
    tables = [w.table(*(a for a in axes_of(x.access) if a != "r")) for w in walks]
    args = [x.array, y.array, *tables, walks[0].points["r"], *(m.astype(type) for m in more)]
    return [*before, Launch(library, kernel(TYPES[type.name]), args, len(tables[0]), y.array.size // 2), *after]


def softmax(library: Library, task: Task) -> list[Launch] | None:
    """Computes `y = exp(x - max) / sum of exp(x - max)` along r, or its logarithm, in f32 or rounding each step to 16 bits."""
    dtype = task.fields["y"].array.dtype
    return _softmax_in_f32(library, task, dtype.name if dtype.name in HALVES else "")


@through_f32
def _softmax_in_f32(library: Library, task: Task, half: str) -> list[Launch] | None:
    log = bool(task.number("log"))
    return _launch(library, task, lambda type: Kernel(f"softmax {log} {half} {type}", partial(_softmax, log, half, type), _touches))


@through_f32
def whiten(library: Library, task: Task) -> list[Launch] | None:
    """Computes `y = (x - mean) / sqrt(variance + epsilon)` along r, in f32 and f64."""
    epsilon = np.array([task.number("epsilon")], np.float64)
    return _launch(library, task, lambda type: Kernel(f"whiten {type}", partial(_whiten, type), _touches), epsilon)
