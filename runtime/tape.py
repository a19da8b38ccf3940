"""The tape of an expression: a list of steps, each one NumPy loop, which defines the result bit for bit.

    tape = tape_of(select(x, 0.01 * x, x >= 0), (np.dtype("float32"),))

Common subexpressions become one step, and steps on literals alone are folded. A function that NumPy lacks becomes
several steps. Floats of 8 and 16 bits are computed in float32 and rounded after each function; other types are
computed as they are. Engines may run the steps in blocks of any size with the same result.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from populus.dialects.expr import FUNCTIONS, Arg, Call, Cast, Const, Expr
from populus.dialects.support.element_types import dtype_of

Array: TypeAlias = NDArray[Any]
DType: TypeAlias = "np.dtype[Any]"
Primitive: TypeAlias = Callable[..., object]

F32, I8, BOOL = np.dtype(np.float32), np.dtype(np.int8), np.dtype(np.bool_)
SATURATING = frozenset(("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float4_e2m1fn"))
PACKED = frozenset(("int2", "int4", "uint2", "uint4"))


# -- primitives: take the operands and `out` ------------------------------------------------------------------------


def _keyword(ufunc: np.ufunc) -> Primitive:
    """Passes `out` by keyword, because NumPy deprecates a positional `out` for these functions."""

    def run(a: Array, b: Array, out: Array) -> None:
        ufunc(a, b, out=out)

    return run


def _convert(x: Array, out: Array) -> None:
    if out.dtype.kind in "iu" and x.dtype.kind in "fV":
        truncate(x, out)
    else:
        np.copyto(out, x, casting="unsafe")


def truncate(x: Array, out: Array) -> None:
    """Rounds floats towards zero to i32, or i64 for integers of 64 bits and ui32. Smaller integers are the last bits of these.

    NaN and numbers beyond the range of i32 or i64 become its least; ui64 also has the numbers from 2^63 to 2^64. C leaves them
    undefined, so NumPy's results depend on its compiler and on the CPU.
    """
    if x.itemsize < 4:
        x = x.astype(F32)
    wide = np.int64 if out.itemsize == 8 or out.dtype == np.uint32 else np.int32
    limits, end = np.iinfo(wide), -float(np.iinfo(wide).min)
    with np.errstate(all="ignore"):
        high = (x >= end) & (x < 2 * end) if out.dtype == np.uint64 else None
        if high is not None and high.any():
            x = np.where(high, x - x.dtype.type(end), x)
        low = x > -end - 1 if x.itemsize == 8 and wide is np.int32 else x >= -end  # f64 has numbers that round to -2^31
        inside = low & (x < end)
        if inside.all():
            value = x.astype(wide)
        else:
            value = np.where(inside, x, 0).astype(wide)
            value = np.where(inside, value, limits.min)
        if high is not None:
            value = np.where(high, value ^ limits.min, value)
    np.copyto(out, value, casting="unsafe")


def _saturate(x: Array, out: Array) -> None:
    """Converts to a float of 8 or 4 bits; larger magnitudes and infinities become the largest finite value.

    Source: ONNX Cast-24, saturate = 1.
    """
    import ml_dtypes

    largest = float(ml_dtypes.finfo(out.dtype).max)  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]
    largest = x.dtype.type(largest)
    np.copyto(out, np.clip(x, -largest, largest), casting="unsafe")


def _bits(x: Array, out: Array) -> None:
    """Copies the bits to another type. A byte becomes true as a boolean if any bit is set."""
    bytes = f"u{out.dtype.itemsize}"
    np.copyto(out.view(bytes), x.view(bytes))
    if out.dtype == BOOL:
        np.not_equal(out.view(bytes), 0, out=out)


def _negative(x: Array, out: Array) -> None:
    """Computes -x.

    A strided `out` goes through a copy: in place, NumPy 2.4 rereads elements that it has written, 16 bytes apart in
    f32 and i32.
    """
    if out.flags.c_contiguous:
        np.negative(x, out)
    else:
        np.copyto(out, np.negative(x))


def _mask(condition: Array, out: Array) -> None:
    """Converts booleans, given as bytes, to integers with all bits set or none."""
    np.copyto(out, condition)
    np.negative(out, out)


def _blend(a: Array, b: Array, mask: Array, out: Array) -> None:
    """Selects the bits of a where the mask is set and of b elsewhere, without branches; NaNs keep their payload."""
    np.bitwise_xor(a, b, out)
    np.bitwise_and(out, mask, out)
    np.bitwise_xor(out, b, out)


def _int_divide(a: Array, b: Array, out: Array) -> None:
    """Divides integers, rounding towards zero; the result is 0 where b is 0."""
    q = np.floor_divide(a, b)
    if a.dtype.kind == "i":  # floor division is one too low for an inexact negative quotient
        q += ((a < 0) != (b < 0)) & (q * b != a) & (b != 0)
    np.copyto(out, q)


def _int_power(a: Array, b: Array, out: Array) -> None:
    """Computes a^b modulo 2^bits. For negative b it is 1 / a^-b truncated: 0 except for a = 1 and -1."""
    result = np.power(a, np.maximum(b, 0))
    if b.dtype.kind == "i":
        odd = np.where(b % 2 == 0, 1, a).astype(a.dtype)
        result = np.where(b < 0, np.where(np.abs(a) == 1, odd, 0), result)
    np.copyto(out, result)


def _power(a: Array, b: Array, out: Array) -> None:
    """Computes a^b. For one power of 1/2 NumPy takes roots: of -0 and minus infinity -0 and NaN, where powers are 0 and infinity."""
    half = b == 0.5
    if not half.any():
        np.power(a, b, out)
        return
    ends, sizes = half & ((a == 0) | (a == -np.inf)), np.absolute(a)
    np.power(a, b, out)
    np.copyto(out, sizes, where=ends)


# Steps whose result does not depend on NumPy's choice of loop: they round correctly, or move bits.
EXACT: dict[str, Primitive] = {
    "abs": np.absolute, "add": np.add, "bits": _bits, "bitwise_and": np.bitwise_and, "bitwise_not": np.bitwise_not,
    "bitwise_or": np.bitwise_or, "bitwise_xor": np.bitwise_xor, "blend": _blend, "ceil": np.ceil, "convert": _convert,
    "divide": np.divide, "equal": np.equal, "floor": np.floor, "gt": np.greater, "gte": np.greater_equal,
    "int_divide": _int_divide, "int_power": _int_power, "isfinite": np.isfinite, "isinf": np.isinf, "isnan": np.isnan,
    "logical_and": np.logical_and, "logical_not": np.logical_not, "logical_or": np.logical_or, "logical_xor": np.logical_xor,
    "lt": np.less, "lte": np.less_equal, "mask": _mask, "max": _keyword(np.maximum), "min": _keyword(np.minimum),
    "mul": np.multiply, "nearbyint": np.rint, "neg": _negative, "rem": np.fmod, "saturate": _saturate,
    "shift_left": np.left_shift, "shift_right": np.right_shift, "signum": np.sign, "sqrt": np.sqrt, "sub": np.subtract,
    "trunc": np.trunc,
}  # fmt: skip
# Steps whose vector loops in NumPy may differ in the last bit from the scalar loops that it uses for strided arrays.
ROUNDED: dict[str, Primitive] = {
    "acos": np.arccos, "acosh": np.arccosh, "asin": np.arcsin, "asinh": np.arcsinh, "atan": np.arctan, "atan2": np.arctan2,
    "atanh": np.arctanh, "cos": np.cos, "cosh": np.cosh, "exp": np.exp, "expm1": np.expm1, "log": np.log, "log1p": np.log1p,
    "pow": _power, "sin": np.sin, "sinh": np.sinh, "tan": np.tan, "tanh": np.tanh,
}  # fmt: skip
PRIMITIVES: dict[str, Primitive] = {**EXACT, **ROUNDED}
# Positions of operands that must not share memory with the result, because the step writes it before it has read them.
READ_LATE: dict[str, tuple[int, ...]] = {"blend": (1, 2), "mask": (0,), "bits": (0,), "convert": (0,), "saturate": (0,)}
VIEWED_AS_INTEGERS = {"blend", "mask"}


# -- tapes -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TapeStep:
    """A step: `values[result] = PRIMITIVES[name](values of args)`, with elements of type `dtype`."""

    name: str
    args: tuple[int, ...]
    dtype: DType


@dataclass(frozen=True)
class Tape:
    """A list of steps over numbered values: the operands, then `literals` (scalars), then the result of each step.

    `operands`: element types. `result`: the number of the value that is the result, of element type `dtype`. `given`: which
    literals come from numbers in the expression; the others belong to its functions.
    """

    operands: tuple[DType, ...]
    literals: tuple[Array, ...]
    steps: tuple[TapeStep, ...]
    result: int
    dtype: DType
    given: tuple[int, ...] = ()


@lru_cache(1024)
def tape_of(e: Expr, operands: tuple[DType, ...]) -> Tape:
    """Gives the tape of an expression over operands of these element types."""
    build = _TapeBuilder(operands)
    value = build.value(e, None)
    return build.tape(value)


class _TapeBuilder:
    """The builder of a tape. Values are tuples, so that equal ones are shared: ('operand', i), ('literal', i), ('step',
    i).
    """

    def __init__(self, operands: tuple[DType, ...]):
        self.operands = operands
        self.literals: list[Array] = []
        self._given: set[int] = set()
        self.steps: list[tuple[str, tuple[_Value, ...], DType]] = []
        self._literal_numbers: dict[tuple[str, bytes], int] = {}
        self._step_numbers: dict[tuple[str, tuple[_Value, ...], DType], int] = {}
        self._types: dict[int, DType | None] = {}

    # - element types

    def type_of(self, e: Expr) -> DType | None:
        """Gives the element type of `e`; None if it consists of literals, which take the type of their context."""
        if id(e) not in self._types:
            self._types[id(e)] = self._type_of(e)
        return self._types[id(e)]

    def _type_of(self, e: Expr) -> DType | None:
        match e:
            case Arg(index):
                return self.operands[index - 1]
            case Const(value):
                return BOOL if isinstance(value, bool) else None
            case Cast(_, type):
                return dtype_of(type)
            case Call(function, args):
                return BOOL if FUNCTIONS[function].result == "bool" else self.common(function, args)
            case _:
                raise AssertionError(e)

    def common(self, function: str, args: tuple[Expr, ...]) -> DType | None:
        """Gives the element type in which a function is computed; None if its operands are literals."""
        operands = args[:2] if function == "select" else args
        return next((dtype for a in operands if (dtype := self.type_of(a)) is not None), None)

    # - values

    def literal(self, value: object, dtype: DType, given: bool = False) -> _Value:
        scalar = np.array(value, dtype)
        if dtype.kind in "iu" and isinstance(value, float):
            assert value.is_integer(), f"the literal {value} meets elements of {dtype}"
        scalar.flags.writeable = False
        number = self._literal_numbers.setdefault((dtype.name, scalar.tobytes()), len(self.literals))
        if number == len(self.literals):
            self.literals.append(scalar)
        if given:
            self._given.add(number)
        return ("literal", number)

    def dtype(self, value: _Value) -> DType:
        kind, number = value
        match kind:
            case "operand":
                return self.operands[number]
            case "literal":
                return self.literals[number].dtype
            case _:
                return self.steps[number][2]

    def step(self, name: str, *args: _Value, dtype: DType | None = None) -> _Value:
        """Adds a primitive on values, with the first operand's element type unless `dtype` is given."""
        dtype = self.dtype(args[0]) if dtype is None else dtype
        if all(kind == "literal" for kind, _ in args):
            out = np.empty((1,), dtype)
            literals = [self.literals[number].reshape(1) for _, number in args]
            if name in VIEWED_AS_INTEGERS:
                literals = [as_bits(a) for a in literals]
            with np.errstate(all="ignore"):
                PRIMITIVES[name](*literals, as_bits(out) if name == "blend" else out)
            return self.literal(out[0], dtype, any(number in self._given for _, number in args))
        key = (name, args, dtype)
        number = self._step_numbers.setdefault(key, len(self.steps))
        if number == len(self.steps):
            self.steps.append(key)
        return ("step", number)

    def convert(self, x: _Value, to: DType) -> _Value:
        source = self.dtype(x)
        if source == to:
            return x
        if to.name in SATURATING:
            if source == BOOL or source.kind in "iu" or source.itemsize < 4:
                x = self.step("convert", x, dtype=F32)
            return self.step("saturate", x, dtype=to)
        if to.name in PACKED and source.name != "int8":
            # The value becomes an integer first, whose lowest bits are the result. Source: ONNX Cast-24.
            return self.step("convert", self.convert(x, I8), dtype=to)
        if source.itemsize == 1 and source.isbuiltin == 2 and to != F32:
            return self.convert(self.step("convert", x, dtype=F32), to)  # ml_dtypes lacks some direct conversions
        return self.step("convert", x, dtype=to)

    def value(self, e: Expr, expected: DType | None) -> _Value:
        """Adds the steps of `e`; literals take the type `expected` if their context does not determine it."""
        match e:
            case Arg(index):
                return ("operand", index - 1)
            case Const(value):
                return self.literal(value, BOOL if isinstance(value, bool) else (expected or F32), True)
            case Cast(x, type, bits):
                value = self.value(x, None)
                return self.step("bits", value, dtype=dtype_of(type)) if bits else self.convert(value, dtype_of(type))
            case Call("select", (a, b, condition)):
                dtype = self.common("select", (a, b)) or expected or F32
                return self.select(self.value(a, dtype), self.value(b, dtype), self.value(condition, None))
            case Call(function, args):
                known = self.common(function, args)
                dtype = known or (expected if FUNCTIONS[function].result == "same" else None) or F32
                return self.call(function, [self.value(a, dtype) for a in args], dtype)
            case _:
                raise AssertionError(e)

    def select(self, a: _Value, b: _Value, condition: _Value) -> _Value:
        dtype = self.dtype(a)
        mask = self.step("mask", condition, dtype=np.dtype(f"i{dtype.itemsize}"))
        return self.step("blend", a, b, mask, dtype=dtype)

    def call(self, function: str, args: list[_Value], dtype: DType) -> _Value:
        result = BOOL if FUNCTIONS[function].result == "bool" else dtype
        narrow = dtype.itemsize < 4 and dtype.kind not in "biu"
        if narrow:
            args, dtype = [self.convert(a, F32) for a in args], F32
        if function in _COMPOSITE:
            value = _COMPOSITE[function](self, *args)
        elif dtype.kind in "biu" and function in _ON_INTEGERS:
            value = self.step(_ON_INTEGERS[function], *args)
        else:
            value = self.step(_RENAMED.get(function, function), *args, dtype=BOOL if result == BOOL else dtype)
        return self.convert(value, result) if narrow else value

    def tape(self, value: _Value) -> Tape:
        first = {"operand": 0, "literal": len(self.operands), "step": len(self.operands) + len(self.literals)}
        steps = [TapeStep(name, tuple(first[kind] + i for kind, i in args), dtype) for name, args, dtype in self.steps]
        number = first[value[0]] + value[1]
        return Tape(self.operands, tuple(self.literals), tuple(steps), number, self.dtype(value), tuple(sorted(self._given)))


