"""The meaning of each codelet, on all elements of a family at once. A library call is a family over whole axes (`meaning`)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from xdsl.dialects.builtin import DenseArrayBase, FloatAttr, IntegerAttr, StringAttr
from xdsl.ir import Attribute

from populus.dialects import expr
from populus.dialects.poplar import affine
from populus.dialects.poplar.affine import Map, Set, box, identity, names, read_map, read_set, reshape_map
from populus.dialects.poplar.partition import ALL, Access, Domain, Split
from populus.dialects.support.element_types import is_float
from populus.proof.pieces import once
from populus.proof.report import Undecided
from populus.proof.rows import softmax, whitened
from populus.proof.sets import inner_too, rank
from populus.proof.terms import Terms
from populus.proof.trees import Number, Piece, Pieces


@dataclass(frozen=True)
class Operand:
    """A field of a family: what is in its view, the view's shape and element type, and the accesses."""

    pieces: Pieces
    shape: tuple[int, ...]
    element: Attribute
    access: tuple[Access, ...]


@dataclass(frozen=True)
class Family:
    """A family on symbolic contents. `fields`: by name, inputs and the output, which is the last."""

    terms: Terms
    codelet: str
    domain: Domain
    params: Mapping[str, Attribute]
    fields: Mapping[str, Operand]

    @property
    def output(self) -> Operand:
        """The field that is written."""
        return list(self.fields.values())[-1]

    def points(self, name: str) -> Map:
        """Maps the points of the iteration space to the elements of a field; those outside of its view are left out."""
        f = self.fields[name]
        return affine.points_map(self.domain, f.access, f.shape, True)

    @property
    def to_output(self) -> Map:
        """Maps the points of the iteration space to the output's elements."""
        return affine.points_map(self.domain, self.output.access, self.output.shape, True)

    def axis(self, name: str) -> int:
        """Gives the place of an axis among the coordinates of a point."""
        return [a for a, _ in self.domain.axes].index(name)

    def text(self, name: str) -> str:
        """Gives a parameter that is a text."""
        value = self.params[name]
        assert isinstance(value, StringAttr), value
        return value.data

    def flag(self, name: str) -> bool:
        """Gives a parameter that is true or false; absent is false."""
        value = self.params.get(name)
        return isinstance(value, IntegerAttr) and value.value.data != 0

    def written(self) -> Pieces:
        """Gives the output's elements that the family writes. Raises Undecided for a codelet that has no meaning here."""
        written = {axis for access in self.output.access for axis, _ in access.terms}
        if 0 not in self.output.shape and any(s.n == 0 for axis, s in self.domain.axes if axis not in written):
            raise Undecided(f"@{self.codelet} over nothing")
        try:
            meaning = MEANINGS[self.codelet]
        except KeyError:
            raise Undecided(f"@{self.codelet}") from None
        try:
            return meaning(self, self.terms.do(Map.reverse, self.to_output))
        except Undecided as why:
            raise Undecided(f"@{self.codelet}: {why}") from None

    def ordered(self, name: str, points: Map) -> tuple[Pieces, Map, int]:
        """Gives a field for `Terms.opaque`: the dimensions that are `*` are its inner coordinates."""
        f = self.fields[name]
        inner = [d for d, a in enumerate(f.access) if a.whole]
        e, i = names("e", len(f.shape)), names("l", len(inner))
        same = " and ".join(f"e{d} = {v}" for v, d in zip(i, inner)) or "true"
        at = points.apply_range(self.points(name))  # index -> elements
        told = read_map(f"{{ [{', '.join(e)}] -> [{', '.join(i)}] : {same} }}")
        return f.pieces, at.flat_domain_product(told.reverse()) if inner else at, len(inner)


def _map(f: Family, points: Map) -> Pieces:
    e = f.params["expr"]
    assert isinstance(e, expr.ExprAttr), e
    inputs = sorted(((name, x) for name, x in f.fields.items() if name.startswith("x")), key=lambda field: int(field[0][1:]))
    operands = [f.terms.seen(x.pieces, f.terms.do(Map.apply_range, points, f.points(name))) for name, x in inputs]
    floats = all(is_float(x.element) for _, x in inputs)
    return f.terms.elementwise(e.data, f.terms.do(Map.range, f.to_output), operands, floats)


def _product(a: str, b: str) -> Callable[[Family, Map], Pieces]:
    def meaning(f: Family, points: Map) -> Pieces:
        return f.terms.product(f.terms.do(Map.range, f.to_output), points, f.fields[a].pieces, f.fields[b].pieces, f.points(a), f.points(b))

    return meaning


