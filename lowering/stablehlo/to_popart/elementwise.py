"""Conversions of element-wise ops: arithmetic, comparisons, bits, conversions."""

from __future__ import annotations

from collections.abc import Callable

from xdsl.dialects.builtin import f32, f64, i1, i8, i32
from xdsl.ir import Attribute, SSAValue

from populus.dialects import popart
from populus.dialects.base.tensor_op import TensorOp
from populus.dialects.support.diagnostics import PopulusError
from populus.dialects.support.element_types import dtype_of, is_float, is_integer, is_packed, is_unsigned, size_in_bytes, ui2, ui4, ui8
from populus.lowering.stablehlo.to_popart import complex_math
from populus.lowering.stablehlo.to_popart.conversion import BITS, Conversion, Pair, Rule, Rules, Value, as_pair, element, real

Binary = Callable[[Conversion, SSAValue, SSAValue], SSAValue]


def is_pair(c: Conversion) -> bool:
    """Tells whether an operand is complex."""
    return any(isinstance(v, Pair) for v in c.inputs)


def rule(name: str, compute: Callable[..., SSAValue]) -> Rule:
    """Makes a rule: `compute` for real operands, and for complex ones the function of this name in `complex_math`."""

    def convert(c: Conversion) -> Value:
        if not is_pair(c):
            operands = [real(v) for v in c.inputs]
            if is_packed(own := element(operands[0])):  # computed in bytes, of which the low bits are kept
                return c.cast(compute(c, *(c.cast(v, ui8 if is_unsigned_packed(own) else i8) for v in operands)), c.element())
            return compute(c, *operands)
        function = complex_math.FUNCTIONS.get(name)
        if function is None:
            raise PopulusError(f"there is no conversion of {c.op.name} for complex numbers")
        return function(c, *(as_pair(c, v) for v in c.inputs))

    return convert


def is_unsigned_packed(element: Attribute) -> bool:
    """Tells whether integers of less than a byte are unsigned."""
    return element in (ui2, ui4)


def plain(kind: type[TensorOp]) -> Callable[..., SSAValue]:
    """Makes the function that inserts one op of `popart`."""

    def compute(c: Conversion, *operands: SSAValue) -> SSAValue:
        return c(kind, *operands)

    return compute


def signed(c: Conversion, x: SSAValue) -> SSAValue:
    """Takes the bits of integers for signed ones."""
    import numpy as np

    from populus.dialects.support.element_types import element_of

    return c.bits(x, element_of(np.dtype(f"int{8 * size_in_bytes(element(x))}")))


def rsqrt(c: Conversion, x: SSAValue) -> SSAValue:
    """Computes `1 / sqrt(x)`."""
    return c(popart.ReciprocalOp, c(popart.SqrtOp, x))


def cbrt(c: Conversion, x: SSAValue) -> SSAValue:
    """Computes the cube root: the power of the magnitude, with one step of Newton's, under x's sign."""
    own, x = element(x), c.wide(x)
    size = c(popart.AbsOp, x)
    root = c(popart.PowOp, size, c.scalar(1 / 3, x))
    square = c(popart.MulOp, root, root)
    step = c(popart.DivOp, c(popart.SubOp, c(popart.MulOp, square, root), size), c(popart.MulOp, square, c.scalar(3, x)))
    finer = c(popart.SubOp, root, step)
    root = c(popart.WhereOp, is_finite(c, step), finer, root)  # of 0 and of infinity there is no step
    return c.cast(c(popart.MulOp, c(popart.SignOp, x), root), own)


def truncated(c: Conversion, x: SSAValue) -> SSAValue:
    """Rounds towards zero."""
    return c(popart.WhereOp, c(popart.LessOp, x, c.scalar(0, x)), c(popart.CeilOp, x), c(popart.FloorOp, x))


def round_afz(c: Conversion, x: SSAValue) -> SSAValue:
    """Rounds to the nearest integer, halves away from zero."""
    whole = truncated(c, x)
    rest = c(popart.AbsOp, c(popart.SubOp, x, whole))
    away = c(popart.AddOp, whole, c(popart.SignOp, x))
    return c(popart.WhereOp, c(popart.GreaterOrEqualOp, rest, c.scalar(0.5, x)), away, whole)


def is_finite(c: Conversion, x: SSAValue) -> SSAValue:
    """Tells whether elements are neither infinite nor NaN."""
    return c(popart.NotOp, c(popart.OrOp, c(popart.IsNanOp, x), c(popart.IsInfOp, x)))