_Value: TypeAlias = "tuple[str, int]"
_RENAMED = {"and": "logical_and", "not": "logical_not", "or": "logical_or", "xor": "logical_xor"}

_ON_INTEGERS = {"divide": "int_divide", "pow": "int_power"}


def as_bits(x: Array) -> Array:
    """Gives a view of the same bits as signed integers."""
    return x.view(f"i{x.dtype.itemsize}")


# -- functions of several steps --------------------------------------------------------------------------------------


def _square(t: _TapeBuilder, x: _Value) -> _Value:
    return t.step("mul", x, x)


def _inverse(t: _TapeBuilder, x: _Value) -> _Value:
    dtype = t.dtype(x)
    return t.step("int_divide" if dtype.kind in "iu" else "divide", t.literal(1, dtype), x)


def _inverse_root(t: _TapeBuilder, x: _Value) -> _Value:
    return _inverse(t, t.step("sqrt", x))


def _sigmoid(t: _TapeBuilder, x: _Value) -> _Value:
    return _inverse(t, t.step("add", t.step("exp", t.step("neg", x)), t.literal(1, t.dtype(x))))


def _polynomial(t: _TapeBuilder, x: _Value, coefficients: list[float]) -> _Value:
    """Evaluates a polynomial by Horner's rule; the coefficient of the highest power is last."""
    dtype = t.dtype(x)
    value = t.literal(coefficients[-1], dtype)
    for c in coefficients[-2::-1]:
        value = t.step("add", t.step("mul", value, x, dtype=dtype), t.literal(c, dtype))
    return value


