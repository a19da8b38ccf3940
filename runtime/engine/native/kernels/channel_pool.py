"""Kernel of the largest element of each window, with channels last: a vector holds channels of one position.

A window's elements outside the input are replaced by one inside, which changes no maximum.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from populus.runtime.codelets.task import Array, Task
from populus.runtime.engine.native.codegen.cpu import Machine
from populus.runtime.engine.native.codegen.jit import Kernel, Library
from populus.runtime.engine.native.codegen.llvm_builder import Function
from populus.runtime.engine.native.codegen.touched import Arguments, Elements, Touched
from populus.runtime.engine.native.kernels.copies import copy, near
from populus.runtime.engine.native.kernels.launch import Launch
from populus.runtime.engine.native.kernels.operands import Side, run_of, sides_of, walk_over
from populus.runtime.engine.native.kernels.panels import Table
from populus.runtime.engine.native.kernels.rows import combine


def _largest(type: str, signed: bool, name: str, machine: Machine) -> str:
    """Emits the maximum over `taps` rows of `n` elements, at x + places[unit, tap]. Units are positions, at y + ys[unit]."""
    f = Function(name)
    x, y, places, ys, taps, n = f.args("ppppii")

    def larger(a: str, b: str) -> str:
        if type == "i8":
            return f.call(type, f"llvm.{'s' if signed else 'u'}max.i8", (type, a), (type, b))
        return combine(f, "max", type, a, b)

    def position(unit: str) -> None:
        into = f.beyond(y, f.load("i64", f.at(ys, unit, "i64")))
        row = f.at(places, f.mul(unit, taps), "i64")
        first = f.beyond(x, f.load("i64", row))
        f.each(0, n, lambda c: f.store(type, f.load(type, f.at(first, c, type)), f.at(into, c, type)))

        def tap(k: str) -> None:
            source = f.beyond(x, f.load("i64", f.at(row, k, "i64")))

            def one(c: str) -> None:
                here = f.at(into, c, type)
                f.store(type, larger(f.load(type, here), f.load(type, f.at(source, c, type))), here)

            f.each(0, n, one)

        f.loop(1, taps, tap)

    f.loop("%first", "%end", position)
    return f.done()


def _touches(args: Arguments, units: int) -> Touched:
    source, into, places, ys, taps, n = args
    item = into.itemsize
    read = Elements.at(source, item, np.unique(places.reshape(-1)[: units * taps]), (n, item))
    return Touched([read], [Elements.at(into, item, ys[:units], (n, item))])


def maximum(library: Library, task: Task) -> list[Launch] | None:
    """Computes the largest element of each window. Copies x and y if their channels are not last."""
    field, y = task.fields["x"], task["y"]
    x, spatial = field.array, y.ndim - 2
    if 0 in (x.size, y.size) or x.ndim != y.ndim:
        return None
    launches: list[Launch] = []
    source, target = field, task.fields["y"]
    item = x.itemsize
    if run_of(["c"], item, walk_over(task, source))[0]:
        source = near(task, field, 1, -1)
        made = [copy(library, a, b) for a, b in zip(x, source.array)]
        if any(m is None for m in made):
            return None
        launches += [launch for m in made for launch in m or ()]
    into = near(task, target, 1, -1) if run_of(["c"], item, walk_over(task, target))[0] else target
    sides = sides_of(task, source, into)
    windows = [_inside(side) for side in sides]
    if len(windows) != spatial or any(w is None for w in windows):
        return None
    places: Table = np.zeros((1, 1), np.int64)
    for side, table in zip(sides, windows):
        assert table is not None
        step = table * side.step
        places = (places[:, None, :, None] + step[None, :, None, :]).reshape(len(places) * len(step), -1)
    batch = walk_over(task, source).table("n")[:, None, None]
    places = np.ascontiguousarray((batch + places).reshape(-1, places.shape[1]))
    ys = walk_over(task, into).table("n", *(f"o{d}" for d in range(spatial)))
    signed, type = x.dtype == np.int8, {1: "i8", 2: "half", 4: "float", 8: "double"}[item]
    kernel = Kernel(f"channel pool {type} {signed}", partial(_largest, type, signed), _touches)
    args: list[int | Array | Kernel] = [source.array, into.array, places, ys, places.shape[1], y.shape[1]]
    launches.append(Launch(library, kernel, args, len(ys), places.size * max(y.shape[1], 64) // 40))
    if into is not target:
        made = [copy(library, a, b) for a, b in zip(into.array, y)]
        if any(m is None for m in made):
            return None
        launches += [launch for m in made for launch in m or ()]
    return launches


def _inside(side: Side) -> Table | None:
    """Lists [outputs, kernel]: the element of each window's place, one inside for those outside; None if a window has none."""
    at = np.arange(side.outputs, dtype=np.int64)[:, None] * side.stride - side.before + np.arange(side.kernel) * side.dilation
    inside = (at >= 0) & (at < side.n)
    if not inside.any(1).all():
        return None
    some = np.take_along_axis(at, inside.argmax(1)[:, None], 1)
    return np.where(inside, at, some)
