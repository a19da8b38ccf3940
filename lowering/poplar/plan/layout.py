"""Layouts that follow from the accesses of families."""

from __future__ import annotations

from xdsl.ir import SSAValue

from populus.dialects.poplar import FamilyOp, Field
from populus.dialects.poplar.memory import view_of
from populus.dialects.poplar.partition import Grid, Split


def as_accessed(family: FamilyOp, field: Field, value: SSAValue, copies: bool = False) -> Grid | None:
    """Returns the grid in which each vertex owns exactly the elements that it accesses.

    Returns None if several vertices access one element, or the parts are no split. Each dimension of the variable
    must be a whole axis with the axis's cut, a part number, or uncut. Every cut axis must occur, unless `copies`
    allows replicas.
    """
    space = family.space
    access = view_of(value).through(field.access)
    if access is None:
        return None
    cut, shape = space.cut, view_of(value).base
    splits: list[Split] = []
    dimension: dict[str, int] = {}
    for d, (a, n) in enumerate(zip(access, shape)):
        axes = [axis for axis, _ in a.terms if axis in cut]
        if not axes:
            splits.append(Split(n))
            continue
        axis = axes[0]
        split = space[axis]
        if axis in dimension or len(a.terms) != 1:
            return None
        if a.part and split.parts == n:
            splits.append(Split(n, n))
        elif not a.part and a.terms[0][1] == 1 and a.offset == 0 and split.n == n:
            splits.append(split)
        else:
            return None
        dimension[axis] = d
    if cut - dimension.keys() and not copies:
        return None
    return Grid(tuple(splits), tuple(dimension.get(a, -space[a].parts) for a in space.order if a in cut), space.start)