# erf(x) / x over x^2, for |x| < 4 (erf is 1 in f32 from 3.92 on): a least-squares fit, relative error 2e-8, or 4e-7
# in f32.
_ERF_P = [1.12837911, 0.190781921, 0.0527900271, 0.0037795247, 0.000284806272, 2.04198068e-06]
_ERF_Q = [1.0, 0.502408803, 0.114256725, 0.01499727, 0.00116519129, 3.80040547e-05]
# erf(x) / x over x^2 for |x| < 1 in f64: Taylor, 2/sqrt(pi) (-1)^n / (n! (2n + 1)).
_ERF_SERIES = [2 / math.sqrt(math.pi) * (-1) ** n / (math.factorial(n) * (2 * n + 1)) for n in range(18)]
# erfc(x) e^(x^2) over s, for 1 < x < 6: a Chebyshev fit, relative error of erf 2e-16; s is 1 at x = 1 and -1 at x = 6.
_ERFC = [
    0.22142954022993247, 0.16189356804102784, 0.038560570425161866, 0.005588816281776974, 0.0001971391779444042,
    -8.07922038080277e-05, -7.340519109554717e-06, 1.9795602667630523e-06, 1.6350297042536153e-07, -7.005039447200243e-08,
    -5.95123178128579e-10, 2.6213933855260458e-09, -2.6179631205026467e-10, -7.262805145952662e-11, 1.8192531170554543e-11,
]  # fmt: skip