def logical(on_booleans: type[TensorOp], on_bits: type[TensorOp]) -> Callable[..., SSAValue]:
    """Makes the function of a logical op, which works on bits where elements are integers."""

    def compute(c: Conversion, *operands: SSAValue) -> SSAValue:
        return c(on_booleans if element(operands[0]) == i1 else on_bits, *operands)

    return compute


def extreme(on_booleans: type[TensorOp], on_numbers: type[TensorOp]) -> Binary:
    """Makes the function of `maximum` or `minimum`."""
    return lambda c, a, b: c(on_booleans if element(a) == i1 else on_numbers, a, b)


def add(c: Conversion, a: SSAValue, b: SSAValue) -> SSAValue:
    """Adds; booleans by `or`."""
    return c(popart.OrOp if element(a) == i1 else popart.AddOp, a, b)


def multiply(c: Conversion, a: SSAValue, b: SSAValue) -> SSAValue:
    """Multiplies; booleans by `and`."""
    return c(popart.AndOp if element(a) == i1 else popart.MulOp, a, b)


def divide(c: Conversion, a: SSAValue, b: SSAValue) -> SSAValue:
    """Divides; integers towards zero, and by zero to -1, all bits set. Source: XLA's documentation, Div."""
    y = c(popart.DivOp, a, b)
    return c(popart.WhereOp, c(popart.EqualOp, b, c.scalar(0, b)), c.scalar(-1, y), y) if is_integer(element(a)) else y


def remainder(c: Conversion, a: SSAValue, b: SSAValue) -> SSAValue:
    """Computes the remainder, with the sign of the dividend; that of a division by integer zero is the dividend."""
    if is_float(element(a)):
        return c(popart.ModOp, a, b, fmod=True)
    zero = c(popart.EqualOp, b, c.scalar(0, b))
    y = c(popart.ModOp, a, c(popart.WhereOp, zero, c.scalar(1, b), b), fmod=True)
    return c(popart.WhereOp, zero, a, y)


