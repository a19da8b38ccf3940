"""The derivative of each function of the table, proved with sympy: a stated slope is that of the function on each branch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from populus.dialects import expr
from populus.dialects.expr.terms import FUNCTIONS

sympy: Any = pytest.importorskip("sympy")

MEANINGS: Mapping[str, Callable[..., Any]] = {
    **{name: getattr(sympy, name) for name in (
        "acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "cos", "cosh", "erf", "exp", "log", "sin", "sinh",
        "sqrt", "tan", "tanh",
    )},
    "expm1": lambda x: sympy.exp(x) - 1, "log1p": lambda x: sympy.log(1 + x), "sigmoid": lambda x: 1 / (1 + sympy.exp(-x)),
    "rsqrt": lambda x: 1 / sympy.sqrt(x), "inv": lambda x: 1 / x, "square": lambda x: x * x, "neg": lambda x: -x,
    "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b, "divide": lambda a, b: a / b, "pow": lambda a, b: a**b,
}  # fmt: skip
COMPARED: Mapping[str, Callable[[Any, Any], Any]] = {
    "gt": lambda a, b: a > b, "gte": lambda a, b: a >= b, "lt": lambda a, b: a < b, "lte": lambda a, b: a <= b,
    "equal": lambda a, b: a == b, "and": lambda a, b: a and b,
}  # fmt: skip
POINTS = [sympy.Rational(*v) for v in ((-7, 2), (-3, 5), (2, 7), (5, 3), (9, 2))]
DERIVED = sorted(name for name, f in FUNCTIONS.items() if f.derivative is not None and name != "select" and any(
    slope is not None for slope in f.derivative(expr.Arg(9), *map(expr.Arg, range(1, f.arity + 1)))))  # fmt: skip


class Branch:
    """Translates expressions at a point: the branch that it takes, as a formula without conditions."""

    def __init__(self, symbols: dict[int, Any], point: dict[Any, Any]):
        self.symbols, self.point = symbols, point

    def number(self, e: Any) -> Any:
        """Computes a formula at the point."""
        return sympy.N(sympy.sympify(e).subs(self.point), 30)

    def of(self, e: expr.Expr) -> Any:
        """Translates an expression."""
        match e:
            case expr.Arg(i):
                return self.symbols[i]
            case expr.Const(value):
                return value if isinstance(value, bool) else sympy.nsimplify(EXACT.get(value, value))
            case expr.Call("select", (a, b, c)):
                return self.of(a if self.of(c) else b)
            case expr.Call(function, args):
                return self.applied(function, [self.of(a) for a in args])
            case _:
                raise AssertionError(e)

    def applied(self, function: str, args: list[Any]) -> Any:
        """Applies a function; one with branches at the point."""
        if function in COMPARED:
            return bool(COMPARED[function](*(a if isinstance(a, bool) else self.number(a) for a in args)))
        match function, args:
            case (("max" | "min"), (a, b)):
                first = self.number(a) >= self.number(b) if function == "max" else self.number(a) <= self.number(b)
                return a if first else b
            case (("abs" | "signum"), (a,)):
                sign = 1 if self.number(a) >= 0 else -1
                return a * sign if function == "abs" else sympy.Integer(sign)
            case "trunc", (a,):
                return sympy.Integer(int(self.number(a)))
            case "rem", (a, b):
                return a - int(self.number(a / b)) * b
            case _:
                return MEANINGS[function](*args)


EXACT = {expr.terms.TWO_OVER_SQRT_PI: 2 / sympy.sqrt(sympy.pi)}
"""Constants that are the nearest float to a number."""


def refuted(name: str, slopes: Callable[..., Any]) -> str:
    """Looks for a branch on which a slope is not the derivative, among those of some points. Gives it, or nothing."""
    function = FUNCTIONS[name]
    arity, judged = function.arity, set[str]()
    positive = name in ("pow", "log", "sqrt", "rsqrt")
    x = [sympy.Symbol(f"x{i}", real=True, positive=positive or None) for i in range(1, arity + 1)]
    args = [expr.Arg(i + 1) for i in range(arity)]
    for values in ((p, *(q for _ in range(arity - 1))) for p in POINTS for q in (POINTS if arity > 1 else POINTS[:1])):
        branch = Branch({i + 1: v for i, v in enumerate(x)}, dict(zip(x, values)))
        y = branch.of(expr.call(name, *args))
        if not branch.number(y).is_real or not branch.number(y).is_finite:
            continue
        branch.symbols[9] = y
        for i, slope in enumerate(slopes(expr.Arg(9), *args)):
            stated = branch.of(expr.lift(0 if slope is None else slope))
            if (key := f"{i}: {stated} of {y}") in judged:
                continue
            judged.add(key)
            differs = sympy.simplify((sympy.diff(y, x[i]) - stated).rewrite(sympy.exp))
            if differs != 0 and sympy.simplify(sympy.powsimp(sympy.expand_log(differs, force=True), force=True)) != 0:
                return f"{name}, {values}: {sympy.diff(y, x[i])}, stated {stated}"
    assert judged, name
    return ""


@pytest.mark.parametrize("name", DERIVED)
def test_a_stated_slope_is_the_derivative(name):
    derivative = FUNCTIONS[name].derivative
    assert derivative is not None
    assert refuted(name, derivative) == ""


@pytest.mark.parametrize("name", ["tanh", "erf", "rem", "max", "divide"])
def test_a_slope_with_another_sign_is_refuted(name):
    derivative = FUNCTIONS[name].derivative
    assert derivative is not None
    assert refuted(name, lambda y, *args: [None if s is None else -expr.lift(s) for s in derivative(y, *args)])
