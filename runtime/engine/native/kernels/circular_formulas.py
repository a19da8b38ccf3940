"""sin, cos, tan and their inverses of f32, as `arith` and `math` ops on one element. They are computed in f64 and rounded once.

An angle is reduced to a quarter turn: by three parts of pi / 2 (Cody and Waite) below 2^28, and beyond by its product with as many bits
of 2 / pi as matter (Payne and Hanek). Polynomials are those of fdlibm (Sun), and Cephes' (Moshier) for atan.
"""

from __future__ import annotations

import math as pymath
from typing import TYPE_CHECKING

from xdsl.dialects import arith, math
from xdsl.dialects.builtin import f32, f64, i32, i64
from xdsl.ir import SSAValue

if TYPE_CHECKING:
    from populus.runtime.engine.native.kernels.element_ops import ElementOps

TWO_OVER_PI = 0xA2F9836E4E441529FC2757D1F534DDC0DB6295993C439041FE5163ABDEBB  # 240 bits after the point
PARTS = (1.5707963109016418, 1.5893254712295857e-08, 6.123233995736766e-17)  # of pi / 2; the first two have 25 bits
NEAR = 2.0**28  # below, the products of a number of quarter turns with the first two parts are exact
MAGIC = 6755399441055744.0  # 1.5 2^52: adding a number to it rounds the number to an integer


def _near(f: ElementOps, x: SSAValue) -> tuple[SSAValue, SSAValue]:
    """Reduces an f64 below `NEAR`: the number of quarter turns (i64, modulo 4 counts), and the angle that is left."""
    magic = f.constant(MAGIC, f64)
    shifted = f.add(f.mul(x, f.constant(2 / pymath.pi, f64)), magic)
    turns = f.sub(shifted, magic)
    for part in PARTS:
        x = f.sub(x, f.mul(turns, f.constant(part, f64)))
    return f.op(arith.BitcastOp(shifted, i64)), x


def _far(f: ElementOps, x: SSAValue) -> tuple[SSAValue, SSAValue]:
    """Reduces an f32 of at least `NEAR`, as `_near`. x = m 2^e, and m (2^e 2/pi mod 4) is an integer product modulo 2^64."""

    def number(n: int) -> SSAValue:
        return f.constant(n, i64)

    bits = f.op(arith.ExtUIOp(f.op(arith.BitcastOp(x, i32)), i64))
    mantissa = f.op(arith.OrIOp(f.op(arith.AndIOp(bits, number(0x7FFFFF))), number(0x800000)))
    exponent = f.op(arith.AndIOp(f.op(arith.ShRUIOp(bits, number(23))), number(0xFF)))
    e = f.op(arith.SubiOp(exponent, number(127 + 23)))
    word, shift = f.op(arith.ShRSIOp(e, number(5))), f.op(arith.AndIOp(e, number(31)))
    upper, lower = number(0), number(0)
    for j in range(4):  # 2^(32 j) 2/pi mod 4, of which 62 bits are after the point, and the next 64 bits
        here = f.op(arith.CmpiOp(word, number(j), "eq"))
        upper = f.select(here, number(TWO_OVER_PI >> (240 - 62 - 32 * j)), upper)
        lower = f.select(here, number(TWO_OVER_PI >> (240 - 62 - 64 - 32 * j)), lower)
    carried = f.op(arith.ShRUIOp(f.op(arith.ShRUIOp(lower, number(1))), f.op(arith.SubiOp(number(63), shift))))
    high = f.op(arith.OrIOp(f.op(arith.ShLIOp(upper, shift)), carried))
    low = f.op(arith.ShRUIOp(f.op(arith.ShLIOp(lower, shift)), number(32)))
    rest = f.op(arith.ShRUIOp(f.op(arith.MuliOp(mantissa, low)), number(32)))
    product = f.op(arith.AddiOp(f.op(arith.MuliOp(mantissa, high)), rest))
    turns = f.op(arith.ShRUIOp(f.op(arith.AddiOp(product, number(1 << 61))), number(62)))
    left = f.op(arith.SubiOp(product, f.op(arith.ShLIOp(turns, number(62)))))
    angle = f.mul(f.op(arith.SIToFPOp(left, f64)), f.constant(pymath.pi / 2 * 2.0**-62, f64))
    negative = f.compare(x, f.constant(0.0, f32), "olt")
    turns = f.select(negative, f.op(arith.SubiOp(number(0), turns)), turns)
    return turns, f.select(negative, f.op(arith.NegfOp(angle)), angle)


