"""Pairs of steps: a product whose k is in slices, and the sum of its partial results."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from xdsl.ir import Operation, SSAValue

from populus.dialects.poplar.compute import ExecuteOp, FamilyOp
from populus.dialects.poplar.memory import StorageOp, storage_of, view_of
from populus.dialects.poplar.overlap import disjoint
from populus.dialects.poplar.partition import Access
from populus.dialects.poplar.program import CallOp
from populus.dialects.poplar.types import TensorType
from populus.dialects.poplar.view import View
from populus.runtime.codelets.task import Array, seen_as
from populus.runtime.engine.native.kernels.panels import Slices
from populus.runtime.views import params_of


@dataclass(frozen=True)
class PartialSums:
    """Pair of families: `product` writes one partial result per combination of `parts` (axes); `sum` adds them in that
    order.
    """

    product: FamilyOp
    sum: FamilyOp
    partials: StorageOp
    parts: tuple[str, ...]

    def slices(self) -> Slices:
        """Lists the elements of k by slices, in the order of their addition."""
        space = self.product.space.splits
        weights = self.product.fields.data[1]  # kernels iterate over k in the order of the second operand's dimensions
        axes = [a for access in weights.access for a, _ in access.terms if a in self.product.contracted]
        places = np.arange(math.prod(space[a].n for a in axes), dtype=np.int64).reshape([space[a].n for a in axes])
        bounds = {a: list(itertools.pairwise(space[a].bounds())) for a in self.parts}
        order: list[np.ndarray[tuple[int, ...], np.dtype[np.int64]]] = []
        for chosen in itertools.product(*(bounds[a] for a in self.parts)):
            cut = dict(zip(self.parts, chosen))
            order.append(places[tuple(slice(*cut[a]) if a in cut else slice(None) for a in axes)].reshape(-1))
        ends = np.cumsum([0, *(len(o) for o in order)], dtype=np.int64)
        return Slices(np.concatenate(order), ends)


def pairs(steps: Sequence[Operation]) -> Iterator[tuple[Operation, PartialSums]]:
    """Finds the products of a block's steps whose slices a later step adds; yields each with its step.

    No step in between touches the sum.
    """
    order = [(step, family) for step in steps for family in (step.families() if isinstance(step, ExecuteOp) else [step])]
    products: dict[StorageOp, int] = {}
    for j, (_, total) in enumerate(order):
        if not isinstance(total, FamilyOp) or total.declaration.code is not None:
            continue
        ((_, written),) = total.written()
        if total.declaration.is_product:
            products[storage_of(written)] = j
        elif total.codelet.data == "reduce" and (i := products.get(storage_of(total.views[0]))) is not None:
            step, product = order[i]
            assert isinstance(product, FamilyOp), product
            pair = partial_sums(product, total)
            if pair is not None and not any(touches(between, written) for _, between in order[i + 1 : j]):
                yield step, pair


def touches(op: Operation, written: SSAValue) -> bool:
    """Tells whether a family or another step may touch the elements of a view."""
    variable, view = storage_of(written), view_of(written)
    views = [v for v in op.operands if isinstance(v.type, TensorType)]
    return (
        bool(op.regions)
        or not views
        or any(storage_of(v) is variable and not disjoint(view_of(v), view) for v in views)
        or captures(op, variable)
    )


def captures(op: Operation, variable: StorageOp) -> bool:
    """Tells whether a step is a call of a function that uses a variable around it, beside its arguments."""
    return isinstance(op, CallOp) and variable.result in op.target().captured()


def partial_sums(product: FamilyOp, total: FamilyOp) -> PartialSums | None:
    """Matches a product and a sum of its slices. Returns None if the families do not match."""
    if not product.declaration.is_product or total.codelet.data != "reduce" or "partials" in product.params.data:
        return None
    if params_of(total.params).get("op") != "add" or total.space.cut & total.contracted:
        return None
    ((out, partials),) = product.written()
    ((_, _),) = total.written()
    ((x, source),) = [(f, v) for f, v in total.connections() if f.kind == "in"]
    parts = tuple(a.terms[0][0] for a in out.access if a.part)
    if not parts or not product.space.cut & product.contracted <= set(parts) or storage_of(source) is not storage_of(partials):
        return None
    lead = len(parts)
    views = _in_order(view_of(partials), lead), view_of(source)
    if not all(v.is_whole for v in views) or any(a.part for a in out.access[lead:]):
        return None
    # The sum's leading dimensions are the parts, one axis each; its result has the others, in order.
    axes = [_axis(a) for a in x.access]
    remaining = [_axis(a) for f, _ in total.written() for a in f.access]
    summed = next((d for d in range(len(axes)) if axes[d] not in total.contracted), len(axes))
    if None in axes or axes[summed:] != remaining or math.prod(views[1].shape[:summed]) != math.prod(views[0].shape[:lead]):
        return None
    return PartialSums(product, total, storage_of(partials), parts)


def _in_order(view: View, lead: int) -> View:
    """Sorts the dimensions of a view from `lead` on as the variable has them in memory."""
    return view.dim_shuffle([*range(lead), *memory_order(view.strides[lead:], lead)])


def memory_order(strides: Sequence[int], first: int = 0) -> list[int]:
    """Lists dimensions, counted from `first`, as memory has them."""
    return [first + d for d in sorted(range(len(strides)), key=lambda d: -strides[d])]


def as_product(total: Array, partials: Array, lead: int) -> Array | None:
    """Gives the sum of partial results in the dimensions of the product; None if strides do not allow it."""
    order = memory_order(partials.strides[lead:])
    seen = seen_as(total, tuple(partials.shape[lead + d] for d in order))
    return None if seen is None else seen.transpose([order.index(d) for d in range(len(order))])


def _axis(access: Access) -> str | None:
    """Returns the axis that an access covers entirely; None if it is another kind of access."""
    alone = len(access.terms) == 1 and not access.part and not access.whole and access.offset == 0
    return access.terms[0][0] if alone and access.terms[0][1] == 1 else None
