"""Rules proved once for all numbers and sizes: what each rewrite pattern rests on, the laws of terms, and lemmas of splits and radices.

A rule is a claim that z3 shows to have no counterexample. `index`: elements are a function of whole numbers, for all sizes. `real`:
arithmetic of real numbers. `float`: all values of f16, bit for bit.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from typing import Any, NamedTuple

import pytest

from populus.dialects.poplar.partition import Split
from populus.lowering.popart.patterns import PATTERNS

z3: Any = pytest.importorskip("z3")

F16 = z3.FPSort(5, 11)
F32, F64 = z3.FPSort(8, 24), z3.FPSort(11, 53)
BF16 = z3.FPSort(8, 8)
RNE = z3.RNE()
TO_FLOAT = z3.fpToFP


class Rule(NamedTuple):
    """A claim about a pattern, under conditions. `holds`: whether it is true; a wrong one shows why a pattern has its condition."""

    pattern: str
    kind: str
    about: str
    claim: Any
    where: Sequence[Any] = ()
    holds: bool = True


def counterexample(claim: Any, where: Sequence[Any]) -> Any:
    """Gives a model that refutes a claim; None if there is none."""
    solver = z3.Solver()
    solver.set("timeout", 60_000)
    solver.add(*where, z3.Not(claim))
    found = solver.check()
    assert found != z3.unknown, solver.reason_unknown()
    return solver.model() if found == z3.sat else None


def _indices() -> list[Rule]:
    whole = z3.IntSort()
    x, c = (z3.Function(n, whole, whole, whole) for n in "xc")
    v, w, u = (z3.Function(n, whole, whole) for n in "vwu")
    f = z3.Function("f", whole, whole, whole)
    i, j, n, m, b, e, s, b2, s2, at, na, nb, low, high, p, o, k, d = z3.Ints("i j n m b e s b2 s2 at na nb low high p o k d")

    def count(begin: Any, end: Any, step: Any) -> Any:
        up, down = (end - begin + step - 1) / step, (begin - end - step - 1) / -step
        return z3.If(step > 0, z3.If(end > begin, up, 0), z3.If(begin > end, down, 0))

    def joined(first: Any, size: Any, then: Any) -> Any:
        return lambda at: z3.If(at < size, first(at), then(at - size))

    def padded(at: Any) -> Any:
        return z3.If(z3.And(0 <= at - low, at - low < n), v(at - low), 0)

    def size(begin: Any, end: Any) -> Any:
        return z3.If(end > begin, end - begin, 0)

    def other_way(element: Any) -> Any:
        return lambda row, column: element(column, row)

    def spread(row: Any, column: Any) -> Any:
        return v(column)

    tensor, index = z3.Function("t", *[whole] * 5), z3.Ints("i0 i1 i2 i3")
    orders = list(itertools.permutations(range(4)))

    def turned(element: Any, order: tuple[int, ...]) -> Any:
        return lambda *at: element(*(at[order.index(axis)] for axis in range(4)))

    transposes = [
        turned(turned(tensor, first), second)(*index) == turned(tensor, tuple(first[a] for a in second))(*index)
        for first in orders
        for second in orders
    ]
    by, begin = s * s2, b2 + b * s2
    end = begin + (n - 1) * by + z3.If(by > 0, 1, -1)
    seen = o * s + k * d
    before = z3.If(z3.And(0 <= seen - p, seen - p < low + n + high), padded(seen - p), 0)
    after = z3.If(z3.And(0 <= seen - p - low, seen - p - low < n), v(seen - p - low), 0)
    merged = z3.And(size(b, e) + size(e, at) == size(b, at), z3.Implies(z3.And(0 <= i, i < size(b, at)),
                    v(z3.If(i < size(b, e), b + i, e + i - size(b, e))) == v(b + i)))  # fmt: skip
    return [
        Rule("TransposeToIdentityOrReshape", "index", "a transpose of a transpose is one, all pairs of rank 4", z3.And(*transposes)),
        Rule("TransposeToIdentityOrReshape", "index", "a dimension of 1 keeps the order anywhere", i * m + k == i * m + k + j, [j == 0]),
        Rule("ViewSimplify", "index", "a reshape of a reshape keeps the row-major place", v(i * n + j) == v(k), [k == i * n + j]),
        Rule("TransposeThroughElementwise", "index", "f(x', c)' is f(x, c')", f(x(j, i), c(j, i)) == f(x(j, i), other_way(c)(i, j))),
        Rule("ExpandCast", "index", "an operand's broadcast is the op's own", f(spread(i, j), c(i, j)) == f(v(j), c(i, j))),
        Rule("SliceOfSlice", "index", "element i", v(b2 + (b + i * s) * s2) == v(begin + i * by)),
        Rule("SliceOfSlice", "index", "as many elements, forwards", count(begin, end, by) == n, [n >= 1, by > 0]),
        Rule("SliceOfSlice", "index", "as many elements, backwards", count(begin, end, by) == n, [n >= 1, by < 0]),
        Rule("SliceOfConcat", "index", "inside of a part, as many elements",
             z3.And(b + i * s - at >= 0, b + i * s - at < n, count(b - at, e - at, s) == count(b, e, s)),
             [s >= 1, at <= b, e <= at + n, 0 <= i, b + i * s < e]),
        Rule("ConcatOfSlices", "index", "neighbours whose ends are not before their begins", merged, [b >= 0, b <= e, e <= at]),
        Rule("ConcatOfSlices", "index", "an empty slice whose end is before its begin", merged, [b >= 0, e >= 0, at >= 0], False),
        Rule("ConcatOfConcat", "index", "associative", joined(joined(v, na, w), na + nb, u)(i) == joined(v, na, joined(w, nb, u))(i),
             [na >= 0, nb >= 0, i >= 0]),
        Rule("OpToIdentity", "index", "concatenation with nothing", joined(v, na, w)(i) == w(i), [na == 0, i >= 0]),
        Rule("OpToIdentity", "index", "a slice of all", v(b + i * s) == v(i), [b == 0, s == 1]),
        Rule("PadIntoConv", "index", "all sizes, strides and dilations", before == after, [low >= 0, high >= 0, p >= 0, n >= 0]),
        Rule("PadIntoConv", "index", "a negative padding", before == after, [low >= -3, high >= 0, p >= 0, n >= 1], False),
        Rule("MergeMatMuls", "index", "columns of concatenated weights", joined(v, m, w)(m + j) == w(j), [m >= 0, j >= 0]),
        Rule("QuantizeSooner", "index", "a function of a concatenation", z3.If(i < na, u(v(i)), u(w(i - na))) == u(joined(v, na, w)(i))),
    ]  # fmt: skip


def _reals() -> list[Rule]:
    x, y, m, root, f, t, a, b, c, scale, bias, beta = z3.Reals("x y m root f t a b c scale bias beta")
    x0, x1, w0, w1, za, zb, sa, sb = z3.Reals("x0 x1 w0 w1 za zb sa sb")
    row = z3.Reals("r0 r1 r2")
    mean = sum(row) / 3
    positive = [root > 0]
    exp = z3.Function("exp", z3.RealSort(), z3.RealSort())
    laws = [exp(x0 - c) * exp(c) == exp(x0), exp(x1 - c) * exp(c) == exp(x1), *(exp(v) > 0 for v in (x0, x1, c, x0 - c, x1 - c))]
    log = z3.Function("log", z3.RealSort(), z3.RealSort())
    total = exp(x0) + exp(x1)
    d, e1, e2 = z3.Reals("d e1 e2")
    unit = z3.Q(1, 2**24)

    def normalised(value: Any, by: Any, plus: Any) -> Any:
        return (value - m) / root * by + plus

    def clamp(value: Any, top: int) -> Any:
        return z3.If(value < 0, z3.RealVal(0), z3.If(value > top, z3.RealVal(top), value))

    def larger(p: Any, q: Any) -> Any:
        return z3.If(p >= q, p, q)

    dot = x0 * w0 + x1 * w1
    return [
        Rule("BatchNormIntoConv", "real", "weights and bias by scale / root", normalised(dot + b, scale, bias)
             == x0 * (w0 * (scale / root)) + x1 * (w1 * (scale / root)) + (b * (scale / root) + (bias - m * (scale / root))), positive),
        Rule("FactorIntoConv", "real", "a factor", (dot + b) * f == x0 * (w0 * f) + x1 * (w1 * f) + b * f),
        Rule("FactorIntoConv", "real", "a divisor", (dot + b) / f == x0 * (w0 * (1 / f)) + x1 * (w1 * (1 / f)) + b * (1 / f), [f != 0]),
        Rule("TermIntoConv", "real", "a term", dot + b + t == dot + (b + t)),
        Rule("TermIntoConv", "real", "a bias that is multiplied", a * dot + beta * b + t == a * dot + beta * (b + t), (), False),
        Rule("FactorIntoBatchNorm", "real", "a factor", normalised(x, scale, bias) * f == normalised(x, scale * f, bias * f), positive),
        Rule("TermIntoBatchNorm", "real", "a term", normalised(x, scale, bias) - t == normalised(x, scale, bias - t), positive),
        Rule("FactorIntoWeights", "real", "through a difference and one side of a product",
             z3.And((a - b) * f == a * f - b * f, x0 * w0 * f == x0 * f * w0)),
        Rule("Softmax", "real", "with and without the maximum",
             exp(x0 - c) / (exp(x0 - c) + exp(x1 - c)) == exp(x0) / total, laws),
        Rule("LogOfSoftmax", "real", "the logarithm of a quotient", log(exp(x0) / total) == x0 - log(total),
             [log(exp(x0) / total) == log(exp(x0)) - log(total), log(exp(x0)) == x0]),
        Rule("LayerNorm", "real", "two spellings of the variance",
             sum((q - mean) * (q - mean) for q in row) / 3 == sum(q * q for q in row) / 3 - mean * mean),
        Rule("RmsNorm", "real", "a quotient as a factor", x / root * scale == x * (1 / root) * scale, positive),
        Rule("Attention", "real", "a scale as a divisor", dot / f == dot * (1 / f), [f != 0]),
        Rule("Activation", "real", "hard_swish", x * clamp(x / 6 + z3.Q(1, 2), 1) == x * clamp(x + 3, 6) / 6),
        Rule("Activation", "real", "the argument of gelu by tanh", c * (x + a * (x * x * x)) == c * x * (1 + a * x * x)),
        Rule("Activation", "real", "swish", x * (1 / (1 + exp(-x))) == x / (1 + exp(-x)), [exp(-x) > 0]),
        Rule("Activation", "real", "a factor out of a maximum", larger(c * x + a, b) == c * larger(x + a / c, b / c), [c > 0]),
        Rule("Activation", "real", "a negative factor", larger(c * x + a, b) == c * larger(x + a / c, b / c), [c < 0], False),
        Rule("DequantizedProduct", "real", "scales out of a product", (x0 - za) * sa * ((w0 - zb) * sb) + (x1 - za) * sa * ((w1 - zb) * sb)
             == ((x0 - za) * (w0 - zb) + (x1 - za) * (w1 - zb)) * (sa * sb)),
        Rule("FoldDequantized", "real", "a scaled constant is one constant", (x0 - za) * sa * f == (x0 - za) * (sa * f)),
        Rule("QuantizedAgain", "real", "two roundings of f32 keep an integer of 8 bits the nearest",
             z3.And(d * (1 + e1) * (1 + e2) - d < z3.Q(1, 2), d * (1 + e1) * (1 + e2) - d > -z3.Q(1, 2)),
             [d >= -510, d <= 510, e1 >= -unit, e1 <= unit, e2 >= -unit, e2 <= unit]),
        Rule("laws", "real", "a common factor of a sum", x * a + y * b == (x + y * (b / a)) * a, [a != 0]),
        Rule("laws", "real", "quotients", z3.And(x / y == x * (1 / y), 1 / (1 / x) == x, 1 / (x * y) == 1 / x * (1 / y)), [x != 0, y != 0]),
        Rule("laws", "real", "a constant over a sum", (x + a) * b == x * b + a * b),
        Rule("laws", "real", "half powers cancel", 1 / root * (1 / root) == 1 / x, [root * root == x, root > 0]),
    ]  # fmt: skip


def _floats() -> list[Rule]:
    x, y = z3.FP("x", F16), z3.FP("y", F16)
    one, none, minus = (z3.FPVal(v, F16) for v in (1.0, 0.0, -0.0))
    bf, whole, wide = z3.FP("b", BF16), z3.BitVec("v", 16), z3.BitVec("w", 32)
    f8 = z3.FPSort(3, 4)
    q, p, s = z3.FP("q", f8), z3.FP("p", f8), z3.FP("s", f8)
    mul, add, sub, div = z3.fpMul, z3.fpAdd, z3.fpSub, z3.fpDiv
    third = z3.FPVal(1 / 3, F16)
    return [
        Rule("OpToIdentity", "float", "x 1, x / 1, x - 0, x + -0",
             z3.And(*(v == x for v in (mul(RNE, x, one), div(RNE, x, one), sub(RNE, x, none), add(RNE, x, minus))))),
        Rule("NormScale", "float", "its scale was 1", mul(RNE, x, one) == x),
        Rule("NormBias", "float", "its bias was -0", add(RNE, x, minus) == x),
        Rule("OpToIdentity", "float", "x + 0, which makes 0 of -0", add(RNE, x, none) == x, (), False),
        Rule("CastOfWiderCast", "float", "f16 by way of f32", TO_FLOAT(RNE, TO_FLOAT(RNE, x, F32), F16) == x),
        Rule("CastOfWiderCast", "float", "bf16 by way of f32 to f16", TO_FLOAT(RNE, TO_FLOAT(RNE, bf, F32), F16) == TO_FLOAT(RNE, bf, F16)),
        Rule("CastOfWiderCast", "float", "bf16 by f16", TO_FLOAT(RNE, TO_FLOAT(RNE, bf, F16), F32) == TO_FLOAT(RNE, bf, F32), (), False),
        Rule("CastOfWiderCast", "float", "i16 by way of i32 to i8", z3.Extract(7, 0, z3.SignExt(16, whole)) == z3.Extract(7, 0, whole)),
        Rule("CastOfWiderCast", "float", "i32 by way of f64 to f32",
             TO_FLOAT(RNE, z3.fpSignedToFP(RNE, wide, F64), F32) == z3.fpSignedToFP(RNE, wide, F32)),
        Rule("DequantizeLater", "float", "a scale keeps the order, in floats of 7 bits",
             z3.Implies(z3.fpLEQ(q, p), z3.fpLEQ(mul(RNE, q, s), mul(RNE, p, s))),
             [z3.fpGT(s, z3.FPVal(0.0, f8)), *(z3.Not(z3.fpIsInf(v)) for v in (s, q, p))]),
        Rule("FactorIntoConv", "float", "a divisor as a factor", div(RNE, x, z3.FPVal(3.0, F16)) == mul(RNE, x, third), (), False),
        Rule("TermIntoConv", "float", "terms in another order round otherwise",
             add(RNE, add(RNE, x, y), one) == add(RNE, x, add(RNE, y, one)), (), False),
    ]  # fmt: skip


def _lemmas() -> list[Rule]:
    n, grain, parts, q, r, grains, j = z3.Ints("n grain parts q r grains j")
    low, other, a, b, stride, span = z3.Ints("low other a b stride span")

    def least(x: Any, y: Any) -> Any:
        return z3.If(x <= y, x, y)

    def begin(part: Any) -> Any:
        return least((part * q + least(part, r)) * grain, n)

    split = [n >= 1, grain >= 1, parts >= 1, (grains - 1) * grain < n, n <= grains * grain, grains == q * parts + r, 0 <= r, r < parts]
    fits = [*split, parts <= grains]
    place = [0 <= low, low < span, 0 <= other, other < span, low + stride * a == other + stride * b]
    return [
        Rule("split", "index", "the first part begins at 0", begin(z3.IntVal(0)) == 0, fits),
        Rule("split", "index", "the last part ends at n", begin(parts) == n, fits),
        Rule("split", "index", "no part lacks a grain", q >= 1, fits),
        Rule("split", "index", "parts ascend", begin(j) <= begin(j + 1), [*fits, 0 <= j, j < parts, q >= 1]),
        Rule("radix", "index", "digits of a mixed radix are told by their sum", z3.And(low == other, a == b), [*place, stride >= span]),
        Rule("radix", "index", "not if a stride is smaller than what is below", z3.And(low == other, a == b), [*place, stride >= 1], False),
    ]


RULES = [*_indices(), *_reals(), *_floats(), *_lemmas()]
WITHOUT = {"FoldConstants": "it computes what an op computes, of constants"}
"""Patterns without a rule, and why."""
OTHER_ORDER = {"PadIntoConv", "MergeMatMuls"}
"""Patterns that keep each term, and are left out where results stay bit for bit: a product of another shape may sum in another order."""
BY_BOUNDS = {"QuantizedAgain"}
"""Patterns that are exact in floats by the sizes of rounding errors, which are real numbers."""


@pytest.mark.parametrize("rule", RULES, ids=lambda r: f"{r.pattern}: {r.about}")
def test_a_rule_holds_for_all_numbers(rule):
    found = counterexample(rule.claim, rule.where)
    assert (found is None) == rule.holds, found


def test_each_pattern_rests_on_a_rule_and_says_if_it_holds_in_reals_alone():
    kinds = {name: {rule.kind for rule in RULES if rule.pattern == name and rule.holds} for name in PATTERNS}
    assert {name for name, own in kinds.items() if not own} == {*WITHOUT}
    exact = {name for name, own in kinds.items() if own and "real" not in own}
    marked = {name for name, pattern in PATTERNS.items() if pattern().EXACT}
    assert exact - marked == OTHER_ORDER
    assert marked - exact == BY_BOUNDS


def test_the_lemmas_of_splits_are_about_the_bounds_that_a_split_has():
    rng = random.Random(0)
    for _ in range(300):
        n, grain = rng.randint(1, 60), rng.randint(1, 5)
        split = Split(n, rng.randint(1, -(-n // grain)), grain)
        q, r = divmod(-(-n // grain), split.parts)
        assert split.bounds() == tuple(min((j * q + min(j, r)) * grain, n) for j in range(split.parts + 1))
