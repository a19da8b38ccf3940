"""Costs of a family's vertices, as cycles and floating-point operations, by the formulas of its codelet."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from populus.dialects.support.element_types import is_float
from populus.runtime.codelets import IMPLEMENTATIONS
from populus.runtime.cycles.counts import Count
from populus.runtime.cycles.vertices import Vertex


def vertex_cycles(vertex: Vertex) -> NDArray[np.int64]:
    """Computes the tile cycles of every vertex: an array with one dimension for each cut axis of the domain.

    The formula is evaluated once for each distinct box size. A split makes at most three sizes per axis.
    """
    cycles_of = IMPLEMENTATIONS[vertex.codelet].cycles
    cut = [(a, s) for a, s in vertex.domain.axes if s.parts > 1]
    sizes: dict[str, Count] = {a: s.n for a, s in vertex.domain.axes}
    where: list[NDArray[np.int64]] = []
    for i, (axis, split) in enumerate(cut):
        distinct, index = np.unique(np.diff(split.bounds()), return_inverse=True)
        sizes[axis] = distinct.reshape([-1 if j == i else 1 for j in range(len(cut))])
        where.append(index)
    shape = np.broadcast_shapes(*(np.shape(n) for n in sizes.values()))
    cycles = np.broadcast_to(np.ceil(cycles_of(vertex, sizes)).astype(np.int64), shape)
    empty = np.broadcast_to(np.prod(np.broadcast_arrays(*sizes.values()), axis=0) == 0, shape) if sizes else np.zeros(shape, bool)
    return np.where(empty, 0, cycles)[np.ix_(*where)] if where else np.where(empty, 0, cycles)


def accesses(vertex: Vertex, field: int) -> int:
    """Counts the elements of a field that the vertices read or write, those of several once for each."""
    sizes: dict[str, Count] = {a: s.n for a, s in vertex.domain.axes}
    many = 1
    cut = [(a, s) for a, s in vertex.domain.axes if s.parts > 1]
    named = vertex.axes_of(field)
    varying = [(a, s) for a, s in cut if a in named]
    for axis, split in cut:
        if axis not in named:
            many *= split.parts
    for i, (axis, split) in enumerate(varying):
        distinct, counts = np.unique(np.diff(split.bounds()), return_counts=True)
        sizes[axis] = distinct.reshape([-1 if j == i else 1 for j in range(len(varying))])
        many = many * counts.reshape([-1 if j == i else 1 for j in range(len(varying))])
    return int(np.sum(np.asarray(vertex.elements(field, sizes)) * many))


def flops(vertex: Vertex) -> int:
    """Counts the floating-point operations of a whole family: two for each multiply-add; a map counts its
    functions.

    Multiplications by padding count, as in PopLibs' estimates. Codelets that compute on integers count nothing.
    """
    return IMPLEMENTATIONS[vertex.codelet].flops(vertex) if is_float(vertex.element) else 0