def _waves(f: ElementOps, x: SSAValue) -> tuple[SSAValue, SSAValue, SSAValue]:
    """Computes the quarter turns of x (i64), and sine and cosine of the angle that is left; NaN for infinities and NaN."""
    wide = f.op(arith.ExtFOp(x, f64))
    near = f.compare(f.op(math.AbsFOp(wide)), f.constant(NEAR, f64), "olt")
    pairs = zip(_near(f, f.select(near, wide, f.constant(0.0, f64))), _far(f, x))
    turns, r = (f.select(near, a, b) for a, b in pairs)
    finite = f.compare(f.op(math.AbsFOp(x)), f.constant(pymath.inf, f32), "olt")
    r = f.select(finite, r, f.constant(pymath.nan, f64))
    z = f.mul(r, r)
    s = (1.58969099521155010221e-10, -2.50507602534068634195e-08, 2.75573137070700676789e-06, -1.98412698298579493134e-04,
         8.33333333332248946124e-03, -1.66666666666666324348e-01)  # fmt: skip
    c = (-1.13596475577881948265e-11, 2.08757232129817482790e-09, -2.75573143513906633035e-07, 2.48015872894767294178e-05,
         -1.38888888888741095749e-03, 4.16666666666666019037e-02)  # fmt: skip
    sine = f.add(r, f.mul(f.mul(r, z), f.polynomial(z, s)))
    half = f.sub(f.constant(1.0, f64), f.mul(z, f.constant(0.5, f64)))
    return turns, sine, f.add(half, f.mul(f.mul(z, z), f.polynomial(z, c)))


def _has(f: ElementOps, turns: SSAValue, bit: int) -> SSAValue:
    """Tells whether a number has this bit."""
    return f.op(arith.CmpiOp(f.op(arith.AndIOp(turns, f.constant(bit, i64))), f.constant(0, i64), "ne"))


def _signed(f: ElementOps, negative: SSAValue, value: SSAValue) -> SSAValue:
    """Rounds a value to f32, negated if `negative`."""
    return f.op(arith.TruncFOp(f.select(negative, f.op(arith.NegfOp(value)), value), f32))


def sin(f: ElementOps, x: SSAValue) -> SSAValue:
    """Computes the sine of an angle."""
    turns, sine, cosine = _waves(f, x)
    y = _signed(f, _has(f, turns, 2), f.select(_has(f, turns, 1), cosine, sine))
    return f.select(f.compare(x, f.constant(0.0, f32), "oeq"), x, y)  # keeps the sign of 0


def cos(f: ElementOps, x: SSAValue) -> SSAValue:
    """Computes the cosine of an angle: the sine a quarter turn further."""
    turns, sine, cosine = _waves(f, x)
    further = f.op(arith.AddiOp(turns, f.constant(1, i64)))
    return _signed(f, _has(f, further, 2), f.select(_has(f, turns, 1), sine, cosine))


def tan(f: ElementOps, x: SSAValue) -> SSAValue:
    """Computes the tangent of an angle: sine over cosine, or minus cosine over sine after an odd number of quarter turns."""
    turns, sine, cosine = _waves(f, x)
    odd = _has(f, turns, 1)
    y = f.op(arith.DivfOp(f.select(odd, cosine, sine), f.select(odd, sine, cosine)))
    return f.select(f.compare(x, f.constant(0.0, f32), "oeq"), x, _signed(f, odd, y))


