"""Forms of codelets: how the axes, accesses, sizes, element types and parameters of a family belong together.

A kernel relies on its codelet's form and on nothing else: it never touches memory outside of fields that have the form.
So every engine refuses the same programs, with the same line, before it runs anything. The check looks at axes only,
so it is O(1) for a family of any number of vertices. Indices that are data are checked when a kernel reads them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from xdsl.dialects.builtin import DenseArrayBase, FloatAttr, IntegerAttr, StringAttr, f16, f32
from xdsl.dialects.builtin import TensorType as XTensorType
from xdsl.ir import Attribute
from xdsl.utils.exceptions import VerifyException

from populus.dialects import expr
from populus.dialects.poplar.partition import ALL, Access, Domain, along
from populus.dialects.support.element_types import is_integer
from populus.dialects.support.packed_weights import check_packed


@dataclass(frozen=True)
class Parts:
    """The parts of a family: its iteration space, and each field's access, shape and element type.

    `output`: the field that is written. `sums`: tells whether the codelet sums over an axis.
    """

    domain: Domain
    access: Mapping[str, tuple[Access, ...]]
    shape: Mapping[str, tuple[int, ...]]
    element: Mapping[str, Attribute]
    params: Mapping[str, Attribute]
    output: str
    sums: Callable[[str], bool]

    def numbered(self, stem: str) -> list[str]:
        """Lists the axes that are `stem` and a number, in order: o0, o1, ... Raises VerifyException if one is left out."""
        found = {a for a, _ in self.domain.axes if re.fullmatch(stem + r"\d+", a)}
        expected = [f"{stem}{d}" for d in range(len(found))]
        if found != set(expected):
            raise VerifyException(f"axes {', '.join(sorted(found))} are not {', '.join(expected)}")
        return expected

    def has(self, axis: str) -> bool:
        """Tells whether the iteration space has an axis."""
        return any(a == axis for a, _ in self.domain.axes)

    def of(self, field: str) -> tuple[Access, ...]:
        """Gives the accesses of a field, without leading `at` dimensions, which number the parts of axes that are summed over."""
        access = self.access[field]
        if field != self.output:
            return access
        parts = next((i for i, a in enumerate(access) if not (a.part and self.sums(a.terms[0][0]))), len(access))
        named = [a.terms[0][0] for a in access[:parts]]
        if len(set(named)) < len(named):
            raise self.wrong(field, "one axis numbers two dimensions of parts")
        return access[parts:]

    def alone(self, field: str, access: Sequence[Access]) -> list[str]:
        """Lists the axes of accesses that are one axis each. Raises VerifyException for any other access, and for an axis twice."""
        axes = [a.terms[0][0] for a in access if a == along(a.terms[0][0] if a.terms else "")]
        if len(axes) < len(access):
            other = next(a for a in access if not a.terms or a != along(a.terms[0][0]))
            raise self.wrong(field, f"[{other}] is not one axis alone")
        if len(set(axes)) < len(axes):
            raise self.wrong(field, "an axis is named twice")
        return axes

    def expect(self, field: str, expected: Sequence[str | Access]) -> None:
        """Raises VerifyException if a field's accesses are not these; a name is the access to that axis alone."""
        wanted = [along(e) if isinstance(e, str) else e for e in expected]
        if list(self.of(field)) != wanted:
            raise self.wrong(field, f"the form has [{', '.join(map(str, wanted))}] there")

    def windows(self, field: str, dimensions: Sequence[Access], outs: Sequence[str], taps: Sequence[str]) -> None:
        """Raises VerifyException if dimension i is not `o_i stride + k_i dilation` from some offset."""
        if not len(dimensions) == len(outs) == len(taps):
            raise self.wrong(field, f"{len(dimensions)} dimensions of windows for axes {', '.join((*outs, *taps))}")
        for access, o, k in zip(dimensions, outs, taps):
            if access.part or access.whole or sorted(a for a, _ in access.terms) != sorted((o, k)):
                raise self.wrong(field, f"[{access}] is not {o} times a stride plus {k} times a dilation")

    def inside(self, field: str, dimensions: Sequence[int]) -> None:
        """Raises VerifyException if these dimensions of a field overhang its view."""
        for d in dimensions:
            low, high = self.access[field][d].reach(self.domain)
            if (low < 0 or high > self.shape[field][d]) and low < high:
                raise self.wrong(
                    field, f"[{self.access[field][d]}] reaches {low}..{high} of 0..{self.shape[field][d]}; only windows may overhang"
                )

    def covers(self, field: str) -> None:
        """Raises VerifyException if the axes of a field do not reach every element of its view."""
        for access, n in zip(self.access[field], self.shape[field], strict=True):
            if not access.whole and access.reach(self.domain) != (0, n):
                raise self.wrong(field, f"[{access}] reaches {self.domain[access.terms[0][0]].n if access.terms else 1} of {n} elements")

    def integers(self, *fields: str) -> None:
        """Raises VerifyException if a field does not hold integers."""
        for field in fields:
            if not is_integer(self.element[field]):
                raise self.wrong(field, f"{self.element[field]} elements are no indices")

    def wrong(self, field: str, why: str) -> VerifyException:
        """Makes the error of a field."""
        return VerifyException(f"{field}[{', '.join(map(str, self.access[field]))}]: {why}")


