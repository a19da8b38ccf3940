"""Layouts that follow from the accesses of families."""

from __future__ import annotations

from functools import lru_cache

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


def shared(family: FamilyOp, field: Field, value: SSAValue) -> Grid | None:
    """Returns a grid in which each vertex owns a part of what it accesses, where vertices share elements.

    Parts of a dimension are cut again by the axes after it in the family's order that the accesses do not name, so the tile of
    each part is among those that read it. Axes that come first cut a whole dimension. Returns None if there is none, or
    an axis cuts two dimensions.
    """
    space, (access, shape) = family.space, (view_of(value).through(field.access), view_of(value).base)
    cut = [a for a in space.order if space[a].parts > 1]
    if access is None:
        return None
    dimension: dict[str, int] = {}
    for d, a in enumerate(access):
        axes = [axis for axis, _ in a.terms if axis in cut]
        if len(axes) > 1 or any(axis in dimension for axis in axes) or (axes and a.part):
            return None
        dimension |= dict.fromkeys(axes, d)
    order: list[int] = []
    parts, several = [1] * len(shape), 1
    for axis in cut:
        if axis in dimension:
            order.append(dimension[axis])
            parts[order[-1]] = space[axis].parts
        elif order:
            parts[order[-1]] *= space[axis].parts
        else:
            several *= space[axis].parts
    if several > 1:
        whole = [d for d, n in enumerate(shape) if d not in order and n >= several]
        if not whole:
            return None
        order.insert(0, whole[0])
        parts[whole[0]] = several
    if any(p > n for p, n in zip(parts, shape)):
        return None
    splits = {dimension[a]: space[a] for a in dimension}
    return Grid(tuple(_finer(splits.get(d, Split(n)), n, p) for d, (n, p) in enumerate(zip(shape, parts))), tuple(order), space.start)


@lru_cache(1024)
def _finer(split: Split, n: int, parts: int) -> Split:
    """Splits n elements into a multiple of a split's parts, by the grain at which their bounds are nearest to the split's."""
    if parts == 1:
        return Split(n)
    grains, found = [split.grain], list[tuple[int, Split]]()
    while grains[-1] % 2 == 0:
        grains.append(grains[-1] // 2)
    for grain in grains if grains[-1] == 1 else (*grains, 1):
        if -(-n // grain) >= parts:
            finer = Split(n, parts, grain)
            apart = (abs(a * n // split.n - b) for a, b in zip(split.bounds(), finer.bounds()[:: parts // split.parts]))
            found.append((max(apart), finer))
    return min(found, key=lambda f: f[0])[1]
