"""Sums of products that are multiples of others: by one number, or by one number for each row.

A row is what the element of each constant tells of the sum's index, as the output channel of a convolution. So weights that a pattern has
scaled by channels make the sum that is known, times a constant of the channels.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from populus.dialects.poplar.affine import Map, coordinates, depends_on, every, names, read_map, shape_of_box, told_apart
from populus.dialects.poplar.arrays import strides, values
from populus.proof.constants import equal, floating, near, ratio
from populus.proof.trees import Leaf, Number, Tree

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from populus.proof.nodes import Node, Nodes

    Array: TypeAlias = NDArray[Any]

FEW = 8  # elements of a row that are looked at first
MANY = 4096  # elements of a constant that are looked at first


@dataclass(frozen=True)
class Rows:
    """The rows of a sum: `at` maps its index to their numbers, and `of` those of each constant's elements."""

    at: Map
    count: int
    of: dict[int, Map]


class Multiple:
    """By what a sum is another one, `old`: `found`, a tree over the index of that. `alike`: it may be a number."""

    def __init__(self, terms: Nodes, old: Node, alike: bool) -> None:
        self.terms, self.old, self.alike = terms, old, alike
        self.found: Tree | None = None
        self.begin()

    def begin(self) -> None:
        """Forgets the pairs of constants."""
        self._met: dict[tuple[int, int], Map] = {}

    def meet(self, a: int, b: int, to_a: Map, to_b: Map) -> bool:
        """Adds the elements of two constants that stand for each other, as maps have them for the same. Tells whether both are floats."""
        relation = self.terms.do(Map.apply_range, self.terms.do(Map.reverse, to_a), to_b)
        self._met[a, b] = self.terms.do(Map.union, self._met[a, b], relation) if (a, b) in self._met else relation
        return floating(self.terms.arrays[a].dtype) and floating(self.terms.arrays[b].dtype)

    def holds(self) -> bool:
        """Finds by what all elements of constants are those of the others."""
        key = ("multiple", self.old.parts, *self._met)
        self.found = self.terms.once.of(key, (self.old.elements, *self.old.maps, *self._met.values()), self._sought)
        return self.found is not None

    def _sought(self) -> Tree | None:
        return (self._number() if self.alike else None) or self._by_rows()

    def _pairs(self) -> list[tuple[int, Array, Array, float, Map]]:
        t = self.terms
        return [(i, t.arrays[i], t.arrays[j], max(t.rounding[i], t.rounding[j]), t.do(Map.coalesce, r)) for (i, j), r in self._met.items()]

    def _number(self) -> Tree | None:
        pairs = self._pairs()
        by = next((by for _, x, y, _, r in pairs if (by := ratio(x, y, r))), 0.0)
        return Number(by) if by and all(equal(x * np.float64(by), y, r, rounding) for _, x, y, rounding, r in pairs) else None

    def _by_rows(self) -> Tree | None:
        if (rows := rows_of(self.terms, self.old)) is None:
            return None
        numbers, pairs = np.full(rows.count, np.nan), self._pairs()
        if not all(_by_row(self.terms, x, y, rounding, r, rows.of[i], numbers) for i, x, y, rounding, r in pairs):
            return None
        numbers = _or_zero(numbers)
        if not np.isfinite(numbers).all() or not numbers.any():
            return None
        number = self.terms.made(numbers, max(rounding for *_, rounding, _ in pairs))
        return self.terms.uniform.get(number) or Leaf(number, rows.at)


def rows_of(terms: Nodes, node: Node) -> Rows | None:
    """Gives the rows of a sum of products, each with one constant; None if there are none, or of another node."""
    return terms.once.of(("rows", node.parts), (node.elements, *node.maps), lambda: _rows(terms, node))


