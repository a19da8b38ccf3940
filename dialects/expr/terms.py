"""Terms of expressions: operands, literals, calls, and the table of functions with their derivatives."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from xdsl.ir import Attribute

Literal: TypeAlias = float | int | bool
Like: TypeAlias = "Expr | Literal"


class Expr:
    """An expression; `+ - * / % **`, comparisons and `& | ~` build larger ones."""

    __slots__ = ()

    def __add__(self, other: Like) -> Expr:
        return call("add", self, other)

    def __radd__(self, other: Like) -> Expr:
        return call("add", other, self)

    def __sub__(self, other: Like) -> Expr:
        return call("sub", self, other)

    def __rsub__(self, other: Like) -> Expr:
        return call("sub", other, self)

    def __mul__(self, other: Like) -> Expr:
        return call("mul", self, other)

    def __rmul__(self, other: Like) -> Expr:
        return call("mul", other, self)

    def __truediv__(self, other: Like) -> Expr:
        return call("divide", self, other)

    def __rtruediv__(self, other: Like) -> Expr:
        return call("divide", other, self)

    def __mod__(self, other: Like) -> Expr:
        return call("rem", self, other)

    def __pow__(self, other: Like) -> Expr:
        return call("pow", self, other)

    def __neg__(self) -> Expr:
        return call("neg", self)

    def __invert__(self) -> Expr:
        return call("not", self)

    def __and__(self, other: Like) -> Expr:
        return call("and", self, other)

    def __or__(self, other: Like) -> Expr:
        return call("or", self, other)

    def __lt__(self, other: Like) -> Expr:
        return call("lt", self, other)

    def __le__(self, other: Like) -> Expr:
        return call("lte", self, other)

    def __gt__(self, other: Like) -> Expr:
        return call("gt", self, other)

    def __ge__(self, other: Like) -> Expr:
        return call("gte", self, other)

    def __str__(self) -> str:
        return text_of(self)


@dataclass(frozen=True, slots=True, repr=False)
class Arg(Expr):
    """Operand number `index`, from 1."""

    index: int


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Const(Expr):
    """A literal. Its element type is that of the operands which it meets."""

    value: Literal

    # 0.0 and -0.0, 1 and 1.0 and true, and NaN with itself: equal means "the same text".
    def __eq__(self, other: object) -> bool:
        return isinstance(other, Const) and _literal(self.value) == _literal(other.value)

    def __hash__(self) -> int:
        return hash(_literal(self.value))


@dataclass(frozen=True, slots=True, repr=False)
class Cast(Expr):
    """The operand converted to an element type; with `bits`, its bits taken for an element of that type, of the same size."""

    x: Expr
    type: Attribute
    bits: bool = False


@dataclass(frozen=True, slots=True, repr=False)
class Call(Expr):
    """A function of the table below, applied."""

    function: str
    args: tuple[Expr, ...]


Slopes: TypeAlias = "Sequence[Like | None]"
Derivative: TypeAlias = "Callable[[Expr, Expr], Slopes] | Callable[[Expr, Expr, Expr], Slopes] | Callable[[Expr, Expr, Expr, Expr], Slopes]"


@dataclass(frozen=True)
class Function:
    """A function that an expression can call.

    `derivative(y, *args)` gives dy/d(arg) for each argument (None: does not depend on it); absent where the function has
    none. `result`: `same` as the arguments, or `bool`. `takes`: the element types it is defined on. `flops`: floating point
    operations per element, as PopLibs counts them (0 for bits and comparisons made by the integer unit).
    """

    arity: int
    derivative: Derivative | None = None
    result: str = "same"
    takes: str = "number"  # number | float | integer | bool | any
    flops: int = 1


def call(function: str, *args: Like) -> Call:
    """Applies `function` to expressions or literals. Raises KeyError for an unknown function (a mistake in an op's code)."""
    assert len(args) == FUNCTIONS[function].arity, (function, args)
    return Call(function, tuple(lift(a) for a in args))


def lift(x: Like) -> Expr:
    """Makes an expression of a literal; one of a subclass of float or int becomes a plain float or int."""
    return x if isinstance(x, Expr) else Const(x if isinstance(x, bool) else x.real)


def select(a: Like, b: Like, condition: Like) -> Expr:
    """Builds `a` where `condition` holds, `b` elsewhere."""
    return call("select", a, b, condition)


def equal(a: Like, b: Like) -> Expr:
    """Builds `a == b`, a boolean."""
    return call("equal", a, b)


def maximum(a: Like, b: Like) -> Expr:
    """Builds the larger of two; NaN if either is NaN."""
    return call("max", a, b)


def minimum(a: Like, b: Like) -> Expr:
    """Builds the smaller of two; NaN if either is NaN."""
    return call("min", a, b)


def clamp(x: Like, low: Like, high: Like) -> Expr:
    """Builds x limited to the range `low` .. `high`."""
    return call("min", call("max", x, low), high)


def cast(x: Like, type: Attribute) -> Expr:
    """Builds x converted to an element type."""
    return Cast(lift(x), type)


def bits(x: Like, type: Attribute) -> Expr:
    """Takes the bits of x for an element of another type of the same size."""
    return Cast(lift(x), type, bits=True)


def _unary(name: str) -> Callable[[Like], Expr]:
    def build(x: Like) -> Expr:
        return call(name, x)

    build.__name__ = name
    build.__doc__ = f"`{name}` of each element."
    return build


(
    absolute, exp, log, log1p, expm1, sqrt, rsqrt, sigmoid, tanh, erf, sin, cos, tan, asin, acos, atan, sinh, cosh, asinh,
    acosh, atanh, floor, ceil, nearbyint, trunc, signum, square, inv, isnan, isinf, isfinite,
) = map(_unary, (
    "abs", "exp", "log", "log1p", "expm1", "sqrt", "rsqrt", "sigmoid", "tanh", "erf", "sin", "cos", "tan", "asin", "acos",
    "atan", "sinh", "cosh", "asinh", "acosh", "atanh", "floor", "ceil", "nearbyint", "trunc", "signum", "square", "inv",
    "isnan", "isinf", "isfinite",
))  # fmt: skip


def _nothing(y: Expr, *args: Expr) -> Sequence[Like | None]:
    """Gives no slopes: the function is constant almost everywhere, or not numeric."""
    return [None] * len(args)


def _power_slopes(y: Expr, a: Expr, b: Expr) -> Sequence[Like | None]:
    """Derives a^b: `b a^(b - 1)` and `a^b log a`; 0 where a^b is locally constant: b is 0, or a is 0 and b at least 0.

    Otherwise 0 would be multiplied by infinity. Source: PyTorch, `pow_backward_self` and `pow_backward_exponent`.
    """
    if isinstance(b, Const):
        return [0.0 if b.value == 0 else b * call("pow", a, b - 1), None]
    of_a = select(0.0, b * call("pow", a, b - 1), equal(b, 0))
    return [of_a, select(0.0, y * log(a), equal(a, 0) & (b >= 0))]


TWO_OVER_SQRT_PI = 2 / math.sqrt(math.pi)

FUNCTIONS: dict[str, Function] = {
    # name: arity, derivative of y with respect to each argument
    "abs": Function(1, lambda y, x: [signum(x)]),
    "acos": Function(1, lambda y, x: [-rsqrt(1.0 - x * x)], takes="float"),
    "acosh": Function(1, lambda y, x: [rsqrt(x * x - 1.0)], takes="float"),
    "add": Function(2, lambda y, a, b: [1, 1]),
    "and": Function(2, _nothing, takes="bool", flops=0),
    "asin": Function(1, lambda y, x: [rsqrt(1.0 - x * x)], takes="float"),
    "asinh": Function(1, lambda y, x: [rsqrt(x * x + 1.0)], takes="float"),
    "atan": Function(1, lambda y, x: [inv(1.0 + x * x)], takes="float"),
    "atan2": Function(2, lambda y, a, b: [b / (a * a + b * b), -a / (a * a + b * b)], takes="float"),
    "atanh": Function(1, lambda y, x: [inv(1.0 - x * x)], takes="float"),
    "bitwise_and": Function(2, _nothing, takes="integer", flops=0),
    "bitwise_not": Function(1, _nothing, takes="integer", flops=0),
    "bitwise_or": Function(2, _nothing, takes="integer", flops=0),
    "bitwise_xor": Function(2, _nothing, takes="integer", flops=0),
    "ceil": Function(1, _nothing, takes="float"),
    "cos": Function(1, lambda y, x: [-sin(x)], takes="float"),
    "cosh": Function(1, lambda y, x: [sinh(x)], takes="float"),
    "divide": Function(2, lambda y, a, b: [inv(b), -y / b]),
    "equal": Function(2, _nothing, result="bool", takes="any"),
    "erf": Function(1, lambda y, x: [exp(-(x * x)) * TWO_OVER_SQRT_PI], takes="float"),
    "exp": Function(1, lambda y, x: [y], takes="float"),
    "expm1": Function(1, lambda y, x: [y + 1.0], takes="float"),
    "floor": Function(1, _nothing, takes="float"),
    "gt": Function(2, _nothing, result="bool"),
    "gte": Function(2, _nothing, result="bool"),
    "inv": Function(1, lambda y, x: [-(y * y)]),
    "isfinite": Function(1, _nothing, result="bool", takes="float"),
    "isinf": Function(1, _nothing, result="bool", takes="float"),
    "isnan": Function(1, _nothing, result="bool", takes="float"),
    "log": Function(1, lambda y, x: [inv(x)], takes="float"),
    "log1p": Function(1, lambda y, x: [inv(1.0 + x)], takes="float"),
    "lt": Function(2, _nothing, result="bool"),
    "lte": Function(2, _nothing, result="bool"),
    # At a tie the first argument gets the gradient, so that it flows once.
    "max": Function(2, lambda y, a, b: [select(1.0, 0.0, a >= b), select(0.0, 1.0, a >= b)]),
    "min": Function(2, lambda y, a, b: [select(1.0, 0.0, a <= b), select(0.0, 1.0, a <= b)]),
    "mul": Function(2, lambda y, a, b: [b, a]),
    "nearbyint": Function(1, _nothing, takes="float"),  # half to even
    "neg": Function(1, lambda y, x: [-1]),
    "not": Function(1, _nothing, takes="bool", flops=0),
    "or": Function(2, _nothing, takes="bool", flops=0),
    "pow": Function(2, _power_slopes),
    "rem": Function(2, lambda y, a, b: [1, -trunc(a / b)], flops=3),  # sign of the dividend, as C's fmod
    "rsqrt": Function(1, lambda y, x: [y * inv(x) * -0.5], takes="float"),
    "select": Function(3, lambda y, a, b, c: [select(1, 0, c), select(0, 1, c), None], takes="any"),
    "shift_left": Function(2, _nothing, takes="integer", flops=0),
    "shift_right": Function(2, _nothing, takes="integer", flops=0),
    "sigmoid": Function(1, lambda y, x: [y * (1.0 - y)], takes="float"),
    "signum": Function(1, _nothing),
    "sin": Function(1, lambda y, x: [cos(x)], takes="float"),
    "sinh": Function(1, lambda y, x: [cosh(x)], takes="float"),
    "sqrt": Function(1, lambda y, x: [inv(y) * 0.5], takes="float"),
    "square": Function(1, lambda y, x: [x * 2]),
    "sub": Function(2, lambda y, a, b: [1, -1]),
    "tan": Function(1, lambda y, x: [1.0 + y * y], takes="float"),
    "tanh": Function(1, lambda y, x: [1.0 - y * y], takes="float"),
    "trunc": Function(1, _nothing, takes="float"),
    "xor": Function(2, _nothing, takes="bool", flops=0),
}


# -- as text ---------------------------------------------------------------------------------------------------------


def _literal(value: Literal) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if math.isnan(value):
        return "nan"
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    text = repr(value)
    if "e" in text and "." not in text:
        text = text.replace("e", ".0e")
    return text


def text_of(e: Expr) -> str:
    """Prints an expression as the text that `parse` reads."""
    match e:
        case Arg(index):
            return f"_{index}"
        case Const(value):
            return _literal(value)
        case Cast(x, to, bits):
            return f"{'bits' if bits else 'cast'}({text_of(x)}, {to})"
        case Call(function, args):
            return f"{function}({', '.join(map(text_of, args))})"
        case _:
            raise AssertionError(type(e))
