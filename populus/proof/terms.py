"""Terms: what each element of a tensor is, over the elements of inputs and constants.

The elements of a tensor that have one form are a `Piece`: an integer set and a tree, whose leaves are elements of nodes, each by an affine
map of the element's index. A node is an input, a constant, or what is no element-wise function of others: a sum, a maximum, a row. Nodes
are interned: the key of one is the relation from its index to the elements that it is made of. So a sum of partial sums is the sum, views
and layouts are maps, and fused formulas are the tree that they were before. Sums are those of real numbers: equal to rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from populus.dialects import expr
from populus.dialects.poplar.affine import Map, Set, box, identity, reshape_map
from populus.proof.constants import SAME
from populus.proof.ground import Ground
from populus.proof.laws import Laws, factored
from populus.proof.memo import Memo
from populus.proof.nodes import IDEMPOTENT, Node, Nodes, close
from populus.proof.pieces import common, domain, once
from populus.proof.recurrence import Recurrence
from populus.proof.report import Undecided
from populus.proof.sets import inner_too, moved_to_zero
from populus.proof.trees import (
    Apply,
    Converted,
    Folded,
    Leaf,
    Number,
    Piece,
    Pieces,
    Tree,
    form,
    leaves,
    numbers,
    size,
    skeleton,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from xdsl.ir import Attribute

    Array: TypeAlias = NDArray[Any]

MOST_LEAVES = 2000  # of a formula, which are looked at one by one


class Terms(Nodes):
    """The terms of one proof. `loops`: those that were met."""

    def __init__(self) -> None:
        super().__init__()
        self.loops: list[Recurrence] = []
        self.laws = Laws(self)
        self.ground = Ground(self)
        self.composed = self.sets.composed
        self._sizes_of = Folded(size)
        self._one: dict[object, Tree] = {}
        self._trees: dict[int, tuple[Tree, Tree]] = {}  # with the tree, so no id is ever another's
        self._parts_of: Memo[tuple[int, Map, Tree | None]] = Memo()

    # -- one object for equal trees, pieces and lists of them, so that what is done with them is done once

    def one(self, tree: Tree) -> Tree:
        """Gives the one tree that is equal, with the same maps."""
        if (known := self._trees.get(id(tree))) is not None:
            return known[1]
        match tree:
            case Leaf(node, at):
                found = self._one.setdefault((node, id(at)), tree)
            case Apply(function, args):
                args = tuple(map(self.one, args))
                found = self._one.setdefault((function, *map(id, args)), Apply(function, args))
            case Converted(to, bits, x):
                x = self.one(x)
                found = self._one.setdefault((to, bits, id(x)), Converted(to, bits, x))
            case Number(value):
                found = self._one.setdefault((type(value), repr(value)), tree)
        self._trees[id(tree)], self._trees[id(found)] = (tree, found), (found, found)
        return found

    def piece(self, elements: Set, tree: Tree) -> Piece:
        """Gives the one piece of some elements that has a tree."""
        tree = self.one(tree)
        return self.once.of("piece", (elements, tree), lambda: Piece(elements, tree))

    def pieces(self, found: Pieces) -> Pieces:
        """Gives the one list of some pieces."""
        return self.once.of("pieces", tuple(found), lambda: found)

    # -- nodes

    def input(self, name: object, shape: tuple[int, ...], floats: bool, kind: str = "input") -> Pieces:
        """Makes the node of an input, or of what a loop carries: the same node for the same name, under any shape of one rank."""
        return self.once.of((kind, name, shape, floats), (), lambda: self._input(Node(kind, (name, floats), (), box(shape), ())))

    def _input(self, node: Node) -> Pieces:
        number, at = self.intern(node)
        return self.pieces([self.piece(node.elements, Leaf(number, at))])

    def unknown(self, elements: Set) -> Pieces:
        """Makes elements of which nothing is known, equal to no others."""
        self.nodes.append(Node("unknown", (len(self.nodes),), (), elements, ()))
        return [Piece(elements, Leaf(len(self.nodes) - 1, identity(elements)))]

    def number(self, value: float, shape: tuple[int, ...]) -> Pieces:
        """Makes a tensor of one literal."""
        return self.pieces([self.piece(box(shape), Number(value))])

    def stored(self, value: Attribute, shape: tuple[int, ...], array: Callable[[], Array | None]) -> Pieces:
        """Makes a constant, whose bytes are read once for an attribute: the same node for the same bytes, under any shape."""
        return self.once.of(("constant", shape), (value,), lambda: self.array(array(), shape))

    def array(self, array: Array | None, shape: tuple[int, ...] | None = None) -> Pieces:
        """Makes a constant of an array. `shape`: by default the array's."""
        assert array is not None, shape
        shape = array.shape if shape is None else shape
        flat = np.ascontiguousarray(array).reshape(-1)
        if not flat.size:
            return []
        return self.seen([self.piece(box(flat.shape), Leaf(self.constant(flat), SAME))], reshape_map(shape, flat.shape))

    def same(self, a: Tree, b: Tree, elements: Set) -> bool:
        """Tells whether two trees are one on some elements."""
        a, b = self.plain(a), self.plain(b)
        if form(a, self.arrays) != form(b, self.arrays) or not all(map(close, numbers(a), numbers(b))):
            return False
        on = partial(self._at, elements)
        return all(self.agree_parts((x.node,), on(x), (y.node,), on(y)) for x, y in zip(leaves(a), leaves(b)))

    def _at(self, elements: Set, leaf: Leaf) -> Map:
        return self.do(Map.intersect_domain, leaf.at, elements)

    # -- trees

    def seen(self, pieces: Pieces, at: Map) -> Pieces:
        """Gives what a view shows: `at` maps the view's index to that of the pieces."""
        shown = (self.once.of("seen", (p, at), partial(self._seen, p, at)) for p in pieces)
        return self.pieces([p for p in shown if p is not None])

    def _seen(self, p: Piece, at: Map) -> Piece | None:
        if self.do(_stays, at, p.elements):
            return p
        elements = self.do(_shown, at, p.elements)
        if self.do(Set.is_empty, elements):
            return None
        return self.piece(elements, self.part(self.moved(p.tree, at), elements))

    def part(self, tree: Tree, elements: Set) -> Tree:
        """Gives a tree on some elements, in which a sum by itself stands for the same part of a sum of joined weights."""
        match tree:
            case Leaf(node, _):
                return self._part(tree, elements) if len(self.by_key.get(self.keys.get(node, ()), ())) > 1 else tree
            case Apply(function, args):
                new = tuple(self.part(a, elements) for a in args)
                return tree if all(a is b for a, b in zip(args, new)) else self.laws.applied(function, new, elements)
            case Converted(to, bits, x):
                return tree if (new := self.part(x, elements)) is x else Converted(to, bits, new)
            case Number():
                return tree

    def _part(self, leaf: Leaf, elements: Set) -> Tree:
        number, node = leaf.node, self.nodes[leaf.node]
        seen = self.do(_range_on, leaf.at, elements)
        if self.do(Set.is_subset, node.elements, seen):
            return leaf

        def made() -> tuple[int, Map, Tree | None]:
            to = moved_to_zero(seen)
            maps = tuple(inner_too(to.reverse(), n).apply_range(m) for m, n in zip(node.maps, node.inner or (0,) * len(node.maps)))
            new = Node(node.kind, node.params, node.parts, to.range(), maps, node.inner, node.form, node.numbers)
            others = [other for other in self.by_key[self.keys[number]] if other != number]
            for other in others:
                if (found := self.equal_node(self.nodes[other], new)) is not None:
                    return other, to.apply_range(found), None
            for other in others if node.kind == "add" and not node.params else ():
                if (both := self.multiple_node(self.nodes[other], new)) is not None:
                    return other, to.apply_range(both[0]), self.moved(both[1], to)
            return number, identity(seen), None

        other, to, by = self._parts_of.of(number, (self.do(identity, seen),), made)
        if other == number:
            return leaf
        part = Leaf(other, leaf.at.apply_range(to))
        return part if by is None else self.laws.times(part, self.moved(by, leaf.at), elements)

    def reshaped(self, pieces: Pieces, old: tuple[int, ...], new: tuple[int, ...]) -> Pieces:
        """Gives a tensor under another shape."""
        return pieces if old == new else self.seen(pieces, reshape_map(new, old))

    def agree(self, a: Pieces, b: Pieces) -> bool:
        """Tells whether two tensors are known at the same elements, and equal there."""
        if a is b or not (a and b):
            return a is b or not (a or b)
        return domain(a).is_equal(domain(b)) and all(self.same(p.tree, q.tree, both) for p, q, both in common(a, b))

    def plain(self, tree: Tree) -> Tree:
        """Gives a tree, the number for a constant whose elements are equal."""
        return self.uniform.get(tree.node, tree) if isinstance(tree, Leaf) else tree

    def formula(self, e: expr.Expr, args: Sequence[Tree], floats: bool, elements: Set) -> Tree:
        """Puts trees for the operands of an expression. `floats`: its operands are floats, so that literals are too."""
        match e:
            case expr.Arg(i):
                tree = args[i - 1]
                return self.uniform.get(tree.node, tree) if isinstance(tree, Leaf) else tree
            case expr.Const(value):
                return Number(float(value) if floats and not isinstance(value, bool) else value)
            case expr.Cast(x, to, bits):
                return self.laws.converted(to, bits, self.formula(x, args, floats, elements))
            case expr.Call(function, operands):
                return self.laws.applied(function, tuple(self.formula(x, args, floats, elements) for x in operands), elements)
            case _:
                raise AssertionError(e)

    def elementwise(self, e: expr.Expr, elements: Set, operands: Sequence[Pieces], floats: bool) -> Pieces:
        """Gives an expression of tensors of one index."""
        combined: list[tuple[Set, tuple[Tree, ...]]] = [(self.do(_itself, elements), ())]
        for pieces in operands:
            combined = [
                (both, (*args, self.one(p.tree)))
                for known, args in combined
                for p in pieces
                if not self.do(Set.is_empty, both := self.do(Set.intersect, known, p.elements))
            ]
        return self.pieces(
            [self.once.of(("formula", e, floats), (both, *args), partial(self._formed, e, args, floats, both)) for both, args in combined]
        )

    def _formed(self, e: expr.Expr, args: tuple[Tree, ...], floats: bool, elements: Set) -> Piece:
        tree = self.formula(e, args, floats, elements)
        if self._sizes_of.of(tree) > MOST_LEAVES:
            raise Undecided(f"a formula of more than {MOST_LEAVES} elements")
        return self.piece(self.do(Set.coalesce, elements), tree)

    def sealed(self, pieces: Pieces, zeros_vanish: bool = False) -> list[tuple[Map, int]]:
        """Makes each piece a node. Returns for each the map of its elements to the node's index, and the node.

        A tree's index is that of its first leaf that tells its elements apart. `zeros_vanish`: pieces of zeros are left out.
        """
        kept = (p for p in pieces if not (zeros_vanish and self.plain(p.tree) == Number(0.0)))
        return [self.once.of("sealed", (p,), partial(self._sealed, p)) for p in kept]

    def _sealed(self, p: Piece) -> tuple[Map, int]:
        if isinstance(p.tree, Leaf):
            return self.do(Map.intersect_domain, p.tree.at, p.elements), p.tree.node
        own = (self.do(Map.intersect_domain, leaf.at, p.elements) for leaf in leaves(p.tree))
        to = next((m for m in own if self.do(Map.is_injective, m)), None)
        if to is None:
            to = self.do(identity, p.elements)
        tree = self.moved(p.tree, self.do(Map.reverse, to))
        of, known = tuple(leaves(tree)), self.do(Map.range, to)
        node = Node("tree", (skeleton(tree),), tuple((leaf.node,) for leaf in of), known, tuple(leaf.at for leaf in of))
        node.form, node.numbers = form(tree, self.arrays), tuple(numbers(tree))
        number, at = self.intern(node)
        return self.do(Map.apply_range, to, at), number

    # -- sums

    def total(self, op: str, elements: Set, terms: Sequence[tuple[tuple[int, ...], Map]], params: tuple[object, ...] = ()) -> Pieces:
        """Makes `op` over terms, as `sum_of` does."""
        leaf, multiple = self.sum_of(op, elements, terms, params)
        return self.scaled([self.piece(elements, leaf)], multiple)

    def product(self, elements: Set, points: Map, a: Pieces, b: Pieces, to_a: Map, to_b: Map) -> Pieces:
        """Makes the sum over points of a[to_a] b[to_b]. `points`: index -> points. Where a factor is not known it is padding, 0."""
        return self.once.of("product", (elements, points, a, b, to_a, to_b), partial(self._product, elements, points, a, b, to_a, to_b))

    def _product(self, elements: Set, points: Map, a: Pieces, b: Pieces, to_a: Map, to_b: Map) -> Pieces:
        (by_a, a), (by_b, b) = self.factored(a), self.factored(b)
        terms: list[tuple[tuple[int, ...], Map]] = []
        for at_a, of_a in self.sealed(a, True):
            for at_b, of_b in self.sealed(b, True):
                first, second = (self.do(Map.apply_range, to_a, at_a), of_a), (self.do(Map.apply_range, to_b, at_b), of_b)
                if (of_b in self.arrays, of_b) < (of_a in self.arrays, of_a):
                    first, second = second, first
                relation = self.do(Map.flat_range_product, first[0], second[0])  # point -> both
                if not self.do(once, points, relation):
                    raise Undecided("a term occurs twice in a sum")
                terms.append(((first[1], second[1]), self.do(Map.apply_range, points, relation)))
        return self.scaled(self.total("add", elements, terms), Number(by_a * by_b))

    def reduced(self, op: str, elements: Set, points: Map, x: Pieces, to_x: Map) -> Pieces:
        """Makes `op` over points of x[to_x]. A sum of sums is one sum, as none of its terms occurs twice; so are maxima and minima."""
        return self.once.of(("reduced", op), (elements, points, x, to_x), partial(self._reduced, op, elements, points, x, to_x))

    def _reduced(self, op: str, elements: Set, points: Map, x: Pieces, to_x: Map) -> Pieces:
        by = 1.0
        if op == "square_add":
            op, x = "add", [self.piece(p.elements, self.laws.applied("square", (p.tree,), p.elements)) for p in x]
        if op == "add":
            by, x = self.factored(x)
        terms: list[tuple[tuple[int, ...], Map]] = []
        for at, number in self.sealed(x):
            relation = self.do(Map.apply_range, to_x, at)
            if op not in IDEMPOTENT and not self.do(once, points, relation):
                raise Undecided("an element occurs twice in a reduction")
            node, over = self.nodes[number], self.do(Map.apply_range, points, relation)  # index -> indices of the node
            if node.kind == op and not node.params:
                for ids, own in zip(node.parts, node.maps):
                    known = self.do(Map.intersect_domain, own, self.do(Map.range, relation))
                    if op not in IDEMPOTENT and not known.is_injective() and not known.reverse().is_single_valued():
                        raise Undecided("a term occurs in two sums")
                    terms.append((ids, self.do(Map.apply_range, over, known)))
            else:
                terms.append(((number,), over))
        return self.scaled(self.total(op, elements, terms), Number(by))

    def factored(self, pieces: Pieces) -> tuple[float, Pieces]:
        """Splits off the number by which all pieces are multiplied."""
        factors = {factored(p.tree)[1] for p in pieces}
        if len(factors) != 1 or not isinstance(by := factors.pop(), float):
            return 1.0, pieces
        return by, [self.piece(p.elements, factored(p.tree)[0]) for p in pieces]

    def scaled(self, pieces: Pieces, by: Tree | None) -> Pieces:
        """Multiplies by a number, or a constant of the same index."""
        if by is None or by == Number(1.0):
            return self.pieces(pieces)
        return self.pieces([self.piece(p.elements, self.laws.times(p.tree, by, p.elements)) for p in pieces])

    def opaque(self, kind: str, params: tuple[object, ...], elements: Set, fields: Sequence[tuple[Pieces, Map, int]]) -> Pieces:
        """Makes what is a function of ordered elements: for each field its pieces, the map of [index, inner] to its elements, and the
        number of inner coordinates. Elements are told apart by the inner coordinates."""
        parts: list[tuple[int, ...]] = []
        maps: list[Map] = []
        inner: list[int] = []
        numbers: list[int] = []
        for number, (pieces, at, count) in enumerate(fields):
            for to, node in sorted(self.sealed(pieces), key=lambda piece: piece[1]):
                numbers.append(number)
                parts.append((node,))
                maps.append(self.do(Map.apply_range, at, to))
                inner.append(count)
        found, at = self.intern(Node(kind, (*params, *numbers), tuple(parts), elements, tuple(maps), tuple(inner)))
        return self.pieces([self.piece(elements, Leaf(found, at))])


def _itself(elements: Set) -> Set:
    return elements


def _stays(at: Map, elements: Set) -> bool:
    """Tells whether a view shows some elements as they are, and no others."""
    return at.is_equal(identity(elements))


def _shown(at: Map, elements: Set) -> Set:
    """Makes the set of what `at` maps to some elements."""
    return at.intersect_range(elements).domain().coalesce()


def _range_on(at: Map, elements: Set) -> Set:
    return at.intersect_domain(elements).range()
