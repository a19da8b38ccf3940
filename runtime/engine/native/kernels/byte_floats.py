"""Floats of 8 and 4 bits and integers of 4 and 2, each in a byte, as ops on one element."""

from __future__ import annotations

from typing import NamedTuple

from xdsl.dialects import arith
from xdsl.dialects.builtin import f32, i8, i32
from xdsl.ir import SSAValue

from populus.runtime.engine.native.kernels.element_ops import ElementOps

BITS = {"int2": 3, "int4": 15, "uint2": 3, "uint4": 15}  # the bits of a value


class Layout(NamedTuple):
    """Bits of a float: of its mantissa, the exponent's bias, the place of the sign, the bits of NaN (none: -1), the largest number.

    `unsigned_zero`: the bits of -0 are those of NaN, so 0 has no sign.
    """

    mantissa: int
    bias: int
    sign: int
    nan: int
    largest: float
    unsigned_zero: bool = False


LAYOUTS = {
    "float4_e2m1fn": Layout(1, 1, 3, -1, 6.0),
    "float8_e4m3fn": Layout(3, 7, 7, 0x7F, 448.0),
    "float8_e4m3fnuz": Layout(3, 8, 7, 0x80, 240.0, True),
    "float8_e5m2": Layout(2, 15, 7, 0x7E, 57344.0),
    "float8_e5m2fnuz": Layout(2, 16, 7, 0x80, 57344.0, True),
}
POWERS = "float8_e8m0fnu"  # powers of two: an exponent alone


def largest_byte(name: str) -> float:
    """Returns the largest number of a type."""
    return LAYOUTS[name].largest


def packed_value(f: ElementOps, x: SSAValue, name: str) -> SSAValue:
    """Extends an integer of 4 or 2 bits, the last of a byte, to i32."""
    bits = f.op(arith.AndIOp(f.op(arith.ExtUIOp(x, i32)), f.constant(BITS[name], i32)))
    if name.startswith("u"):
        return bits
    half = f.constant((BITS[name] + 1) // 2, i32)  # of the sign: (bits ^ half) - half extends it
    return f.op(arith.SubiOp(f.op(arith.XOrIOp(bits, half)), half))


def widened_byte(f: ElementOps, x: SSAValue, name: str) -> SSAValue:
    """Converts a float of 8 or 4 bits to f32, exactly."""

    def number(n: int) -> SSAValue:
        return f.constant(n, i32)

    bits = f.op(arith.ExtUIOp(x, i32))
    quiet = number(0x7FC00000)
    if name == POWERS:
        value = f.op(arith.ShLIOp(bits, number(23)))
        value = f.select(f.op(arith.CmpiOp(bits, number(0), "eq")), number(0x00400000), value)
        return f.op(arith.BitcastOp(f.select(f.op(arith.CmpiOp(bits, number(0xFF), "eq")), quiet, value), f32))
    layout = LAYOUTS[name]
    place = 1 << layout.sign
    # ml_dtypes takes the unused bits of a float of 4 bits for its sign.
    sign = f.select(f.op(arith.CmpiOp(bits, number(place), "uge")), number(-0x80000000), number(0))
    magnitude = f.op(arith.AndIOp(bits, number(place - 1)))
    size = f.op(arith.ShLIOp(magnitude, number(23 - layout.mantissa)))
    # The product rebiases the exponent, for subnormal numbers too.
    value = f.op(arith.BitcastOp(f.mul(f.op(arith.BitcastOp(size, f32)), f.constant(2.0 ** (127 - layout.bias), f32)), i32))
    if name == "float8_e5m2":
        beyond = f.op(arith.OrIOp(size, number(0x7F800000)))
        value = f.select(f.op(arith.CmpiOp(magnitude, number(0x7C), "uge")), beyond, value)
    elif name == "float8_e4m3fn":
        value = f.select(f.op(arith.CmpiOp(magnitude, number(layout.nan), "eq")), quiet, value)
    value = f.op(arith.OrIOp(value, sign))
    if layout.unsigned_zero:
        value = f.select(f.op(arith.CmpiOp(bits, number(layout.nan), "eq")), quiet, value)
    return f.op(arith.BitcastOp(value, f32))


def narrowed_byte(f: ElementOps, x: SSAValue, name: str) -> SSAValue:
    """Rounds f32 to the nearest float of 8 or 4 bits, ties to even. But for powers of two, x is NaN or at most the largest number."""

    def number(n: int) -> SSAValue:
        return f.constant(n, i32)

    bits, nan = f.op(arith.BitcastOp(x, i32)), f.compare(x, x, "uno")
    if name == POWERS:
        return _power(f, x, bits)
    layout = LAYOUTS[name]
    size = f.op(arith.AndIOp(bits, number(0x7FFFFFFF)))
    sign = f.op(arith.AndIOp(f.op(arith.ShRUIOp(bits, number(31 - layout.sign))), number(1 << layout.sign)))
    shift = 23 - layout.mantissa
    odd = f.op(arith.AndIOp(f.op(arith.ShRUIOp(size, number(shift))), number(1)))
    bias = number((1 << (shift - 1)) - 1 - ((127 - layout.bias) << 23))
    normal = f.op(arith.ShRUIOp(f.op(arith.AddiOp(f.op(arith.AddiOp(size, bias)), odd)), number(shift)))
    # The last bit of this number has the value of the smallest subnormal number, so the addition rounds to it.
    step = 24 - layout.bias - layout.mantissa
    moved = f.add(f.op(arith.BitcastOp(size, f32)), f.constant(2.0**step, f32))
    small = f.op(arith.SubiOp(f.op(arith.BitcastOp(moved, i32)), number((127 + step) << 23)))
    value = f.select(f.op(arith.CmpiOp(size, number((128 - layout.bias) << 23), "ult")), small, normal)
    if layout.unsigned_zero:
        zero = f.op(arith.CmpiOp(value, number(0), "eq"))
        value = f.select(zero, value, f.op(arith.OrIOp(value, sign)))
        value = f.select(nan, number(layout.nan), value)
    elif layout.nan >= 0:
        value = f.op(arith.OrIOp(f.select(nan, number(layout.nan), value), sign))
    else:  # NaN is 0 of the opposite sign
        value = f.select(nan, f.op(arith.XOrIOp(sign, number(1 << layout.sign))), f.op(arith.OrIOp(value, sign)))
    return f.op(arith.TruncIOp(value, i8))


def _power(f: ElementOps, x: SSAValue, bits: SSAValue) -> SSAValue:
    """Rounds f32 to the nearest power of two, ties to the larger. Numbers that are not positive are NaN, large ones too."""

    def number(n: int) -> SSAValue:
        return f.constant(n, i32)

    value = f.op(arith.ShRUIOp(f.op(arith.AddiOp(bits, number(0x400000))), number(23)))
    least = f.op(arith.CmpiOp(bits, number(0x400000), "eq"))  # 2^-127 itself
    value = f.select(least, number(0), value)
    positive = f.compare(x, f.constant(0.0, f32), "ogt")
    return f.op(arith.TruncIOp(f.select(positive, value, number(0xFF)), i8))
