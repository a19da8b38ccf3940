"""Nodes: the inputs, constants, sums and rows that terms are made of, each known once.

Two programs agree on a tensor where they have the same node for it. So a new node is compared with those of its key, by relations of
integer sets, and by the elements of constants.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import numpy as np

from populus.dialects.poplar.affine import (
    Map,
    Set,
    bounds_of_box,
    box,
    depends_on,
    identity,
    names,
    read_map,
    shape_of_box,
    told_apart,
    within,
)
from populus.dialects.poplar.arrays import places
from populus.dialects.poplar.points import TooMany, pairs
from populus.proof.constants import SAME, equal, floating, joined, near, rounding_of, sizes_at, uniform
from populus.proof.likeness import Likeness
from populus.proof.memo import Memo, Once, shared
from populus.proof.multiples import Multiple
from populus.proof.report import Undecided
from populus.proof.sets import inner_too, rank, reorderings, wide
from populus.proof.trees import CONSTANT, Apply, Converted, Folded, Leaf, Number, Skeleton, Tree, float_name, float_result

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from xdsl.ir import Attribute

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


class Nodes:
    """The nodes of one proof. `arrays`: the elements of constants, flat; `rounding`: the relative error that each may have.

    `uniform`: of a constant whose elements are equal, that number, which formulas then have as a literal. `coarsest`: the largest relative
    error of a float type that was met. `element_types`: those that are converted to, by name. `drawn`: the integers that stand for an
    input, by its name, where terms are evaluated. `once`: what operations gave for the same
    operands, told apart by identity; so what a pass leaves alone costs a look.
    """

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.arrays: dict[int, Array] = {}
        self.rounding: dict[int, float] = {}
        self.uniform: dict[int, Number] = {}
        self.coarsest = 0.0
        self._constants: dict[tuple[str, int, bytes], list[int]] = {}  # by type, size and some bytes
        self.by_key: dict[Skeleton, list[int]] = {}
        self.keys: dict[int, Skeleton] = {}
        self.computed: dict[int, Array | None] = {}  # constants that laws have made: of what size the elements of each are computed
        self._compared: Memo[bool] = Memo()
        self.likeness = Likeness(self)
        self.sets = shared()
        self.do = self.sets.do
        self._floats: dict[int, bool] = {}
        self._settled: dict[int, bool] = {}
        self.constants = Folded(lambda tree, operands: all(operands) and (not isinstance(tree, Leaf) or self.settled(tree.node)))
        self.element_types: dict[str, Attribute] = {}
        self.once = Once()
        self.drawn: dict[object, range] = {}

    def constant(self, flat: Array) -> int:
        """Makes the node of a constant of a program: the same for the same bytes, off by the rounding of its type."""
        number = self._stored(flat, rounding_of(flat.dtype))
        self.computed.pop(number, None)
        return number

    def made(self, flat: Array, rounding: float, size: Array | None = None) -> int:
        """Makes the node of a constant that a law computes. `size`: that of what each element is computed from."""
        count = len(self.nodes)
        number = self._stored(flat, rounding)
        if number == count:
            self.computed[number] = size
        return number

    def _stored(self, flat: Array, rounding: float) -> int:
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
        self.rounding[number] = rounding
        self.coarsest = max(self.coarsest, rounding)
        if (value := uniform(flat, rounding)) is not None:
            self.uniform[number] = Number(value)
        return number

    def settled(self, number: int) -> bool:
        """Tells whether a node is made of constants alone."""
        if number not in self._settled:
            node = self.nodes[number]
            made = bool(node.parts) and all(self.settled(i) for ids in node.parts for i in ids)
            self._settled[number] = number in self.arrays or node.kind == "place" or made
        return self._settled[number]

    def float_node(self, number: int) -> bool:
        """Tells whether a node is known to be of floats."""
        if number not in self._floats:
            self._floats[number] = self._float_node(number)
        return self._floats[number]

    def _float_node(self, number: int) -> bool:
        node = self.nodes[number]
        if number in self.arrays:
            return floating(self.arrays[number].dtype)
        if node.kind in ("add", "mul", "max", "min"):
            return any(all(map(self.float_node, ids)) for ids in node.parts)
        if node.kind == "tree":
            return self._float_form(cast("Skeleton", node.params[0]), iter(node.parts))
        if node.kind in ("multi_slice", "multi_update"):  # as the table, the first field
            fields = node.params[len(node.params) - len(node.parts) :]
            return any(self.float_node(i) for (i,), field in zip(node.parts, fields) if field == 0)
        return bool(node.params and node.params[-1] is True) or node.kind in FLOATS  # 1 is the number of a field

    def _float_form(self, form: Skeleton, parts: Iterator[tuple[int, ...]]) -> bool:
        """Tells whether a formula is known to be of floats. Consumes the parts of its leaves."""
        match form:
            case ("leaf", _):
                return self.float_node(next(parts)[0])
            case ("number", kind, _):
                return kind == "float"
            case ("as", to, _, x):
                self._float_form(cast("Skeleton", x), parts)
                return float_name(str(to))
            case (function, *args):
                own = [self._float_form(cast("Skeleton", x), parts) for x in args]
                return float_result(str(function), own)
            case _:
                raise AssertionError(form)

    def intern(self, new: Node) -> tuple[int, Map]:
        """Finds the node that is equal to a new one, or adds it. Returns its number and the map of the new one's index to its index.

        Nodes are equal whose keys are, and whose maps agree wherever both are known, but for constants, whose elements are compared to
        rounding. One of another shape is equal if it is so under row-major order, or with its dimensions in another order.
        """
        key = self._key(new)
        for number in self.by_key.get(key, []):
            if (at := self.equal_node(self.nodes[number], new)) is not None:
                return number, at
        return self._added(key, new)

    def _key(self, new: Node) -> Skeleton:
        parts = tuple(tuple(CONSTANT if i in self.arrays else i for i in ids) for ids in new.parts)
        return (new.kind, new.form or new.params, parts, new.inner)

    def multiple(self, new: Node) -> tuple[int, Map, Tree | None]:
        """Finds the sum that a new one is equal to, or a multiple or part of, or adds it. Returns by what it is multiplied too."""
        key = self._key(new)
        like = [(number, self.nodes[number]) for number in self.by_key.get(key, [])]
        for number, old in like:
            if (at := self.equal_node(old, new)) is not None:
                return number, at, None
        if new.kind == "add" and not new.params and any(i in self.arrays for ids in new.parts for i in ids):
            for number, old in like:
                if (both := self.multiple_node(old, new)) is not None:
                    return number, *both
            for number, old in like:
                if (at := self._within(old, new)) is not None:
                    return number, at, None
        return *self._added(key, new), None

    def multiple_node(self, old: Node, new: Node) -> tuple[Map, Tree] | None:
        """Gives the map of a sum's index to that of one of which it is a multiple, and by what, over its own index."""
        by = Multiple(self, old, self.likeness.of(old, new, True))
        if (at := self.equal_node(old, new, by)) is None or by.found is None:
            return None
        return at, self.moved(by.found, at)

    def places(self, ids: tuple[int, ...]) -> Iterator[tuple[int, int]]:
        """Yields nodes, and where their indices begin among those of all."""
        at = 0
        for i in ids:
            yield i, at
            at += rank(self.nodes[i].elements)

    def _added(self, key: Skeleton, new: Node) -> tuple[int, Map]:
        self.nodes.append(new)
        self.keys[len(self.nodes) - 1] = key
        self.by_key.setdefault(key, []).append(len(self.nodes) - 1)
        return len(self.nodes) - 1, self.do(identity, new.elements)

    def equal_node(self, old: Node, new: Node, by: Multiple | None = None) -> Map | None:
        """Gives the map of a node's index to that of an equal one; with `by`, of one of which it is a multiple."""
        if not all(map(close, old.numbers, new.numbers)) or (by is None and not self.likeness.of(old, new, False)):
            return None
        if self.do(Set.is_equal, new.elements, old.elements):
            return self._at_index(old, new, by) or self._reordered(old, new, by)
        return self._reordered(old, new, by) or self._at_index(old, new, by)

    def _at_index(self, old: Node, new: Node, by: Multiple | None) -> Map | None:
        """Gives the identity if the nodes are equal where both are known. Then the old one is known wherever one of them is."""
        both = self.do(Set.intersect, old.elements, new.elements) if rank(old.elements) == rank(new.elements) else None
        inner = new.inner or (0,) * len(new.maps)
        if by is not None:
            by.begin()
        if both is None or self.do(Set.is_empty, both):
            return None
        for i, a, j, b, n in zip(old.parts, old.maps, new.parts, new.maps, inner):
            if not self.agree_parts(i, self._on(a, both, n), j, self._on(b, both, n), by):
                return None
        whole = self.do(Set.is_subset, new.elements, old.elements)
        if by is not None and not (whole and by.holds()):
            return None
        if not whole:
            if old.parts != new.parts:
                return None  # two constants would be one
            old.maps = tuple(a.union(b).coalesce() for a, b in zip(old.maps, new.maps))
            old.elements = old.elements.union(new.elements).coalesce()
        return self.do(identity, new.elements)

    def _on(self, relation: Map, elements: Set, inner: int) -> Map:
        """Gives a relation of a node on some elements, with free inner coordinates."""
        return self.do(Map.intersect_domain, relation, self.do(wide, elements, inner))

    def _reordered(self, old: Node, new: Node, by: Multiple | None) -> Map | None:
        """Gives the map to an equal node of another shape, or with its dimensions in another order."""
        ours, theirs = self.do(shape_of_box, new.elements), self.do(shape_of_box, old.elements)
        if ours is None or theirs is None or math.prod(ours) != math.prod(theirs):
            return None
        inner = new.inner or (0,) * len(new.maps)
        for at in reorderings(ours, theirs):
            back = self.do(Map.reverse, at)
            if by is not None:
                by.begin()
            if all(
                self.agree_parts(i, a, j, self.do(Map.apply_range, self.do(inner_too, back, n), b), by)
                for i, a, j, b, n in zip(old.parts, old.maps, new.parts, new.maps, inner)
            ) and (by is None or by.holds()):
                return at
        return None

    def _within(self, old: Node, new: Node) -> Map | None:
        """Gives the map of a sum's index to that of one of which it is a part: a shift along one dimension, by a multiple of its size."""
        ours, theirs = self.do(shape_of_box, new.elements), self.do(shape_of_box, old.elements)
        if ours is None or theirs is None or new.inner or old.inner:
            return None
        mine, its = ([d for d, n in enumerate(shape) if n > 1] for shape in (ours, theirs))
        differ = [k for k, (d, e) in enumerate(zip(mine, its)) if ours[d] != theirs[e]]
        if len(mine) != len(its) or len(differ) != 1:
            return None
        size, whole = ours[mine[differ[0]]], theirs[its[differ[0]]]
        i = names("i", len(ours))
        for begin in range(0, whole - size + 1, size)[:MOST_PARTS] if whole % size == 0 else ():
            image = ["0"] * len(theirs)
            for k, (d, e) in enumerate(zip(mine, its)):
                image[e] = f"{i[d]} + {begin}" if k == differ[0] else i[d]
            at = read_map(f"{{ [{', '.join(i)}] -> [{', '.join(image)}] : {within(i, ours)} }}")
            pairs = zip(old.parts, old.maps, new.parts, new.maps)
            if all(self.agree_parts(p, self.do(Map.apply_range, at, a), q, b) for p, a, q, b in pairs):
                return at
        return None

    def agree_parts(self, ids: tuple[int, ...], a: Map, others: tuple[int, ...], b: Map, by: Multiple | None = None) -> bool:
        """Tells whether two relations to elements of nodes are equal, constants by their elements; with `by`, constants to a factor."""
        if by is None and ids == others and self.do(Map.is_equal, a, b):
            return True
        places: tuple[int, ...] = ()
        at = 0
        for i in ids:
            if i in self.arrays:
                places = (*places, at)
            at += rank(self.nodes[i].elements)
        if not places:  # a multiple has a constant in each product
            return by is None and ids == others and self.do(Map.is_equal, a, b)
        (rest, mine), (other_rest, its) = self.do(told_apart, a, places), self.do(told_apart, b, places)
        if not self.do(Map.is_equal, rest, other_rest):
            return False
        constants = [(i, j) for i, j in zip(ids, others) if i in self.arrays]
        single = all(self.do(Map.is_single_valued, m) for m in (*mine, *its))
        if not single and (len(constants) > 1 or by is not None):
            return False  # a sum of products of constants: which element is multiplied by which is not told by each alone
        if by is not None:
            return len(constants) == 1 and by.meet(*constants[0], mine[0], its[0])
        return all(self.equal_constants(i, j, x, y) for (i, j), x, y in zip(constants, mine, its))

    def equal_constants(self, a: int, b: int, to_a: Map, to_b: Map) -> bool:
        """Tells whether constants are equal to rounding at the places that maps have for the same."""
        rounding, x, y = self.rounding_between(a, b), self.arrays[a], self.arrays[b]
        sizes = self.computed.get(a), self.computed.get(b)
        whole, near_all = ("equal", a, b, a in self.computed, b in self.computed), lambda: near(x, y, rounding, joined(*sizes))
        alike = (a == b or x.size == y.size) and self.do(Map.is_equal, to_a, to_b) and self.do(Map.is_single_valued, to_a)
        if alike and (a == b or self.once.of(whole, (), near_all)):
            return True
        if not (self.do(Map.is_single_valued, to_a) and self.do(Map.is_single_valued, to_b)):
            return self._equal_sets(x, y, to_a, to_b, rounding)
        if (found := self._listed_both(to_a, to_b)) is not None:
            at_x, at_y = found
            return not at_x.size or near(x[at_x], y[at_y], rounding, sizes_at(sizes, at_x, at_y))
        if max(x.size, y.size) <= MOST_LISTED:  # place by place: isl takes long to compose images and shuffled digits
            try:
                ours, theirs = self.do(pairs, to_a, MOST_LISTED), self.do(pairs, to_b, MOST_LISTED)
                both = [(p, q) for at in ours.keys() & theirs.keys() for (p,) in ours[at] for (q,) in theirs[at]]
                at, to = [p for p, _ in both], [q for _, q in both]
                return not both or near(x[at], y[to], rounding, sizes_at(sizes, at, to))
            except TooMany:
                pass
        relation = self.do(Map.apply_range, self.do(Map.reverse, to_a), to_b)
        if (a == b or x.size == y.size) and self.do(Map.is_subset, relation, SAME) and (a == b or self.once.of(whole, (), near_all)):
            return True
        return self._compared.of(whole, (relation,), lambda: equal(x, y, relation, rounding, sizes))

    def rounding_between(self, a: int, b: int) -> float:
        """Gives the rounding to which two constants may be equal: none of two of one type that programs have."""
        if not (a in self.computed or b in self.computed) and self.arrays[a].dtype == self.arrays[b].dtype:
            return 0.0
        return max(self.rounding[a], self.rounding[b])

    def _equal_sets(self, x: Array, y: Array, to_a: Map, to_b: Map, rounding: float) -> bool:
        """Tells whether maps to several places have as many for each index, with equal elements in some order: a sum has each."""
        try:
            ours, theirs = self.do(pairs, to_a, MOST_LISTED), self.do(pairs, to_b, MOST_LISTED)
        except TooMany:
            return False
        if any(len(found) != len(theirs.get(at, found)) for at, found in ours.items()):
            return False
        both = [at for at in ours if at in theirs]
        mine, its = ([np.sort(of[[p for (p,) in found[at]]]) for at in both] for of, found in ((x, ours), (y, theirs)))
        return not both or near(np.concatenate(mine), np.concatenate(its), rounding)

    def _listed_both(self, to_a: Map, to_b: Map) -> tuple[Array, Array] | None:
        """Lists the places that two maps have for the indices of both; None if these are no boxes, or too many places are told apart."""
        boxes = [self.do(bounds_of_box, self.do(Map.domain, to)) for to in (to_a, to_b)]
        ours, theirs = boxes
        if ours is None or theirs is None or not all(self.do(Map.is_single_valued, to) for to in (to_a, to_b)):
            return None
        both = tuple(range(max(p.start, q.start), min(p.stop, q.stop)) for p, q in zip(ours, theirs))
        if not all(both):
            return np.empty(0, np.int64), np.empty(0, np.int64)
        used = [d for d in range(len(both)) if self.do(depends_on, to_a, d) or self.do(depends_on, to_b, d)]
        if math.prod(len(both[d]) for d in used) > MOST_PLACES:
            return None
        return self.do(places, to_a, both, tuple(used)), self.do(places, to_b, both, tuple(used))

    # -- sums

    def sum_of(
        self, op: str, elements: Set, terms: Sequence[tuple[tuple[int, ...], Map]], params: tuple[object, ...]
    ) -> tuple[Leaf, Tree | None]:
        """Makes `op` over terms: (the nodes of the factors, the relation of an index to their concatenated indices).

        Returns the element of the node at each index, and by what it is multiplied. The caller has shown that each term of a
        sum occurs once. Raises Undecided for one that occurs in two pieces.
        """
        by: dict[tuple[int, ...], Map] = {}
        for ids, relation in terms:
            if self.do(Map.is_empty, relation):
                continue
            if ids in by and op not in IDEMPOTENT and not self.do(Map.is_disjoint, by[ids], relation):
                raise Undecided("an element occurs twice in a sum, in two pieces")
            by[ids] = self.do(Map.union, by[ids], relation) if ids in by else relation
        ids = sorted(by)
        if len(ids) == 1 and len(ids[0]) == 1:  # of one tensor: its index is that of its first element, whatever the shape
            first = self.do(_first, by[ids[0]])
            if self.do(Map.is_injective, first) and self.do(Set.is_equal, self.do(Map.domain, first), elements):
                node = Node(op, params, tuple(ids), self.do(Map.range, first), (self.do(_under, first, by[ids[0]]),))
                number, at = self.intern(node)
                return Leaf(number, self.do(Map.apply_range, first, at)), None
        number, at, multiple = self.multiple(Node(op, params, tuple(ids), elements, tuple(self.do(Map.coalesce, by[i]) for i in ids)))
        return Leaf(number, at), multiple

    def moved(self, tree: Tree, at: Map) -> Tree:
        """Gives a tree under another index: `at` maps the new index to the old one."""
        match tree:
            case Leaf(node, own):
                return Leaf(node, self.do(Map.apply_range, at, own))
            case Apply(function, args):
                return Apply(function, tuple(self.moved(a, at) for a in args))
            case Converted(to, bits, x):
                return Converted(to, bits, self.moved(x, at))
            case Number():
                return tree


def close(a: float, b: float) -> bool:
    """Tells whether literals are equal to rounding."""
    return math.isclose(a, b, rel_tol=1e-5) or (math.isnan(a) and math.isnan(b))


MOST_PARTS = 64  # of a sum that are tried
MOST_PLACES = 1 << 15  # of constants that are compared one by one
MOST_LISTED = 4096  # elements of a relation that is compared place by place
SAMPLES = 61  # bytes of a constant that are compared first
FLOATS = ("average", "row", "random", "packed_matmul")
IDEMPOTENT = ("max", "min", "and", "or")


def _first(relation: Map) -> Map:
    return relation.lexmin().coalesce()


def _under(first: Map, relation: Map) -> Map:
    """Gives a relation of an index as one of its first element's index."""
    return first.reverse().apply_range(relation).coalesce()
