"""Cycles and floating point operations of a family's vertices, from the sizes of their boxes.

The codelets' names and fields are declared in `dialects/poplar/codelets.py`; `CYCLES` has one row for each.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from xdsl.dialects.builtin import IntegerAttr, StringAttr
from xdsl.ir import Attribute

from populus.dialects.expr import FUNCTIONS, Expr, ExprAttr, functions_of
from populus.dialects.poplar.codelets import CODELETS
from populus.dialects.poplar.compute import FamilyOp
from populus.dialects.poplar.partition import Access, Domain
from populus.dialects.poplar.target import Target
from populus.dialects.poplar.types import Field, TensorType
from populus.dialects.support.element_types import is_float, size_in_bytes
from populus.runtime.cycles.contraction import Count, ceil_div, contraction
from populus.runtime.cycles.elementwise import binary, fill, inner, loop, map_cycles, unary
from populus.runtime.cycles.indexed import multi_update_cycles, top_k_cycles
from populus.runtime.cycles.reduction import reduce_cycles
from populus.runtime.cycles.tile_code import flops as tile_code_flops
from populus.runtime.cycles.tile_code import tile_code_cycles

Sizes: TypeAlias = Mapping[str, Count]
"""How many elements of each axis the box has."""


@dataclass(frozen=True)
class Vertex:
    """What the cost of a family's vertices depends on, beside the sizes of their boxes: equal vertices cost the same."""

    codelet: str
    domain: Domain
    fields: tuple[Field, ...]
    types: tuple[TensorType, ...]
    expression: Expr | None
    op: str
    target: Target
    scalars: tuple[tuple[str, int], ...] = ()  # the integers among the parameters of a codelet that was written in Python

    @staticmethod
    def of(family: FamilyOp, target: Target) -> Vertex:
        params = family.params.data
        expression, op = params.get("expr"), params.get("op")
        return Vertex(
            family.codelet.data,
            family.space,
            family.fields.data,
            tuple(v.type for v in family.views if isinstance(v.type, TensorType)),
            expression.data if isinstance(expression, ExprAttr) else None,
            op.data if isinstance(op, StringAttr) else "",
            target,
            tuple((n, p.value.data) for n, p in params.items() if isinstance(p, IntegerAttr)) if family.declaration.code else (),
        )

    @cached_property
    def output(self) -> int:
        """The number of the field that is written."""
        return next(i for i, f in enumerate(self.fields) if f.kind != "in")

    @property
    def element(self) -> Attribute:
        """The element type of the first field, in which the codelet computes."""
        return self.types[0].element

    def elements(self, field: int, sizes: Sizes) -> Any:
        """Elements of a field that the vertex sees, its windows within the view."""
        total: Any = 1
        for access, n in zip(self.fields[field].access, self.types[field].shape):
            total = total * _extent(access, n, sizes)
        return total

    def product(self, sizes: Sizes, keep: Callable[[str], bool]) -> Any:
        """The product of the sizes of some axes."""
        total: Any = 1
        for axis, _ in self.domain.axes:
            if keep(axis):
                total = total * sizes[axis]
        return total

    def axes_of(self, field: int) -> frozenset[str]:
        return frozenset(a for access in self.fields[field].access for a, _ in access.terms)


def _extent(access: Access, n: int, sizes: Sizes) -> Any:
    if access.whole:
        return n
    if access.part:
        return 1
    extent: Any = 1
    for axis, coefficient in access.terms:
        extent = extent + coefficient * (sizes[axis] - 1)
    return np.minimum(extent, n)


# -- a row for each codelet ------------------------------------------------------------------------------------------


def _contraction(v: Vertex, sizes: Sizes) -> Any:
    """Axes by the fields that they occur in: both inputs and the output: groups; x and y: positions; w and y: out channels;
    both inputs: in channels and taps."""
    x, w, y = (v.axes_of(i) for i in range(3))
    taps = frozenset(a for a in x & w if a[:1] == "k" and a[1:].isdigit())
    summed = frozenset(a for a in x & w if a in taps or a == ("k" if v.codelet == "matmul" else "ic"))
    positions = [a for a, _ in v.domain.axes if a in x and a not in w]
    return contraction(
        v.product(sizes, lambda a: a in x & w & y and a not in summed),
        v.product(sizes, lambda a: a in positions[: 2 if len(positions) > 2 else 1] or a not in x | w),
        v.product(sizes, lambda a: a in positions[2 if len(positions) > 2 else 1 :]),
        v.product(sizes, lambda a: a in w and a not in x),
        v.product(sizes, lambda a: a in summed - taps),
        v.product(sizes, lambda a: a in taps),
        v.element,
        v.target,
    )