Form: TypeAlias = "Callable[[Parts], None]"
"""Raises VerifyException for a family that has not the form."""


def conv(p: Parts) -> None:
    """Requires `x[b, g?, ic, o.. k..] w[g?, oc, ic, k..] y[b, g?, oc, o..]`"""
    _half_sums(p, "x")
    groups = ["g"] if p.has("g") else []
    outs, taps = p.numbered("o"), p.numbered("k")
    p.expect("y", ["b", *groups, "oc", *outs])
    p.expect("w", [*groups, "oc", "ic", *taps])
    lead = ["b", *groups, "ic"]
    _windowed(p, lead, outs, taps)


def winograd(p: Parts) -> None:
    """Requires `x[b, ic, o0 + k0.., o1 + k1..] w[oc, ic, k0, k1] y[b, oc, o0, o1]`, k0 and k1 of 3; o0 and o1 are cut at multiples of
    `tile`, which is 2 or 4."""
    outs, taps = p.numbered("o"), p.numbered("k")
    p.expect("y", ["b", "oc", *outs])
    p.expect("w", ["oc", "ic", *taps])
    _windowed(p, ["b", "ic"], outs, taps)
    tile = p.params["tile"]
    if not isinstance(tile, IntegerAttr) or tile.value.data not in (2, 4):
        raise VerifyException(f"tile = {tile}; expected 2 or 4")
    if [p.domain[k].n for k in taps] != [3, 3]:
        raise VerifyException(f"a window of {' by '.join(str(p.domain[k].n) for k in taps)}; expected 3 by 3")
    for access, o, k in zip(p.access["x"][2:], outs, taps):
        if sorted(access.terms) != [(k, 1), (o, 1)]:
            raise p.wrong("x", f"[{access}] has a stride or a dilation")
    for o in outs:
        if any(bound % tile.value.data for bound in p.domain[o].bounds()[:-1]):
            raise VerifyException(f"{o} is cut at {p.domain[o].bounds()}, which are no multiples of tile = {tile.value.data}")


def winograd_input(p: Parts) -> None:
    """Requires `x[b, ic, o0 2 + k0.., o1 2 + k1..] v[k0, k1, ic, b, o0, o1]`, k0 and k1 of 4: tiles of 4 by 4 that overlap by 2"""
    outs, taps = p.numbered("o"), p.numbered("k")
    p.expect("v", [*taps, "ic", "b", *outs])
    _windowed(p, ["b", "ic"], outs, taps)
    for access, o, k in zip(p.access["x"][2:], outs, taps):
        if sorted(access.terms) != [(k, 1), (o, 2)]:
            raise p.wrong("x", f"[{access}] is not {o} * 2 + {k} from some offset")
    _sides(p, taps, 4)


def winograd_output(p: Parts) -> None:
    """Requires `m[k0, k1, oc, b, o0, o1] y[b, oc, o0 2 + r0, o1 2 + r1]`, k0 and k1 of 4, r0 and r1 of 2"""
    outs, taps, rest = p.numbered("o"), p.numbered("k"), p.numbered("r")
    p.expect("m", [*taps, "oc", "b", *outs])
    p.inside("m", range(len(p.access["m"])))
    p.expect("y", ["b", "oc", *(along((o, 2), r) for o, r in zip(outs, rest))])
    _sides(p, taps, 4)
    _sides(p, rest, 2)


def _sides(p: Parts, axes: Sequence[str], side: int) -> None:
    """Requires two axes of `side` elements."""
    if [p.domain[a].n for a in axes] != [side, side]:
        raise VerifyException(f"tiles of {' by '.join(str(p.domain[a].n) for a in axes)}; expected {side} by {side}")


