"""Export of formulas: an element-wise expression becomes an op of StableHLO or `chlo` for each of its functions."""

from __future__ import annotations

import math
from collections.abc import Callable

from xdsl.dialects.builtin import f32, i1
from xdsl.ir import Attribute

from populus.dialects.expr import Arg, Call, Cast, Const, Expr
from populus.dialects.support.element_types import is_unsigned
from populus.lowering.stablehlo.export_text import Text, Value

SAME = {
    "add": "add", "and": "and", "atan2": "atan2", "bitwise_and": "and", "bitwise_not": "not", "bitwise_or": "or", "bitwise_xor": "xor",
    "ceil": "ceil", "cos": "cosine", "divide": "divide", "exp": "exponential", "expm1": "exponential_minus_one", "floor": "floor",
    "log": "log", "log1p": "log_plus_one", "max": "maximum", "min": "minimum", "mul": "multiply", "nearbyint": "round_nearest_even",
    "neg": "negate", "not": "not", "or": "or", "pow": "power", "rem": "remainder", "rsqrt": "rsqrt", "shift_left": "shift_left",
    "sigmoid": "logistic", "sin": "sine", "sqrt": "sqrt", "sub": "subtract", "tan": "tan", "tanh": "tanh", "xor": "xor",
    **{name: f"chlo.{name}" for name in ("acos", "acosh", "asin", "asinh", "atan", "atanh", "cosh", "erf", "sinh")},
}  # fmt: skip
"""Functions that are one op, whose result has the type of the operands."""
COMPARED = {"equal": "EQ", "gt": "GT", "gte": "GE", "lt": "LT", "lte": "LE"}


def _trunc(t: Text, x: Value) -> Value:
    return t.op("select", [t.compare("LT", x, t.filled(0, x)), t.same("ceil", x), t.same("floor", x)], x.shape, x.element)


ONE: dict[str, Callable[[Text, Value], Value]] = {
    "abs": lambda t, x: x if is_unsigned(x.element) else t.same("abs", x),
    "inv": lambda t, x: t.same("divide", t.filled(1, x), x),
    "isfinite": lambda t, x: t.op("is_finite", [x], x.shape, i1),
    "isinf": lambda t, x: t.compare("EQ", t.same("abs", x), t.filled(math.inf, x)),
    "isnan": lambda t, x: t.compare("NE", x, x),
    "signum": lambda t, x: t.same("minimum", x, t.filled(1, x)) if is_unsigned(x.element) else t.same("sign", x),
    "square": lambda t, x: t.same("multiply", x, x),
    "trunc": _trunc,
}
"""Functions of one operand that are written otherwise."""


def _called(t: Text, function: str, x: list[Value]) -> Value:
    """Writes the call of a function."""
    if function in COMPARED:
        return t.compare(COMPARED[function], x[0], x[1])
    if function in ONE:
        return ONE[function](t, x[0])
    if function == "select":
        return t.op("select", [x[2], x[0], x[1]], x[0].shape, x[0].element)
    if function == "shift_right":
        return t.same(f"shift_right_{'logical' if is_unsigned(x[0].element) else 'arithmetic'}", *x)
    return t.same(SAME[function], *x)


def formula(t: Text, e: Expr, operands: list[Value], shape: tuple[int, ...], element: Attribute) -> Value:
    """Writes the ops of an expression, each of the result's shape."""
    values = [t.stretch(v, shape) for v in operands]
    made: dict[int, Value] = {}  # by the identity of the expression: parts of it may be shared

    def literal(c: Const, of: Attribute) -> Value:
        return t.filled(c.value, Value("", shape, of))

    def built(e: Expr, wanted: Attribute) -> Value:
        if id(e) not in made:
            made[id(e)] = written(e, wanted)
        return made[id(e)]

    def written(e: Expr, wanted: Attribute) -> Value:
        match e:
            case Arg(index):
                return values[index - 1]
            case Const():
                return literal(e, i1 if isinstance(e.value, bool) else wanted)
            case Cast(x, to, bits):
                inner = built(x, to)
                if bits:
                    return inner if inner.element == to else t.op("bitcast_convert", [inner], shape, to)
                return t.cast(inner, to)
            case Call(function, args):
                given = [None if isinstance(a, Const) else built(a, wanted) for a in args]
                typed = [v.element for v in (given[:2] if function == "select" else given) if v is not None]
                met = typed[0] if typed else f32 if function in COMPARED else wanted
                found = [literal(a, i1 if isinstance(a.value, bool) else met) if isinstance(a, Const) else v for a, v in zip(args, given)]
                return _called(t, function, [v for v in found if v is not None])
            case _:
                raise AssertionError(e)

    return built(e, element)
