"""Functions of complex numbers, by those of their parts.

They avoid overflow and cancellation where textbook formulas do not: magnitudes are scaled, quotients divided by the larger part
(R. L. Smith, Algorithm 116, 1962), and `e^x - 1`, `log(1 + x)` keep the digits of small x.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from xdsl.dialects.builtin import f64, i32, i64
from xdsl.ir import Attribute, SSAValue

from populus.dialects import popart
from populus.dialects.support.element_types import dtype_of
from populus.lowering.stablehlo.to_popart.conversion import Conversion, Pair, Value, element


def add(c: Conversion, a: Pair, b: Pair) -> Value:
    """Adds."""
    return Pair(c(popart.AddOp, a.real, b.real), c(popart.AddOp, a.imag, b.imag))


def subtract(c: Conversion, a: Pair, b: Pair) -> Value:
    """Subtracts."""
    return Pair(c(popart.SubOp, a.real, b.real), c(popart.SubOp, a.imag, b.imag))


def negate(c: Conversion, a: Pair) -> Pair:
    """Negates."""
    return Pair(c(popart.NegOp, a.real), c(popart.NegOp, a.imag))


def multiply(c: Conversion, a: Pair, b: Pair) -> Pair:
    """Multiplies."""
    ac, bd = c(popart.MulOp, a.real, b.real), c(popart.MulOp, a.imag, b.imag)
    ad, bc = c(popart.MulOp, a.real, b.imag), c(popart.MulOp, a.imag, b.real)
    return Pair(c(popart.SubOp, ac, bd), c(popart.AddOp, ad, bc))


def divide(c: Conversion, a: Pair, b: Pair) -> Pair:
    """Divides, after both are divided by the larger part of b."""
    larger = c(popart.GreaterOrEqualOp, c(popart.AbsOp, b.real), c(popart.AbsOp, b.imag))
    big, small = c(popart.WhereOp, larger, b.real, b.imag), c(popart.WhereOp, larger, b.imag, b.real)
    ratio = c(popart.DivOp, small, big)
    below = c(popart.AddOp, big, c(popart.MulOp, small, ratio))
    first, second = c(popart.WhereOp, larger, a.real, a.imag), c(popart.WhereOp, larger, a.imag, a.real)
    upper = c(popart.DivOp, c(popart.AddOp, first, c(popart.MulOp, second, ratio)), below)
    cross = c(popart.DivOp, c(popart.SubOp, second, c(popart.MulOp, first, ratio)), below)
    return Pair(upper, c(popart.WhereOp, larger, cross, c(popart.NegOp, cross)))


def magnitude(c: Conversion, a: Pair) -> SSAValue:
    """Computes |a| by the larger part times `sqrt(1 + (small / large)^2)`; infinite if a part is."""
    x, y = c(popart.AbsOp, a.real), c(popart.AbsOp, a.imag)
    large, small = c(popart.MaxOp, x, y), c(popart.MinOp, x, y)
    ratio = c(popart.DivOp, small, large)
    root = c(popart.SqrtOp, c(popart.AddOp, c(popart.MulOp, ratio, ratio), c.scalar(1, ratio)))
    found = c(popart.MulOp, large, root)
    equal = c(popart.EqualOp, large, small)  # also where both are 0 or infinite, which have no ratio
    found = c(popart.WhereOp, equal, c(popart.MulOp, large, c.scalar(math.sqrt(2), large)), found)
    infinite = c(popart.OrOp, c(popart.IsInfOp, x), c(popart.IsInfOp, y))
    return c(popart.WhereOp, infinite, c.scalar(math.inf, x), found)


def sign(c: Conversion, a: Pair) -> Pair:
    """Computes `a / |a|`; 0 for 0."""
    size = magnitude(c, a)
    zero = c(popart.EqualOp, size, c.scalar(0, size))
    safe = c(popart.WhereOp, zero, c.scalar(1, size), size)
    return Pair(c(popart.DivOp, a.real, safe), c(popart.DivOp, a.imag, safe))


def angle(c: Conversion, a: Pair) -> SSAValue:
    """Computes the angle in the plane."""
    return c(popart.Atan2Op, a.imag, a.real)


def log(c: Conversion, a: Pair) -> Pair:
    """Computes `log |a| + i angle(a)`; near |a| = 1 by `log1p` of what |a|^2 exceeds 1."""
    x, y = c(popart.AbsOp, a.real), c(popart.AbsOp, a.imag)
    large, small = c(popart.MaxOp, x, y), c(popart.MinOp, x, y)
    one = c.scalar(1, x)
    beyond = c(popart.MulOp, c(popart.SubOp, large, one), c(popart.AddOp, large, one))
    near = c(popart.MulOp, c(popart.Log1pOp, c(popart.AddOp, beyond, c(popart.MulOp, small, small))), c.scalar(0.5, x))
    ratio = c(popart.WhereOp, c(popart.EqualOp, large, small), one, c(popart.DivOp, small, large))
    rest = c(popart.MulOp, c(popart.Log1pOp, c(popart.MulOp, ratio, ratio)), c.scalar(0.5, x))
    far = c(popart.AddOp, c(popart.LogOp, large), rest)
    around = c(popart.AndOp, c(popart.GreaterOp, large, c.scalar(0.5, x)), c(popart.LessOp, large, c.scalar(2, x)))
    return Pair(c(popart.WhereOp, around, near, far), angle(c, a))


def log_plus_one(c: Conversion, a: Pair) -> Pair:
    """Computes `log(1 + a)`: the real part is `log1p(x (2 + x) + y^2) / 2` where a is small."""
    moved = Pair(c(popart.AddOp, a.real, c.scalar(1, a.real)), a.imag)
    far = log(c, moved)
    x, y = a.real, a.imag
    square = c(popart.AddOp, c(popart.MulOp, x, c(popart.AddOp, x, c.scalar(2, x))), c(popart.MulOp, y, y))
    near = c(popart.MulOp, c(popart.Log1pOp, square), c.scalar(0.5, x))
    small = c(popart.LessOp, c(popart.MaxOp, c(popart.AbsOp, x), c(popart.AbsOp, y)), c.scalar(0.5, x))
    return Pair(c(popart.WhereOp, small, near, far.real), far.imag)


def exponential(c: Conversion, a: Pair) -> Pair:
    """Computes `e^x (cos y + i sin y)`, with half of e^x at a time, so that it does not overflow early."""
    half = c(popart.ExpOp, c(popart.MulOp, a.real, c.scalar(0.5, a.real)))
    whole = c(popart.ExpOp, a.real)
    large = c(popart.IsInfOp, whole)

    def scaled(v: SSAValue) -> SSAValue:
        twice = c(popart.MulOp, c(popart.MulOp, half, v), half)
        return c(popart.WhereOp, large, twice, c(popart.MulOp, whole, v))

    imag = scaled(c(popart.SinOp, a.imag))
    flat = c(popart.EqualOp, a.imag, c.scalar(0, a.imag))
    return Pair(c(popart.WhereOp, flat, whole, scaled(c(popart.CosOp, a.imag))), c(popart.WhereOp, flat, a.imag, imag))


def exponential_minus_one(c: Conversion, a: Pair) -> Pair:
    """Computes `expm1(x) cos y - 2 sin(y / 2)^2 + i e^x sin y`."""
    half = c(popart.SinOp, c(popart.MulOp, a.imag, c.scalar(0.5, a.imag)))
    bend = c(popart.MulOp, c(popart.MulOp, half, half), c.scalar(2, half))
    real = c(popart.SubOp, c(popart.MulOp, c(popart.Expm1Op, a.real), c(popart.CosOp, a.imag)), bend)
    return Pair(real, exponential(c, a).imag)


def sqrt(c: Conversion, a: Pair) -> Pair:
    """Computes the root in the right half plane: `u = sqrt((|x| + |a|) / 2)`, and the other part by `y / 2u`.

    Parts of which the sum would overflow are divided by 16 first, and those without all their digits are multiplied by a power of 4.
    """
    import numpy as np

    large = c(popart.MaxOp, c(popart.AbsOp, a.real), c(popart.AbsOp, a.imag))
    limits = np.finfo(dtype_of(element(large)))
    beyond = c(popart.GreaterOp, large, c.scalar(float(limits.max) / 8, large))
    little = c(popart.LessOp, large, c.scalar(float(limits.tiny) * 4, large))

    def scaled(above: float, below: float) -> SSAValue:
        rest = c(popart.WhereOp, little, c.scalar(below, large), c.scalar(1, large))
        return c(popart.WhereOp, beyond, c.scalar(above, large), rest)

    digits = limits.nmant + 1
    factor, back = scaled(1 / 16, 4.0**digits), scaled(4, 2.0**-digits)
    x, y = c(popart.MulOp, a.real, factor), c(popart.MulOp, a.imag, factor)
    size = magnitude(c, Pair(x, y))
    half = c.scalar(0.5, x)
    u = c(popart.SqrtOp, c(popart.AddOp, c(popart.MulOp, c(popart.AbsOp, x), half), c(popart.MulOp, size, half)))
    other = c(popart.DivOp, c(popart.AbsOp, y), c(popart.AddOp, u, u))
    zero, infinite = c(popart.EqualOp, size, c.scalar(0, x)), c(popart.IsInfOp, y)
    other = c(popart.WhereOp, zero, c.scalar(0, x), other)
    right = c(popart.GreaterOrEqualOp, x, c.scalar(0, x))
    real = c(popart.WhereOp, right, u, other)
    imag = c(popart.WhereOp, right, other, u)
    imag = c(popart.WhereOp, infinite, c.scalar(math.inf, x), imag)
    real = c(popart.WhereOp, infinite, c.scalar(math.inf, x), real)
    below = c(popart.LessOp, c.bits(y, _signed(y)), c.scalar(0, _signed(y)))  # -0 too
    signed = c(popart.WhereOp, below, c(popart.NegOp, imag), imag)
    return Pair(c(popart.MulOp, real, back), c(popart.MulOp, signed, back))


def _signed(value: SSAValue) -> Attribute:
    return i64 if element(value) == f64 else i32


def rsqrt(c: Conversion, a: Pair) -> Pair:
    """Computes `1 / sqrt(a)`."""
    return divide(c, Pair(c.filled(1, a.real), c.filled(0, a.real)), sqrt(c, a))


def cbrt(c: Conversion, a: Pair) -> Pair:
    """Computes the principal cube root."""
    logarithm = log(c, a)
    third = c.scalar(1 / 3, a.real)
    return exponential(c, Pair(c(popart.MulOp, logarithm.real, third), c(popart.MulOp, logarithm.imag, third)))


def sine(c: Conversion, a: Pair) -> Pair:
    """Computes `sin x cosh y + i cos x sinh y`."""
    return Pair(
        c(popart.MulOp, c(popart.SinOp, a.real), c(popart.CoshOp, a.imag)),
        c(popart.MulOp, c(popart.CosOp, a.real), c(popart.SinhOp, a.imag)),
    )


def cosine(c: Conversion, a: Pair) -> Pair:
    """Computes `cos x cosh y - i sin x sinh y`."""
    return Pair(
        c(popart.MulOp, c(popart.CosOp, a.real), c(popart.CoshOp, a.imag)),
        c(popart.NegOp, c(popart.MulOp, c(popart.SinOp, a.real), c(popart.SinhOp, a.imag))),
    )


def tanh(c: Conversion, a: Pair) -> Pair:
    """Computes `(sinh 2x + i sin 2y) / (cosh 2x + cos 2y)` by `tanh x` and `tan y`, which do not overflow."""
    t, u = c(popart.TanhOp, a.real), c(popart.TanOp, a.imag)
    tt, uu = c(popart.MulOp, t, t), c(popart.MulOp, u, u)
    one = c.scalar(1, t)
    below = c(popart.AddOp, one, c(popart.MulOp, tt, uu))
    real = c(popart.DivOp, c(popart.MulOp, t, c(popart.AddOp, one, uu)), below)
    cosh = c(popart.CoshOp, a.real)
    spread = c(popart.ReciprocalOp, c(popart.MulOp, cosh, cosh))  # 1 - tanh^2, without cancellation
    return Pair(real, c(popart.DivOp, c(popart.MulOp, u, spread), below))


def tan(c: Conversion, a: Pair) -> Pair:
    """Computes `-i tanh(i a)`."""
    found = tanh(c, Pair(c(popart.NegOp, a.imag), a.real))
    return Pair(found.imag, c(popart.NegOp, found.real))


def logistic(c: Conversion, a: Pair) -> Pair:
    """Computes `1 / (1 + e^-a)`."""
    e = exponential(c, negate(c, a))
    one = c.filled(1, a.real)
    return divide(c, Pair(one, c.filled(0, a.real)), Pair(c(popart.AddOp, e.real, one), e.imag))


def power(c: Conversion, a: Pair, b: Pair) -> Pair:
    """Computes `e^(b log a)`; 0 to a power with a positive real part is 0, and anything to the power 0 is 1."""
    found = exponential(c, multiply(c, b, log(c, a)))
    zero, one = c.scalar(0, a.real), c.scalar(1, a.real)
    empty = c(popart.AndOp, c(popart.EqualOp, a.real, zero), c(popart.EqualOp, a.imag, zero))
    none = c(popart.AndOp, c(popart.EqualOp, b.real, zero), c(popart.EqualOp, b.imag, zero))
    real = c(popart.WhereOp, none, one, c(popart.WhereOp, empty, zero, found.real))
    return Pair(real, c(popart.WhereOp, c(popart.OrOp, none, empty), zero, found.imag))


def extreme(larger: bool) -> Callable[..., Value]:
    """Makes the function of the larger or smaller of two, by their real parts first, then by the others."""

    def choose(c: Conversion, a: Pair, b: Pair) -> Value:
        order = popart.GreaterOp if larger else popart.LessOp
        same = c(popart.EqualOp, a.real, b.real)
        first = c(popart.WhereOp, same, c(order, a.imag, b.imag), c(order, a.real, b.real))
        first = c(popart.OrOp, first, c(popart.OrOp, c(popart.IsNanOp, a.real), c(popart.IsNanOp, a.imag)))
        return Pair(c(popart.WhereOp, first, a.real, b.real), c(popart.WhereOp, first, a.imag, b.imag))

    return choose


def atan2(c: Conversion, y: Pair, x: Pair) -> Value:
    """Computes `-i log((x + i y) / sqrt(x^2 + y^2))`. Source: StableHLO's specification, atan2."""
    turned = Pair(c(popart.SubOp, x.real, y.imag), c(popart.AddOp, x.imag, y.real))
    squares = [multiply(c, v, v) for v in (x, y)]
    root = sqrt(c, Pair(*(c(popart.AddOp, *parts) for parts in zip(*((s.real, s.imag) for s in squares)))))
    found = log(c, divide(c, turned, root))
    return Pair(found.imag, c(popart.NegOp, found.real))


def is_finite(c: Conversion, a: Pair) -> SSAValue:
    """Tells whether both parts are finite."""
    parts = [c(popart.NotOp, c(popart.OrOp, c(popart.IsNanOp, v), c(popart.IsInfOp, v))) for v in (a.real, a.imag)]
    return c(popart.AndOp, *parts)


def conj(c: Conversion, a: Pair) -> Value:
    """Gives the conjugate."""
    return Pair(a.real, c(popart.NegOp, a.imag))


FUNCTIONS: dict[str, Callable[..., Value]] = {
    "abs": magnitude,
    "add": add,
    "atan2": atan2,
    "cbrt": cbrt,
    "conj": conj,
    "cosine": cosine,
    "divide": divide,
    "exponential": exponential,
    "exponential_minus_one": exponential_minus_one,
    "is_finite": is_finite,
    "log": log,
    "log_plus_one": log_plus_one,
    "logistic": logistic,
    "maximum": extreme(larger=True),
    "minimum": extreme(larger=False),
    "multiply": multiply,
    "negate": negate,
    "power": power,
    "rsqrt": rsqrt,
    "sign": sign,
    "sine": sine,
    "sqrt": sqrt,
    "subtract": subtract,
    "tan": tan,
    "tanh": tanh,
}
