"""One element at a time: its formula over elements of inputs, in one form, for terms that differ as sets.

This decides what integer sets do not: masks, gathers and windows whose places are constants, sums in another order, weights by rows.
An element that an index names is a table of cases over the integers that the index is made of.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import numpy as np

from populus.dialects.poplar.affine import Map, Set, depends_on
from populus.dialects.poplar.points import at_first, pairs, range_of
from populus.proof.forms import Forms
from populus.proof.laws import lowest_bits
from populus.proof.report import Undecided
from populus.proof.trees import Apply, Converted, Leaf, Number, Pieces, Skeleton, Tree, leaves

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from populus.proof.nodes import Node, Nodes

    Array: TypeAlias = NDArray[Any]

MOST_PAIRS = 20_000  # of a relation that is listed
MOST_NUMBERS = 4096  # of a tensor that is computed

Point: TypeAlias = "tuple[int, ...]"
Inner: TypeAlias = "dict[Point, list[tuple[Point, list[Point]]]]"
"""By an index: inner coordinates, and the elements that they name."""


class Ground(Forms):
    """The elements of one proof, each known once by a number."""

    def __init__(self, terms: Nodes):
        super().__init__()
        self.terms = terms
        self._known: dict[tuple[int, Point], int] = {}
        self._pairs: dict[int, tuple[Map, dict[Point, list[Point]]]] = {}
        self._fields: dict[int, tuple[Map, list[range | None], Inner]] = {}
        self._within: dict[tuple[int, int], tuple[Map, Set, dict[Point, list[Point]]]] = {}

    def same(self, a: Tree, b: Tree, elements: Set) -> bool:
        """Tells whether two trees are one at each of some elements. Raises Undecided or TooMany where that is too much to list."""
        points = pairs(elements.identity(), MOST_PAIRS)
        return all(self.tree(a, p, elements) == self.tree(b, p, elements) for p in points)

    def listed(self, relation: Map) -> dict[Point, list[Point]]:
        """Lists what a relation has for each index, once."""
        found = self._pairs.get(id(relation))
        if found is None:
            found = self._pairs[id(relation)] = (relation, pairs(relation, MOST_PAIRS))
        return found[1]

    def within(self, at: Map, elements: Set) -> dict[Point, list[Point]]:
        """Lists what a map has for some elements, once."""
        key = id(at), id(elements)
        if key not in self._within:
            self._within[key] = at, elements, pairs(at.intersect_domain(elements), MOST_PAIRS)
        return self._within[key][2]

    def array(self, pieces: Pieces, shape: Point, dtype: np.dtype[Any]) -> Array | None:
        """Gives the numbers of a tensor that is made of constants; None for another, or one that is too large."""
        if math.prod(shape) > MOST_NUMBERS or not all(self.terms.settled(leaf.node) for p in pieces for leaf in leaves(p.tree)):
            return None
        found = np.zeros(shape, dtype)
        left = math.prod(shape)
        for p in pieces:
            for point in pairs(p.elements.identity(), MOST_PAIRS):
                value = self.value(self.tree(p.tree, point, p.elements))
                if value is None:
                    return None
                found[point] = lowest_bits(value, dtype) if dtype.kind in "iu" and isinstance(value, int) else value
                left -= 1
        return found if not left else None

    def tree(self, tree: Tree, point: Point, elements: Set) -> int:
        """Gives the element of a tree at a point of some elements."""
        match tree:
            case Leaf(node, at):
                [to] = self.within(at, elements)[point]
                return self.node(node, to)
            case Number(value):
                return self.number(value)
            case Converted(to, bits, x):
                return self.converted(to, bits, self.tree(x, point, elements))
            case Apply(function, args):
                return self.applied(function, [self.tree(x, point, elements) for x in args])

    def node(self, number: int, index: Point) -> int:
        """Gives an element of a node."""
        key = (number, index)
        if key not in self._known:
            node = self.terms.nodes[number]
            if (array := self.terms.arrays.get(number)) is not None:
                value = array[index[0]]
                self._known[key] = self.number(value.item() if array.dtype.kind in "biu" else float(value))
            else:
                self._known[key] = self.number(index[0]) if node.kind == "place" else self.defined(number, node, index)
        return self._known[key]

    def defined(self, number: int, node: Node, index: Point) -> int:
        """Gives an element of a node that is no constant."""
        match node.kind:
            case "tree":
                parts = iter(zip(node.parts, node.maps))
                return self.formula(cast("Skeleton", node.params[0]), parts, index)
            case "add" | "average":
                terms, counted = self.terms_of(node, index)
                total = self.sum([self.number(0.0 if self.terms.float_node(number) else 0), *terms])
                return total if node.kind == "add" else self.scaled(total, 1 / (counted or len(terms)))
            case "mul":
                found = self.number(1.0 if self.terms.float_node(number) else 1)
                for term in self.terms_of(node, index)[0]:
                    found = self.product(found, term)
                return found
            case "max" | "min":
                return self.extreme(node.kind, self.terms_of(node, index)[0])
            case "and":
                return self.both(self.terms_of(node, index)[0])
            case "or":
                return self.negated(self.both(map(self.negated, self.terms_of(node, index)[0])))
            case "multi_slice":
                row, [at] = self.field(node, 0, index), self.field(node, 1, index)
                return self.named([term for _, term in sorted(row)], at[1])
            case "top_k" if (place := self.ranked(node, index)) is not None:
                return place
            case "multi_update":
                return self.updated(node, index)
            case _ if node.parts:
                fields = tuple(tuple(sorted(self.field(node, number, index))) for number in range(int(str(node.params[-1])) + 1))
                own = index if node.kind in INDEXED else ()
                params = node.params[: len(node.params) - len(node.parts)]
                return self.key(node.kind, params, own, fields, type=self.kind(number, node))
            case _:
                return self.key(node.kind, number, index, type=self.kind(number, node))

    def kind(self, number: int, node: Node) -> str:
        """Tells the type of what is no formula."""
        return "i" if node.kind == "top_k" else "f" if self.terms.float_node(number) else "i"

    def terms_of(self, node: Node, index: Point) -> tuple[list[int], int]:
        """Lists the terms of a sum, product or extreme, and counts places that have none."""
        found, counted = list[int](), 0
        for ids, relation in zip(node.parts, node.maps):
            points = self.listed(relation).get(index, [])
            if not ids:
                counted += len(points)
            for point in points:
                term, at = None, 0
                for i in ids:
                    rank = self.terms.nodes[i].elements.n_dim()
                    factor = self.node(i, point[at : at + rank])
                    term, at = factor if term is None else self.product(term, factor), at + rank
                if term is not None:
                    found.append(term)
        return found, counted

    def field(self, node: Node, number: int, index: Point) -> list[tuple[Point, int]]:
        """Lists a field of what depends on order: inner coordinates and elements."""
        return [(key, self.node(i, point)) for key, i, point in self.places(node, number, index)]

    def places(self, node: Node, number: int, index: Point) -> Iterator[tuple[Point, int, Point]]:
        """Lists a field of what depends on order: inner coordinates, the node and the place of each element."""
        fields = node.params[len(node.params) - len(node.parts) :]
        for own, [i], relation in zip(fields, node.parts, node.maps):
            if own == number:
                ranges, listed = self._inner(relation, len(index))
                if not all(r is None or v in r for v, r in zip(index, ranges)):
                    continue
                for key, points in listed.get(tuple(v for v, r in zip(index, ranges) if r is None), []):
                    yield from ((key, i, point) for point in points)

    def _inner(self, relation: Map, rank: int) -> tuple[list[range | None], Inner]:
        """Lists a relation of an index and inner coordinates once, by those coordinates that matter; of the others it gives the range."""
        known = self._fields.get(id(relation))
        if known is None:
            plain, some, ranges = relation.domain().is_box(), relation, list[range | None]()
            for d in range(rank):
                ranges.append(None if not plain or depends_on(relation, d) else range_of(relation.domain(), d))
                some = some if ranges[d] is None else at_first(some, d)
            found: Inner = {}
            for index, points in pairs(some, MOST_PAIRS).items():
                found.setdefault(tuple(v for v, r in zip(index, ranges) if r is None), []).append((index[rank:], points))
            known = self._fields[id(relation)] = relation, ranges, found
        return known[1], known[2]

    def ranked(self, node: Node, index: Point) -> int | None:
        """Gives the place of the element of a rank in a row of numbers; None for a row of others."""
        row = [self.value(x) for _, x in sorted(self.field(node, 0, index))]
        [(_, rank)] = self.field(node, 1, index)
        numbers, at = [float(v) for v in row if v is not None], self.value(rank)
        if at is None or len(numbers) < len(row) or any(map(math.isnan, numbers)):
            return None
        sign = -1 if str(node.params[0]).startswith(("true", "1")) else 1
        return self.number(sorted(range(len(numbers)), key=lambda k: (sign * numbers[k], k))[int(at)])

    def updated(self, node: Node, index: Point) -> int:
        """Gives an element of a table with updated rows: one update after the other."""
        if len(table := self.field(node, 0, index)) != 1:
            raise Undecided("multi_update of an unknown table")
        found, combine = table[0][1], str(node.params[0]).strip('"')
        indices, updates = (dict(self.field(node, number, index)) for number in (1, 2))
        [(_, row)] = self.field(node, 3, index)
        for k in sorted(indices):
            new = updates[k] if combine == "set" else self.applied(combine, [found, updates[k]])
            found = self.select(new, found, self.equal(indices[k], row))
        return found

    def formula(self, form: Skeleton, parts: Iterator[tuple[tuple[int, ...], Map]], index: Point) -> int:
        """Gives a formula of a node."""
        match form:
            case ("leaf", _):
                (node,), at = next(parts)
                [to] = self.listed(at)[index]
                return self.node(node, to)
            case ("number", kind, value):
                return self.number(value == "True" if kind == "bool" else (int if kind == "int" else float)(str(value)))
            case ("as", to, bits, x):
                return self.converted(self.terms.element_types[str(to)], bool(bits), self.formula(cast("Skeleton", x), parts, index))
            case (function, *args):
                return self.applied(str(function), [self.formula(cast("Skeleton", x), parts, index) for x in args])
            case _:
                raise AssertionError(form)


INDEXED = ("iota", "random")
"""Functions of their own index."""
