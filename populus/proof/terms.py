"""Terms: what each element of a tensor is, over the elements of inputs and constants.

The elements of a tensor that have one form are a `Piece`: an integer set and a tree, whose leaves are elements of nodes, each by an affine
map of the element's index. A node is an input, a constant, or what is no element-wise function of others: a sum, a maximum, a row. Nodes
are interned: the key of one is the relation from its index to the elements that it is made of. So a sum of partial sums is the sum, views
and layouts are maps, and fused formulas are the tree that they were before. Sums are those of real numbers: equal to rounding.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import numpy as np
from ml_dtypes import finfo

from populus.dialects import expr
from populus.dialects.poplar.affine import Composed, Map, Set, box, identity, read_map, reshape_map, shape_of_box, told_apart, values
from populus.proof.laws import Laws
from populus.proof.memo import Memo, Once
from populus.proof.pieces import domain, once
from populus.proof.report import Undecided
from populus.proof.sets import inner_too, rank, reorderings, wide
from populus.proof.trees import CONSTANT, Apply, Converted, Leaf, Number, Piece, Pieces, Skeleton, Tree, form, leaves, numbers, skeleton

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from xdsl.ir import Attribute

    from populus.proof.loops import Recurrence

    Array: TypeAlias = NDArray[Any]


@dataclass
class Node:
    """A term that is not element-wise. `kind`, `params`, and the `parts` that it is made of: ids of nodes, one tuple for each map.

    A map takes an index of the node, followed by `inner` coordinates that tell ordered elements apart, to the concatenated indices of
    the nodes of its tuple. `elements`: the indices that are known. Of a formula, `form` is its tree without
    constants, and `numbers` are its literals.
    """

    kind: str
    params: tuple[object, ...]
    parts: tuple[tuple[int, ...], ...]
    elements: Set
    maps: tuple[Map, ...]
    inner: tuple[int, ...] = ()
    form: Skeleton = ()
    numbers: tuple[float, ...] = ()


class Terms:
    """The nodes of one proof. `arrays`: the elements of constants, flat; `rounding`: the relative error that each may have.

    `uniform`: of a constant whose elements are equal, that number, which formulas then have as a literal. `loops`: those that were met.
    `once`: what operations gave for the same operands, told apart by identity; so what a pass leaves alone costs a look.
    """

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.arrays: dict[int, Array] = {}
        self.rounding: dict[int, float] = {}
        self.uniform: dict[int, Number] = {}
        self.loops: list[Recurrence] = []
        self.laws, self.once = Laws(self), Once()
        self.composed = Composed()
        self._constants: dict[tuple[str, int, bytes], list[int]] = {}  # by type, size and some bytes
        self._by_key: dict[Skeleton, list[int]] = {}
        self._compared: Memo[bool] = Memo()

    # -- nodes

    def input(self, name: object, shape: tuple[int, ...], floats: bool, kind: str = "input") -> Pieces:
        """Makes the node of an input, or of what a loop carries: the same node for the same name, under any shape of one rank."""
        return self.once.of((kind, name, shape, floats), (), lambda: self._input(Node(kind, (name, floats), (), box(shape), ())))

    def _input(self, node: Node) -> Pieces:
        number, at = self.intern(node)
        return [Piece(node.elements, Leaf(number, at))]

    def unknown(self, elements: Set) -> Pieces:
        """Makes elements of which nothing is known, equal to no others."""
        self.nodes.append(Node("unknown", (len(self.nodes),), (), elements, ()))
        return [Piece(elements, Leaf(len(self.nodes) - 1, identity(elements)))]

    def number(self, value: float, shape: tuple[int, ...]) -> Pieces:
        """Makes a tensor of one literal."""
        return [Piece(box(shape), Number(value))]

    def stored(self, value: Attribute, shape: tuple[int, ...], array: Callable[[], Array | None]) -> Pieces:
        """Makes a constant, whose bytes are read once for an attribute: the same node for the same bytes, under any shape."""
        return self.once.of(("constant", shape), (value,), lambda: self._stored(array(), shape))

    def _stored(self, array: Array | None, shape: tuple[int, ...]) -> Pieces:
        assert array is not None, shape
        flat = np.ascontiguousarray(array).reshape(-1)
        if not flat.size:
            return []
        return self.seen([Piece(box(flat.shape), Leaf(self.constant(flat), SAME))], reshape_map(shape, flat.shape))

    def constant(self, flat: Array, rounding: float | None = None) -> int:
        """Makes the node of a constant: the same for the same bytes. `rounding`: by default that of its type, with some operations."""
        content = flat.view(np.uint8)
        like = self._constants.setdefault((str(flat.dtype), content.size, content[:: max(content.size // SAMPLES, 1)].tobytes()), [])
        for number in like:
            other = self.arrays[number].view(np.uint8)
            if other.ctypes.data == content.ctypes.data or np.array_equal(other, content):
                return number
        number = len(self.nodes)
        like.append(number)
        self.nodes.append(Node("constant", (number,), (), box(flat.shape), ()))
        self.arrays[number] = flat
        self.rounding[number] = _rounding(flat.dtype) if rounding is None else rounding
        first = flat[0]
        if flat.dtype.kind in "iub" and (flat == first).all():
            self.uniform[number] = Number(first.item())
        elif flat.dtype.kind == "f":
            within = self.rounding[number] * 0.1 * np.abs(first)
            if np.abs(flat[-1] - first) <= within and (np.abs(flat - first) <= within).all():
                self.uniform[number] = Number(float(first))
        return number

    def float_node(self, number: int) -> bool:
        """Tells whether a node is known to be of floats."""
        node = self.nodes[number]
        return (number in self.arrays and self.arrays[number].dtype.kind in "fV") or node.params[-1:] == (True,) or node.kind in FLOATS

    def intern(self, new: Node) -> tuple[int, Map]:
        """Finds the node that is equal to a new one, or adds it. Returns its number and the map of the new one's index to its index.

        Nodes are equal whose keys are, and whose maps agree wherever both are known, but for constants, whose elements are compared to
        rounding. One of another shape is equal if it is so under row-major order, or with its dimensions in another order.
        """
        parts = tuple(tuple(CONSTANT if i in self.arrays else i for i in ids) for ids in new.parts)
        key = (new.kind, new.form or new.params, parts, new.inner)
        for number in self._by_key.get(key, []):
            if (at := self._equal(self.nodes[number], new)) is not None:
                return number, at
        self.nodes.append(new)
        self._by_key.setdefault(key, []).append(len(self.nodes) - 1)
        return len(self.nodes) - 1, identity(new.elements)

    def _equal(self, old: Node, new: Node) -> Map | None:
        if not all(map(close, old.numbers, new.numbers)):
            return None
        inner = new.inner or (0,) * len(new.maps)
        if rank(old.elements) == rank(new.elements):
            both = old.elements.intersect(new.elements)
            if not both.is_empty() and all(
                self._agree(i, a.intersect_domain(wide(both, n)), j, b.intersect_domain(wide(both, n)))
                for i, a, j, b, n in zip(old.parts, old.maps, new.parts, new.maps, inner)
            ):
                exact = old.parts == new.parts
                if not new.elements.is_subset(old.elements):
                    if not exact:
                        return None  # two constants would be one
                    old.maps = tuple(a.union(b).coalesce() for a, b in zip(old.maps, new.maps))
                    old.elements = old.elements.union(new.elements).coalesce()
                return identity(new.elements)
        ours, theirs = shape_of_box(new.elements), shape_of_box(old.elements)
        if ours is None or theirs is None or math.prod(ours) != math.prod(theirs):
            return None
        for at in reorderings(ours, theirs):
            back = at.reverse()
            if all(
                self._agree(i, a, j, inner_too(back, n).apply_range(b))
                for i, a, j, b, n in zip(old.parts, old.maps, new.parts, new.maps, inner)
            ):
                return at
        return None

    def _agree(self, ids: tuple[int, ...], a: Map, others: tuple[int, ...], b: Map) -> bool:
        """Tells whether two relations to elements of nodes are equal, constants by their elements."""
        if ids == others and a.is_equal(b):
            return True
        places: list[int] = []
        at = 0
        for i in ids:
            if i in self.arrays:
                places.append(at)
            at += rank(self.nodes[i].elements)
        if not places:
            return ids == others and a.is_equal(b)
        (rest, mine), (other_rest, its) = told_apart(a, places), told_apart(b, places)
        if not rest.is_equal(other_rest):
            return False
        constants = [(i, j) for i, j in zip(ids, others) if i in self.arrays]
        return all(self.equal_constants(i, j, x.reverse().apply_range(y)) for (i, j), x, y in zip(constants, mine, its))

    def equal_constants(self, a: int, b: int, relation: Map) -> bool:
        """Tells whether constants are equal to rounding where a relation of their elements says so."""
        if a == b and relation.is_subset(SAME):
            return True
        return self._compared.of((a, b), (relation,), lambda: self._elements_equal(a, b, relation))

    def _elements_equal(self, a: int, b: int, relation: Map) -> bool:
        if not relation.is_single_valued():
            a, b, relation = b, a, relation.reverse()
            if not relation.is_single_valued():
                return False
        x, y = self.arrays[a], self.arrays[b]
        rounding = max(self.rounding[a], self.rounding[b])
        if x.size > 8 * FEW:  # others of one shape are told apart by some elements
            some = np.arange(0, x.size, x.size // FEW)
            to = values(relation, [some])
            with np.errstate(invalid="ignore"):
                largest = max(abs(float(np.nanmax(x))), abs(float(np.nanmin(x))))
            if not _near(x[some][to >= 0], y[to[to >= 0]], rounding, largest):
                return False
        if relation.is_subset(SAME) and x.size == y.size and relation.domain().is_equal(box(x.shape)):
            return _near(x, y, rounding)
        to = values(relation, [np.arange(x.size)])
        return _near(x, y[to], rounding) if (to >= 0).all() else _near(x[to >= 0], y[to[to >= 0]], rounding)

    def same(self, a: Tree, b: Tree, elements: Set) -> bool:
        """Tells whether two trees are one on some elements."""
        if form(a, self.arrays) != form(b, self.arrays) or not all(map(close, numbers(a), numbers(b))):
            return False
        return all(
            self._agree((x.node,), x.at.intersect_domain(elements), (y.node,), y.at.intersect_domain(elements))
            for x, y in zip(leaves(a), leaves(b))
        )

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

    def reshaped(self, pieces: Pieces, old: tuple[int, ...], new: tuple[int, ...]) -> Pieces:
        """Gives a tensor under another shape."""
        return pieces if old == new else self.seen(pieces, reshape_map(new, old))

    def agree(self, a: Pieces, b: Pieces) -> bool:
        """Tells whether two tensors are known at the same elements, and equal there."""
        if a is b or not (a and b):
            return a is b or not (a or b)
        return domain(a).is_equal(domain(b)) and all(
            both.is_empty() or self.same(self.plain(p.tree), self.plain(q.tree), both)
            for p in a
            for q in b
            for both in [p.elements.intersect(q.elements)]
        )

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
                return Converted(to, bits, self.formula(x, args, floats, elements))
            case expr.Call(function, operands):
                return self.laws.applied(function, tuple(self.formula(x, args, floats, elements) for x in operands), elements)
            case _:
                raise AssertionError(e)

    def elementwise(self, e: expr.Expr, elements: Set, operands: Sequence[Pieces], floats: bool) -> Pieces:
        """Gives an expression of tensors of one index."""
        combined: list[tuple[Set, tuple[Tree, ...]]] = [(elements, ())]
        for pieces in operands:
            combined = [
                (both, (*args, p.tree)) for known, args in combined for p in pieces if not (both := known.intersect(p.elements)).is_empty()
            ]
        return [Piece(known.coalesce(), self.formula(e, args, floats, known)) for known, args in combined]

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
            node.form, node.numbers = form(tree, self.arrays), tuple(numbers(tree))
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
        (by_a, a), (by_b, b) = self.factored(a), self.factored(b)
        terms: list[tuple[tuple[int, ...], Map]] = []
        for at_a, of_a in self.sealed(a, True):
            for at_b, of_b in self.sealed(b, True):
                first, second = (to_a.apply_range(at_a), of_a), (to_b.apply_range(at_b), of_b)
                if (of_b in self.arrays, of_b) < (of_a in self.arrays, of_a):
                    first, second = second, first
                relation = first[0].flat_range_product(second[0])  # point -> both
                if not once(points, relation):
                    raise Undecided("a term occurs twice in a sum")
                terms.append(((first[1], second[1]), points.apply_range(relation)))
        return self.scaled(self.total("add", elements, terms), by_a * by_b)

    def reduced(self, op: str, elements: Set, points: Map, x: Pieces, to_x: Map) -> Pieces:
        """Makes `op` over points of x[to_x]. A sum of sums is one sum, as none of its terms occurs twice; so are maxima and minima."""
        by = 1.0
        if op == "square_add":
            op, x = "add", [Piece(p.elements, self.laws.applied("square", (p.tree,), p.elements)) for p in x]
        if op == "add":
            by, x = self.factored(x)
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
        return self.scaled(self.total(op, elements, terms), by)

    def factored(self, pieces: Pieces) -> tuple[float, Pieces]:
        """Splits off the number by which all pieces are multiplied."""
        factors = {_factor(p.tree) for p in pieces}
        if len(factors) != 1 or factors == {1.0}:
            return 1.0, pieces
        return factors.pop(), [Piece(p.elements, p.tree.args[0] if isinstance(p.tree, Apply) else p.tree) for p in pieces]

    def scaled(self, pieces: Pieces, by: float) -> Pieces:
        """Multiplies by a number."""
        if by == 1.0:
            return pieces
        return [Piece(p.elements, self.laws.times(p.tree, Number(by), p.elements)) for p in pieces]

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


SAMPLES, FEW = 61, 512  # bytes, elements of a constant that are compared first
IDEMPOTENT = ("max", "min", "and", "or")


def _factor(tree: Tree) -> float:
    if isinstance(tree, Apply) and tree.function == "mul" and isinstance(tree.args[1], Number) and type(tree.args[1].value) is float:
        return tree.args[1].value
    return 1.0


def close(a: float, b: float) -> bool:
    """Tells whether literals are equal to rounding."""
    return math.isclose(a, b, rel_tol=1e-5) or (math.isnan(a) and math.isnan(b))


def _near(x: Array, y: Array, rounding: float, largest: float | None = None) -> bool:
    """Tells whether numbers are equal to rounding: of their own, and of the largest."""
    if not x.size or (x.dtype == y.dtype and np.array_equal(x, y)):
        return True
    x, y = x.astype(np.float64), y.astype(np.float64)
    size = np.abs(x)
    with np.errstate(invalid="ignore"):
        if largest is None or not math.isfinite(largest):
            largest = float(size.max())
            largest = largest if math.isfinite(largest) else float(size[np.isfinite(x)].max(initial=0.0))
        near = np.abs(x - y) <= rounding * (size + 0.1 * largest)
    return bool(near.all() or (near | (x == y) | (np.isnan(x) & np.isnan(y))).all())


def _rounding(dtype: np.dtype[Any]) -> float:
    """Returns the relative error that some operations on a type may have."""
    if dtype.kind in "iub":
        return 0.0
    return 16 * float(cast("Any", finfo(dtype)).eps)


SAME = read_map("{ [i] -> [i] }")
FLOATS = ("average", "row", "random", "packed_matmul")
