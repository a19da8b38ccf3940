"""Formulas of single elements in one form: polynomials over what is no sum or product, with constants that are equal to rounding.

| law | form |
|---|---|
| sums, products, `x - y`, `-x`, `x^2` | a polynomial |
| `x / y`, `1 / (c x)` | powers of polynomials whose first coefficient is 1 |
| `exp(x + n y)`, `log(exp(x) y)`, `sqrt(x)^2` | `exp(x) exp(y)^n`, `x + log(y)`, `x` |
| `1 / (x y + x z)` | `1 / x 1 / (y + z)` for powers x of exponentials |
| `x > y`, `x >= y`, `or` | `y < x`, `not x < y`, `not and not` |
| `x < y`, `x = y` | `x - y < 0`, `x - y = 0`, divided by the first coefficient |
| `f(select(x, y, c))` where x or y is a number | `select(f(x), f(y), c)` |

They hold for numbers: a comparison with NaN, and an integer that overflows, are no concern here.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, cast

import numpy as np
from xdsl.dialects.builtin import f32, f64, i1, i32, i64

from populus.dialects import expr
from populus.proof.conditions import Conditions
from populus.proof.laws import number_as
from populus.proof.polynomials import Value
from populus.proof.trees import float_name
from populus.runtime.expr import evaluate

if TYPE_CHECKING:
    from xdsl.ir import Attribute

MOST_EXPONENT = 700.0  # of e, whose powers beyond are 0 or infinite


class Forms(Conditions):
    """Formulas by number: equal ones have one number."""

    def applied(self, function: str, args: Sequence[int]) -> int:
        """Applies a function."""
        values = [self.value(x) for x in args]
        if all(map(_has_array_form, values)) and function not in ("add", "sub", "mul", "and", "or", "select"):
            return self._computed(function, cast("list[Value]", values))
        if len(args) == 1 and self.keys[args[0]][:2] == ("call", "select") and function not in ("neg", "square"):
            x, y, c = cast("tuple[int, int, int]", self.keys[args[0]][2])
            if self.value(x) is not None or self.value(y) is not None:
                return self.select(self.applied(function, [x]), self.applied(function, [y]), c)
        return self.ruled(function, tuple(args))

    def ruled(self, function: str, args: tuple[int, ...]) -> int:
        """Applies a function of which some operand is no number."""
        match function, args:
            case "add", (x, y):
                return self.sum([x, y])
            case "sub", (x, y):
                return self.difference(x, y)
            case "neg", (x,):
                return self.product(x, self.number(-1.0 if self.floats(x) else -1))
            case "mul", (x, y):
                return self.product(x, y)
            case "square", (x,):
                return self.product(x, x)
            case "inv", (x,):
                return self.inverse(x)
            case "sqrt", (x,):
                return self.root(x)
            case "rsqrt", (x,):
                return self.inverse(self.root(x))
            case "pow", (x, y):
                return self.power(x, y)
            case "exp", (x,):
                return self.exponential(x)
            case "expm1", (x,):
                return self.sum([self.exponential(x), self.number(-1.0)])
            case "log", (x,):
                return self.logarithm(x)
            case "log1p", (x,):
                return self.logarithm(self.sum([x, self.number(1.0)]))
            case "max", (x, y):
                return self.extreme("max", [x, y])
            case "min", (x, y):
                return self.extreme("min", [x, y])
            case "abs", (x,):
                return self.magnitude(x)
            case "lt", (x, y):
                return self.less(x, y)
            case "gt", (x, y):
                return self.less(y, x)
            case "gte", (x, y):
                return self.negated(self.less(x, y))
            case "lte", (x, y):
                return self.negated(self.less(y, x))
            case "equal", (x, y):
                return self.equal(x, y)
            case "not", (x,):
                return self.negated(x)
            case "and", (x, y):
                return self.both([x, y])
            case "or", (x, y):
                return self.negated(self.both([self.negated(x), self.negated(y)]))
            case "xor", (x, y):
                return self.negated(self.equal(x, y))
            case "select", (x, y, c):
                return self.select(x, y, c)
            case "divide", (x, y) if self.floats(x, y):
                return self.product(x, self.inverse(y))
            case _:
                kind = "b" if expr.FUNCTIONS[function].result == "bool" else self.types[args[0]]
                return self.key("call", function, args, type=kind)

    def _computed(self, function: str, values: list[Value]) -> int:
        args = [expr.Arg(i + 1) for i in range(len(values))]
        floats = any(isinstance(v, float) for v in values)
        arrays = [np.asarray(v, np.bool_ if isinstance(v, bool) else np.float64 if floats else np.int64) for v in values]
        with np.errstate(all="ignore"):
            found = evaluate(expr.call(function, *args), arrays)[()].item()
        return self.number(found)

    def power(self, x: int, y: int) -> int:
        """Raises to a power; a multiple of 1/2 gives products and roots."""
        power = self.value(y)
        if not self.floats(x) or power is None or not float(2 * power).is_integer() or not 0 < abs(power) <= 4:
            return self.key("call", "pow", (x, y), type=self.types[x])
        found = self.root(x) if power % 1 else self.number(1.0)
        for _ in range(int(abs(power))):
            found = self.product(found, x)
        return found if power > 0 else self.inverse(found)

    def root(self, x: int) -> int:
        """Gives the square root."""
        common, rest = self.monic(x)[0], self.monic(x)[1]
        if rest < 0:
            common, rest = self.scaled(common, -1.0), -rest
        if self.value(common) == 1:
            return self.number(math.sqrt(rest))
        return self.scaled(self.key("call", "sqrt", (common,)), math.sqrt(rest))

    def exponential(self, x: int) -> int:
        """Gives exp of a sum as a product."""
        found = self.number(1.0)
        for mono, by in self.poly(x).items():
            if not mono:
                found = self.scaled(found, _of_number(by))
                continue
            power = int(by) if float(by).is_integer() and abs(by) <= 4 else (1 if by > 0 else -1)
            of = self.formed({mono: by / power}, True)
            found = self.product(found, self.formed({((self.key("call", "exp", (of,)), power),): 1.0}, True))
        return found

    def logarithm(self, x: int) -> int:
        """Gives log, of exponentials as a sum."""
        p = self.poly(x)
        if len(p) == 1:
            [(mono, by)] = p.items()
            common = tuple((v, n) for v, n in mono if self.keys[v][:2] == ("call", "exp"))
            rest = self.formed({tuple(f for f in mono if f not in common): by}, True)
        else:
            common, rest = self.exponentials(x)
        parts = [self.scaled(cast("tuple[int]", self.keys[v][2])[0], float(power)) for v, power in common]
        value = self.value(rest)
        log = self.key("call", "log", (rest,)) if value is None else self._computed("log", [value])
        return self.sum([*parts, log])

    def extreme(self, function: str, args: Iterable[int]) -> int:
        """Gives a maximum or minimum of any number of formulas."""
        args = list(args)
        if self.types[args[0]] == "b":
            return self.both(args) if function == "min" else self.negated(self.both(map(self.negated, args)))
        own, value = set[int](), None
        work = list(args)
        while work:
            x = work.pop()
            if self.keys[x][:2] == ("call", function):
                work += cast("tuple[int, ...]", self.keys[x][2])
            elif (number := self.value(x)) is None:
                own.add(x)
            else:
                value = number if value is None else (max if function == "max" else min)(value, number)
        if value is not None and (not own or value != (-math.inf if function == "max" else math.inf)):
            own.add(self.number(value))
        if len(own) == 1:
            return own.pop()
        return self.key("call", function, tuple(sorted(own)), type=self.types[args[0]])

    def magnitude(self, x: int) -> int:
        """Gives the absolute value."""
        if self.types[x] != "f":
            return self.key("call", "abs", (x,), type=self.types[x])
        x, by = self.monic(x)
        return self.scaled(self.key("call", "abs", (x,)), abs(by))

    def keeps(self, to: Attribute, x: int) -> bool:
        """Tells whether an integer is the same in 32 or 64 bits: to the latter all are, but what wraps around in fewer bits before."""
        return (to == i64 and not self.adds(x)) or (to in (i32, i64) and self.fits(x))

    def adds(self, x: int) -> bool:
        """Tells whether there is a sum or product of integers in a formula."""
        key = self.keys[x]
        return key[0] == "sum" or (key[0] == "call" and any(map(self.adds, cast("tuple[int, ...]", key[2]))))

    def fits(self, x: int) -> bool:
        """Tells whether an integer is known to be one of 32 bits: a number, or one of some."""
        if (value := self.value(x)) is not None:
            return type(value) is int and abs(value) < 1 << 31
        key = self.keys[x]
        if key[:2] not in (("call", "select"), ("call", "max"), ("call", "min")):
            return False
        choices = cast("tuple[int, ...]", key[2])
        return all(map(self.fits, choices[:2] if key[1] == "select" else choices))

    def converted(self, to: Attribute, bits: bool, x: int) -> int:
        """Converts to an element type. Floats are numbers, and so are integers that `keeps` tells."""
        kind = "b" if to == i1 else "f" if float_name(str(to)) else "i"
        if not bits:
            if (value := self.value(x)) is not None and (number := number_as(value, to)) is not None:
                return self.number(number)
            if (to in (f32, f64) and self.types[x] == "f") or (self.types[x] == "i" and self.keeps(to, x)):
                return x
            if kind == self.types[x] == "b":
                return x
            if self.types[x] == "b":
                one, none = (1.0, 0.0) if kind == "f" else (1, 0)
                return self.select(self.number(one), self.number(none), x)
            if self.keys[x][:2] == ("call", "select"):
                a, b, c = cast("tuple[int, int, int]", self.keys[x][2])
                if self.value(a) is not None or self.value(b) is not None:
                    return self.select(self.converted(to, bits, a), self.converted(to, bits, b), c)
        return self.key("as", str(to), bits, x, type=kind)


def _has_array_form(value: Value | None) -> bool:
    """Tells whether a literal is a number that an array of 64 bits holds: sums of integers may be larger here."""
    return value is not None and (not isinstance(value, int) or -(1 << 63) <= value < 1 << 63)


def _of_number(x: float) -> float:
    """Gives exp of a number. Raises OverflowError where it is too small or too large for its sum to be told from another."""
    if abs(x) > MOST_EXPONENT:
        raise OverflowError(f"exp({x})")
    return math.exp(x)
