"""Kinds of nodes that compute element by element."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import acosh, asin, asinh, atan, atanh, cosh, exp, inf, log, sinh, sqrt, tan

import numpy as np
from onnx import helper

from fuzz.drawing import (
    ANY,
    BF16,
    BOOL,
    F16,
    F32,
    F64,
    FLOATS,
    I8,
    I32,
    I64,
    INTS,
    NUMBERS,
    U8,
    U64,
    Draw,
    Kind,
    Span,
    Unfit,
    Value,
    holds,
    is_float,
)

REAL = FLOATS
WIDE = (F32, F64)
NARROW = (F32, F32, F16)  # where onnxruntime has no doubles


@dataclass(frozen=True)
class Unary:
    """A function of one value. `low`, `high`: where it is called. `of`: its span. `picks`: it is discontinuous."""

    op: str
    types: Sequence[int]
    of: Callable[[Span], Span]
    low: float = -inf
    high: float = inf
    picks: bool = False
    since: int = 7
    attributes: Callable[[Draw], dict[str, float | int]] = lambda _: {}

    def draw(self, g: Draw) -> None:
        x = g.value(self.types, low=self.low, high=self.high, exact=self.picks)
        g.node(self.op, [x], [self.of(x.span)], [x.shape], **self.attributes(g))


def grows(f: Callable[[float], float]) -> Callable[[Span], Span]:
    """The span of a function that grows."""
    return lambda s: Span(f(s.low), f(s.high))


def within(low: float, high: float) -> Callable[[Span], Span]:
    return lambda _: Span(low, high)


def wider(s: Span) -> Span:
    return Span(-2 * s.size - 1, 2 * s.size + 1)


def same(s: Span) -> Span:
    return s


def whole(s: Span) -> Span:
    return Span(np.floor(s.low), np.ceil(s.high), 1)


def alpha(low: float, high: float, name: str = "alpha") -> Callable[[Draw], dict[str, float | int]]:
    return lambda g: {} if g.chance(0.3) else {name: round(g.rng.uniform(low, high), 2)}


def either(*ways: Callable[[Draw], dict[str, float | int]]) -> Callable[[Draw], dict[str, float | int]]:
    return lambda g: {k: v for way in ways for k, v in way(g).items()}


UNARY = [
    Unary("Abs", NUMBERS, lambda s: Span(0, s.size, s.step)),
    Unary("Neg", (*FLOATS, I8, I32, I64), lambda s: Span(-s.high, -s.low, s.step)),
    Unary("Identity", ANY, same),
    Unary("Relu", FLOATS, lambda s: Span(max(s.low, 0), max(s.high, 0), s.step)),
    Unary("Relu", (I8, I32), lambda s: Span(max(s.low, 0), max(s.high, 0), s.step), since=14),
    Unary("Floor", REAL, whole, picks=True),
    Unary("Ceil", REAL, whole, picks=True),
    Unary("Round", REAL, whole, picks=True, since=11),
    Unary("Sign", NUMBERS, lambda _: Span(-1, 1, 1), picks=True, since=9),
    Unary("Sqrt", REAL, grows(sqrt), 0.0625),
    Unary("Exp", REAL, grows(exp), -10, 5),
    Unary("Log", REAL, grows(log), 0.125),
    Unary("Reciprocal", REAL, lambda s: Span(1 / s.high, 1 / s.low), 0.25),
    Unary("Sigmoid", REAL, within(0, 1)),
    Unary("Tanh", REAL, within(-1, 1)),
    Unary("Erf", NARROW, within(-1, 1), since=9),
    Unary("Sin", WIDE, within(-1, 1), -20, 20),
    Unary("Cos", REAL, within(-1, 1), -20, 20),
    Unary("Tan", NARROW, grows(tan), -1.25, 1.25),
    Unary("Asin", NARROW, grows(asin), -0.9375, 0.9375),
    Unary("Acos", NARROW, within(0, 3.2), -0.9375, 0.9375),
    Unary("Atan", NARROW, grows(atan)),
    Unary("Sinh", NARROW, grows(sinh), -4, 4, since=9),
    Unary("Cosh", NARROW, lambda s: Span(1, cosh(s.size)), -4, 4, since=9),
    Unary("Asinh", NARROW, grows(asinh), since=9),
    Unary("Acosh", NARROW, grows(acosh), 1.125, since=9),
    Unary("Atanh", NARROW, grows(atanh), -0.9375, 0.9375, since=9),
    Unary("Softplus", NARROW, lambda s: Span(0, max(s.high, 0) + 1), -50, 50),
    Unary("Softsign", NARROW, within(-1, 1)),
    Unary("Elu", NARROW, wider, -50, 50, attributes=alpha(0.1, 2)),
    Unary("Selu", NARROW, wider, -50, 50, attributes=either(alpha(0.1, 1), alpha(0.1, 1, "gamma"))),
    Unary("LeakyRelu", NARROW, wider, attributes=alpha(-1, 1)),
    Unary("HardSigmoid", NARROW, within(0, 1), attributes=either(alpha(0.1, 1), alpha(-0.5, 0.5, "beta"))),
    Unary("HardSwish", REAL, wider, -50, 50, since=14),
    Unary("Celu", (F32,), wider, -50, 50, since=12, attributes=alpha(0.2, 2)),
    Unary("ThresholdedRelu", NARROW, same, picks=True, since=10, attributes=lambda g: {} if g.chance(0.3) else {"alpha": 0.3}),
    Unary("Shrink", WIDE, wider, picks=True, since=9, attributes=either(alpha(0, 1, "bias"), lambda g: {"lambd": 0.3})),
    Unary("Gelu", REAL, wider, -50, 50, since=20),
    Unary("Mish", REAL, wider, -50, 50, since=18),
    Unary("Not", (BOOL,), same),
    Unary("IsNaN", (F32, F64, F16), lambda _: Span(0, 1, 1), since=9),
    Unary("IsInf", (F32, F64), lambda _: Span(0, 1, 1), since=10, attributes=lambda g: {"detect_positive": g.rng.randint(0, 1)}),
    Unary("BitwiseNot", INTS, lambda s: Span(-inf, inf, 1), since=18),
]


def gelu(g: Draw) -> None:
    x = g.value(REAL, low=-50, high=50)
    g.node("Gelu", [x], [wider(x.span)], approximate="tanh")


def finest(a: Span, b: Span) -> float | None:
    return None if not a.step or not b.step else min(a.step, b.step)


def plus(a: Span, b: Span) -> Span:
    return Span(a.low + b.low, a.high + b.high, finest(a, b))


def minus(a: Span, b: Span) -> Span:
    return Span(a.low - b.high, a.high - b.low, finest(a, b))


def times(a: Span, b: Span) -> Span:
    ends = [x * y for x in (a.low, a.high) for y in (b.low, b.high)]
    return Span(min(ends), max(ends), a.step * b.step if a.step and b.step else None)


def binary(op: str, of: Callable[[Span, Span], Span], types: Sequence[int] = NUMBERS) -> Callable[[Draw], None]:
    def draw(g: Draw) -> None:
        x = g.value(types)
        y = g.beside(x, (x.type,))
        if g.chance(0.3):
            x, y = y, x
        g.node(op, [x, y], [of(x.span, y.span)])

    return draw


def divide(g: Draw) -> None:
    x = g.value(NUMBERS)
    y = g.beside(x, (x.type,), low=1 if not is_float(x.type) else 0.25)
    span = Span(-x.span.size / y.span.low, x.span.size / y.span.low)
    g.node("Div", [x, y], [span if is_float(x.type) else Span(np.floor(span.low), np.ceil(span.high), 1)])


def modulo(g: Draw) -> None:
    x = g.value(NUMBERS, exact=True, low=-(2**20), high=2**20)
    y = g.beside(x, (x.type,), low=1 if not is_float(x.type) else 0.25, exact=True)
    fmod = 1 if is_float(x.type) else g.rng.randint(0, 1)
    g.node("Mod", [x, y], [Span(-y.span.high, y.span.high, finest(x.span, y.span) or 0)], fmod=fmod)


def power(g: Draw) -> None:
    x = g.value(FLOATS, low=0.125, high=6)
    y = g.beside(x, (x.type,) if g.opset < 12 or g.chance(0.6) else (F32, F64, I32, I64), low=-3, high=3)
    g.node("Pow", [x, y], [Span(0, 8**3)])


def square(g: Draw) -> None:
    x = g.value((*FLOATS, I32, I64) if g.opset >= 12 else FLOATS, low=-30, high=30)
    n = g.rng.choice([0, 1, 2, 3])
    y = g.scalar(n, x.type)
    g.node("Pow", [x, y], [Span(-max(x.span.size**n, 1), max(x.span.size**n, 1))])


def prelu(g: Draw) -> None:
    x = g.value(NARROW, least=1)
    slope = g.new(x.type, [1 if g.chance(0.4) else d for d in x.shape][g.rng.randint(0, x.rank - 1) :], -1, 1)
    g.node("PRelu", [x, slope], [wider(x.span)])


def compare(op: str, types: Sequence[int]) -> Callable[[Draw], None]:
    def draw(g: Draw) -> None:
        x = g.value(types, exact=True)
        y = g.beside(x, (x.type,), exact=True)
        g.node(op, [x, y], [Span(0, 1, 1)], [np.broadcast_shapes(x.shape, y.shape)])

    return draw


def variadic(op: str, types: Sequence[int]) -> Callable[[Draw], None]:
    def draw(g: Draw) -> None:
        xs = [g.value(types)]
        for _ in range(g.rng.randint(0, 3)):
            xs.append(g.beside(xs[0], (xs[0].type,)))
        try:
            np.broadcast_shapes(*(x.shape for x in xs))
        except ValueError as error:
            raise Unfit from error
        g.rng.shuffle(xs)
        span = xs[0].span
        for x in xs[1:]:
            span = plus(span, x.span) if op in ("Sum", "Mean") else span.over(x.span)
        g.node(op, xs, [Span(span.low, span.high) if op == "Mean" else span])

    return draw


def where(g: Draw) -> None:
    x = g.value((*FLOATS, I32, I64, U8))
    y, c = g.beside(x, (x.type,)), g.beside(x, (BOOL,))
    try:
        np.broadcast_shapes(x.shape, y.shape, c.shape)
    except ValueError as error:
        raise Unfit from error
    g.node("Where", [c, x, y], [x.span.over(y.span)])


def clip(g: Draw) -> None:
    x = g.value((*FLOATS, I8, I32, I64, U8, U64) if g.opset >= 12 else NARROW)
    low, high = sorted(g.rng.sample(range(-3, 5), 2))
    least, most = holds(x.type)
    low = max(low, int(max(least, -9)))
    high = max(min(high, int(most)), low)
    said = [g.chance(0.8), g.chance(0.8)]
    span = Span(max(low, x.span.low) if said[0] else x.span.low, min(high, x.span.high) if said[1] else x.span.high, x.span.step)
    if span.low > span.high:
        span = Span(min(low, x.span.low), max(high, x.span.high), x.span.step)
    span = span.over(*[Span(float(e), float(e), 1) for e, s in zip((low, high), said) if s])
    if x.span.step is None:
        span = Span(span.low, span.high)
    if g.opset < 11:
        g.node("Clip", [x], [span], **{n: float(e) for n, e, s in zip(("min", "max"), (low, high), said) if s})
    else:
        g.node("Clip", [x, *(g.scalar(e, x.type) if s else None for e, s in zip((low, high), said))], [span])


CASTS = (F32, F64, F16, BF16, I8, *INTS, BOOL)


def cast_span(x: Value, to: int) -> Span:
    """The span of a cast; Unfit where its result is not what ONNX defines."""
    low, high = holds(to)
    if to == BOOL:
        if not x.span.exact:
            raise Unfit
        return Span(0, 1, 1)
    if is_float(to):
        narrower = is_float(x.type) and helper.tensor_dtype_to_np_dtype(to).itemsize < helper.tensor_dtype_to_np_dtype(x.type).itemsize
        step = x.span.step if x.span.step or not narrower else None
        return Span(x.span.low, x.span.high, step)
    if is_float(x.type) and (not x.span.exact or x.span.low < low or x.span.high > high):
        raise Unfit
    if x.type == U64 and x.span.high > 2**52:
        raise Unfit
    return Span(np.floor(x.span.low), np.ceil(x.span.high), 1)


def cast(g: Draw) -> None:
    x = g.value((*CASTS,) if g.opset >= 13 else ANY)
    to = g.rng.choice(CASTS if g.opset >= 13 else ANY)
    g.node("Cast", [x], [cast_span(x, to)], to=to)


def cast_like(g: Draw) -> None:
    x, like = g.value(ANY), g.value(ANY)
    g.node("CastLike", [x, like], [cast_span(x, like.type)])


def shift(g: Draw) -> None:
    x = g.value((U8, U64))
    y = g.beside(x, (x.type,), low=0, high=7)
    g.node("BitShift", [x, y], [Span(0, holds(x.type)[1], 1)], direction=g.rng.choice(["LEFT", "RIGHT"]))


def dropout(g: Draw) -> None:
    x = g.value(FLOATS)
    mask = Span(0, 1, 1) if g.opset >= 10 and g.chance(0.5) else None
    if g.opset < 12:
        g.node("Dropout", [x], [x.span, mask], **({"ratio": 0.3} if g.chance(0.5) else {}))
        return
    ratio = g.scalar(g.rng.choice([0, 0.4]), g.rng.choice([F32, F16])) if g.chance(0.5) else None
    g.node("Dropout", [x, ratio, g.constant(np.array(False)) if g.chance(0.3) else None], [x.span, mask])


COMPARED = (*WIDE, I32, I64, U8, I8, F16)
KINDS = [
    *(Kind(u.op, u.draw, u.since) for u in UNARY),
    Kind("Gelu", gelu, 20, weight=1),
    *(Kind(op, binary(op, of), weight=5) for op, of in (("Add", plus), ("Sub", minus), ("Mul", times))),
    Kind("Div", divide, weight=3),
    Kind("Mod", modulo, 10),
    Kind("Pow", power),
    Kind("Pow", square),
    Kind("PRelu", prelu),
    *(Kind(op, binary(op, lambda a, b: Span(0, 1, 1), (BOOL,))) for op in ("And", "Or", "Xor")),
    *(Kind(op, binary(op, lambda a, b: Span(-inf, inf, 1), INTS), 18) for op in ("BitwiseAnd", "BitwiseOr", "BitwiseXor")),
    Kind("Equal", compare("Equal", (I32, I64, BOOL)), 7, 10),
    Kind("Equal", compare("Equal", (*COMPARED, BOOL)), 11),
    Kind("Less", compare("Less", (*WIDE, F16)), 7, 8),
    Kind("Greater", compare("Greater", (*WIDE, F16)), 7, 8),
    *(Kind(op, compare(op, COMPARED), 9) for op in ("Less", "Greater")),
    *(Kind(op, compare(op, COMPARED), 12) for op in ("LessOrEqual", "GreaterOrEqual")),
    *(Kind(op, variadic(op, FLOATS), 8) for op in ("Max", "Min", "Sum")),
    Kind("Mean", variadic("Mean", NARROW), 8),
    *(Kind(op, variadic(op, (*FLOATS, I32, I64, U64)), 12) for op in ("Max", "Min")),
    Kind("Where", where, 9, weight=4),
    Kind("Clip", clip, weight=3),
    Kind("Cast", cast, 9, weight=10),
    Kind("CastLike", cast_like, 15),
    Kind("BitShift", shift, 11),
    Kind("Dropout", dropout),
]