def _erf(t: _TapeBuilder, x: _Value) -> _Value:
    """Computes the error function; relative error 4e-7 in f32, 4e-16 in f64."""
    dtype = t.dtype(x)

    def literal(v: float) -> _Value:
        return t.literal(v, dtype)

    if dtype == F32:
        limit = literal(4.0)  # from here on, the quotient is 1 or more
        z = t.step("max", t.step("min", x, limit), t.step("neg", limit))
        u = t.step("mul", z, z)
        y = t.step("divide", t.step("mul", z, _polynomial(t, u, _ERF_P)), _polynomial(t, u, _ERF_Q))
        return t.step("max", t.step("min", y, literal(1)), literal(-1))
    a = t.step("abs", x)
    inner = t.step("min", a, literal(1))
    near = t.step("mul", inner, _polynomial(t, t.step("mul", inner, inner), _ERF_SERIES))
    outer = t.step("min", t.step("max", a, literal(1)), literal(6))
    scale = 2 / (1 / 3 - 1 / 8)
    s = t.step("divide", literal(scale), t.step("add", outer, literal(2)))
    s = t.step("sub", s, literal(scale / 8 + 1))
    tail = t.step("mul", t.step("exp", t.step("neg", t.step("mul", outer, outer))), _polynomial(t, s, _ERFC))
    far = t.step("sub", literal(1), tail)
    size = t.select(near, far, t.step("lt", a, literal(1), dtype=BOOL))
    size = t.select(size, literal(1), t.step("lt", a, literal(6), dtype=BOOL))
    signed = t.select(t.step("neg", size), size, t.step("lt", x, literal(0), dtype=BOOL))
    signed = t.select(x, signed, t.step("equal", x, literal(0), dtype=BOOL))  # -0.0 stays -0.0 -0.0
    return t.select(x, signed, t.step("isnan", x, dtype=BOOL))


_COMPOSITE: dict[str, Callable[..., _Value]] = {
    "erf": _erf,
    "inv": _inverse,
    "rsqrt": _inverse_root,
    "sigmoid": _sigmoid,
    "square": _square,
}