def shifted(left: bool, arithmetic: bool = False) -> Binary:
    """Makes the function of a shift. A shift by the width or more leaves no bit, or copies of the sign."""

    def shift(c: Conversion, a: SSAValue, b: SSAValue) -> SSAValue:
        own, width = element(a), 8 * size_in_bytes(element(a))
        beyond = c(popart.GreaterOrEqualOp, c.bits(b), c.scalar(width, BITS[width // 8]))
        by = c(popart.WhereOp, beyond, c.scalar(width - 1 if arithmetic else 0, b), b)
        if arithmetic:
            x = signed(c, a)
            return c.bits(c(popart.BitShiftOp, x, c.bits(by, element(x)), left=False), own)
        y = c(popart.BitShiftOp, c.bits(a), c.bits(by), left=left)
        return c.bits(c(popart.WhereOp, beyond, c.scalar(0, y), y), own)

    return shift


def ordered_bits(c: Conversion, x: SSAValue) -> SSAValue:
    """Makes signed integers that are ordered as the floats are in total order: -NaN, -inf, .., -0, 0, .., inf, NaN."""
    raw = signed(c, x)
    lowest = -(1 << (8 * size_in_bytes(element(raw)) - 1))
    flipped = c(popart.BitwiseXorOp, c(popart.BitwiseNotOp, raw), c.scalar(lowest, raw))
    return c(popart.WhereOp, c(popart.LessOp, raw, c.scalar(0, raw)), flipped, raw)


COMPARISONS = {
    "EQ": popart.EqualOp,
    "NE": popart.EqualOp,
    "GE": popart.GreaterOrEqualOp,
    "GT": popart.GreaterOp,
    "LE": popart.LessOrEqualOp,
    "LT": popart.LessOp,
}


def compare(c: Conversion) -> Value:
    """Converts compare; complex numbers are compared by their real parts first, then by the others."""
    direction, kind = c.get("comparison_direction"), c.get("compare_type", "NOTYPE")

    def one(direction: str, a: SSAValue, b: SSAValue) -> SSAValue:
        if kind == "TOTALORDER" and is_float(element(a)):
            a, b = ordered_bits(c, a), ordered_bits(c, b)
        if is_packed(element(a)):
            a, b = (c.cast(v, ui8 if is_unsigned_packed(element(v)) else i8) for v in (a, b))
        if element(a) == i1 and direction not in ("EQ", "NE"):
            a, b = c.cast(a, i32), c.cast(b, i32)
        found = c(COMPARISONS[direction], a, b)
        return c(popart.NotOp, found) if direction == "NE" else found

    if not is_pair(c):
        return one(direction, c.input(0), c.input(1))
    a, b = (as_pair(c, v) for v in c.inputs)
    same = one("EQ", a.real, b.real)
    if direction in ("EQ", "NE"):
        found = c(popart.AndOp, same, one("EQ", a.imag, b.imag))
        return c(popart.NotOp, found) if direction == "NE" else found
    first = one(direction[0] + "T", a.real, b.real)
    return c(popart.WhereOp, same, one(direction, a.imag, b.imag), first)


def select(c: Conversion) -> Value:
    """Converts select."""
    p, a, b = c.inputs
    if isinstance(a, Pair) or isinstance(b, Pair):
        a, b = as_pair(c, a), as_pair(c, b)
        return Pair(*(c(popart.WhereOp, real(p), x, y) for x, y in ((a.real, b.real), (a.imag, b.imag))))
    return c(popart.WhereOp, real(p), real(a), real(b))


def clamp(c: Conversion, low: SSAValue, x: SSAValue, high: SSAValue) -> SSAValue:
    """Converts clamp: `min(max(x, low), high)`."""
    return c(popart.MinOp, c(popart.MaxOp, x, low), high)


def convert(c: Conversion) -> Value:
    """Converts convert: a complex number loses its imaginary part where the result is real, and a real one gets zeros."""
    to = c.element()
    x = c.inputs[0]
    if c.is_complex():
        pair = as_pair(c, x)
        return Pair(c.cast(pair.real, to), c.cast(pair.imag, to))
    x = x.real if isinstance(x, Pair) else real(x)
    return converted(c, x, to)


def converted(c: Conversion, x: SSAValue, to: Attribute) -> SSAValue:
    """Converts to an element type. Floats beyond an integer's range become its nearest end, and NaN 0, as XLA's do on CPUs."""
    if not (is_float(element(x)) and is_integer(to)):
        return c.cast(x, to)
    import numpy as np

    limits = np.iinfo(dtype_of(to))
    wide = x if element(x) == f64 else c.cast(x, f32)
    dtype = dtype_of(element(wide))
    y = c.cast(wide, to)
    low, high = float(limits.min), float(limits.max) + 1
    assert dtype.type(high) == high
    y = c(popart.WhereOp, c(popart.GreaterOrEqualOp, wide, c.scalar(high, wide)), c.scalar(int(limits.max), to), y)
    y = c(popart.WhereOp, c(popart.LessOp, wide, c.scalar(low, wide)), c.scalar(int(limits.min), to), y)
    return c(popart.WhereOp, c(popart.IsNanOp, wide), c.scalar(0, to), y)


def popcnt(c: Conversion, x: SSAValue) -> SSAValue:
    """Counts the bits that are set, in pairs, in fours, and so on."""
    own, v = element(x), c.bits(x)
    width = 8 * size_in_bytes(own)
    by = 1
    while by < width:
        mask = c.scalar(sum(((1 << by) - 1) << i for i in range(0, width, 2 * by)), v)
        high = c(popart.BitShiftOp, v, c.scalar(by, v), left=False)
        v = c(popart.AddOp, c(popart.BitwiseAndOp, v, mask), c(popart.BitwiseAndOp, high, mask))
        by *= 2
    return c.bits(v, own)


def leading_zeros(c: Conversion, x: SSAValue) -> SSAValue:
    """Counts the zeros above the highest bit that is set: all bits below it are set, and what is left is counted."""
    own, v = element(x), c.bits(x)
    width = 8 * size_in_bytes(own)
    by = 1
    while by < width:
        v = c(popart.BitwiseOrOp, v, c(popart.BitShiftOp, v, c.scalar(by, v), left=False))
        by *= 2
    return c.bits(popcnt(c, c(popart.BitwiseNotOp, v)), own)


def reduce_precision(c: Conversion) -> Value:
    """Converts reduce_precision: a float rounded to fewer bits of exponent and mantissa, to the nearest, ties to even."""
    import ml_dtypes

    x = c.input(0)
    kept, exponent = c.get("mantissa_bits"), c.get("exponent_bits")
    info = ml_dtypes.finfo(dtype_of(element(x)))  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    mantissa, own = int(info.nmant), int(info.nexp)  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]
    v = c.bits(x)
    width = 8 * size_in_bytes(element(x))
    sign = 1 << (width - 1)
    if kept < mantissa:
        drop = mantissa - kept
        last = c(popart.BitwiseAndOp, c(popart.BitShiftOp, v, c.scalar(drop, v), left=False), c.scalar(1, v))
        rounded = c(popart.AddOp, v, c(popart.AddOp, last, c.scalar((1 << (drop - 1)) - 1, v)))
        v = c(popart.BitwiseAndOp, rounded, c.scalar(~((1 << drop) - 1), v))
    if exponent < own:
        bias, small = (1 << (own - 1)) - 1, (1 << (exponent - 1)) - 1
        field = ((1 << own) - 1) << mantissa
        found = c(popart.BitwiseAndOp, v, c.scalar(field, v))
        sign_bit = c(popart.BitwiseAndOp, v, c.scalar(sign, v))
        over = c(popart.GreaterOp, found, c.scalar((bias + small) << mantissa, v))
        under = c(popart.LessOrEqualOp, found, c.scalar((bias - small) << mantissa, v))
        v = c(popart.WhereOp, over, c(popart.BitwiseOrOp, sign_bit, c.scalar(field, v)), v)
        v = c(popart.WhereOp, under, sign_bit, v)
    infinity = ((1 << own) - 1) << mantissa
    special = signed_like(c, x, infinity) if kept == 0 else x  # no bit is left that tells NaN from infinity
    return c(popart.WhereOp, c(popart.IsNanOp, x), special, c.bits(v, element(x)))


def signed_like(c: Conversion, x: SSAValue, bits: int) -> SSAValue:
    """Makes floats of these bits, with the signs of `x`."""
    v = c.bits(x)
    sign = c(popart.BitwiseAndOp, v, c.scalar(1 << (8 * size_in_bytes(element(x)) - 1), v))
    return c.bits(c(popart.BitwiseOrOp, sign, c.scalar(bits, v)), element(x))


def part(first: bool) -> Rule:
    """Makes the rule of `real` or `imag`."""

    def convert(c: Conversion) -> Value:
        x = c.inputs[0]
        if isinstance(x, Pair):
            return x.real if first else x.imag
        return real(x) if first else c.filled(0, real(x))

    return convert


def made_complex(c: Conversion) -> Value:
    """Converts complex."""
    return Pair(c.input(0), c.input(1))


def magnitude(c: Conversion, x: SSAValue) -> SSAValue:
    """Computes |x|; unsigned integers are their own."""
    return x if is_unsigned(element(x)) else c(popart.AbsOp, x)


UNARY: dict[str, Callable[..., SSAValue]] = {
    "abs": magnitude,
    "cbrt": cbrt,
    "ceil": plain(popart.CeilOp),
    "cosine": plain(popart.CosOp),
    "count_leading_zeros": leading_zeros,
    "exponential": plain(popart.ExpOp),
    "exponential_minus_one": plain(popart.Expm1Op),
    "floor": plain(popart.FloorOp),
    "is_finite": is_finite,
    "log": plain(popart.LogOp),
    "log_plus_one": plain(popart.Log1pOp),
    "logistic": plain(popart.SigmoidOp),
    "negate": plain(popart.NegOp),
    "not": logical(popart.NotOp, popart.BitwiseNotOp),
    "popcnt": popcnt,
    "round_nearest_afz": round_afz,
    "round_nearest_even": plain(popart.RoundOp),
    "rsqrt": rsqrt,
    "sign": plain(popart.SignOp),
    "sine": plain(popart.SinOp),
    "sqrt": plain(popart.SqrtOp),
    "tan": plain(popart.TanOp),
    "tanh": plain(popart.TanhOp),
}
BINARY: dict[str, Callable[..., SSAValue]] = {
    "add": add,
    "and": logical(popart.AndOp, popart.BitwiseAndOp),
    "atan2": plain(popart.Atan2Op),
    "divide": divide,
    "maximum": extreme(popart.OrOp, popart.MaxOp),
    "minimum": extreme(popart.AndOp, popart.MinOp),
    "multiply": multiply,
    "or": logical(popart.OrOp, popart.BitwiseOrOp),
    "power": plain(popart.PowOp),
    "remainder": remainder,
    "shift_left": shifted(left=True),
    "shift_right_arithmetic": shifted(left=False, arithmetic=True),
    "shift_right_logical": shifted(left=False),
    "subtract": plain(popart.SubOp),
    "xor": logical(popart.XorOp, popart.BitwiseXorOp),
}
RULES: Rules = {
    **{name: rule(name, compute) for name, compute in {**UNARY, **BINARY}.items()},
    "clamp": rule("clamp", clamp),
    "compare": compare,
    "complex": made_complex,
    "convert": convert,
    "imag": part(False),
    "real": part(True),
    "reduce_precision": reduce_precision,
    "select": select,
}
