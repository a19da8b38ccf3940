"""exp, log and tanh of f64, and powers of f32 through them, as `arith` and `math` ops on one element.

exp and log are those of fdlibm (Sun), tanh is Cephes' (Moshier): within 2 units in the last place. They use no fused operations, so all
CPUs agree. Powers of f32, and the hyperbolic functions and differences from 1 below, are computed in f64 and rounded once.
"""

from __future__ import annotations

import math as pymath
from collections.abc import Callable
from typing import TYPE_CHECKING

from xdsl.dialects import arith, math
from xdsl.dialects.builtin import f32, f64, i1, i64
from xdsl.ir import SSAValue

if TYPE_CHECKING:
    from populus.runtime.engine.native.kernels.element_ops import ElementOps

LN2_HIGH, LN2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10  # products of the first by integers up to 2^20 are exact
MAGIC = 6755399441055744.0  # 1.5 2^52: adding a number to it rounds the number to an integer


def exp(f: ElementOps, x: SSAValue) -> SSAValue:
    """Computes 2^n e^r, with x = n ln 2 + r. Two factors make up 2^n, so that subnormal results are right."""
    high, low = f.constant(710.0, f64), f.constant(-746.0, f64)
    x = f.select(f.compare(x, high, "ogt"), high, x)
    x = f.select(f.compare(x, low, "olt"), low, x)
    magic, one, two = f.constant(MAGIC, f64), f.constant(1.0, f64), f.constant(2.0, f64)
    shifted = f.add(f.mul(x, f.constant(1.44269504088896338700, f64)), magic)
    n = f.sub(shifted, magic)
    upper = f.sub(x, f.mul(n, f.constant(LN2_HIGH, f64)))
    lower = f.mul(n, f.constant(LN2_LOW, f64))
    r = f.sub(upper, lower)
    t = f.mul(r, r)
    p = (4.13813679705723846039e-08, -1.65339022054652515390e-06, 6.61375632143793436117e-05, -2.77777777770155933842e-03,
         1.66666666666666019037e-01)  # fmt: skip
    c = f.sub(r, f.mul(t, f.polynomial(t, p)))
    quotient = f.op(arith.DivfOp(f.mul(r, c), f.sub(two, c)))
    y = f.sub(one, f.sub(f.sub(lower, quotient), upper))
    bits = f.op(arith.SubiOp(f.op(arith.BitcastOp(shifted, i64)), f.op(arith.BitcastOp(magic, i64))))
    half = f.op(arith.ShRSIOp(bits, f.constant(1, i64)))
    return f.mul(f.mul(y, _power_of_two(f, half)), _power_of_two(f, f.op(arith.SubiOp(bits, half))))


def _power_of_two(f: ElementOps, n: SSAValue) -> SSAValue:
    """Builds 2^n from its exponent bits."""
    biased = f.op(arith.AddiOp(n, f.constant(1023, i64)))
    return f.op(arith.BitcastOp(f.op(arith.ShLIOp(biased, f.constant(52, i64))), f64))


