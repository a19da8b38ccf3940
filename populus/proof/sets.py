"""Sets and maps that terms are made with: inner coordinates, and other orders of the same elements."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from populus.dialects.poplar.affine import Map, Set, box, names, read_map, reshape_map


def rank(elements: Set) -> int:
    """Returns the number of coordinates."""
    return elements.n_dim()


def wide(elements: Set, inner: int) -> Set:
    """Adds free inner coordinates to a set."""
    return elements if not inner else elements.flat_product(Set.universe(box((1,) * inner).get_space()))


def moved_to_zero(elements: Set) -> Map:
    """Maps the elements of a set so that each coordinate begins at 0."""
    i = names("i", rank(elements))
    to = (f"{v} - {int(elements.dim_min_val(d).to_python())}" for d, v in enumerate(i))
    return read_map(f"{{ [{', '.join(i)}] -> [{', '.join(to)}] }}").intersect_domain(elements)


def inner_too(at: Map, inner: int) -> Map:
    """Adds inner coordinates, which stay, to a map of indices."""
    return at if not inner else at.flat_product(Map.identity(box((1,) * inner).get_space().map_from_set()))


def reorderings(new: tuple[int, ...], old: tuple[int, ...]) -> Iterator[Map]:
    """Yields maps of one shape's indices to another's: row-major order, then permutations of dimensions that are not 1."""
    if new != old:
        yield reshape_map(new, old)
    ours = [d for d, n in enumerate(new) if n > 1]
    theirs = [d for d, n in enumerate(old) if n > 1]
    if len(ours) != len(theirs) or len(ours) > 5:
        return
    for order in itertools.permutations(range(len(ours))):
        if list(order) != sorted(order) and all(new[ours[o]] == old[theirs[k]] for k, o in enumerate(order)):
            image = ["0"] * len(old)
            for k, o in enumerate(order):
                image[theirs[k]] = f"i{ours[o]}"
            i = [f"i{d}" for d in range(len(new))]
            where = " and ".join(f"0 <= {v} < {n}" for v, n in zip(i, new)) or "true"
            yield read_map(f"{{ [{', '.join(i)}] -> [{', '.join(image)}] : {where} }}")
