"""Elements of integer sets and relations, listed one by one."""

from __future__ import annotations

import math
from collections.abc import Sequence

from populus.dialects.poplar.affine import Map, Set, isl


def example(elements: Set) -> str:
    """Gives an element of a set as text: `[3, 0]`."""
    if elements.is_empty():
        return "nothing"
    return f"[{', '.join(map(str, some_point(elements)))}]"


def some_point(elements: Set) -> tuple[int, ...]:
    """Gives an element of a finite set: the first."""
    return _numbers(elements.lexmin().sample_point(), elements.n_dim())


def _numbers(point: isl.Point, count: int) -> tuple[int, ...]:
    return tuple(point.get_coordinate_val(isl.dim_type.set, d).get_num_si() for d in range(count))


class TooMany(Exception):
    """Raised for a set of more elements than are to be listed."""


def images(relation: Map, point: Sequence[int], most: int) -> list[tuple[int, ...]]:
    """Lists the elements that a relation has for one. Raises TooMany for more than `most`."""
    for d, value in enumerate(point):
        relation = relation.fix_val(isl.dim_type.in_, d, isl.Val(value))
    found: list[tuple[int, ...]] = []
    image = relation.range()
    if image.is_empty():
        return found
    if _room(image) > 8 * most + 64:  # of the box around it; an exception cannot pass through isl
        raise TooMany(f"more than {most} terms")

    def add(p: isl.Point) -> None:
        found.append(_numbers(p, image.n_dim()))

    image.foreach_point(add)
    return found


def pairs(relation: Map, most: int) -> dict[tuple[int, ...], list[tuple[int, ...]]]:
    """Lists what a relation has for each element of its domain. Raises TooMany for more than some `most` pairs, or without bounds."""
    elements, found = relation.domain(), dict[tuple[int, ...], list[tuple[int, ...]]]()
    if elements.is_empty():
        return found
    if not elements.is_bounded() or (some := _room(elements)) > 8 * most:
        raise TooMany(f"more than {most} terms")
    first = some_point(elements)
    if some * len(images(relation, first, most)) > 8 * most:
        raise TooMany(f"more than {most} terms")
    wrapped, count = relation.wrap(), len(first)

    def add(p: isl.Point) -> None:
        numbers = _numbers(p, wrapped.n_dim())
        found.setdefault(numbers[:count], []).append(numbers[count:])

    wrapped.foreach_point(add)
    return found


def _room(elements: Set) -> int:
    """Counts the elements of the box around a set."""
    ranges = (elements.dim_max_val(d).sub(elements.dim_min_val(d)) for d in range(elements.n_dim()))
    return math.prod(int(size.to_python()) + 1 for size in ranges)


def range_of(elements: Set, coordinate: int) -> range:
    """Gives the range of a coordinate of a set."""
    first, last = (int(v.to_python()) for v in (elements.dim_min_val(coordinate), elements.dim_max_val(coordinate)))
    return range(first, last + 1)


def at_first(relation: Map, coordinate: int) -> Map:
    """Gives a relation where a coordinate of its domain is the first."""
    return relation.fix_val(isl.dim_type.in_, coordinate, relation.domain().dim_min_val(coordinate))