def log(f: ElementOps, x: SSAValue) -> SSAValue:
    """Computes k ln 2 + log(1 + m), with x = 2^k (1 + m) and 1 + m between sqrt(1/2) and sqrt(2)."""
    zero, one, two = (f.constant(n, f64) for n in (0.0, 1.0, 2.0))
    tiny = f.compare(x, f.constant(2.2250738585072014e-308, f64), "olt")
    scaled = f.select(tiny, f.mul(x, f.constant(18014398509481984.0, f64)), x)  # 2^54
    root = 0x3FE6A09E667F3BCD  # sqrt(1/2)
    bits = f.op(arith.SubiOp(f.op(arith.BitcastOp(scaled, i64)), f.constant(root, i64)))
    exponent = f.op(arith.SIToFPOp(f.op(arith.ShRSIOp(bits, f.constant(52, i64))), f64))
    mantissa = f.op(arith.AddiOp(f.op(arith.AndIOp(bits, f.constant((1 << 52) - 1, i64))), f.constant(root, i64)))
    k = f.sub(exponent, f.select(tiny, f.constant(54.0, f64), zero))
    m = f.sub(f.op(arith.BitcastOp(mantissa, f64)), one)
    s = f.op(arith.DivfOp(m, f.add(two, m)))
    z = f.mul(s, s)
    lg = (1.479819860511658591e-01, 1.531383769920937332e-01, 1.818357216161805012e-01, 2.222219843214978396e-01, 2.857142874366239149e-01,
          3.999999999940941908e-01, 6.666666666666735130e-01)  # fmt: skip
    rest = f.mul(z, f.polynomial(z, lg))
    half = f.mul(f.constant(0.5, f64), f.mul(m, m))
    inner = f.add(f.mul(s, f.add(half, rest)), f.mul(k, f.constant(LN2_LOW, f64)))
    y = f.sub(f.mul(k, f.constant(LN2_HIGH, f64)), f.sub(f.sub(half, inner), m))
    infinite = f.constant(pymath.inf, f64)
    y = f.select(f.compare(x, infinite, "oeq"), x, y)
    y = f.select(f.compare(x, zero, "oeq"), f.constant(-pymath.inf, f64), y)
    return f.select(f.compare(x, zero, "ult"), f.sub(f.select(f.compare(x, x, "uno"), x, infinite), infinite), y)


def tanh(f: ElementOps, x: SSAValue) -> SSAValue:
    """Computes 1 - 2 / (exp(2 |x|) + 1) with the sign of x, or a quotient of polynomials for small x."""
    one, two = f.constant(1.0, f64), f.constant(2.0, f64)
    a = f.op(math.AbsFOp(x))
    far = f.sub(one, f.op(arith.DivfOp(two, f.add(exp(f, f.add(a, a)), one))))
    far = f.select(f.compare(x, f.constant(0.0, f64), "olt"), f.op(arith.NegfOp(far)), far)
    s = f.mul(x, x)
    p = f.polynomial(s, (-9.64399179425052238628e-1, -9.92877231001918586564e1, -1.61468768441708447952e3))
    q = f.polynomial(s, (1.0, 1.12811678491632931402e2, 2.23548839060100448583e3, 4.84406305325125486048e3))
    near = f.add(x, f.mul(f.mul(x, s), f.op(arith.DivfOp(p, q))))
    return f.select(f.compare(a, f.constant(0.625, f64), "olt"), near, far)


def power(f: ElementOps, x: SSAValue, y: SSAValue) -> SSAValue:
    """Computes x^y of f32 as exp(y log |x|), with the results of C's `pow` for zeros, infinities, NaN and negative x."""
    zero, one = f.constant(0.0, f32), f.constant(1.0, f32)
    infinite, nan = f.constant(pymath.inf, f32), f.constant(pymath.nan, f32)
    a = f.op(math.AbsFOp(x))
    exponent = f.mul(f.op(arith.ExtFOp(y, f64)), log(f, f.op(arith.ExtFOp(a, f64))))
    size = f.op(arith.TruncFOp(exp(f, exponent), f32))
    endless = f.compare(f.op(math.AbsFOp(y)), infinite, "oeq")
    size = f.select(f.op(arith.AndIOp(endless, f.compare(a, one, "oeq"))), one, size)
    half = f.mul(y, f.constant(0.5, f32))
    whole = f.compare(f.op(math.TruncOp(y)), y, "oeq")
    odd = f.op(arith.AndIOp(whole, f.compare(f.op(math.TruncOp(half)), half, "one")))
    below = f.compare(f.op(math.CopySignOp(one, x)), zero, "olt")  # also for -0
    size = f.select(f.op(arith.AndIOp(odd, below)), f.op(arith.NegfOp(size)), size)
    finite = f.op(arith.AndIOp(f.compare(x, zero, "olt"), f.compare(a, infinite, "olt")))
    part = f.op(arith.XOrIOp(whole, f.constant(1, i1)))
    undefined = f.op(arith.AndIOp(finite, f.op(arith.AndIOp(part, f.compare(y, y, "ord")))))
    size = f.select(undefined, nan, size)
    is_one = f.op(arith.OrIOp(f.compare(y, zero, "oeq"), f.compare(x, one, "oeq")))
    return f.select(is_one, one, size)


