"""Splits, grids, domains, accesses and views as integer sets and maps, for proofs: `islpy`, an optional dependency.

Everything is a Presburger formula as it stands. A split is at most two linear pieces without a division, an access is affine, a view is
one affine map for each of its ops. Nothing here calls `View.through`, `race`, `image` or `disjoint`, so it is a second opinion of them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

from xdsl.ir import Operation, SSAValue

from populus.dialects.base.tensor_op import ints
from populus.dialects.poplar.integer_sets import Map, Set, isl, read_map, read_set
from populus.dialects.poplar.memory import ViewOp, type_of
from populus.dialects.poplar.partition import Access, Domain, Grid, Split


def names(stem: str, count: int) -> list[str]:
    """Lists variables for the text of a set: i0, i1, ..."""
    return [f"{stem}{d}" for d in range(count)]


def within(variables: Sequence[str], shape: Sequence[int]) -> str:
    """Gives the condition that variables are indices of a shape."""
    return " and ".join(f"0 <= {v} < {n}" for v, n in zip(variables, shape, strict=True)) or "true"


def box(shape: Sequence[int]) -> Set:
    """Makes the set of all indices of a shape."""
    i = names("i", len(shape))
    return read_set(f"{{ [{', '.join(i)}] : {within(i, shape)} }}")


def identity(indices: Set) -> Map:
    """Makes the map of each element of a set to itself."""
    return Map.identity(indices.get_space().map_from_set()).intersect_domain(indices)


@lru_cache(1 << 14)
def every(shape: tuple[int, ...]) -> Map:
    """Makes the map of each index of a shape to itself: one object for one shape."""
    return identity(box(shape))


def part_of(split: Split, element: str, part: str) -> str:
    """Gives the condition that an element is in a part of a split: linear, without a division, in at most two pieces.

    With q grains in a small part and r parts of one more: parts below r begin at (q + 1) g p, the others r g after q g p.
    """
    q, r = divmod(-(-split.n // split.grain), split.parts)
    g = split.grain
    pieces: list[str] = []
    if r:
        first = f"{(q + 1) * g}*{part}"
        pieces.append(f"(0 <= {part} < {r} and {first} <= {element} < {first} + {(q + 1) * g})")
    if q or not r:
        first = f"{q * g}*{part} + {r * g}"
        pieces.append(f"({r} <= {part} < {split.parts} and {first} <= {element} < {first} + {q * g})")
    return f"0 <= {element} < {split.n} and ({' or '.join(pieces)})"


def _affine(access: Access, variables: dict[str, str]) -> str:
    return " + ".join([*(f"{c}*{variables[a]}" for a, c in access.terms), str(access.offset)])


@lru_cache(1 << 14)
def points_map(domain: Domain, accesses: tuple[Access, ...], shape: tuple[int, ...], clipped: bool = False) -> Map:
    """Maps the points of an iteration space, in the order of its axes, to the elements of a view that they touch.

    `clipped`: elements outside of the view are left out, as padding is.
    """
    variables = {a: f"a{k}" for k, (a, _) in enumerate(domain.axes)}
    conditions, images = [within(list(variables.values()), [s.n for _, s in domain.axes])], names("e", len(shape))
    for d, (access, n) in enumerate(zip(accesses, shape, strict=True)):
        if access.whole:
            conditions.append(f"0 <= e{d} < {n}")
        elif access.part:
            axis = access.terms[0][0]
            split = domain[axis]
            conditions.append(f"({part_of(split, variables[axis], f'e{d}')})" if split.parts > 1 else f"e{d} = 0")
        else:
            images[d] = _affine(access, variables)
            if clipped and not _inside(access, domain, n):
                conditions.append(f"0 <= {images[d]} < {n}")
    return read_map(f"{{ [{', '.join(variables.values())}] -> [{', '.join(images)}] : {' and '.join(conditions)} }}")


def _inside(access: Access, domain: Domain, n: int) -> bool:
    """Tells whether an access is within a dimension of n elements everywhere."""
    reach = [c * (domain[a].n - 1) for a, c in access.terms]
    return access.offset + sum(min(r, 0) for r in reach) >= 0 and access.offset + sum(max(r, 0) for r in reach) < n


@lru_cache(1 << 14)
def vertex_map(domain: Domain, accesses: tuple[Access, ...], shape: tuple[int, ...], clipped: bool = False) -> Map:
    """Maps vertices, as their part numbers in the order of the tile's digits, to the elements of a view that they touch."""
    cut = [a for a in domain.order if domain[a].parts > 1]
    named = {t for access in accesses for t, _ in access.terms}
    parts_of = {a: f"pa{k}" for k, (a, _) in enumerate(domain.axes)}
    variables = {a: f"a{k}" for k, (a, _) in enumerate(domain.axes)}
    told: set[int] = set()  # dimensions that say by themselves where an axis is, so that it needs no variable
    for d, access in enumerate(accesses):
        if len(access.terms) == 1 and not access.whole and not access.part and access.terms[0][1] == 1:
            axis = access.terms[0][0]
            if variables[axis].startswith("a"):
                variables[axis] = f"(e{d} - {access.offset})" if access.offset else f"e{d}"
                told.add(d)
    exists: list[str] = []
    conditions: list[str] = []
    for axis, split in domain.axes:
        counted = any(t == axis for access in accesses if not access.part for t, _ in access.terms)
        if counted and split.n == 1 and axis not in cut and variables[axis].startswith("a"):
            variables[axis] = "0"
            continue
        if counted and variables[axis].startswith("a"):
            exists.append(variables[axis])
        if axis in cut:
            part = parts_of[axis]
            conditions.append(f"({part_of(split, variables[axis], part) if counted else f'0 <= {part} < {split.parts}'})")
        elif axis in named and counted:
            conditions.append(f"0 <= {variables[axis]} < {split.n}")
    for d, (access, n) in enumerate(zip(accesses, shape, strict=True)):
        if access.whole:
            conditions.append(f"0 <= e{d} < {n}")
        elif access.part:
            axis = access.terms[0][0]
            conditions.append(f"e{d} = " + (parts_of[axis] if axis in cut else "0"))
        else:
            if d not in told:
                conditions.append(f"e{d} = {_affine(access, variables)}")
            if clipped:
                conditions.append(f"0 <= e{d} < {n}")
    parts, elements = ", ".join(parts_of[a] for a in cut), ", ".join(names("e", len(shape)))
    body = " and ".join(conditions) or "true"
    if exists:
        body = f"exists {', '.join(exists)} : {body}"
    return read_map(f"{{ [{parts}] -> [{elements}] : {body} }}").coalesce()


