"""Terms: what each element of a tensor is, over the elements of inputs and constants.

The elements of a tensor that have one form are a `Piece`: an integer set and a tree, whose leaves are elements of nodes, each by an affine
map of the element's index. A node is an input, a constant, or what is no element-wise function of others: a sum, a maximum, a row. Nodes
are interned: the key of one is the relation from its index to the elements that it is made of. So a sum of partial sums is the sum, views
and layouts are maps, and fused formulas are the tree that they were before. Sums are those of real numbers: equal to rounding.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from populus.dialects import expr
from populus.dialects.poplar.affine import Map, Set, box, identity, read_map, reshape_map
from populus.proof.report import Undecided
from populus.proof.trees import Apply, Converted, Leaf, Number, Skeleton, Tree, leaves, number_of, simplified, skeleton

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array: TypeAlias = NDArray[Any]


@dataclass
class Piece:
    """Elements of one form."""

    elements: Set
    tree: Tree


Pieces: TypeAlias = "list[Piece]"


@dataclass
class Node:
    """A term that is not element-wise. `kind`, `params`, and the `parts` that it is made of: ids of nodes, one tuple for each map.

    A map takes an index of the node, followed by `inner` coordinates that tell ordered elements apart, to the concatenated indices of
    the nodes of its tuple. `elements`: the indices that are known.
    """

    kind: str
    params: tuple[object, ...]
    parts: tuple[tuple[int, ...], ...]
    elements: Set
    maps: tuple[Map, ...]
    inner: tuple[int, ...] = ()


class Terms:
    """The nodes of one proof. `arrays`: the elements of constants, flat.

    `uniform`: of a constant whose elements are equal, that number, which formulas then have as a literal.
    """

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.uniform: dict[int, Number] = {}
        self.arrays: dict[int, Array] = {}
        self._by_key: dict[Skeleton, list[int]] = {}

    # -- nodes

    def leaf(self, kind: str, name: object, shape: Sequence[int]) -> Pieces:
        """Makes the node of an input or a constant."""
        full = box(shape)
        number, at = self.intern(Node(kind, (name,), (), full, ()))
        return [Piece(full, Leaf(number, at))]

    def intern(self, new: Node) -> tuple[int, Map]:
        """Finds the node that is equal to a new one, or adds it. Returns its number and the map of the new one's index to its index.

        Nodes are equal whose keys are, and whose maps agree wherever both are known. One of another shape is equal if it is so under
        row-major order, or with its dimensions in another order.
        """
        key = (new.kind, new.params, new.parts, new.inner)
        for number in self._by_key.get(key, []):
            if (at := self._equal(self.nodes[number], new)) is not None:
                return number, at
        self.nodes.append(new)
        self._by_key.setdefault(key, []).append(len(self.nodes) - 1)
        return len(self.nodes) - 1, identity(new.elements)

    def _equal(self, old: Node, new: Node) -> Map | None:
        if rank(old.elements) == rank(new.elements):
            both = old.elements.intersect(new.elements)
            if not both.is_empty() and all(
                a.intersect_domain(wide(both, n)).is_equal(b.intersect_domain(wide(both, n)))
                for a, b, n in zip(old.maps, new.maps, new.inner or itertools.repeat(0))
            ):
                if not new.elements.is_subset(old.elements):
                    old.maps = tuple(a.union(b).coalesce() for a, b in zip(old.maps, new.maps))
                    old.elements = old.elements.union(new.elements).coalesce()
                return identity(new.elements)
        ours, theirs = shape_of_box(new.elements), shape_of_box(old.elements)
        if ours is None or theirs is None or math.prod(ours) != math.prod(theirs):
            return None
        for at in reorderings(ours, theirs):
            back = at.reverse()
            if all(inner_too(back, n).apply_range(b).is_equal(a) for a, b, n in zip(old.maps, new.maps, new.inner or itertools.repeat(0))):
                return at
        return None

    # -- trees

    def moved(self, tree: Tree, at: Map) -> Tree:
        """Gives a tree under another index: `at` maps the new index to the old one."""
        match tree:
            case Leaf(node, own):
                return Leaf(node, at.apply_range(own))
            case Apply(function, args):
                return Apply(function, tuple(self.moved(a, at) for a in args))
            case Converted(to, bits, x):
                return Converted(to, bits, self.moved(x, at))
            case Number():
                return tree

    def seen(self, pieces: Pieces, at: Map) -> Pieces:
        """Gives what a view shows: `at` maps the view's index to that of the pieces."""
        found: Pieces = []
        for p in pieces:
            elements = at.intersect_range(p.elements).domain()
            if not elements.is_empty():
                found.append(Piece(elements.coalesce(), self.moved(p.tree, at)))
        return found

    def formula(self, e: expr.Expr, args: Sequence[Tree], floats: bool) -> Tree:
        """Puts trees for the operands of an expression. `floats`: its operands are floats, so that literals are too."""
        match e:
            case expr.Arg(i):
                tree = args[i - 1]
                return self.uniform.get(tree.node, tree) if isinstance(tree, Leaf) else tree
            case expr.Const(value):
                return Number(float(value) if floats and not isinstance(value, bool) else value)
            case expr.Cast(x, to, bits):
                return Converted(to, bits, self.formula(x, args, floats))
            case expr.Call(function, operands):
                return simplified(function, tuple(self.formula(x, args, floats) for x in operands))
            case _:
                raise AssertionError(e)

    def elementwise(self, e: expr.Expr, elements: Set, operands: Sequence[Pieces], floats: bool) -> Pieces:
        """Gives an expression of tensors of one index."""
        combined: list[tuple[Set, tuple[Tree, ...]]] = [(elements, ())]
        for pieces in operands:
            combined = [
                (both, (*args, p.tree)) for known, args in combined for p in pieces if not (both := known.intersect(p.elements)).is_empty()
            ]
        return [Piece(known.coalesce(), self.formula(e, args, floats)) for known, args in combined]

    def sealed(self, pieces: Pieces, zeros_vanish: bool = False) -> list[tuple[Map, int]]:
        """Makes each piece a node. Returns for each the map of its elements to the node's index, and the node.

        A tree's index is that of its first leaf that tells its elements apart. `zeros_vanish`: pieces of zeros are left out.
        """
        found: list[tuple[Map, int]] = []
        for p in pieces:
            if zeros_vanish and p.tree == Number(0.0):
                continue
            if isinstance(p.tree, Leaf):
                found.append((p.tree.at.intersect_domain(p.elements), p.tree.node))
                continue
            own = (leaf.at.intersect_domain(p.elements) for leaf in leaves(p.tree))
            to = next((m for m in own if m.is_injective()), None)
            if to is None:
                to = identity(p.elements)
            tree = self.moved(p.tree, to.reverse())
            of = tuple(leaves(tree))
            node = Node("tree", (skeleton(tree),), tuple((leaf.node,) for leaf in of), to.range(), tuple(leaf.at for leaf in of))
            number, at = self.intern(node)
            found.append((to.apply_range(at), number))
        return found

    # -- sums

    def total(self, op: str, elements: Set, terms: Sequence[tuple[tuple[int, ...], Map]], params: tuple[object, ...] = ()) -> Pieces:
        """Makes `op` over terms: (the nodes of the factors, the relation of an index to their concatenated indices).

        The caller has shown that each term of a sum occurs once. Raises Undecided for one that occurs in two pieces.
        """
        by: dict[tuple[int, ...], Map] = {}
        for ids, relation in terms:
            if relation.is_empty():
                continue
            if ids in by and op not in IDEMPOTENT and not by[ids].is_disjoint(relation):
                raise Undecided("an element occurs twice in a sum, in two pieces")
            by[ids] = by[ids].union(relation) if ids in by else relation
        ids = sorted(by)
        if len(ids) == 1 and len(ids[0]) == 1:  # of one tensor: its index is that of its first element, whatever the shape
            first = by[ids[0]].lexmin().coalesce()
            if first.is_injective() and first.domain().is_equal(elements):
                node = Node(op, params, tuple(ids), first.range(), (first.reverse().apply_range(by[ids[0]]).coalesce(),))
                number, at = self.intern(node)
                return [Piece(elements, Leaf(number, first.apply_range(at)))]
        number, at = self.intern(Node(op, params, tuple(ids), elements, tuple(by[i].coalesce() for i in ids)))
        return [Piece(elements, Leaf(number, at))]

    def product(self, elements: Set, points: Map, a: Pieces, b: Pieces, to_a: Map, to_b: Map) -> Pieces:
        """Makes the sum over points of a[to_a] b[to_b]. `points`: index -> points. Where a factor is not known it is padding, 0."""
        (by_a, a), (by_b, b) = factored(a), factored(b)
        terms: list[tuple[tuple[int, ...], Map]] = []
        for at_a, of_a in self.sealed(a, True):
            for at_b, of_b in self.sealed(b, True):
                first, second = (to_a.apply_range(at_a), of_a), (to_b.apply_range(at_b), of_b)
                if of_b < of_a:
                    first, second = second, first
                relation = first[0].flat_range_product(second[0])  # point -> both
                if not once(points, relation):
                    raise Undecided("a term occurs twice in a sum")
                terms.append(((first[1], second[1]), points.apply_range(relation)))
        return scaled(self.total("add", elements, terms), by_a * by_b)

    def reduced(self, op: str, elements: Set, points: Map, x: Pieces, to_x: Map) -> Pieces:
        """Makes `op` over points of x[to_x]. A sum of sums is one sum, as none of its terms occurs twice; so are maxima and minima."""
        by = 1.0
        if op == "square_add":
            op, x = "add", [Piece(p.elements, simplified("square", (p.tree,))) for p in x]
        if op == "add":
            by, x = factored(x)
        terms: list[tuple[tuple[int, ...], Map]] = []
        for at, number in self.sealed(x):
            relation = to_x.apply_range(at)
            if op not in IDEMPOTENT and not once(points, relation):
                raise Undecided("an element occurs twice in a reduction")
            node, over = self.nodes[number], points.apply_range(relation)  # index -> indices of the node
            if node.kind == op and not node.params:
                for ids, own in zip(node.parts, node.maps):
                    known = own.intersect_domain(relation.range())
                    if op not in IDEMPOTENT and not known.is_injective() and not known.reverse().is_single_valued():
                        raise Undecided("a term occurs in two sums")
                    terms.append((ids, over.apply_range(known)))
            else:
                terms.append(((number,), over))
        return scaled(self.total(op, elements, terms), by)

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
                maps.append(at.apply_range(to))
                inner.append(count)
        found, at = self.intern(Node(kind, (*params, *numbers), tuple(parts), elements, tuple(maps), tuple(inner)))
        return [Piece(elements, Leaf(found, at))]


