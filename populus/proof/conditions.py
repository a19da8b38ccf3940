"""Conditions and indices of integers: one form for all that hold for the same numbers.

A condition of few integers, linear in pieces, is the set of numbers for which it holds. An element that an index names is a table of
cases over the integers that the index is made of.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import numpy as np

from populus.proof.polynomials import Polynomials
from populus.proof.report import Undecided

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array: TypeAlias = NDArray[Any]

MOST_CASES = 20_000  # values of integers that are tried


class Conditions(Polynomials):
    """Formulas with conditions, and elements that an index names."""

    def __init__(self) -> None:
        super().__init__()
        self._tables: dict[tuple[int, ...], dict[int, dict[tuple[int, ...], int]]] = {}  # by integers: elements that an index of them names

    def difference(self, x: int, y: int) -> int:
        """Gives x - y."""
        return self.sum([x, self.product(y, self.number(-1.0 if self.floats(x, y) else -1))])

    def less(self, x: int, y: int) -> int:
        """Tells whether x < y."""
        if not (self.finite(x) and self.finite(y)):
            return self.key("call", "lt", (x, y), type="b")
        d = self.difference(x, y)
        if (value := self.value(d)) is not None:
            return self.number(value < 0)
        p = self.poly(d)
        by = abs(p[min(m for m in p if m)]) if self.floats(d) else math.gcd(*(int(c) for m, c in p.items() if m))
        p = {m: c / by if self.floats(d) else int(c) // int(by) for m, c in p.items()}  # of whole numbers the constant is rounded down
        return self.decided(self.key("call", "negative", (self.formed(p, self.floats(d)),), type="b"))

    def equal(self, x: int, y: int) -> int:
        """Tells whether x = y."""
        if self.types[x] == "b":
            for a, b in ((x, y), (y, x)):
                if (value := self.value(a)) is not None:
                    return b if value else self.negated(b)
            return self.number(True) if x == y else self.key("call", "equal", tuple(sorted((x, y))), type="b")
        for a, b in ((x, y), (y, x)):
            if self.keys[a][:2] == ("call", "select") and self.value(b) is not None:
                p, q, c = cast("tuple[int, int, int]", self.keys[a][2])
                return self.select(self.equal(p, b), self.equal(q, b), c)
        if not (self.finite(x) and self.finite(y)):
            return self.key("call", "equal", tuple(sorted((x, y))), type="b")
        d = self.difference(x, y)
        if (value := self.value(d)) is not None:
            return self.number(value == 0)
        p = self.poly(d)
        lead = p[min(m for m in p if m)]
        if not self.floats(d):
            whole = math.gcd(*(int(c) for m, c in p.items() if m))
            if int(p.get((), 0)) % whole:
                return self.number(False)
            lead = math.copysign(whole, lead)
        p = {m: c / lead if self.floats(d) else int(c) // int(lead) for m, c in p.items()}
        return self.decided(self.key("call", "zero", (self.formed(p, self.floats(d)),), type="b"))

    def negated(self, x: int) -> int:
        """Gives not x."""
        if (value := self.value(x)) is not None:
            return self.number(not value)
        key = self.keys[x]
        if key[0] == "during":
            return self.key("during", key[1], not key[2], key[3], type="b")
        return cast("tuple[int]", key[2])[0] if key[:2] == ("call", "not") else self.key("call", "not", (x,), type="b")

    def both(self, args: Iterable[int]) -> int:
        """Gives the conjunction; the conditions of one integer are one."""
        own = set[int]()
        work = list(args)
        while work:
            x = work.pop()
            if self.keys[x][:2] == ("call", "and"):
                work += cast("tuple[int, ...]", self.keys[x][2])
            elif (value := self.value(x)) is None:
                own.add(x)
            elif not value:
                return self.number(False)
        if any(self.negated(x) in own for x in own):
            return self.number(False)
        if len(own) < 2:
            return own.pop() if own else self.number(True)
        return self.decided(self.key("call", "and", tuple(sorted(own)), type="b"))

    def decided(self, x: int) -> int:
        """Gives a condition of few integers by the numbers for which it holds; as it is, if these are too many or unlike a box.

        It is a condition of linear functions, so beyond all sums of its numbers nothing changes.
        """
        names = sorted(self.names(x))
        reach = self.reach(x)
        if not names or reach is None or any(self.types[v] != "i" for v in names):
            return x
        reach = 2 * reach + 2
        if (2 * reach + 1) ** len(names) > MOST_CASES:
            return x
        numbers = np.arange(-reach, reach + 1)
        columns = np.meshgrid(*[numbers] * len(names), indexing="ij", sparse=True)
        holds = np.broadcast_to(Numbers(self, dict(zip(names, columns))).of(x) != 0, [len(numbers)] * len(names))
        if len(names) == 1:
            changes = tuple(int(v) for v in numbers[1:][holds[1:] != holds[:-1]])
            if not changes:
                return self.number(bool(holds[0]))
            return self.key("during", (names[0],), bool(holds[0]), changes, type="b")
        points = np.argwhere(holds) - reach
        if np.abs(points).max(initial=0) > reach // 2:
            return x
        if not len(points):
            return self.number(False)
        return self.key("among", tuple(names), tuple(map(tuple, points.tolist())), type="b")

    def reach(self, x: int) -> int | None:
        """Bounds the places where a function that is linear in pieces changes; None for another."""
        key = self.keys[x]
        if key[0] == "number":
            return abs(int(cast("int", key[1]))) if self.types[x] != "f" else None
        if key[0] == "sum":
            if any(len(m) > 1 or (m and m[0][1] != 1) for m in self.poly(x)):
                return None
            bounds = [(int(abs(c)), self.reach(m[0][0]) if m else 0) for m, c in self.poly(x).items()]
            return None if any(b is None for _, b in bounds) else sum(c * (1 + cast("int", b)) for c, b in bounds)
        if key[0] == "during":
            return max(abs(v) for v in cast("tuple[int, ...]", key[3])) + 1
        if key[0] == "among":
            return max((abs(v) for p in cast("tuple[tuple[int, ...], ...]", key[2]) for v in p), default=0) + 1
        if key[0] == "call" and key[1] in ("select", "negative", "zero", "not", "and", "max", "min", "abs"):
            bounds = [self.reach(v) for v in cast("tuple[int, ...]", key[2])]
            return None if None in bounds else sum(cast("list[int]", bounds)) + 1
        return 0 if key[0] != "call" else None

    def select(self, x: int, y: int, condition: int) -> int:
        """Gives x where a condition holds, else y."""
        if (value := self.value(condition)) is not None:
            return x if value else y
        if x == y:
            return x
        if self.keys[condition][:2] == ("call", "not"):
            return self.select(y, x, cast("tuple[int]", self.keys[condition][2])[0])
        if self.types[x] == "b":
            yes, no = self.both([condition, x]), self.both([self.negated(condition), y])
            return self.negated(self.both([self.negated(yes), self.negated(no)]))
        by = 1.0
        if self.floats(x, y):
            of = x if self.value(x) is None else y
            by = self.monic(of)[1]
            x, y = (self.scaled(v, 1 / by) for v in (x, y)) if self.finite(x) and self.finite(y) else (x, y)
            by = by if self.finite(x) and self.finite(y) else 1.0
        found = self.key("call", "select", (x, y, condition), type="f" if self.floats(x, y) else "i")
        return found if by == 1.0 else self.scaled(found, by)

    # -- an element that an index names

    def named(self, row: Sequence[int], index: int) -> int:
        """Gives the element of a row that an index names: by the values of the integers that the index is made of.

        An index that is in range for more integers than one before is that one, if it names the same where that one is in range.
        """
        value = self.value(index)
        if value is not None:
            if not 0 <= value < len(row):
                raise Undecided("an index out of range")
            return row[int(value)]
        if len(set(row)) == 1:
            return row[0]
        names = tuple(sorted(self.names(index)))
        if names and (table := self._cases_of(row, index, names)) is not None:
            found = self.key("cases", names, tuple(table.items()), type=self.types[row[0]])
            if table:
                self._tables.setdefault(names, {})[found] = table
            return found
        for found, table in self._tables.get(names, {}).items():
            at = self._numbers_of(index, names, list(zip(*table)))
            places: list[int] = np.broadcast_to(at, [len(table)]).tolist()
            if all(0 <= k < len(row) and row[k] == element for k, element in zip(places, table.values())):
                return found
        return self.key("named", tuple(row), index, type=self.types[row[0]])

    def _cases_of(self, row: Sequence[int], index: int, names: tuple[int, ...]) -> dict[tuple[int, ...], int] | None:
        """Lists the integers for which an index is in range, with the elements; None if they are too many, or may be without end."""
        if (reach := self.crossing(index, 0, len(row))) is None:
            return None
        last = reach + 2
        ranges = [range(0 if self.keys[v][0] == "top_k" else -last, last + 1) for v in names]
        if math.prod(map(len, ranges)) > MOST_CASES:
            return None
        at = self._numbers_of(index, names, np.meshgrid(*map(np.asarray, ranges), indexing="ij", sparse=True))
        at = np.broadcast_to(at, [len(r) for r in ranges])
        places: list[tuple[int, ...]] = list(map(tuple, np.argwhere((at >= 0) & (at < len(row))).tolist()))
        table = {tuple(r[k] for r, k in zip(ranges, p)): row[int(at[p])] for p in places}
        return None if any(abs(v) == last for point in table for v in point) else table

    def crossing(self, x: int, low: int, high: int) -> int | None:
        """Bounds the integers beyond which it does not change whether a function of them is from `low` to `high`; None for another."""
        key = self.keys[x]
        if key[0] == "number":
            return 0
        if key[0] == "sum":
            p = dict(self.poly(x))
            by = int(p.pop((), 0))
            [(mono, times), *others] = p.items()
            (of, power), *more = mono
            if others or more or power != 1:
                return None
            ends = sorted((end - by) // int(times) for end in (low, high))
            return self.crossing(of, ends[0], ends[1] + 1)
        if key[0] == "call" and key[1] in ("select", "max", "min"):
            args = cast("tuple[int, ...]", key[2])
            bounds = [self.crossing(v, low, high) for v in (args[:2] if key[1] == "select" else args)]
            bounds += [self.reach(args[2])] if key[1] == "select" else []
            return None if None in bounds else max(cast("list[int]", bounds))
        return None if key[0] == "call" else max(abs(low), abs(high))

    def _numbers_of(self, x: int, names: tuple[int, ...], columns: Sequence[Any]) -> Array:
        return Numbers(self, dict(zip(names, map(np.asarray, columns)))).of(x)

    def names(self, x: int) -> set[int]:
        """Lists the integers that a formula is made of, which are no formulas of others."""
        key = self.keys[x]
        if key[0] == "number":
            return set()
        if key[0] == "sum":
            return {n for m in self.poly(x) for v, _ in m for n in self.names(v)}
        if key[0] in ("during", "among"):
            return set(cast("tuple[int, ...]", key[1]))
        if key[0] == "call" and key[1] in DECIDED:
            return {n for v in cast("tuple[int, ...]", key[2]) for n in self.names(v)}
        return {x}


class Numbers:
    """The numbers of formulas of integers, for many numbers of those that they are made of."""

    def __init__(self, forms: Conditions, given: dict[int, Array]):
        self.forms, self.known = forms, given

    def of(self, x: int) -> Array:
        """Computes a formula: -1 where it divides by 0."""
        if x not in self.known:
            self.known[x] = self._computed(x)
        return self.known[x]

    def _computed(self, x: int) -> Array:
        forms, key = self.forms, self.forms.keys[x]
        if key[0] == "number":
            return np.asarray(key[1], np.int64)
        if key[0] == "sum":
            total = np.zeros((), np.int64)
            for mono, by in forms.poly(x).items():
                term = np.asarray(int(by), np.int64)
                for v, power in mono:
                    term = term * self.of(v) ** power
                total = total + term
            return total
        args = [self.of(v) for v in cast("tuple[int, ...]", key[1] if key[0] != "call" else key[2])]
        if key[0] == "during":
            passed = np.searchsorted(np.asarray(key[3]), args[0], side="right")
            return np.asarray((passed % 2 == 0) == key[2], np.int64)
        if key[0] == "among":
            points = cast("tuple[tuple[int, ...], ...]", key[2])
            found = [np.logical_and.reduce(np.broadcast_arrays(*(a == v for a, v in zip(args, p)))) for p in points]
            return np.asarray(np.logical_or.reduce(found), np.int64)
        with np.errstate(all="ignore"):
            return np.asarray(DECIDED[str(key[1])](*args)).astype(np.int64)


def _rem(a: Array, b: Array) -> Array:
    return np.where(b == 0, -1, np.fmod(a, np.where(b == 0, 1, b)))


def _quotient(a: Array, b: Array) -> Array:
    whole = np.where(b == 0, 1, b)
    return np.where(b == 0, -1, (a - np.fmod(a, whole)) // whole)


def _negative(x: Array) -> Array:
    return x < 0


def _zero(x: Array) -> Array:
    return x == 0


def _either(x: Array, y: Array, c: Array) -> Array:
    return np.where(c != 0, x, y)


DECIDED: Mapping[str, Callable[..., Array]] = {
    "select": _either,
    "negative": _negative,
    "zero": _zero,
    "not": _zero,
    "and": lambda *x: np.logical_and.reduce(np.broadcast_arrays(*x)),
    "max": lambda *x: np.maximum.reduce(np.broadcast_arrays(*x)),
    "min": lambda *x: np.minimum.reduce(np.broadcast_arrays(*x)),
    "abs": np.abs,
    "rem": _rem,
    "divide": _quotient,
}
"""Functions of integers and conditions that an index is made of."""