def pool(p: Parts) -> None:
    """Requires `x[n, c, o.. k..] y[n, c, o..]`; `after`: the padding after each dimension, which `count_padding` counts."""
    outs, taps = p.numbered("o"), p.numbered("k")
    p.expect("y", ["n", "c", *outs])
    _windowed(p, ["n", "c"], outs, taps)
    if len(after := _ints(p.params["after"])) != len(outs) or min(after, default=0) < 0:
        raise VerifyException(f"after = {after} is not a padding for each of {len(outs)} dimensions")
    for access, n, behind, o, k in zip(p.access["x"][2:], p.shape["x"][2:], after, outs, taps):
        factors = dict(access.terms)
        room = n + behind + factors[o] - access.offset
        if (taken := (p.domain[k].n - 1) * factors[k] + 1) > room:  # a size of its own, which no variable bounds
            raise VerifyException(f"windows of {taken} along {k} do not fit x, its padding and a stride, {room} elements")


def _windowed(p: Parts, lead: Sequence[str], outs: Sequence[str], taps: Sequence[str]) -> None:
    x = p.access["x"]
    if p.alone("x", x[: len(lead)]) != list(lead):
        raise p.wrong("x", f"the first dimensions are [{', '.join(lead)}]")
    p.inside("x", range(len(lead)))
    p.windows("x", x[len(lead) :], outs, taps)


def _half_sums(p: Parts, field: str) -> None:
    """Requires that `partials`, if given, is for halves."""
    element = p.element[field]
    if "partials" in p.params and element != f16:
        raise VerifyException(f"partials = f16 is for sums of f16, but {field} is {element}")


def matmul(p: Parts) -> None:
    """Requires `a[g, m, k] b[g or 0, k, n] c[g, m, n]`"""
    _half_sums(p, "a")
    p.expect("c", ["g", "m", "n"])
    p.expect("a", ["g", "m", "k"])
    shared = p.access["b"][:1] == (Access(),)
    p.expect("b", [Access() if shared else "g", "k", "n"])


def packed_matmul(p: Parts) -> None:
    """Requires `x[m, k] codes[n, *, *] scale[n, *] zero[n, *] y[m, n]`; codes of `bits` bits, 2, 4 or 8, for k rows in blocks."""
    for field, expected in (("y", ["m", "n"]), ("x", ["m", "k"]), ("codes", ["n", ALL, ALL]), ("scale", ["n", ALL]), ("zero", ["n", ALL])):
        p.expect(field, expected)
    bits = p.params["bits"]
    if not isinstance(bits, IntegerAttr):
        raise VerifyException(f"bits = {bits} is no whole number")
    codes, scale, zero = (XTensorType(p.element[f], p.shape[f]) for f in ("codes", "scale", "zero"))
    if p.element["x"] != f32 or p.element["y"] != f32:
        raise VerifyException(f"x is {p.element['x']}, y {p.element['y']}; f32 is expected")
    check_packed(p.domain["k"].n, codes, scale, zero, bits.value.data)


def map_(p: Parts) -> None:
    """Requires `y[A..] x*[last of A..]`, where a dimension of an input may also be one element."""
    axes = p.alone(p.output, p.of(p.output))
    inputs = [f for f in p.access if f != "y"]
    for field in inputs:
        access = p.access[field]
        own = axes[len(axes) - len(access) :]
        if len(access) > len(axes) or any(a.terms or a.whole for a, axis in zip(access, own) if a != along(axis)):
            raise p.wrong(field, f"each dimension is that of [{', '.join(axes)}] or one element")
    elements = [p.element[f] for f in inputs]
    given = expr.infer(_expr(p), elements, literals=True)
    if given != p.element[p.output]:
        raise VerifyException(f"{_expr(p)} makes {given} for {p.output}, which holds {p.element[p.output]}")


def reduce(p: Parts) -> None:
    """Requires `x[A..] y[B..]`: y has all axes of x but those that are summed over, in any order; a dimension of y may be one element."""
    axes = p.alone("x", p.access["x"])
    own = p.alone("y", [a for a in p.of("y") if a.terms or a.whole])
    kept = [a for a in axes if not p.sums(a)]
    if sorted(own) != sorted(kept):
        raise p.wrong("y", f"the axes that stay of x are [{', '.join(kept)}]")


def rows(p: Parts) -> None:
    """Requires `x[A..] y[A..]` with an axis r, the row."""
    p.expect("y", p.alone("x", p.access["x"]))
    if not p.has("r"):
        raise VerifyException("there is no axis r, the row")