@lru_cache(1 << 14)
def tile_map(domain: Domain, tiles: int) -> Map:
    """Maps vertices, as `vertex_map` numbers them, to their tiles, which go on at 0 after the last."""
    cut = [a for a in domain.order if domain[a].parts > 1]
    p = names("p", len(cut))
    number, step = ["0"], math.prod(domain[a].parts for a in cut)
    for name, axis in zip(p, cut):
        step //= domain[axis].parts
        number.append(f"{step}*{name}")
    where = within(p, [domain[a].parts for a in cut])
    start = domain.start % tiles
    begins = [start] if start + math.prod(domain[a].parts for a in cut) <= tiles else [start, start - tiles]
    return read_map(
        "{ "
        + "; ".join(f"[{', '.join(p)}] -> [t] : t = {b} + {' + '.join(number)} and 0 <= t < {tiles} and {where}" for b in begins)
        + " }"
    )


def cell(grid: Grid, tile: int, tiles: int) -> Set | None:
    """Makes the set of a variable's elements that a tile owns; None if it owns none."""
    rank = (tile - grid.start) % tiles
    if rank >= grid.cells:
        return None
    digits: dict[int, int] = {}
    for d in reversed(grid.order):
        rank, digits[d] = divmod(rank, grid.splits[d].parts if d >= 0 else -d)
    i = names("i", len(grid.splits))
    conditions: list[str] = []
    for d, split in enumerate(grid.splits):
        bounds = split.bounds()
        low, high = (bounds[digits[d]], bounds[digits[d] + 1]) if d in digits else (0, split.n)
        conditions.append(f"{low} <= i{d} < {high}")
    return read_set(f"{{ [{', '.join(i)}] : {' and '.join(conditions) or 'true'} }}")


