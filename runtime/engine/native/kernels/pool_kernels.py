"""Windows that slide over planes: `pool`, and convolutions with one channel in and out of each group.

The kernel here is for any window: a vector of outputs takes one element after the other, row by row, and is stored
once. For small windows `planes.py` has a faster one with the same results.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from populus.runtime.codelets.task import Array, Task
from populus.runtime.endings import TYPES
from populus.runtime.engine.native.codegen.cpu import Machine
from populus.runtime.engine.native.codegen.jit import Kernel, Library
from populus.runtime.engine.native.codegen.llvm_builder import Function
from populus.runtime.engine.native.codegen.touched import Arguments, Elements, Touched
from populus.runtime.engine.native.kernels import channel_pool
from populus.runtime.engine.native.kernels.endings import SUFFIX
from populus.runtime.engine.native.kernels.f16 import through_f32
from populus.runtime.engine.native.kernels.launch import Launch
from populus.runtime.engine.native.kernels.operands import OUTSIDE, Convolution, Side, ending_words, on_matrix, sides_of, step_of, walk_over
from populus.runtime.engine.native.kernels.panels import Table, offsets
from populus.runtime.engine.native.kernels.planes import down
from populus.runtime.engine.native.kernels.rows import combine, window_start

LANES = 16


def _vector(f: Function, type: str, pointer: str, stride: int, step: str, low: str, end: str, neutral: str) -> str:
    """Loads elements 0, stride, .. from a pointer in the lanes from `low` to `end`; the other lanes are `neutral`."""
    vector, item = f"<{LANES} x {type}>", 4 if type == "float" else 8
    filled = f"splat ({type} {neutral})"
    load = f"llvm.masked.load.v{LANES}{SUFFIX[type]}.p0"
    if stride in (1, 2):
        halves: list[str] = []
        for first in range(0, LANES * stride, LANES):
            mask = _mask(f, [(first + i) // stride for i in range(LANES)], low, end)
            if stride == 2:
                even = f"<{LANES} x i1> <{', '.join('i1 1' if i % 2 == 0 else 'i1 0' for i in range(LANES))}>"
                mask = f.let(f"and {even}, {mask}")
            place = f.at(pointer, first, type)
            halves.append(f.call(vector, load, ("ptr", place), ("i32 immarg", str(item)), (f"<{LANES} x i1>", mask), (vector, filled)))
        if stride == 1:
            return halves[0]
        order = ", ".join(f"i32 {2 * i}" for i in range(LANES))
        return f.let(f"shufflevector {vector} {halves[0]}, {vector} {halves[1]}, <{LANES} x i32> <{order}>")
    mask = _mask(f, list(range(LANES)), low, end)
    counts = f"<{LANES} x i64> <{', '.join(f'i64 {i}' for i in range(LANES))}>"
    distances = f.let(f"mul {counts}, {f.splat('i64', LANES, step)}")
    places = f.let(f"getelementptr i8, ptr {pointer}, <{LANES} x i64> {distances}")
    gather = f"llvm.masked.gather.v{LANES}{SUFFIX[type]}.v{LANES}p0"
    operands = ((f"<{LANES} x ptr>", places), ("i32 immarg", str(item)), (f"<{LANES} x i1>", mask), (vector, filled))
    return f.call(vector, gather, *operands)


def _mask(f: Function, lanes: list[int], low: str, end: str) -> str:
    """Marks the lanes whose number is within `low` and `end` (i64)."""
    numbers = f"<{len(lanes)} x i32> <{', '.join(f'i32 {n}' for n in lanes)}>"
    bounds = [f.splat("i32", len(lanes), f.let(f"trunc i64 {b} to i32")) for b in (low, end)]
    inside = [f.let(f"icmp {p} {numbers}, {b}") for p, b in zip(("sge", "slt"), bounds)]
    return f.let(f"and <{len(lanes)} x i1> {inside[0]}, {inside[1]}")


def _windows(kind: str, type: str, stride: int, name: str, machine: Machine) -> str:
    """Emits the kernel of a plane's windows. Units are planes.

    `tall`: for each row of outputs and of the window the byte offset of the input's row, or OUTSIDE. `wide`: for each
    column of the window the range of outputs inside the input, and the byte offset for output 0.
    """
    f = Function(name)
    x, y, other, xs, ys, tall, wide, y_row, rows, columns, high, broad, step, w_plane = f.args("pppppppiiiiiii")
    vector, item = f"<{LANES} x {type}>", 4 if type == "float" else 8
    op = "max" if kind == "max" else "add"
    neutral = window_start(kind, type)

    def plane(p: str) -> None:
        source, target = f.beyond(x, f.load("i64", f.at(xs, p, "i64"))), f.beyond(y, f.load("i64", f.at(ys, p, "i64")))
        weights = f.beyond(other, f.mul(p, w_plane))

        def row(r: str) -> None:
            out = f.beyond(target, f.mul(r, y_row))

            def block(begin: str) -> None:
                def window_row(k: str, total: str) -> list[str]:
                    at = f.load("i64", f.at(tall, f.add(f.mul(r, high), k), "i64"))
                    present = f.let(f"icmp ne i64 {at}, {OUTSIDE}")
                    line = f.beyond(f.beyond(source, at), f.mul(begin, step))
                    count = f.let(f"select i1 {present}, i64 {broad}, i64 0")

                    def window_column(q: str, total: str) -> list[str]:
                        low, end, shift = (f.load("i64", f.at(wide, f.add(f.mul(q, 3), i), "i64")) for i in range(3))
                        value = _vector(f, type, f.beyond(line, shift), stride, step, f.sub(low, begin), f.sub(end, begin), neutral)
                        if kind == "square_sum":
                            value = f.let(f"fmul {vector} {value}, {value}")
                        if kind == "weighted":
                            weight = f.load(type, f.at(weights, f.add(f.mul(k, broad), q), type))
                            value = f.let(f"fmul {vector} {value}, {f.splat(type, LANES, weight)}")
                        return [combine(f, op, vector, total, value)]

                    return f.loop(0, count, window_column, [(vector, total)])

                [total] = f.loop(0, high, window_row, [(vector, f"splat ({type} {neutral})")])
                mask = _mask(f, list(range(LANES)), "0", f.sub(columns, begin))
                masked, place = (f"<{LANES} x i1>", mask), ("i32 immarg", str(item))
                if kind == "average":
                    counts = f.at(other, f.add(f.mul(r, columns), begin), type)
                    ones = f"splat ({type} 1.0)"
                    name = f"llvm.masked.load.v{LANES}{SUFFIX[type]}.p0"
                    total = f.let(f"fdiv {vector} {total}, {f.call(vector, name, ('ptr', counts), place, masked, (vector, ones))}")
                store = f"llvm.masked.store.v{LANES}{SUFFIX[type]}.p0"
                f.call("void", store, (vector, total), ("ptr", f.at(out, begin, type)), place, masked)

            f.loop(0, columns, block, step=LANES)

        f.loop(0, rows, row)

    f.loop("%first", "%end", plane)
    return f.done()


def _ones(kind: str, type: str, name: str, machine: Machine) -> str:
    """Emits the kernel of planes with one column of outputs, with the arguments of `_windows`. Units are planes.

    An output is one number, to which the elements of its window are added in the order of `_windows`.
    """
    f = Function(name)
    x, y, other, xs, ys, tall, wide, y_row, rows, _, high, broad, _, w_plane = f.args("pppppppiiiiiii")
    op, item = "max" if kind == "max" else "add", 4 if type == "float" else 8

    def plane(p: str) -> None:
        source, target = f.beyond(x, f.load("i64", f.at(xs, p, "i64"))), f.beyond(y, f.load("i64", f.at(ys, p, "i64")))
        weights = f.beyond(other, f.mul(p, w_plane))

        def row(r: str) -> None:
            def window_row(k: str, total: str) -> list[str]:
                at = f.load("i64", f.at(tall, f.add(f.mul(r, high), k), "i64"))
                line = f.beyond(source, at)
                count = f.let(f"select i1 {f.let(f'icmp ne i64 {at}, {OUTSIDE}')}, i64 {broad}, i64 0")

                def window_column(q: str, total: str) -> list[str]:
                    low, end, shift = (f.load("i64", f.at(wide, f.add(f.mul(q, 3), i), "i64")) for i in range(3))
                    inside = f.let(f"icmp slt i64 {low}, {end}")

                    def met() -> list[str]:
                        value = f.load(type, f.beyond(line, shift), item)
                        if kind == "square_sum":
                            value = f.let(f"fmul {type} {value}, {value}")
                        if kind == "weighted":
                            value = f.let(f"fmul {type} {value}, {f.load(type, f.at(weights, f.add(f.mul(k, broad), q), type))}")
                        return [combine(f, op, type, total, value)]

                    return f.choose(inside, type, met, lambda: [total])

                return f.loop(0, count, window_column, [(type, total)])

            [total] = f.loop(0, high, window_row, [(type, window_start(kind, type))])
            if kind == "average":
                total = f.let(f"fdiv {type} {total}, {f.load(type, f.at(other, r, type))}")
            f.store(type, total, f.beyond(target, f.mul(r, y_row)))

        f.loop(0, rows, row)

    f.loop("%first", "%end", plane)
    return f.done()


def _touches(kind: str, args: Arguments, units: int) -> Touched:
    """States what a launch of `_windows` or `_ones` touches."""
    x, y, other, xs, ys, tall, wide, y_row, rows, columns, high, broad, step, w_plane = args
    item, present = y.itemsize, np.unique(tall[: rows * high])
    across: list[Table] = [np.arange(low, end, dtype=np.int64) * step + shift for low, end, shift in wide[:broad].tolist()]
    reads = [Elements.at(x, item, xs[:units], present[present != OUTSIDE], np.unique(np.concatenate(across)))]
    if kind == "weighted":
        reads.append(Elements.at(other, item, (units, w_plane), (high * broad, item)))
    if kind == "average":
        reads.append(Elements.at(other, item, (rows * columns, item)))
    return Touched(reads, [Elements.at(y, item, ys[:units], (rows, y_row), (columns, item))])


def _both(a: Table, b: Table) -> Table:
    """Combines the rows of two dimensions: [outputs, kernel] of each become [outputs, kernel] of both; OUTSIDE
    if either is.
    """
    a_at, b_at = a[:, None, :, None], b[None, :, None, :]
    at = np.where((a_at != OUTSIDE) & (b_at != OUTSIDE), a_at + b_at, OUTSIDE)
    return np.ascontiguousarray(at.reshape(len(a) * len(b), -1))


def _launch(
    library: Library,
    kind: str,
    x: Array,
    y: Array,
    other: Array,
    places: tuple[Table, Table],
    tall: Table,
    y_row: int,
    wide: Side,
    w_plane: int,
) -> list[Launch] | None:
    """Builds the launch for the planes of x and y, which are at `places`.

    `tall`: for each row of outputs and of the window the byte offset of x's row, or OUTSIDE; `other`: weights, or the
    divisors of an average.
    """
    if wide.outputs > 1 and wide.leap != y.itemsize:
        return None
    type = TYPES[y.dtype.name]
    stride = wide.stride if wide.stride in (1, 2) and (wide.step == x.itemsize or wide.n == 1) else 0
    inner = x.itemsize if stride else wide.step
    if wide.outputs == 1:
        kernel = Kernel(f"windows {kind} {type} one", partial(_ones, kind, type), partial(_touches, kind))
    else:
        kernel = Kernel(f"windows {kind} {type} {stride}", partial(_windows, kind, type, stride), partial(_touches, kind))
    args = [
        x, y, other, *places, tall, wide.columns(inner), y_row, len(tall), wide.outputs,
        tall.shape[1], wide.kernel, wide.stride * inner, w_plane,
    ]  # fmt: skip
    # In one column each element waits for the one before it, about a nanosecond.
    work = y.size * tall.shape[1] * wide.kernel // (1 if wide.outputs == 1 else 8)
    return [Launch(library, kernel, args, len(places[0]), work)]


def depthwise(library: Library, c: Convolution) -> list[Launch] | None:
    """Builds a convolution with one channel in and out of each group and two sides, or a formula of it.

    Returns None if the kernel does not apply: always for large windows of an image that is padded, or with a formula.
    """
    x, w, y = c.x, c.w, c.target
    if not w.flags.c_contiguous:
        return None
    tall, wide = c.sides
    walks = c.along_x(), c.along_y, c.along_w
    planes = walks[0].table("b", "g"), walks[1].table("b", "g"), walks[2].table("b", "g")
    words = ending_words(c.formula, c.along, ("b", "g"), (), c.outs[:-1])
    on_plane = c.formula and on_matrix(c.formula, c.along, c.outs[:-1], c.outs[-1:])
    made = down(library, "weighted", x, y, w, planes, (tall, wide), on_plane, words)
    if made is not None:
        return made
    if c.is_padded or c.formula is not None:
        return None
    launches: list[Launch] = []
    places = walks[0].table("g"), walks[1].table("g")
    for b in range(y.shape[0]):
        made = _launch(library, "weighted", x[b], y[b], w, places, tall.rows(), tall.leap, wide, walks[2].bytes["g"])
        if made is None:
            return None
        launches += made
    return launches


def last(x: Array) -> bool:
    """Tells whether the channels of x [n, c, sides..] are adjacent, and positions are not."""
    return x.shape[1] > 1 and x.strides[1] == x.itemsize and x.strides[-1] != x.itemsize


def pool(library: Library, task: Task) -> list[Launch] | None:
    """Computes the maximum, mean, sum or sum of squares of each window, with f16 whose channels are last as it is."""
    y = task["y"]
    if task.text("kind") == "max" and y.dtype == np.float16 and library.host.converts_halves and last(task.fields["x"].array) and last(y):
        return channel_pool.maximum(library, task)
    return _pool(library, task)


@through_f32
def _pool(library: Library, task: Task) -> list[Launch] | None:
    """Computes the maximum, mean, sum or sum of squares of each window of lines, images and volumes.

    Padding is left out; element types are f32 and f64, and those of 8 bits for a maximum.
    """
    field, y, kind = task.fields["x"], task["y"], task.text("kind")
    if kind == "max" and (y.dtype.name in ("int8", "uint8") or (y.dtype.name in TYPES and last(field.array) and last(y))):
        return channel_pool.maximum(library, task)
    x, spatial = field.array, y.ndim - 2
    if x.dtype != y.dtype or y.dtype.name not in TYPES or spatial not in (1, 2, 3) or 0 in (x.size, y.size):
        return None
    axes = sides_of(task, field, task.fields["y"])
    along_y = walk_over(task, task.fields["y"])
    places = walk_over(task, field).table("n", "c"), along_y.table("n", "c")
    counts: NDArray[Any] = np.zeros(0)
    if kind == "average":
        counts = _counts(task, 0)
        for d in range(1, spatial):
            counts = np.multiply.outer(counts, _counts(task, d))
    if spatial == 1:
        axes.insert(0, Side())
    if spatial < 3:
        made = down(library, kind, x, y, counts.astype(y.dtype), (*places, offsets((1,), (0,))), (axes[0], axes[1]))
        if made is not None:
            return made
    tall, y_row = axes[0].rows(), axes[0].leap
    if spatial == 3:
        # A row of outputs is one of a plane, a row of a window too.
        flat = step_of(along_y, "o0", "o1")
        if flat is None:
            return None
        y_row, tall = flat, _both(tall, axes[1].rows())
    return _launch(library, kind, x, y, counts.astype(y.dtype), places, tall, y_row, axes[-1], 0)


def _counts(task: Task, d: int) -> NDArray[np.float64]:
    """Counts the elements of each window along dimension d that its mean divides by."""
    first, end, _ = task.box[f"o{d}"]
    field, behind = task.fields["x"], task.ints("after")[d]
    (stride, dilation, before), size = field.windows("o", "k")[d], field.whole[2 + d]
    reach = np.arange(task.size(f"k{d}")) * dilation
    at = (np.arange(first, end) * stride - before)[:, None] + reach
    low, high = (-before, size + behind) if task.number("count_padding") else (0, size)
    return ((low <= at) & (at < high)).sum(1).astype(np.float64)