def _of_f32(f: ElementOps, x: SSAValue, small: float, series: tuple[float, ...], far: Callable[[SSAValue], SSAValue]) -> SSAValue:
    """Computes a function of f32 in f64: x p(x) below `small`, with the coefficients `series`, where `far` would lose digits."""
    wide = f.op(arith.ExtFOp(x, f64))
    near = f.mul(wide, f.polynomial(wide, series))
    small_enough = f.compare(f.op(math.AbsFOp(wide)), f.constant(small, f64), "olt")
    return f.op(arith.TruncFOp(f.select(small_enough, near, far(wide)), f32))


def expm1(f: ElementOps, x: SSAValue) -> SSAValue:
    """Computes e^x - 1."""
    return _of_f32(f, x, 1e-5, (1 / 6, 0.5, 1.0), lambda w: f.sub(exp(f, w), f.constant(1.0, f64)))


def log1p(f: ElementOps, x: SSAValue) -> SSAValue:
    """Computes log(1 + x)."""
    return _of_f32(f, x, 1e-5, (1 / 3, -0.5, 1.0), lambda w: log(f, f.add(w, f.constant(1.0, f64))))


def sinh(f: ElementOps, x: SSAValue) -> SSAValue:
    """Computes (e^x - e^-x) / 2."""
    return _of_f32(f, x, 1e-3, (1 / 6, 0.0, 1.0), lambda w: _halved(f, f.sub(exp(f, w), exp(f, f.op(arith.NegfOp(w))))))


def cosh(f: ElementOps, x: SSAValue) -> SSAValue:
    """Computes (e^x + e^-x) / 2."""
    wide = f.op(arith.ExtFOp(x, f64))
    return f.op(arith.TruncFOp(_halved(f, f.add(exp(f, wide), exp(f, f.op(arith.NegfOp(wide))))), f32))


def asinh(f: ElementOps, x: SSAValue) -> SSAValue:
    """Computes log(|x| + sqrt(x^2 + 1)) with the sign of x."""

    def far(w: SSAValue) -> SSAValue:
        a = f.op(math.AbsFOp(w))
        y = log(f, f.add(a, f.op(math.SqrtOp(f.add(f.mul(w, w), f.constant(1.0, f64))))))
        return f.select(f.compare(w, f.constant(0.0, f64), "olt"), f.op(arith.NegfOp(y)), y)

    return _of_f32(f, x, 1e-3, (-1 / 6, 0.0, 1.0), far)


def acosh(f: ElementOps, x: SSAValue) -> SSAValue:
    """Computes log(x + sqrt(x^2 - 1)); NaN below 1."""
    wide = f.op(arith.ExtFOp(x, f64))
    root = f.op(math.SqrtOp(f.sub(f.mul(wide, wide), f.constant(1.0, f64))))
    y = f.op(arith.TruncFOp(log(f, f.add(wide, root)), f32))
    return f.select(f.compare(x, f.constant(1.0, f32), "olt"), f.constant(pymath.nan, f32), y)


def atanh(f: ElementOps, x: SSAValue) -> SSAValue:
    """Computes log((1 + x) / (1 - x)) / 2; NaN beyond 1."""
    one = f.constant(1.0, f64)
    return _of_f32(f, x, 1e-3, (1 / 3, 0.0, 1.0), lambda w: _halved(f, log(f, f.op(arith.DivfOp(f.add(one, w), f.sub(one, w))))))


def _halved(f: ElementOps, x: SSAValue) -> SSAValue:
    return f.mul(x, f.constant(0.5, f64))