def _reduce(f: Family, points: Map) -> Pieces:
    return f.terms.reduced(f.text("op"), f.terms.do(Map.range, f.to_output), points, f.fields["x"].pieces, f.points("x"))


def _pool(f: Family, points: Map) -> Pieces:
    elements, x, kind = f.terms.do(Map.range, f.to_output), f.fields["x"], f.text("kind")
    if kind in ("sum", "square_sum"):
        return f.terms.reduced("add" if kind == "sum" else "square_add", elements, points, x.pieces, f.points("x"))
    if kind == "max":
        return f.terms.reduced("max", elements, points, x.pieces, f.points("x"))
    taps = math.prod(s.n for a, s in f.domain.axes if a.startswith("k"))
    if not f.flag("count_padding"):
        return averaged(f.terms, elements, points, x.pieces, f.points("x"), taps)
    after = f.params["after"]
    assert isinstance(after, DenseArrayBase), after
    room = [n + int(p) for n, p in zip(x.shape[2:], after.get_values())]  # what hangs over the padding is never counted
    limits = " and ".join(f"e{d} < {n}" for d, n in enumerate(room, 2)) or "true"
    inside = read_set(f"{{ [{', '.join(names('e', len(x.shape)))}] : {limits} }}")
    counted = points.apply_range(affine.points_map(f.domain, x.access, x.shape).intersect_range(inside))
    return averaged(f.terms, elements, points, x.pieces, f.points("x"), taps, counted)


def averaged(t: Terms, elements: Set, points: Map, x: Pieces, to_x: Map, taps: int, counted: Map | None = None) -> Pieces:
    """Makes means of windows of `taps` points. The divisor is the number of points inside, or of `counted`: index -> what counts."""
    if points.intersect_range(to_x.domain()).is_equal(points):  # every window is whole
        return t.scaled(t.reduced("add", elements, points, x, to_x), Number(1 / taps))
    terms: list[tuple[tuple[int, ...], Map]] = []
    for to, node in t.sealed(x):
        relation = to_x.apply_range(to)
        if not once(points, relation):
            raise Undecided("an element occurs twice in a window")
        terms.append(((node,), points.apply_range(relation)))
    if counted is None:
        return t.total("average", elements, terms, ("of those inside",))
    return t.total("average", elements, [*terms, ((), counted)], ("with padding",))


def _fill(f: Family, points: Map) -> Pieces:
    value = f.params["value"]
    assert isinstance(value, IntegerAttr | FloatAttr), value
    number = value.value.data
    return [Piece(points.domain(), Number(float(number) if is_float(f.output.element) else int(number)))]


def _iota(f: Family, points: Map) -> Pieces:
    return f.terms.opaque("iota", (str(f.params["start"]), str(f.params["step"]), str(f.output.element)), points.domain(), [])


def _random(f: Family, points: Map) -> Pieces:
    params = tuple(str(f.params[name]) for name in ("distribution", "a", "b", "stream"))
    flat = reshape_map(f.output.shape, (math.prod(f.output.shape),))  # an element's number is its place in row-major order
    field = f.ordered("seed", points)
    found = f.terms.opaque("random", (*params, str(f.output.element)), flat.range(), [(field[0], _under(field, flat.reverse()), field[2])])
    return f.terms.seen(found, flat.intersect_domain(points.domain()))


def _under(field: tuple[Pieces, Map, int], back: Map) -> Map:
    return inner_too(back, field[2]).apply_range(field[1])


def _rows(f: Family, points: Map) -> Pieces:
    """Gives softmax and whiten along the axis `r`."""
    t, x, full = f.terms, f.fields["x"], f.to_output.range()
    at = points.apply_range(f.points("x"))
    pieces = t.seen(x.pieces, at)
    a = names("a", rank(full))
    row = [d for d, access in enumerate(f.output.access) if access.terms and access.terms[0][0] == "r"]
    to_row = read_map(f"{{ [{', '.join(a)}] -> [{', '.join(v for d, v in enumerate(a) if d not in row)}] }}").intersect_domain(full)
    if f.codelet == "softmax":
        return softmax(t, pieces, full, to_row, f.flag("log"))
    epsilon = f.params["epsilon"]
    assert isinstance(epsilon, FloatAttr), epsilon
    return whitened(t, pieces, full, to_row, math.prod(f.output.shape[d] for d in row), epsilon.value.data)


POSITION: Mapping[str, int] = {"top_k": -1, "multi_update": 0}
"""The coordinate of a result on which it depends by itself: the place in the order, the number of the row."""


