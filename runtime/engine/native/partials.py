"""A product whose k is in slices, and the sum of its partial results: which two steps are that."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np
from xdsl.ir import Operation

from populus.dialects.poplar.compute import ExecuteOp, FamilyOp
from populus.dialects.poplar.memory import StorageOp, storage_of, view_of
from populus.dialects.poplar.partition import Access
from populus.runtime.engine.binding import params_of
from populus.runtime.engine.native.contraction import Slices

AXES = {"conv": ("ic", "k0", "k1"), "matmul": ("k",)}  # over which a product sums, in the order of its operands' dimensions


@dataclass(frozen=True)
class PartialSums:
    """`product` writes partial results, one for each combination of `parts` (axes), and `sum` adds them in that order."""

    product: FamilyOp
    sum: FamilyOp
    partials: StorageOp
    parts: tuple[str, ...]

    def slices(self) -> Slices:
        """The elements of k by slices, in the order in which these are added."""
        space = self.product.space.splits
        axes = [a for a in AXES[self.product.codelet.data] if a in space]
        places = np.arange(math.prod(space[a].n for a in axes), dtype=np.int64).reshape([space[a].n for a in axes])
        bounds = {a: list(itertools.pairwise(space[a].bounds())) for a in self.parts}
        order: list[np.ndarray[tuple[int, ...], np.dtype[np.int64]]] = []
        for chosen in itertools.product(*(bounds[a] for a in self.parts)):
            cut = dict(zip(self.parts, chosen))
            order.append(places[tuple(slice(*cut[a]) if a in cut else slice(None) for a in axes)].reshape(-1))
        ends = np.cumsum([0, *(len(o) for o in order)], dtype=np.int64)
        return Slices(np.concatenate(order), ends)


def partial_sums(first: Operation, second: Operation) -> PartialSums | None:
    """The two steps as that; None if they are not."""
    product, total = _only(first), _only(second)
    if product is None or total is None or product.codelet.data not in AXES or total.codelet.data != "reduce":
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
    views = view_of(partials), view_of(source)
    if not all(v.is_whole for v in views) or any(a.part for a in out.access[lead:]):
        return None
    # The sum's leading dimensions are the parts, one axis each; the others it keeps, in order.
    axes = [_axis(a) for a in x.access]
    kept = [_axis(a) for f, _ in total.written() for a in f.access]
    summed = next((d for d in range(len(axes)) if axes[d] not in total.contracted), len(axes))
    if None in axes or axes[summed:] != kept or math.prod(views[1].shape[:summed]) != math.prod(views[0].shape[:lead]):
        return None
    return PartialSums(product, total, storage_of(partials), parts)


def _only(op: Operation) -> FamilyOp | None:
    """The one family of an execute."""
    families = list(op.families()) if isinstance(op, ExecuteOp) else []
    return families[0] if len(families) == 1 else None


def _axis(access: Access) -> str | None:
    """The axis that an access is, entire."""
    alone = len(access.terms) == 1 and not access.part and not access.whole and access.offset == 0
    return access.terms[0][0] if alone and access.terms[0][1] == 1 else None