IDEMPOTENT = ("max", "min", "and", "or")


def once(points: Map, relation: Map) -> bool:
    """Tells whether different points of one index have different terms."""
    if relation.is_injective():
        return True
    both = points.range_map().apply_range(relation)  # [index -> point] -> term
    return points.domain_map().flat_range_product(both).is_injective()


def same(a: Tree, b: Tree, elements: Set) -> bool:
    """Tells whether two trees are one on some elements."""
    if skeleton(a) != skeleton(b):
        return False
    pairs = zip(leaves(a), leaves(b))
    return all(x.at.intersect_domain(elements).is_equal(y.at.intersect_domain(elements)) for x, y in pairs)


def united(pieces: Pieces) -> Pieces:
    """Makes pieces of one tree one piece."""
    found: list[tuple[Skeleton, Piece]] = []
    for p in pieces:
        form = skeleton(p.tree)
        for other, q in found:
            if other == form and all(
                x.at.intersect_domain(q.elements).union(y.at.intersect_domain(p.elements)).is_single_valued()
                for x, y in zip(leaves(q.tree), leaves(p.tree))
            ):
                q.tree = _either(q.tree, p.tree, q.elements, p.elements)
                q.elements = q.elements.union(p.elements).coalesce()
                break
        else:
            found.append((form, Piece(p.elements, p.tree)))
    return [q for _, q in found]