def _map(v: Vertex, sizes: Sizes) -> Any:
    assert v.expression is not None, v.codelet
    inputs = [i for i, f in enumerate(v.fields) if f.kind != "out"]
    largest = {a: s.largest for a, s in v.domain.axes}
    several = v.elements(v.output, largest) > 1
    single = [bool(several and v.elements(i, largest) == 1) for i in inputs]
    return map_cycles(
        v.elements(v.output, sizes),
        v.expression,
        [v.types[i].element for i in inputs],
        single,
        v.types[v.output].element,
        v.target,
        v.fields[v.output].kind == "inout",
    )


def _reduce(v: Vertex, sizes: Sizes) -> Any:
    outputs = v.product(sizes, lambda a: not _is_reduced(a))
    last = v.fields[0].access[-1].terms if v.fields[0].access else ()
    contiguous = any(_is_reduced(a) for a, _ in last)
    depth = v.product(sizes, _is_reduced)
    cycles = reduce_cycles(outputs, depth, v.element, v.target, contiguous, v.op == "add")
    return cycles + v.target.workers * inner(ceil_div(outputs * depth, v.target.workers), loop("square", v.element, v.target)) * (
        v.op == "square_add"
    )


def _is_reduced(axis: str) -> bool:
    return axis[:1] == "r" and (axis == "r" or axis[1:].isdigit())


def _pool(v: Vertex, sizes: Sizes) -> Any:
    """PopLibs' planner's form: for each vector of outputs, 3 cycles a window element and 7 to begin."""
    window = v.product(sizes, lambda a: a[:1] == "k")
    vectors = ceil_div(ceil_div(v.elements(v.output, sizes), v.target.vector_width(v.element)), v.target.workers)
    return 13 + v.target.workers * (23 + 13 + vectors * (7 + 3 * window))


def row_cycles(target: Target, element: Attribute, rows: Count, row: Count) -> Any:
    """Tile cycles of `softmax` over `rows` rows of `row` elements: largest, exponentials of differences, their sum, product."""
    n = rows * row
    passes = binary(n, "sub", element, target, inout=True) + unary(n, "exp", element, target, inout=True)
    reductions = 2 * reduce_cycles(rows, row, element, target, contiguous=True)
    return reductions + passes + unary(rows, "inv", element, target) + binary(n, "mul", element, target, inout=True)


def whiten_cycles(target: Target, element: Attribute, rows: Count, row: Count) -> Any:
    """Tile cycles of `whiten`: sum, differences, sum of their squares, product with the inverse deviation."""
    n = rows * row
    passes = 2 * binary(n, "sub", element, target, inout=True) + unary(n, "square", element, target)
    return 2 * reduce_cycles(rows, row, element, target, contiguous=True) + passes + unary(rows, "rsqrt", element, target)


def _rows(of: Callable[[Target, Attribute, Count, Count], Any]) -> Callable[[Vertex, Sizes], Any]:
    return lambda v, sizes: of(v.target, v.element, v.product(sizes, lambda a: a != "r"), sizes["r"])


def _multi_slice(v: Vertex, sizes: Sizes) -> Any:
    """MultiSlice: workers share the indices; a vector of a row takes 2 cycles, 3 of bytes."""
    indices = v.elements(1, sizes)
    return multi_slice_cycles(indices, ceil_div(v.elements(v.output, sizes), np.maximum(indices, 1)), v.element, v.target)


def _dynamic_update(v: Vertex, sizes: Sizes) -> Any:
    """As the slice of one row."""
    return multi_slice_cycles(1, v.elements(2, sizes), v.element, v.target)


