"""`pool` of lines and images, in f32 and f64: a row of outputs takes one element of the window after the other."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from populus.runtime.codelets.task import Task
from populus.runtime.engine.native.contraction import TYPES
from populus.runtime.engine.native.jit import Kernel, Library
from populus.runtime.engine.native.launch import Launch
from populus.runtime.engine.native.machine import Machine
from populus.runtime.engine.native.products import offsets
from populus.runtime.engine.native.rows import combine, identity
from populus.runtime.engine.native.text import Function


def _pool(kind: str, type: str, stride: int, name: str, machine: Machine) -> str:
    """Units are planes. Tables: for each row of outputs and each of the window's, the input's row or -1; for each of the window's
    columns (first output, end, input's element of output 0)."""
    f = Function(name)
    x, y, xs, ys, tall, wide, counts = f.args("ppppppp")
    x_row, y_row, rows, columns, high, broad, step = (f.arg(7 + i) for i in range(7))
    op = "max" if kind == "max" else "add"

    def plane(p: str) -> None:
        source, target = f.beyond(x, f.load("i64", f.at(xs, p, "i64"))), f.beyond(y, f.load("i64", f.at(ys, p, "i64")))

        def row(r: str) -> None:
            out = f.beyond(target, f.mul(r, y_row))
            f.loop(0, columns, lambda i: f.store(type, identity(op, type), f.at(out, i, type)))

            def window_row(k: str) -> None:
                at = f.load("i64", f.at(tall, f.add(f.mul(r, high), k), "i64"))

                def inside() -> None:
                    line = f.beyond(source, f.mul(at, x_row))

                    def window_column(q: str) -> None:
                        low, end, shift = (f.load("i64", f.at(wide, f.add(f.mul(q, 3), i), "i64")) for i in range(3))
                        start = f.at(line, shift, type)

                        def one(i: str) -> None:
                            value = f.load(type, f.at(start, f.mul(i, stride or step), type))
                            if kind == "square_sum":
                                value = f.let(f"fmul {type} {value}, {value}")
                            place = f.at(out, i, type)
                            f.store(type, combine(f, op, type, f.load(type, place), value), place)

                        f.loop(low, end, one)

                    f.loop(0, broad, window_column)

                f.when(f.let(f"icmp sge i64 {at}, 0"), inside)

            f.loop(0, high, window_row)
            if kind == "average":
                divisors = f.at(counts, f.mul(r, columns), type)

                def divide(i: str) -> None:
                    place = f.at(out, i, type)
                    f.store(type, f.let(f"fdiv {type} {f.load(type, place)}, {f.load(type, f.at(divisors, i, type))}"), place)

                f.loop(0, columns, divide)

        f.loop(0, rows, row)

    f.loop("%first", "%end", plane)
    return f.done()


def pool(library: Library, task: Task) -> list[Launch] | None:
    """The largest, mean, sum or sum of squares of each window; padding is left out."""
    field, y, kind = task.fields["x"], task["y"], task.text("kind")
    x = field.array
    spatial = y.ndim - 2
    if x.dtype != y.dtype or y.dtype.name not in TYPES or spatial not in (1, 2) or 0 in (x.size, y.size):
        return None
    axes = [_Axis(task, d, spatial, x.shape[2 + d]) for d in range(spatial)]
    if spatial == 1:
        x, y = x[:, :, None], y[:, :, None]
    item = y.itemsize
    if (x.shape[3] > 1 and x.strides[3] != item) or (y.shape[3] > 1 and y.strides[3] != item):
        return None
    type, across = TYPES[y.dtype.name], axes[-1]
    tall = axes[0].rows() if spatial == 2 else np.zeros((1, 1), np.int64)
    counts: NDArray[Any] = np.outer(axes[0].counts() if spatial == 2 else np.ones(1), across.counts()).astype(y.dtype)
    stride = across.stride if across.stride in (1, 2) else 0
    kernel = Kernel(f"pool {kind} {type} {stride}", partial(_pool, kind, type, stride))
    args = [
        x, y, offsets(x.shape[:2], x.strides[:2]), offsets(y.shape[:2], y.strides[:2]), tall, across.columns(), counts,
        x.strides[2], y.strides[2], y.shape[2], y.shape[3], tall.shape[1], across.kernel, across.stride,
    ]  # fmt: skip
    return [Launch(library, kernel, args, y.shape[0] * y.shape[1])]


class _Axis:
    """The windows along one dimension of the box, over `n` elements of the input."""

    def __init__(self, task: Task, d: int, spatial: int, n: int):
        self.first, end, _ = task.box[f"o{d}"]
        self.count, self.n = end - self.first, n
        self.kernel, self.stride, self.dilation = task.size(f"k{d}"), task.ints("strides")[d], task.ints("dilations")[d]
        self.size, pads = task.ints("sizes")[d], task.ints("pads")
        self.before, self.behind = pads[d], pads[spatial + d]
        self.overhang = task.fields["x"].pads[2 + d][0]
        self.count_padding = bool(task.number("count_padding"))

    def places(self) -> NDArray[np.int64]:
        """[outputs, kernel]: the input's element, or one that is outside."""
        return (np.arange(self.count, dtype=np.int64) * self.stride - self.overhang)[:, None] + np.arange(self.kernel) * self.dilation

    def rows(self) -> NDArray[np.int64]:
        places = self.places()
        return np.ascontiguousarray(np.where((places >= 0) & (places < self.n), places, -1))

    def columns(self) -> NDArray[np.int64]:
        table: list[tuple[int, int, int]] = []
        for k in range(self.kernel):
            shift = k * self.dilation - self.overhang
            low = max(0, -(shift // self.stride)) if shift < 0 else 0
            high = min(self.count, (self.n - 1 - shift) // self.stride + 1)
            table.append((low, max(low, high), shift))
        return np.array(table, np.int64)

    def counts(self) -> NDArray[np.float64]:
        """How many elements of each window count for its mean."""
        at = (np.arange(self.first, self.first + self.count) * self.stride - self.before)[:, None] + np.arange(self.kernel) * self.dilation
        low, high = (-self.before, self.size + self.behind) if self.count_padding else (0, self.size)
        return ((low <= at) & (at < high)).sum(1).astype(np.float64)