# -- views --------------------------------------------------------------------------------------------------------------


@lru_cache(1 << 14)
def reshape_map(shape: tuple[int, ...], old: tuple[int, ...]) -> Map:
    """Maps indices of `shape` to those of `old` at the same place in row-major order.

    Dimensions are grouped by equal products from the front; each group is one linear equation.
    """
    i, j = names("i", len(shape)), names("j", len(old))
    conditions = [within(i, shape), within(j, old)]
    a = b = 0
    if 0 in shape:
        a, b = len(shape), len(old)  # there are no indices
    while a < len(shape) or b < len(old):
        first, second = range(a, min(a + 1, len(shape))), range(b, min(b + 1, len(old)))
        while (m := math.prod(shape[d] for d in first)) != (n := math.prod(old[d] for d in second)):
            if m < n:
                first = range(a, first.stop + 1)
            else:
                second = range(b, second.stop + 1)
        a, b = first.stop, second.stop
        conditions.append(f"{_place(i, shape, first)} = {_place(j, old, second)}")
    return read_map(f"{{ [{', '.join(i)}] -> [{', '.join(j)}] : {' and '.join(conditions)} }}")


def _place(variables: Sequence[str], shape: Sequence[int], group: range) -> str:
    """Gives the place in row-major order within a group of dimensions."""
    terms, step = ["0"], 1
    for d in reversed(group):
        if shape[d] != 1:
            terms.append(f"{step}*{variables[d]}")
        step *= shape[d]
    return " + ".join(terms)


def slice_map(shape: Sequence[int], begins: Sequence[int], steps: Sequence[int]) -> Map:
    """Maps indices of a slice to those of what is cut."""
    i = names("i", len(shape))
    return read_map(f"{{ [{', '.join(i)}] -> [{', '.join(f'{b} + {s}*{v}' for b, s, v in zip(begins, steps, i))}] : {within(i, shape)} }}")


def broadcast_map(shape: Sequence[int], old: Sequence[int]) -> Map:
    """Maps indices of a stretched tensor to those of the tensor, right-aligned; 1 repeats."""
    i, lead = names("i", len(shape)), len(shape) - len(old)
    image = [i[lead + d] if n == shape[lead + d] else "0" for d, n in enumerate(old)]
    return read_map(f"{{ [{', '.join(i)}] -> [{', '.join(image)}] : {within(i, shape)} }}")


def shuffle_map(shape: Sequence[int], permutation: Sequence[int]) -> Map:
    """Maps indices of a tensor whose dimension i is dimension permutation[i] of another to those of the other."""
    i = names("i", len(shape))
    image = [i[list(permutation).index(d)] for d in range(len(shape))]
    return read_map(f"{{ [{', '.join(i)}] -> [{', '.join(image)}] : {within(i, shape)} }}")


def shown(op: Operation, shape: tuple[int, ...], old: tuple[int, ...]) -> Map | None:
    """Maps indices of a view op's result to those of its operand, at the tile level and at that of library calls; None for another op."""
    match op.name.partition(".")[2]:
        case "reshape":
            return reshape_map(shape, old)
        case "broadcast":
            return broadcast_map(shape, old)
        case "slice":
            return slice_map(shape, ints(op.begins), ints(op.steps))  # pyright: ignore[reportAttributeAccessIssue, reportUnknownArgumentType, reportUnknownMemberType]
        case "dim_shuffle":
            return shuffle_map(shape, ints(op.permutation))  # pyright: ignore[reportAttributeAccessIssue, reportUnknownArgumentType, reportUnknownMemberType]
        case _:
            return None


