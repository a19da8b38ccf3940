"""Integer sets and maps, read from isl's notation: `islpy`, an optional dependency."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING

from populus.dialects.support.diagnostics import PopulusError

if TYPE_CHECKING:
    import islpy as isl
else:
    try:
        import islpy as isl
    except ImportError as error:
        raise PopulusError("proofs need islpy; install it with: pip install islpy") from error

Map = isl.Map
Set = isl.Set


@lru_cache(1 << 16)
def read_map(text: str) -> Map:
    """Reads a map in isl's notation: `{ [i] -> [2 i] : 0 <= i < 9 }`."""
    text, bounds = _bounds(text)
    found = _unbounded_map(text)
    for result, meet in ((False, Map.intersect_domain), (True, Map.intersect_range)):
        if own := tuple(b[1:] for b in bounds if b[0] is result):
            space = found.get_space()
            found = meet(found, _bounded(space.dim(isl.dim_type.out if result else isl.dim_type.in_), own))
    return found


@lru_cache(1 << 16)
def read_set(text: str) -> Set:
    """Reads a set in isl's notation."""
    text, bounds = _bounds(text)
    found = _unbounded_set(text)
    return found.intersect(_bounded(found.n_dim(), tuple(b[1:] for b in bounds))) if bounds else found


@lru_cache(1 << 14)
def _unbounded_map(text: str) -> Map:
    return Map.read_from_str(isl.DEFAULT_CONTEXT, text)


@lru_cache(1 << 14)
def _unbounded_set(text: str) -> Set:
    return Set.read_from_str(isl.DEFAULT_CONTEXT, text)


@lru_cache(1 << 14)
def _bounded(rank: int, bounds: tuple[tuple[int, int, int], ...]) -> Set:
    """Makes the set of points whose coordinates are within bounds: (coordinate, least, largest)."""
    found = Set.universe(isl.Space.set_alloc(isl.DEFAULT_CONTEXT, 0, rank))
    for place, low, high in bounds:
        found = found.lower_bound_val(isl.dim_type.set, place, isl.Val(low)).upper_bound_val(isl.dim_type.set, place, isl.Val(high))
    return found


SIMPLE = re.compile(r"(-?\d+) <= (\w+) < (\d+)")


def _bounds(text: str) -> tuple[str, list[tuple[bool, int, int, int]]]:
    """Splits the bounds of coordinates by numbers off a text: isl reads one in 0.1 ms, and texts that differ in sizes alone are read once.

    Each is: of the result or not, the place of the coordinate, the least and the largest value.
    """
    head, colon, body = text[1:-1].partition(" : ")
    exists = ""
    if body.startswith("exists "):
        exists, _, body = body.partition(" : ")
        exists += " : "
    if not colon or ";" in text or " : " in body:
        return text, []
    places: dict[str, tuple[bool, int]] = {}
    for result, names_of in enumerate(head.split(" -> ")):
        for place, name in enumerate(names_of.strip()[1:-1].split(", ")):
            places.setdefault(name, (bool(result), place))
    left: list[str] = []
    bounds: list[tuple[bool, int, int, int]] = []
    depth = 0
    for part in body.strip().split(" and "):
        found = None if depth else SIMPLE.fullmatch(part)
        depth += part.count("(") - part.count(")")
        if not depth and " or " in part and "(" not in part:
            return text, []  # bounds of one case
        if found is None or found[2] not in places:
            left.append(part)
        else:
            bounds.append((*places[found[2]], int(found[1]), int(found[3]) - 1))
    return f"{{{head}{colon}{exists}{' and '.join(left) or 'true'} }}", bounds
