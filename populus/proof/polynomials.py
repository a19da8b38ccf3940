"""Polynomials over what is no sum or product, with constants that are equal to rounding: formulas of single elements."""

from __future__ import annotations

import itertools
import math
from bisect import bisect_left, insort
from collections.abc import Iterable, Mapping
from typing import TypeAlias, cast

from populus.dialects.poplar.points import TooMany

MOST_FORMS = 400_000  # of one proof
MOST_PRODUCTS = 256  # terms of a product of sums that is multiplied out
ROUNDING = 1e-5  # by which constants that are one may differ
CANCELLED = 1e-6  # of a coefficient: what may be left where it was taken away

Mono: TypeAlias = "tuple[tuple[int, int], ...]"
Poly: TypeAlias = "dict[Mono, float]"
Value: TypeAlias = "float | int | bool"


class Polynomials:
    """Formulas by number: equal ones have one number. `types`: f, i or b."""

    def __init__(self) -> None:
        self.keys: list[tuple[object, ...]] = []
        self.types: list[str] = []
        self._numbers: dict[tuple[object, ...], int] = {}
        self._floats: list[float] = []

    def key(self, kind: str, *of: object, type: str = "f") -> int:
        """Gives the number of a formula."""
        key = (type, kind, *of)
        found = self._numbers.get(key)
        if found is None:
            if len(self.keys) > MOST_FORMS:
                raise TooMany(f"more than {MOST_FORMS} formulas")
            found = self._numbers[key] = len(self.keys)
            self.keys.append((kind, *of))
            self.types.append(type)
        return found

    # -- numbers and polynomials

    def number(self, value: Value) -> int:
        """Makes a literal. A float is one that was met before if it is that to rounding."""
        if isinstance(value, bool):
            return self.key("number", value, type="b")
        if isinstance(value, int):
            return self.key("number", value, type="i")
        return self.key("number", self.rounded(value) if math.isfinite(value) else repr(value))

    def rounded(self, value: float) -> float:
        """Gives the float that was met first of those that are one to rounding."""
        if value == 0 or value.is_integer():
            return value + 0.0
        whole = round(value)
        if whole and math.isclose(value, whole, rel_tol=ROUNDING / 10):
            return float(whole)
        at = bisect_left(self._floats, value)
        near = [v for v in self._floats[max(at - 1, 0) : at + 1] if math.isclose(v, value, rel_tol=ROUNDING)]
        if near:
            return min(near, key=lambda v: abs(v - value))
        insort(self._floats, value)
        return value

    def value(self, x: int) -> Value | None:
        """Gives the literal that a formula is; None if it is none."""
        key = self.keys[x]
        if key[0] != "number":
            return None
        return float(key[1]) if isinstance(key[1], str) else cast("Value", key[1])

    def finite(self, x: int) -> bool:
        """Tells whether a formula is no infinity and no NaN."""
        return self.keys[x][0] != "number" or not isinstance(self.keys[x][1], str)

    def poly(self, x: int) -> Poly:
        """Gives a formula as a polynomial."""
        key = self.keys[x]
        if key[0] == "sum":
            return dict(cast("tuple[tuple[Mono, float], ...]", key[1]))
        if key[0] == "number":
            value = cast("float", key[1])
            return {(): value} if value else {}
        return {((x, 1),): 1.0 if self.types[x] == "f" else 1}

    def formed(self, p: Poly, floats: bool) -> int:
        """Makes the formula of a polynomial."""
        if not p or (len(p) == 1 and () in p):
            value = p.get((), 0)
            return self.number(float(value) if floats else int(value))
        if len(p) == 1:
            [(mono, by)] = p.items()
            if by == 1 and len(mono) == 1 and mono[0][1] == 1:
                return mono[0][0]
        terms = tuple(sorted((m, self.rounded(float(c)) if floats else c) for m, c in p.items()))
        return self.key("sum", terms, type="f" if floats else "i")

    def floats(self, *of: int) -> bool:
        """Tells whether one of some formulas is of floats."""
        return any(self.types[x] == "f" for x in of)

    def sum(self, terms: Iterable[int]) -> int:
        """Adds formulas up."""
        total: Poly = {}
        floats, odd = False, list[int]()
        for x in terms:
            floats = floats or self.types[x] == "f"
            if not self.finite(x):
                odd.append(x)
                continue
            add_to(total, self.poly(x))
        found = self.formed(total, floats)
        for x in sorted(set(odd)):
            found = self.key("call", "add", (x, found)) if self.value(found) is None else self.number(self._float(x) + self._float(found))
        return found

    def _float(self, x: int) -> float:
        return float(cast("float", self.value(x)))

    def scaled(self, x: int, by: float) -> int:
        """Multiplies by a number."""
        return self.product(x, self.number(by))

    def product(self, x: int, y: int) -> int:
        """Multiplies. A product of long sums is one of factors."""
        floats = self.floats(x, y)
        if not (self.finite(x) and self.finite(y)):
            values = self.value(x), self.value(y)
            if None not in values:
                return self.number(float(cast("float", values[0])) * float(cast("float", values[1])))
            return self.key("call", "mul", tuple(sorted((x, y))))
        a, b = self.poly(x), self.poly(y)
        if len(a) * len(b) > MOST_PRODUCTS:
            (x, a_by), (y, b_by) = self.monic(x), self.monic(y)
            a, b = ({((v, 1),): by} if len(p) > 1 else p for v, by, p in ((x, a_by, a), (y, b_by, b)))
        total: Poly = {}
        for (m, c), (n, d) in itertools.product(a.items(), b.items()):
            add_to(total, {k: v * c * d for k, v in self._multiplied(m, n).items()})
        return self.formed(total, floats)

    def _multiplied(self, m: Mono, n: Mono) -> Poly:
        """Multiplies monomials: a root's square is what it is a root of."""
        if not m or not n:
            return {m or n: 1}
        powers = dict(m)
        for x, power in n:
            powers[x] = powers.get(x, 0) + power
        squares = [(x, p) for x, p in powers.items() if abs(p) >= 2 and self.keys[x][:2] == ("call", "sqrt")]
        for x, power in squares:
            powers[x] = power - 2 * int(power / 2)
        found: Poly = {tuple(sorted((x, p) for x, p in powers.items() if p)): 1}
        for x, power in squares:
            [of] = cast("tuple[int]", self.keys[x][2])
            factor = of if power > 0 else self.inverse(of)
            for _ in range(abs(power) // 2):
                once = self.formed(found, True)
                found = self.poly(self.product(once, factor))
        return found

    def monic(self, x: int) -> tuple[int, float]:
        """Splits off the first coefficient of a polynomial: its sign of one of integers."""
        p = self.poly(x)
        lead = next((p[m] for m in sorted(p) if m), p.get((), 0))
        if not lead or self.value(x) is not None:
            return x, 1.0
        if self.types[x] == "i":
            return x, 1
        return self.formed({m: c / lead for m, c in p.items()}, True), lead

    def inverse(self, x: int) -> int:
        """Gives 1 / x of a float."""
        if (value := self.value(x)) is not None:
            return self.number(math.inf if value == 0 else 1 / float(value))
        p = self.poly(x)
        if len(p) == 1:
            [(mono, by)] = p.items()
            return self.formed({tuple((v, -power) for v, power in mono): 1 / by}, True)
        common, x = self.exponentials(x)
        x, by = self.monic(x)
        return self.formed({tuple(sorted([(x, -1), *((v, -power) for v, power in common)])): 1 / by}, True)

    def exponentials(self, x: int) -> tuple[Mono, int]:
        """Splits off the powers of exponentials that all terms of a polynomial have."""
        p = self.poly(x)
        own = {v for m in p for v, _ in m if self.keys[v][:2] == ("call", "exp")}
        least = {v: min(dict(m).get(v, 0) for m in p) for v in own}
        common = tuple(sorted((v, power) for v, power in least.items() if power))
        if not common:
            return (), x
        back = tuple((v, -power) for v, power in common)
        total: Poly = {}
        for m, c in p.items():
            add_to(total, {k: v * c for k, v in self._multiplied(m, back).items()})
        return common, self.formed(total, True)


def add_to(total: Poly, more: Mapping[Mono, float]) -> None:
    for m, c in more.items():
        old = total.get(m, 0)
        new = old + c
        if new == 0 or (type(new) is float and abs(new) <= CANCELLED * max(abs(old), abs(c))):
            total.pop(m, None)
        else:
            total[m] = new