class Composed:
    """Maps of views of views, and what they show, by the maps' ids. It keeps the maps, so that no id is ever another's."""

    def __init__(self) -> None:
        self._maps: dict[tuple[int, int], tuple[Map, Map, Map]] = {}
        self._ranges: dict[int, tuple[Map, Set]] = {}

    def through(self, own: Map, under: Map) -> Map:
        """Maps the indices of a view to what another map maps those of its operand to."""
        key = (id(own), id(under))
        if key not in self._maps:
            self._maps[key] = (own, under, own.apply_range(under))
        return self._maps[key][2]

    def range(self, at: Map) -> Set:
        """Makes the set of what a map maps to."""
        if id(at) not in self._ranges:
            self._ranges[id(at)] = (at, at.range())
        return self._ranges[id(at)][1]


class Views:
    """Maps of the indices of views to those of their variables, each made once. One for each module, as it keeps its values alive.

    `shared`: of the modules of one proof, so that equal views have one map.
    """

    def __init__(self, shared: Composed | None = None) -> None:
        self._maps: dict[SSAValue, Map] = {}
        self._shared = Composed() if shared is None else shared

    def of(self, value: SSAValue) -> Map:
        """Maps the indices of a view to those of its variable."""
        if (found := self._maps.get(value)) is None:
            op, shape = value.owner, type_of(value).shape
            if isinstance(op, ViewOp):
                own = shown(op, shape, type_of(op.x).shape)
                assert own is not None, op.name
                found = self._shared.through(own, self.of(op.x))
            else:
                found = every(shape)
            self._maps[value] = found
        return found

    def seen(self, value: SSAValue) -> Set:
        """Makes the set of the elements of its variable that a view shows: one object for equal views."""
        return self._shared.range(self.of(value))


def count(elements: Set) -> int:
    """Counts the elements of a finite set."""
    return sum(int(Set.from_basic_set(b).count_val().to_python()) for b in elements.make_disjoint().get_basic_sets())


def bounds_of_box(elements: Set) -> tuple[range, ...] | None:
    """Returns the range of each coordinate of a box; None for another set."""
    if elements.is_empty() or not elements.is_bounded():
        return None
    ends = ((int(elements.dim_min_val(d).to_python()), int(elements.dim_max_val(d).to_python())) for d in range(elements.n_dim()))
    found = tuple(range(first, last + 1) for first, last in ends)
    i = names("i", len(found))
    where = " and ".join(f"{r.start} <= {v} < {r.stop}" for v, r in zip(i, found)) or "true"
    return found if elements.is_equal(read_set(f"{{ [{', '.join(i)}] : {where} }}")) else None


def shape_of_box(elements: Set) -> tuple[int, ...] | None:
    """Returns the shape whose indices a set is; None if it is no such box."""
    found = bounds_of_box(elements)
    return None if found is None or any(r.start for r in found) else tuple(map(len, found))


def depends_on(at: Map, coordinate: int) -> bool:
    """Tells whether a map may differ along a coordinate of its domain."""
    return at.gist_domain(at.domain()).involves_dims(isl.dim_type.in_, coordinate, 1)


def coordinates(relation: Map, first: int, count: int) -> Map:
    """Maps to some of the coordinates of a relation's range."""
    total = relation.dim(isl.dim_type.out)
    relation = relation.project_out(isl.dim_type.out, first + count, total - first - count)
    return relation.project_out(isl.dim_type.out, 0, first)


def told_apart(relation: Map, places: Sequence[int]) -> tuple[Map, list[Map]]:
    """Splits a relation: without the coordinates `places` of its range, and [index, the others] -> each of them."""
    total, index = relation.dim(isl.dim_type.out), relation.dim(isl.dim_type.in_)
    others = [d for d in range(total) if d not in places]
    rest = relation
    for d in reversed(places):
        rest = rest.project_out(isl.dim_type.out, d, 1)
    found: list[Map] = []
    for place in places:
        own = relation
        for d in reversed(range(total)):
            if d in others:
                own = own.move_dims(isl.dim_type.in_, index, isl.dim_type.out, d, 1)
            elif d != place:
                own = own.project_out(isl.dim_type.out, d, 1)
        found.append(own)
    return rest, found