def top_k(p: Parts) -> None:
    """Requires `x[A.., *] y[A.., k]`: k of each row's positions, the row has as many elements or more."""
    if not p.access["x"] or not p.access["x"][-1].whole:
        raise p.wrong("x", "the last dimension, the row, is whole (*)")
    p.expect("y", [*p.alone("x", p.access["x"][:-1]), "k"])
    p.integers("y")
    if p.domain["k"].n > (row := p.shape["x"][-1]):
        raise VerifyException(f"k = {p.domain['k'].n} of a row of {row} elements")


def multi_slice(p: Parts) -> None:
    """Requires `table[A.., *, B..] indices[I..] y[A.., I.., B..]`"""
    table = p.access["table"]
    if table.count(ALL) != 1:
        raise p.wrong("table", "one dimension, which the indices select from, is whole (*)")
    at = table.index(ALL)
    before, after = p.alone("table", table[:at]), p.alone("table", table[at + 1 :])
    p.expect("y", [*before, *p.alone("indices", p.access["indices"]), *after])
    p.integers("indices")


def dynamic_update(p: Parts) -> None:
    """Requires `table[*, A..] index[] row[A..]`: the index is one element."""
    if p.access["table"][:1] != (ALL,):
        raise p.wrong("table", "the first dimension, which the index selects from, is whole (*)")
    p.expect("row", p.alone("table", p.access["table"][1:]))
    if any(a.terms or a.whole for a in p.access["index"]):
        raise p.wrong("index", "the index is one element")
    p.integers("index")


def multi_update(p: Parts) -> None:
    """Requires `table[d0, A..] indices[*] updates[*, A..] y[d0, A..]`, with as many indices as updates, and all rows of the table."""
    axes = p.alone("table", p.access["table"])
    if axes[:1] != ["d0"]:
        raise p.wrong("table", "the first axis, which counts rows, is d0")
    p.expect("y", axes)
    p.expect("indices", [ALL])
    p.expect("updates", [ALL, *axes[1:]])
    p.integers("indices")
    p.covers("table")
    if p.shape["indices"] != p.shape["updates"][:1]:
        raise VerifyException(f"{p.shape['indices'][0]} indices for {p.shape['updates'][0]} updates")


def fill(p: Parts) -> None:
    """Requires `y[A..]`"""
    p.alone("y", p.access["y"])


def iota(p: Parts) -> None:
    """Requires `y[d0]`"""
    p.expect("y", ["d0"])


def random(p: Parts) -> None:
    """Requires `seed[*] y[d0, d1, ...]`, all of y: an element's number is its position in y. The seed has two words."""
    p.expect("seed", [ALL])
    p.expect("y", p.numbered("d"))
    p.covers("y")
    p.integers("seed")
    if p.shape["seed"] != (2,):
        raise p.wrong("seed", f"a seed has 2 words, not {p.shape['seed'][0]}")


def of_axes(axes: Mapping[str, Sequence[str]]) -> Form:
    """Makes the form of a codelet that states the axes of its vectors."""

    def form(p: Parts) -> None:
        for field, named in axes.items():
            p.expect(field, named)

    return form


# -- parameters

Kind: TypeAlias = "str | tuple[str, ...]"
"""The kind of a parameter: `ints`, `number`, `flag`, `expr`, or the texts that it may be."""

_CLASSES: Mapping[str, tuple[type[Attribute], ...]] = {
    "ints": (DenseArrayBase,),
    "number": (IntegerAttr, FloatAttr),
    "flag": (IntegerAttr,),
    "expr": (expr.ExprAttr,),
}


def params_problem(params: Mapping[str, Attribute], kinds: Mapping[str, Kind]) -> str | None:
    """Returns the reason why these are not the parameters of a codelet; None if they are."""
    optional = {name[:-1] for name in kinds if name.endswith("?")}
    if {*params, *optional} != {name.removesuffix("?") for name in kinds}:
        return f"its parameters are {', '.join(kinds) or 'none'}, not {', '.join(params) or 'none'}"
    for name, value in params.items():
        kind = kinds[f"{name}?" if name in optional else name]
        if isinstance(kind, tuple):
            if not isinstance(value, StringAttr) or value.data not in kind:
                return f"{name} = {value} is not one of {', '.join(kind)}"
        elif not isinstance(value, _CLASSES[kind]):
            return f"{name} = {value} is no {kind.rstrip('s')}"
    return None


def _ints(value: Attribute) -> list[int]:
    assert isinstance(value, DenseArrayBase), value
    return [int(v) for v in value.get_values()]


def _expr(p: Parts) -> expr.Expr:
    value = p.params["expr"]
    assert isinstance(value, expr.ExprAttr), value
    return value.data