def _of_ordered(*fields: str) -> Callable[[Family, Map], Pieces]:
    """Makes the meaning of a codelet that depends on the order of what it reads."""

    def meaning(f: Family, points: Map) -> Pieces:
        params = tuple(str(f.params[k]) for k in sorted(f.params))
        elements = points.domain()
        own = [f.ordered(name, points) for name in fields]
        if f.codelet in POSITION:
            axis = names("o", rank(elements))
            to = read_map(f"{{ [{', '.join(axis)}] -> [{axis[POSITION[f.codelet]]}] }}")
            own.append((_place(f.terms, to.intersect_domain(elements)), identity(elements), 0))
        return f.terms.opaque(f.codelet, params, elements, own)

    return meaning


def _place(t: Terms, coordinate: Map) -> Pieces:
    """Makes a coordinate of an index as a term."""
    return t.seen(t.input("", (1 << 31,), False, "place"), coordinate)


def _updated(f: Family, points: Map) -> Pieces:
    """Gives a table with one row changed: `select(row, table, place == index)`. Several rows depend on their order."""
    t, one = f.terms, f.codelet == "dynamic_update"
    names_of = ("table", "index", "row") if one else ("table", "indices", "updates")
    if not one and f.fields["indices"].shape != (1,):
        return _of_ordered(*names_of)(f, points)
    elements = points.domain()
    first = read_map(f"{{ [{', '.join(o := names('o', rank(elements)))}] -> [{o[0]}] }}").intersect_domain(elements)
    table = f.fields["table"].pieces if one else t.seen(f.fields["table"].pieces, points.apply_range(f.points("table")))
    index, row = (t.seen(f.fields[name].pieces, points.apply_range(f.points(name))) for name in names_of[1:])
    combine = "set" if one else f.text("op")
    new = expr.Arg(2) if combine == "set" else expr.call(combine, expr.Arg(1), expr.Arg(2))
    e = expr.select(new, expr.Arg(1), expr.call("equal", expr.Arg(3), expr.Arg(4)))
    return t.elementwise(e, elements, [table, row, _place(t, first), index], False)


MEANINGS: Mapping[str, Callable[[Family, Map], Pieces]] = {
    "map": _map,
    "conv": _product("x", "w"),
    "matmul": _product("a", "b"),
    "winograd": _product("x", "w"),  # by contract the sum of products that a convolution is
    "reduce": _reduce,
    "pool": _pool,
    "fill": _fill,
    "iota": _iota,
    "random": _random,
    "softmax": _rows,
    "whiten": _rows,
    "multi_slice": _of_ordered("table", "indices"),
    "multi_update": _updated,
    "dynamic_update": _updated,
    "packed_matmul": _of_ordered("x", "codes", "scale", "zero"),
    "top_k": _of_ordered("x"),
}


def row_of(t: Terms, table: Pieces, shape: tuple[int, ...], element: Attribute, index: Pieces) -> Pieces:
    """Gives the row of a table that an index, which is data, names."""
    axes = tuple((f"d{d}", Split(n)) for d, n in enumerate(shape[1:]))
    plain = tuple(Access(((a, 1),)) for a, _ in axes)
    fields = {
        "table": Operand(table, shape, element, (ALL, *plain)),
        "indices": Operand(index, (), element, ()),
        "y": Operand([], shape[1:], element, plain),
    }
    return Family(t, "multi_slice", Domain(axes, ()), {}, fields).written()


ORDERED_OUTSIDE = ("send", "receive")
"""Functions whose results depend on more than their inputs: which call it is."""


def outside(
    t: Terms,
    function: str,
    params: Mapping[str, Attribute],
    inputs: Sequence[tuple[Pieces, tuple[int, ...]]],
    results: Sequence[tuple[tuple[int, ...], Attribute]],
) -> list[Pieces]:
    """Gives the results of what tiles do not compute. Each element depends on all elements of the inputs; nothing else is known of it."""
    if function in ORDERED_OUTSIDE:
        raise Undecided(f"'{function}'")
    said = tuple((name, str(value)) for name, value in sorted(params.items()))
    found: list[Pieces] = []
    for number, (shape, element) in enumerate(results):
        flat = reshape_map(shape, (count := math.prod(shape),))  # an element is told by its place in row-major order
        fields = [(_place(t, identity(box((count,)))), identity(box((count,))), 0)]
        for pieces, own in inputs:
            i = names("l", len(own))
            everywhere = read_map(f"{{ [{', '.join(['e', *i])}] -> [{', '.join(i)}] }}").intersect_domain(box((count, *own)))
            fields.append((pieces, everywhere, len(own)))
        kind = ("outside", (function, said, number, str(shape), str(element)))
        found.append(t.seen(t.opaque(*kind, box((count,)), fields), flat) if count else [])
    return found