def _atan(f: ElementOps, x: SSAValue) -> SSAValue:
    """Computes the angle of a tangent in f64."""
    one, zero = f.constant(1.0, f64), f.constant(0.0, f64)
    a = f.op(math.AbsFOp(x))
    steep, middle = f.compare(a, f.constant(2.41421356237309504880, f64), "ogt"), f.compare(a, f.constant(0.66, f64), "ogt")
    turned = f.op(arith.DivfOp(f.sub(a, one), f.add(a, one)))
    r = f.select(steep, f.op(arith.NegfOp(f.op(arith.DivfOp(one, a)))), f.select(middle, turned, a))
    begin = f.select(steep, f.constant(pymath.pi / 2, f64), f.select(middle, f.constant(pymath.pi / 4, f64), zero))
    z = f.mul(r, r)
    p = (-8.750608600031904122785e-1, -1.615753718733365076637e1, -7.500855792314704667340e1, -1.228866684490136173410e2,
         -6.485021904942025371773e1)  # fmt: skip
    q = (1.0, 2.485846490142306297962e1, 1.650270098316988542046e2, 4.328810604912902668951e2, 4.853903996359136964868e2,
         1.945506571482613964425e2)  # fmt: skip
    inner = f.add(f.mul(r, f.op(arith.DivfOp(f.mul(z, f.polynomial(z, p)), f.polynomial(z, q)))), r)
    y = f.add(begin, inner)
    return f.select(f.compare(x, zero, "olt"), f.op(arith.NegfOp(y)), y)


def atan(f: ElementOps, x: SSAValue) -> SSAValue:
    """Computes the angle of a tangent."""
    y = f.op(arith.TruncFOp(_atan(f, f.op(arith.ExtFOp(x, f64))), f32))
    return f.select(f.compare(x, f.constant(0.0, f32), "oeq"), x, y)


def atan2(f: ElementOps, y: SSAValue, x: SSAValue) -> SSAValue:
    """Computes the angle of the point (x, y), with the results of C's `atan2` for zeros and infinities."""
    zero, one, infinite = (f.constant(n, f64) for n in (0.0, 1.0, pymath.inf))
    wide_y, wide_x = f.op(arith.ExtFOp(y, f64)), f.op(arith.ExtFOp(x, f64))
    a, b = f.op(math.AbsFOp(wide_y)), f.op(math.AbsFOp(wide_x))
    both = f.op(arith.AndIOp(f.compare(a, infinite, "oeq"), f.compare(b, infinite, "oeq")))
    none = f.op(arith.AndIOp(f.compare(a, zero, "oeq"), f.compare(b, zero, "oeq")))
    # Two infinities count as equal numbers, and two zeros as a point on the axis.
    ratio = f.op(arith.DivfOp(f.select(both, one, a), f.select(both, one, f.select(none, one, b))))
    angle = _atan(f, ratio)
    left = f.compare(f.op(math.CopySignOp(one, wide_x)), zero, "olt")  # also for -0
    angle = f.select(left, f.sub(f.constant(pymath.pi, f64), angle), angle)
    return f.op(math.CopySignOp(f.op(arith.TruncFOp(angle, f32)), y))


def _asin(f: ElementOps, x: SSAValue) -> SSAValue:
    """Computes the angle of a sine in f64, from its tangent; NaN beyond 1."""
    wide = f.op(arith.ExtFOp(x, f64))
    cosine = f.op(math.SqrtOp(f.sub(f.constant(1.0, f64), f.mul(wide, wide))))
    return _atan(f, f.op(arith.DivfOp(wide, cosine)))


def asin(f: ElementOps, x: SSAValue) -> SSAValue:
    """Computes the angle of a sine."""
    y = f.op(arith.TruncFOp(_asin(f, x), f32))
    return f.select(f.compare(x, f.constant(0.0, f32), "oeq"), x, y)


def acos(f: ElementOps, x: SSAValue) -> SSAValue:
    """Computes the angle of a cosine."""
    return f.op(arith.TruncFOp(f.sub(f.constant(pymath.pi / 2, f64), _asin(f, x)), f32))