def multi_slice_cycles(indices: Count, row: Count, element: Attribute, target: Target) -> Any:
    """Tile cycles of picking `indices` rows of `row` elements."""
    size = size_in_bytes(element)
    vector, cycles = {1: (4, 3), 2: (2, 2)}.get(size, (max(1, 8 // size), 2))
    per_row = 19 + ceil_div(row, vector * max(1, target.vector_bytes // 8)) * cycles
    return target.workers * (30 + ceil_div(indices, target.workers) * per_row)


def _fill(v: Vertex, sizes: Sizes) -> Any:
    return fill(v.elements(0, sizes), v.element, v.target)


def _iota(v: Vertex, sizes: Sizes) -> Any:
    own = ceil_div(v.elements(0, sizes), v.target.workers)
    return 11 + v.target.workers * (14 + 3 * ceil_div(own, v.target.vector_width(v.element)))


def _random(v: Vertex, sizes: Sizes) -> Any:
    """Normal and uniform numbers: 4 cycles a vector."""
    return 4 + 22 * v.target.workers + 4 * ceil_div(v.elements(v.output, sizes), v.target.vector_width(v.types[v.output].element))


def _multi_update(v: Vertex, sizes: Sizes) -> Any:
    rows, indices, updates = (v.elements(i, sizes) for i in (v.output, 1, 2))
    return multi_update_cycles(rows, indices, updates, v.types[v.output].element, v.target)


def _top_k(v: Vertex, sizes: Sizes) -> Any:
    return top_k_cycles(v.elements(0, sizes), v.types[0].shape[-1], v.target)


class _Cycles(dict[str, Callable[["Vertex", Sizes], Any]]):
    """The rows below; of a codelet that was written in Python, what its author states or its body counts."""

    def __missing__(self, name: str) -> Callable[[Vertex, Sizes], Any]:
        code = CODELETS[name].code
        assert code is not None, name
        return lambda v, sizes: tile_code_cycles(code, sizes, dict(v.scalars), v.target.workers)


CYCLES: dict[str, Callable[[Vertex, Sizes], Any]] = _Cycles(
    {
        "conv": _contraction,
        "dynamic_update": _dynamic_update,
        "fill": _fill,
        "iota": _iota,
        "map": _map,
        "matmul": _contraction,
        "multi_slice": _multi_slice,
        "multi_update": _multi_update,
        "pool": _pool,
        "random": _random,
        "reduce": _reduce,
        "softmax": _rows(row_cycles),
        "top_k": _top_k,
        "whiten": _rows(whiten_cycles),
    }
)


def vertex_cycles(vertex: Vertex) -> NDArray[np.int64]:
    """Tile cycles of every vertex, an array with one dimension for each cut axis of the domain.

    The formula is evaluated once for each distinct box size, of which a split makes at most three an axis.
    """
    cut = [(a, s) for a, s in vertex.domain.axes if s.parts > 1]
    sizes: dict[str, Count] = {a: s.n for a, s in vertex.domain.axes}
    where: list[NDArray[np.int64]] = []
    for i, (axis, split) in enumerate(cut):
        distinct, index = np.unique(np.diff(split.bounds()), return_inverse=True)
        sizes[axis] = distinct.reshape([-1 if j == i else 1 for j in range(len(cut))])
        where.append(index)
    shape = np.broadcast_shapes(*(np.shape(n) for n in sizes.values()))
    cycles = np.broadcast_to(np.ceil(CYCLES[vertex.codelet](vertex, sizes)).astype(np.int64), shape)
    empty = np.broadcast_to(np.prod(np.broadcast_arrays(*sizes.values()), axis=0) == 0, shape) if sizes else np.zeros(shape, bool)
    return np.where(empty, 0, cycles)[np.ix_(*where)] if where else np.where(empty, 0, cycles)


# Passes over a row of each codelet that normalises rows, as operations on an element: softmax (max, sub, exp, add, mul).
_ROW_FLOPS = {"softmax": 5, "whiten": 5}


def flops(vertex: Vertex) -> int:
    """Floating point operations of the whole family: two for each multiply-add; those of its functions for a map.

    Multiplications by padding count, as in PopLibs' estimates. What computes on integers counts nothing.
    """
    points = math.prod(s.n for _, s in vertex.domain.axes)
    if not is_float(vertex.element):
        return 0
    match vertex.codelet:
        case "conv" | "matmul":
            return 2 * points
        case "map":
            assert vertex.expression is not None, vertex.codelet
            return points * flops_of(vertex.expression)
        case "reduce":
            return points * (2 if vertex.op == "square_add" else 1)
        case "pool":
            return points
        case name if (code := CODELETS[name].code) is not None:
            return tile_code_flops(code, {a: s.n for a, s in vertex.domain.axes}, dict(vertex.scalars))
        case other:
            return points * _ROW_FLOPS.get(other, 0)


def flops_of(expression: Expr) -> int:
    """Floating point operations of an expression for one element; a cast counts nothing."""
    return sum(FUNCTIONS[f].flops for f in functions_of(expression) if f != "cast")