def _either(a: Tree, b: Tree, on_a: Set, on_b: Set) -> Tree:
    match a, b:
        case Leaf(node, at), Leaf(_, other):
            return Leaf(node, at.intersect_domain(on_a).union(other.intersect_domain(on_b)).coalesce())
        case Apply(function, args), Apply(_, others):
            return Apply(function, tuple(_either(x, y, on_a, on_b) for x, y in zip(args, others)))
        case Converted(to, bits, x), Converted(_, _, y):
            return Converted(to, bits, _either(x, y, on_a, on_b))
        case _:
            return a


def factored(pieces: Pieces) -> tuple[float, Pieces]:
    """Splits off the factor that all pieces have."""
    factors = {_factor(p.tree) for p in pieces}
    if len(factors) != 1 or factors == {1.0}:
        return 1.0, pieces
    return factors.pop(), [Piece(p.elements, p.tree.args[0] if isinstance(p.tree, Apply) else p.tree) for p in pieces]


def _factor(tree: Tree) -> float:
    number = number_of(tree.args[1]) if isinstance(tree, Apply) and tree.function == "mul" else None
    return 1.0 if number is None else number


def scaled(pieces: Pieces, by: float) -> Pieces:
    """Multiplies by a number."""
    return [Piece(p.elements, simplified("mul", (p.tree, Number(by)))) for p in pieces] if by != 1.0 else pieces


# -- sets -----------------------------------------------------------------------------------------------------------------


def rank(elements: Set) -> int:
    """Returns the number of coordinates."""
    return elements.n_dim()


def shape_of_box(elements: Set) -> tuple[int, ...] | None:
    """Returns the shape whose indices a set is; None if it is no such box."""
    sizes: list[int] = []
    for d in range(elements.n_dim()):
        largest = elements.dim_max_val(d)
        if not largest.is_int():
            return None
        sizes.append(int(largest.to_python()) + 1)
    return tuple(sizes) if elements.is_equal(box(sizes)) else None


def wide(elements: Set, inner: int) -> Set:
    """Adds free inner coordinates to a set."""
    return elements if not inner else elements.flat_product(Set.universe(box((1,) * inner).get_space()))


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
