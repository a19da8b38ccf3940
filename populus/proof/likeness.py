"""A look at two nodes before they are compared: numbers of their constants that no order of the elements changes."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, TypeAlias

from populus.dialects.poplar.affine import Map, Set, coordinates, shape_of_box
from populus.dialects.poplar.arrays import ends
from populus.proof.constants import Size, floating

if TYPE_CHECKING:
    from populus.proof.nodes import Node, Nodes

Corners: TypeAlias = "tuple[int, list[tuple[float, float, float]]] | None"


class Likeness:
    """Looks at the nodes of a proof. Each fact is found once."""

    def __init__(self, terms: Nodes) -> None:
        self.terms = terms
        self._sizes: dict[int, Size] = {}
        self._ends: dict[int, tuple[Set, Node, Corners]] = {}  # by the node's id

    def of(self, old: Node, new: Node, multiple: bool) -> bool:
        """Tells whether the constants of two nodes may be equal; with `multiple`, to a factor that is one number."""
        if not multiple and (a := self._corners(old)) and (b := self._corners(new)) and a[0] == b[0]:
            for (x, y, rounding), (u, v, other) in zip(a[1], b[1]):
                within = 2 * max(rounding, other)
                if abs(x - u) > within or abs(y - v) > within:
                    return False
        for (i, whole), (j, also) in zip(self._constants(old), self._constants(new)):
            if whole and also and i != j and not self._size(i).like(self._size(j), multiple):
                return False
        return True

    def _corners(self, node: Node) -> Corners:
        """Gives the size of a formula, and of each constant the first and the last element, which all orders keep, and their rounding."""
        if node.kind != "tree":
            return None
        if (found := self._ends.get(id(node))) is None or found[0] is not node.elements:  # a node may become known at more elements
            found = self._ends[id(node)] = (node.elements, node, self._cornered(node))
        return found[2]

    def _cornered(self, node: Node) -> Corners:
        if (shape := self.terms.do(shape_of_box, node.elements)) is None:
            return None
        found: list[tuple[float, float, float]] = []
        for (i,), at in zip(node.parts, node.maps):
            if i in self.terms.arrays and floating(self.terms.arrays[i].dtype):
                first, last = (float(x) for x in self.terms.arrays[i][self.terms.do(ends, at, shape)])
                size = self._size(i)
                found.append((first, last, size.rounding * size.largest if math.isfinite(size.largest) else math.inf))
        return math.prod(shape), found

    def _constants(self, node: Node) -> list[tuple[int, bool]]:
        """Lists the constants of a node, in order, and whether all elements of each are in it."""
        return self.terms.once.of("constants of", (node,), lambda: self._listed(node))

    def _listed(self, node: Node) -> list[tuple[int, bool]]:
        t = self.terms
        places = [(i, skip, relation) for ids, relation in zip(node.parts, node.maps) for i, skip in t.places(ids) if i in t.arrays]
        used: dict[int, Set] = {}
        for i, skip, relation in places:
            own = t.do(Map.range, t.do(coordinates, relation, skip, 1))
            used[i] = t.do(Set.union, used[i], own) if i in used else own
        whole = {i: t.do(Set.is_equal, own, t.nodes[i].elements) for i, own in used.items()}
        return [(i, whole[i]) for i, _, _ in places]

    def _size(self, number: int) -> Size:
        if number not in self._sizes:
            self._sizes[number] = Size.of(self.terms.arrays[number], self.terms.rounding[number])
        return self._sizes[number]
