"""Sizes of bounded dimensions: integer expressions of dimension names, in a normal form.

    (size("past") + size("cur")).evaluate({"past": 3, "cur": 1})       # 4
    parse("(h - 3) floordiv 2 + 1").upper({"h": (3, 224)})              # 111

A size is a sum of products of atoms with integer factors. An atom is a dimension, a `floordiv`, a `min` or a `max`; `ceildiv` is
written as a `floordiv`. Sizes are equal if their normal forms are. `batch-size` is a dimension, and `batch - size` a difference.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import TypeAlias

from populus.dialects.support.diagnostics import PopulusError

Bounds: TypeAlias = Mapping[str, tuple[int, int]]
"""The least and the greatest size of each dimension, both inclusive."""

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z_0-9.]*", re.ASCII)
_TOKEN = re.compile(r'\s*(?:([0-9]+)|"([^"]*)"|([A-Za-z_][A-Za-z_0-9.]*(?:-[A-Za-z_][A-Za-z_0-9.]*)*)|([-+*(),]))', re.ASCII)
WORDS = ("floordiv", "ceildiv", "min", "max")
DEEPEST = 64  # nested brackets of a text


@dataclass(frozen=True)
class Atom:
    """A dimension `name`; or the function `name` of `arguments`: floordiv (of two), min or max."""

    name: str
    arguments: tuple[Size, ...] = ()

    @cached_property
    def text(self) -> str:
        """The text form."""
        if not self.arguments:
            return self.name if _PLAIN.fullmatch(self.name) and self.name not in WORDS else f'"{self.name}"'
        if self.name == "floordiv":
            first, second = (str(a) if a.simple else f"({a})" for a in self.arguments)
            return f"{first} floordiv {second}"
        return f"{self.name}({', '.join(map(str, self.arguments))})"

    def names(self) -> set[str]:
        """Collects the dimensions."""
        return {n for a in self.arguments for n in a.names()} if self.arguments else {self.name}


Product: TypeAlias = tuple[Atom, ...]


def _rank(product: Product) -> tuple[int, tuple[str, ...]]:
    """Orders products: those of more factors first, then by the text of their factors."""
    return (-len(product), tuple(a.text for a in product))


@dataclass(frozen=True)
class Size:
    """An integer expression of dimensions: products of atoms, each with its factor; the empty product is 1."""

    terms: tuple[tuple[Product, int], ...] = ()

    @property
    def constant(self) -> int | None:
        """The number that the size is for all dimensions; None if it depends on one."""
        if not self.terms:
            return 0
        return self.terms[0][1] if len(self.terms) == 1 and not self.terms[0][0] else None

    @property
    def simple(self) -> bool:
        """Tells whether the text form is one word, which needs no brackets."""
        if (n := self.constant) is not None:
            return n >= 0
        ((product, factor), *others) = self.terms
        return not others and factor == 1 and len(product) == 1 and (not product[0].arguments or product[0].name != "floordiv")

    @property
    def dimension(self) -> str:
        """The dimension that the size is; empty for another size."""
        match self.terms:
            case (((Atom(name, ()),), 1),):
                return name
            case _:
                return ""

    def names(self) -> set[str]:
        """Collects the dimensions."""
        return {n for product, _ in self.terms for a in product for n in a.names()}

    def __str__(self) -> str:
        words: list[str] = []
        for product, factor in self.terms:
            atoms = [f"({a.text})" if a.name == "floordiv" and a.arguments and len(product) > 1 else a.text for a in product]
            if len(product) == 1 and product[0].name == "floordiv" and product[0].arguments and abs(factor) != 1:
                atoms = [f"({atoms[0]})"]
            if abs(factor) != 1 or not atoms:
                atoms = [str(abs(factor)), *atoms]
            sign = "- " if factor < 0 else "+ " if words else ""
            words.append((sign if words else sign.strip()) + " * ".join(atoms))
        return " ".join(words) or "0"

    def __add__(self, other: Size | int) -> Size:
        return _sum([*self.terms, *as_size(other).terms])

    __radd__ = __add__

    def __neg__(self) -> Size:
        return Size(tuple((product, -factor) for product, factor in self.terms))

    def __sub__(self, other: Size | int) -> Size:
        return self + -as_size(other)

    def __rsub__(self, other: int) -> Size:
        return -self + other

    def __mul__(self, other: Size | int) -> Size:
        return _sum([(tuple(sorted((*p, *q), key=lambda a: a.text)), m * n) for p, m in self.terms for q, n in as_size(other).terms])

    __rmul__ = __mul__

    def __floordiv__(self, other: Size | int) -> Size:
        divisor = as_size(other)
        if (exact := self.exactly(divisor)) is not None:
            return exact
        k = divisor.constant
        if k is None:
            return Size((((Atom("floordiv", (self, divisor)),), 1),))
        if k < 0:
            return (-self) // -divisor
        assert k > 0, "a size is divided by 0"
        whole = _sum([(p, n // k) for p, n in self.terms if n % k == 0 or not p])
        rest = _sum([(p, n % k if not p else n) for p, n in self.terms if n % k or (not p and n % k)])
        if (n := rest.constant) is not None:
            return whole + n // k
        inner, more = _atom_plus(rest)
        if inner is not None and inner.name == "floordiv" and inner.arguments and (j := inner.arguments[1].constant) is not None:
            return whole + (inner.arguments[0] + more * j) // (j * k)  # the floor of a floor is one floor
        return whole + Size((((Atom("floordiv", (rest, divisor)),), 1),))

    def __rfloordiv__(self, other: int) -> Size:
        return as_size(other) // self

    def ceildiv(self, other: Size | int) -> Size:
        """Divides and rounds up."""
        return (self + as_size(other) - 1) // other

    def exactly(self, divisor: Size) -> Size | None:
        """Gives the quotient if the division leaves no rest whatever the dimensions are; else None."""
        if not divisor.terms:
            return None
        rest, quotient = self, Size()
        (product, factor), *_ = divisor.terms
        for _ in range(len(self.terms) * (1 + len(divisor.terms)) + 1):
            if not rest.terms:
                return quotient
            (largest, n), *_ = rest.terms
            left = _removed(largest, product)
            if left is None or n % factor:
                return None
            step = Size(((left, n // factor),))
            quotient, rest = quotient + step, rest - step * divisor
        return None

    def min(self, other: Size | int) -> Size:
        """Gives the smaller of two sizes."""
        return _extreme("min", self, as_size(other))

    def max(self, other: Size | int) -> Size:
        """Gives the larger of two sizes."""
        return _extreme("max", self, as_size(other))

    def evaluate(self, sizes: Mapping[str, int]) -> int:
        """Computes the number for these sizes of dimensions. Raises PopulusError for a dimension without a size."""
        return sum(n * reduce(lambda x, a: x * _evaluated(a, sizes), product, 1) for product, n in self.terms)

    def interval(self, bounds: Bounds) -> tuple[int, int]:
        """Bounds the number from below and above. Raises PopulusError for a dimension without bounds."""
        low = high = 0
        for product, n in self.terms:
            one = (n, n)
            for a in product:
                one = _times(one, _interval(a, bounds))
            low, high = low + one[0], high + one[1]
        if isinstance(bounds, Limited) and not self.simple:  # a dimension has the bound that is stated for it
            for limited, most in bounds.limits.items():
                high = min(high, most + (self - limited).upper(dict(bounds)))
        return low, high

    def lower(self, bounds: Bounds) -> int:
        """Gives a lower bound."""
        return self.interval(bounds)[0]

    def upper(self, bounds: Bounds) -> int:
        """Gives an upper bound."""
        return self.interval(bounds)[1]

    def replaced(self, values: Mapping[str, Size]) -> Size:
        """Replaces dimensions by sizes."""
        total = Size()
        for product, n in self.terms:
            total = total + reduce(lambda x, a: x * _replaced(a, values), product, as_size(n))
        return total

    def decided(self, bounds: Bounds) -> Size:
        """Resolves each `min` and `max` that the bounds decide."""
        total = Size()
        for product, n in self.terms:
            total = total + reduce(lambda x, a: x * _decided(a, bounds), product, as_size(n))
        return total


class Limited(dict[str, tuple[int, int]]):
    """Bounds of dimensions, and the greatest values of sizes that several of them make, such as `past + cur`."""

    def __init__(self, bounds: Mapping[str, tuple[int, int]] = {}, limits: Mapping[Size, int] = {}):
        super().__init__(bounds)
        self.limits = dict(limits)


def size(name: str) -> Size:
    """Makes the size of a dimension."""
    return Size((((Atom(name),), 1),))


def as_size(value: Size | int) -> Size:
    """Makes a size of a number. Raises ValueError for one that is not whole."""
    if isinstance(value, Size):
        return value
    if int(value) != value:
        raise ValueError(f"{value} is no size")
    return Size((((), int(value)),)) if value else Size()


def _sum(terms: Iterable[tuple[Product, int]]) -> Size:
    """Adds terms, and puts the sum into normal form."""
    found: dict[Product, int] = {}
    for product, factor in terms:
        found[product] = found.get(product, 0) + factor
    return Size(tuple(sorted(((p, n) for p, n in found.items() if n), key=lambda t: _rank(t[0]))))


def _removed(product: Product, factors: Product) -> Product | None:
    """Removes factors from a product; None if it has not all of them."""
    left = list(product)
    for a in factors:
        if a not in left:
            return None
        left.remove(a)
    return tuple(left)


def _atom_plus(value: Size) -> tuple[Atom | None, int]:
    """Splits a size into one atom and a number; None if it is not such a sum."""
    atoms = [(p, n) for p, n in value.terms if p]
    if len(atoms) != 1 or atoms[0][1] != 1 or len(atoms[0][0]) != 1:
        return None, 0
    return atoms[0][0][0], sum(n for p, n in value.terms if not p)


def _extreme(name: str, a: Size, b: Size) -> Size:
    """Builds `min` or `max` of two sizes; resolves it if they differ by a number."""
    if (difference := (a - b).constant) is not None:
        return a if (difference <= 0) == (name == "min") else b
    parts: list[Size] = []
    for value in (a, b):
        inner, more = _atom_plus(value)
        parts += inner.arguments if inner is not None and inner.name == name and inner.arguments and more == 0 else (value,)
    arguments = tuple(sorted(set(parts), key=str))
    return arguments[0] if len(arguments) == 1 else Size((((Atom(name, arguments),), 1),))


def _evaluated(atom: Atom, sizes: Mapping[str, int]) -> int:
    """Computes the number of an atom. Raises PopulusError for a dimension without a size."""
    if not atom.arguments:
        if atom.name not in sizes:
            raise PopulusError(f"dimension '{atom.name}' has no size; sizes are given for {', '.join(sizes) or 'none'}")
        return int(sizes[atom.name])
    numbers = [a.evaluate(sizes) for a in atom.arguments]
    if atom.name == "floordiv":
        if not numbers[1]:
            raise PopulusError(f"{atom.text} divides by 0")
        return numbers[0] // numbers[1]
    return min(numbers) if atom.name == "min" else max(numbers)


def _times(a: tuple[int, int], b: tuple[int, int]) -> tuple[int, int]:
    """Multiplies two intervals."""
    products = [m * n for m in a for n in b]
    return min(products), max(products)


def _interval(atom: Atom, bounds: Bounds) -> tuple[int, int]:
    """Bounds an atom. Raises PopulusError for a dimension without bounds."""
    if not atom.arguments:
        if atom.name not in bounds:
            raise PopulusError(f"dimension '{atom.name}' has no bounds; {', '.join(bounds) or 'none'} have")
        return bounds[atom.name]
    intervals = [a.interval(bounds) for a in atom.arguments]
    if atom.name == "floordiv":
        (low, high), (least, most) = intervals
        if least <= 0:
            least, most = 1, max(most, 1)
        quotients = [n // k for n in (low, high) for k in (least, most)]
        return min(quotients), max(quotients)
    choose: Callable[[Iterable[int]], int] = min if atom.name == "min" else max
    return choose(low for low, _ in intervals), choose(high for _, high in intervals)


def _replaced(atom: Atom, values: Mapping[str, Size]) -> Size:
    """Replaces dimensions of an atom."""
    if not atom.arguments:
        return values.get(atom.name) or Size((((atom,), 1),))
    arguments = [a.replaced(values) for a in atom.arguments]
    if atom.name == "floordiv":
        return arguments[0] // arguments[1]
    return reduce(lambda x, y: _extreme(atom.name, x, y), arguments)


def _decided(atom: Atom, bounds: Bounds) -> Size:
    """Resolves an atom as `Size.decided` does."""
    if not atom.arguments:
        return Size((((atom,), 1),))
    arguments = [a.decided(bounds) for a in atom.arguments]
    if atom.name == "floordiv":
        return arguments[0] // arguments[1]
    kept = list(arguments)
    for a in arguments:
        for other in arguments:
            difference = other - a if atom.name == "min" else a - other
            if a in kept and other in kept and a != other and difference.upper(bounds) <= 0:
                kept.remove(a)
    return reduce(lambda x, y: _extreme(atom.name, x, y), kept)


class _Parser:
    """Reads the text form of one size."""

    def __init__(self, text: str):
        self.text = text
        self.tokens: list[tuple[str, str]] = []
        at = 0
        while text[at:].strip():
            found = _TOKEN.match(text, at)
            if found is None:
                raise self.wrong(text[at:].strip()[0])
            number, quoted, word, sign = found.groups()
            kind = "number" if number else "quoted" if quoted is not None else "word" if word else "sign"
            self.tokens.append((kind, number or quoted or word or sign or ""))
            at = found.end()

    def wrong(self, found: str) -> PopulusError:
        """Makes the error of an unexpected token."""
        return PopulusError(f"'{self.text}' is no size: '{found}' is not expected there; a sum of products of dimensions is")

    def next(self, *expected: str) -> bool:
        """Takes the next token if it is one of these signs or words."""
        if self.tokens and self.tokens[0][0] in ("sign", "word") and self.tokens[0][1] in expected:
            self.tokens.pop(0)
            return True
        return False

    def sum(self, depth: int = 0) -> Size:
        """Reads a sum."""
        if depth > DEEPEST:
            raise PopulusError(f"'{self.text[:40]}...' has more than {DEEPEST} nested brackets")
        total = -self.product(depth) if self.next("-") else self.product(depth)
        while self.tokens and self.tokens[0] in (("sign", "+"), ("sign", "-")):
            total = total + self.product(depth) if self.tokens.pop(0)[1] == "+" else total - self.product(depth)
        return total

    def product(self, depth: int) -> Size:
        """Reads products and divisions, from left to right."""
        value = self.factor(depth)
        while True:
            if self.next("*"):
                value = value * self.factor(depth)
            elif self.next("floordiv"):
                value = value // self.divisor(depth)
            elif self.next("ceildiv"):
                value = value.ceildiv(self.divisor(depth))
            else:
                return value

    def divisor(self, depth: int) -> Size:
        """Reads a factor that is not 0."""
        value = self.factor(depth)
        if value.constant == 0:
            raise PopulusError(f"'{self.text}' divides by 0")
        return value

    def factor(self, depth: int) -> Size:
        """Reads a number, a dimension, brackets, or a `min` or `max`."""
        if not self.tokens:
            raise self.wrong("the end")
        kind, text = self.tokens.pop(0)
        if kind == "number":
            return as_size(int(text))
        if kind == "quoted" or (kind == "word" and text not in WORDS):
            return size(text)
        if text == "(":
            value = self.sum(depth + 1)
            if not self.next(")"):
                raise self.wrong(self.tokens[0][1] if self.tokens else "the end")
            return value
        if text in ("min", "max") and self.next("("):
            values = [self.sum(depth + 1)]
            while self.next(","):
                values.append(self.sum(depth + 1))
            if not self.next(")"):
                raise self.wrong(self.tokens[0][1] if self.tokens else "the end")
            return reduce(lambda a, b: _extreme(text, a, b), values)
        raise self.wrong(text)


def parse(text: str) -> Size:
    """Reads the text form of a size. Raises PopulusError for another text."""
    parser = _Parser(text)
    value = parser.sum()
    if parser.tokens:
        raise parser.wrong(parser.tokens[0][1])
    return value
