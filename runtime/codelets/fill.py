"""Kernels without inputs: `fill`, `iota`, and `random`, whose input is the seed."""

from __future__ import annotations

from typing import Any

import numpy as np

from populus.dialects.expr import Const
from populus.runtime.codelets.implementation import Implementation
from populus.runtime.codelets.task import Run, Task, nothing
from populus.runtime.cycles.counts import ceil_div
from populus.runtime.cycles.family import map_cycles
from populus.runtime.cycles.vertices import Sizes, Vertex


def fill(task: Task) -> Run:
    """Computes `y = value`."""
    y, value = task["y"], task.number("value")
    # The parameter may hold an integer's bits, as signless attributes do: -1 and 255 are the same i8.
    element = np.asarray(int(value)).astype(y.dtype) if y.dtype.kind in "iub" else np.asarray(value, np.float64).astype(y.dtype)
    return lambda: np.copyto(y, element)


def iota(task: Task) -> Run:
    """Computes `y[i] = start + step i`; i is the position in the whole vector.

    Floats are rounded once, from double precision.
    """
    y, start, step = task["y"], task.number("start"), task.number("step")
    if y.size == 0:
        return nothing
    first, end, _ = task.box["d0"]
    wide = np.float64 if y.dtype.kind not in "iu" else y.dtype
    with np.errstate(all="ignore"):
        index = np.arange(first, end).astype(wide)
        values = (np.asarray(start).astype(wide) + index * np.asarray(step).astype(wide)).astype(y.dtype)
    return lambda: np.copyto(y, values.reshape(y.shape))


def random(task: Task) -> Run:
    """Draws numbers of a distribution by an element's position in the whole of y.

    See `runtime.poprand`.
    """
    from populus.runtime.poprand import draw

    y, seed, sizes = task["y"], task["seed"], task.fields["y"].whole
    if y.size == 0:
        return nothing
    distribution, a, b, stream = task.text("distribution"), float(task.number("a")), float(task.number("b")), int(task.number("stream"))
    starts, counts = runs_of(task, sizes)

    def run() -> None:
        words = seed.reshape(-1)
        rows = [draw(words, distribution, a, b, stream, first, counts) for first in starts]
        np.copyto(y, np.concatenate(rows).reshape(y.shape), casting="unsafe")

    return run


def runs_of(task: Task, sizes: tuple[int, ...]) -> tuple[list[int], int]:
    """Lists the starts of the box's runs of adjacent elements in the whole variable, and the length of a run."""
    bounds = [task.box[f"d{d}"][:2] for d in range(len(sizes))]
    inner, length = len(sizes), 1
    while inner and bounds[inner - 1] == (0, sizes[inner - 1]):
        inner -= 1
        length *= sizes[inner]
    starts = [0]
    for d in range(inner):
        last = d == inner - 1
        first, end = bounds[d]
        starts = [s * sizes[d] + i for s in starts for i in ((first,) if last else range(first, end))]
    if inner:
        first, end = bounds[inner - 1]
        return [s * length for s in starts], (end - first) * length
    return [0], length


def _fill_cycles(v: Vertex, sizes: Sizes) -> Any:
    return map_cycles(v.elements(0, sizes), Const(0), [], [], v.element, v.target, False)


def _iota_cycles(v: Vertex, sizes: Sizes) -> Any:
    own = ceil_div(v.elements(0, sizes), v.target.workers)
    return 11 + v.target.workers * (14 + 3 * ceil_div(own, v.target.vector_width(v.element)))


def _random_cycles(v: Vertex, sizes: Sizes) -> Any:
    """Estimates 4 cycles per vector, for normal and uniform numbers."""
    return 4 + 22 * v.target.workers + 4 * ceil_div(v.elements(v.output, sizes), v.target.vector_width(v.types[v.output].element))


IMPLEMENTATIONS = {
    "fill": Implementation(fill, _fill_cycles, native="tables.fill"),
    "iota": Implementation(iota, _iota_cycles, native="tables.iota"),
    "random": Implementation(random, _random_cycles, native="draws.random"),
}
