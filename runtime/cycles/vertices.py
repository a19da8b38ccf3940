"""`Vertex`: the description of a family's vertices from which a codelet's cost formulas compute."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from xdsl.dialects.builtin import IntegerAttr, StringAttr
from xdsl.ir import Attribute

from populus.dialects.expr import Expr, ExprAttr
from populus.dialects.poplar.codelets import CODELETS
from populus.dialects.poplar.compute import FamilyOp
from populus.dialects.poplar.partition import Access, Domain
from populus.dialects.poplar.target import Target
from populus.dialects.poplar.types import Field, TensorType
from populus.runtime.cycles.counts import Count

Sizes: TypeAlias = Mapping[str, Count]
"""The box's number of elements along each axis."""


@dataclass(frozen=True)
class Vertex:
    """Vertices of a family without the sizes of their boxes, for the cost model. Equal vertices cost the same."""

    codelet: str
    domain: Domain
    fields: tuple[Field, ...]
    types: tuple[TensorType, ...]
    expression: Expr | None
    op: str
    target: Target
    scalars: tuple[tuple[str, int], ...] = ()  # integer parameters of `winograd` and `packed_matmul`, and of a codelet written in Python
    swapped: bool = False  # a product whose first operand is loaded into the matrix unit
    partials: str = ""  # the type that a contraction sums halves in, if it is not f32

    @staticmethod
    def of(family: FamilyOp, target: Target) -> Vertex:
        """Builds the description of a family's vertices on a target."""
        params = family.params.data
        expression, op, partials = params.get("expr"), params.get("op"), params.get("partials")
        counted = family.declaration.code is not None or family.codelet.data in ("packed_matmul", "winograd")
        return Vertex(
            family.codelet.data,
            family.space,
            family.fields.data,
            tuple(v.type for v in family.views if isinstance(v.type, TensorType)),
            expression.data if isinstance(expression, ExprAttr) else None,
            op.data if isinstance(op, StringAttr) else "",
            target,
            tuple((n, p.value.data) for n, p in params.items() if isinstance(p, IntegerAttr)) if counted else (),
            "swapped" in params,
            partials.data if isinstance(partials, StringAttr) else "",
        )

    @cached_property
    def output(self) -> int:
        """Index of the field that is written."""
        return next(i for i, f in enumerate(self.fields) if f.kind != "in")

    @property
    def blocks(self) -> int:
        """Blocks of depth that the largest vertex sums, or of elements that it computes, each of which may arrive under the one before.

        0 on a machine without blocks.
        """
        if self.target.mesh is None:
            return 0
        sizes = {a: s.largest for a, s in self.domain.axes}
        rows, columns = self.target.mesh.block
        if CODELETS[self.codelet].is_product:
            return -(-self.product(sizes, CODELETS[self.codelet].is_contracted) // rows)
        return -(-int(self.elements(self.output, sizes)) // (rows * columns))

    @property
    def points(self) -> int:
        """Points of the whole iteration space."""
        return math.prod(s.n for _, s in self.domain.axes)

    @property
    def element(self) -> Attribute:
        """Element type of the first field, in which the codelet computes."""
        return self.types[0].element

    def elements(self, field: int, sizes: Sizes) -> Any:
        """Counts the elements of a field that the vertex touches; windows are cut at the view's bounds."""
        total: Any = 1
        for access, n in zip(self.fields[field].access, self.types[field].shape):
            total = total * _extent(access, n, sizes)
        return total

    def product(self, sizes: Sizes, selects: Callable[[str], bool]) -> Any:
        """Multiplies the sizes of the axes that `selects` accepts."""
        total: Any = 1
        for axis, _ in self.domain.axes:
            if selects(axis):
                total = total * sizes[axis]
        return total

    def axes_of(self, field: int) -> frozenset[str]:
        """Collects the axes in a field's accesses."""
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