def _rows(terms: Nodes, node: Node) -> Rows | None:
    shape = terms.do(shape_of_box, node.elements)
    if node.kind != "add" or node.params or not node.parts or not shape:
        return None
    backs: list[tuple[int, Map]] = []  # of each constant: its element -> index of the sum
    others: list[Map] = []  # the relations to the other factors
    for ids, relation in zip(node.parts, node.maps):
        if [i in terms.arrays for i in ids].count(True) != 1:
            return None
        [(i, skip)] = [(i, skip) for i, skip in terms.places(ids) if i in terms.arrays]
        backs.append((i, terms.do(Map.reverse, terms.do(coordinates, relation, skip, 1))))
        others.append(terms.do(told_apart, relation, (skip,))[0])
    told = [d for d, n in enumerate(shape) if n > 1 and all(terms.do(_tells, back, d) for _, back in backs)]
    told = [d for d in told if not any(terms.do(depends_on, other, d) for other in others)] or told  # not which part of a sum it is
    i, place, step = names("i", len(shape)), ["0"], 1
    for d in reversed(told):
        place.append(f"{step}*{i[d]}")
        step *= shape[d]
    at = read_map(f"{{ [{', '.join(i)}] -> [{' + '.join(place)}] }}")
    of: dict[int, Map] = {}
    for number, back in backs:
        own = terms.do(Map.apply_range, back, at)
        of[number] = terms.do(Map.union, of[number], own) if number in of else own
    of = {number: terms.do(Map.coalesce, own) for number, own in of.items()}
    whole = all(own.n_basic_map() == 1 and terms.do(Map.is_single_valued, own) for own in of.values())
    return Rows(at, step, of) if told and whole else None  # a sum that is cut in parts has more formulas, which take long


def _tells(back: Map, d: int) -> bool:
    return coordinates(back, d, 1).is_single_valued()


def _by_row(terms: Nodes, x: Array, y: Array, rounding: float, relation: Map, rows: Map, numbers: Array) -> bool:
    """Tells whether the elements of y are those of x to a factor of their row. Finds the factors of rows that have none."""
    if not terms.do(Map.is_single_valued, relation):
        return False
    if not _agree(x, y, rounding, relation, rows, numbers.copy(), np.arange(0, x.size, max(x.size // MANY, 1))):
        return False
    way = terms.do(strides, rows, x.size)
    if way is None or x.size != y.size or not terms.do(Map.is_equal, relation, every((x.size,))):
        return _agree(x, y, rounding, relation, rows, numbers, np.arange(x.size))
    x, y, row = x.reshape(way.shape), y.reshape(way.shape), way.of(np.arange(numbers.size))
    for most in (FEW, None):
        some = tuple(slice(most if step == 0 else None) for step in way.strides)
        few = [t[some].astype(np.float64).reshape(-1) for t in (x, y)]
        _fill(numbers, row[some].reshape(-1), *few)
        if not np.isnan(numbers[row[some]]).any():
            break
    return near(x * way.of(_or_zero(numbers)), y, rounding)


def _agree(x: Array, y: Array, rounding: float, relation: Map, rows: Map, numbers: Array, some: Array) -> bool:
    """Tells whether some elements of y are those of x to a factor of their row."""
    to, row = (values(m, [some]) for m in (relation, rows))
    known = (to >= 0) & (row >= 0)
    x, y, row = x[some[known]].astype(np.float64), y[to[known]].astype(np.float64), row[known]
    _fill(numbers, row, x, y)
    return near(x * _or_zero(numbers)[row], y, rounding)


def _fill(numbers: Array, row: Array, x: Array, y: Array) -> None:
    """Finds the factors of rows by the largest element of each."""
    order = np.argsort(np.abs(x), kind="stable")
    largest = np.full(numbers.size, -1)
    largest[row[order]] = order  # the last one stays
    new = np.flatnonzero(np.isnan(numbers) & (largest >= 0) & (x[largest] != 0))
    with np.errstate(all="ignore"):
        numbers[new] = y[largest[new]] / x[largest[new]]


def _or_zero(numbers: Array) -> Array:
    return np.where(np.isnan(numbers), 0.0, numbers)


def alive(terms: Nodes, number: int) -> Leaf | None:
    """Gives 1 for the rows of a sum that have a weight, and 0 for the others; None if each row has one, or there are no rows."""
    return terms.once.of("alive", (terms.nodes[number],), lambda: _alive(terms, terms.nodes[number]))


def _alive(terms: Nodes, node: Node) -> Leaf | None:
    if (rows := rows_of(terms, node)) is None:
        return None
    has = np.zeros(rows.count, bool)
    for i, own in rows.of.items():
        x, way = terms.arrays[i], terms.do(strides, own, terms.arrays[i].size)
        if way is None:
            row = values(own, [np.arange(x.size)])
            has[row[(row >= 0) & (x != 0)]] = True
            continue
        for most in (FEW, None):
            some = tuple(slice(most if step == 0 else None) for step in way.strides)
            has[way.of(np.arange(rows.count))[some][x.reshape(way.shape)[some] != 0]] = True
            if has.all():
                break
    return None if has.all() else Leaf(terms.made(has.astype(np.float64), 0.0), rows.at)
