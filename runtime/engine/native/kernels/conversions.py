"""Conversions between element types, as ops on one element, equal to NumPy's to the last bit but for the bits of a NaN."""

from __future__ import annotations

import numpy as np
from xdsl.dialects import arith, math
from xdsl.dialects.builtin import AnyFloat, IntegerType, f16, f32, f64, i8, i16, i32, i64
from xdsl.ir import SSAValue

from populus.runtime.engine.native.kernels.byte_floats import BITS, largest_byte, narrowed_byte, packed_value, widened_byte
from populus.runtime.engine.native.kernels.element_ops import DType, ElementOps, as_integer, element_type
from populus.runtime.engine.native.kernels.native_support import BYTES, HALVES


class Conversions(ElementOps):
    """Conversions of one element."""

    def bits(self, x: SSAValue, source: DType, to: DType) -> SSAValue:
        """Reinterprets the bits of a value. A byte that becomes a boolean is true unless it is 0."""
        if to.kind == "b":
            return x if source.kind == "b" else self.op(arith.CmpiOp(x, self.constant(0, x.type), "ne"))
        if source.kind == "b":
            return self.op(arith.ExtUIOp(x, i8))
        return x if x.type == element_type(to) else self.op(arith.BitcastOp(x, element_type(to)))

    # -- floats of 16 bits

    def widened(self, x: SSAValue, dtype: DType) -> SSAValue:
        """Converts a 16-bit float to f32, exactly."""
        if self.converts and dtype.name == "float16":
            return self.op(arith.ExtFOp(self.op(arith.BitcastOp(x, f16)), f32))
        bits = self.op(arith.ExtUIOp(x, i32))

        def shifted(value: SSAValue, by: int) -> SSAValue:
            return self.op(arith.ShLIOp(value, self.constant(by, i32)))

        if dtype.name == "bfloat16":
            return self.op(arith.BitcastOp(shifted(bits, 16), f32))
        sign = shifted(self.op(arith.AndIOp(bits, self.constant(0x8000, i32))), 16)
        size = shifted(self.op(arith.AndIOp(bits, self.constant(0x7FFF, i32))), 13)
        # The product rebiases the exponent, for subnormal numbers too.
        finite = self.op(arith.BitcastOp(self.mul(self.op(arith.BitcastOp(size, f32)), self.constant(2.0**112, f32)), i32))
        beyond = self.op(arith.OrIOp(size, self.constant(0x7F800000, i32)))
        large = self.op(arith.CmpiOp(size, self.constant(0x7C00 << 13, i32), "uge"))
        return self.op(arith.BitcastOp(self.op(arith.OrIOp(self.select(large, beyond, finite), sign)), f32))

    def narrowed(self, x: SSAValue, dtype: DType) -> SSAValue:
        """Rounds f32 to a 16-bit float, to nearest even."""
        if self.converts and dtype.name == "float16":
            return self.op(arith.BitcastOp(self.op(arith.TruncFOp(x, f16)), i16))
        bits = self.op(arith.BitcastOp(x, i32))

        def number(n: int) -> SSAValue:
            return self.constant(n, i32)

        def down(value: SSAValue, by: int) -> SSAValue:
            return self.op(arith.ShRUIOp(value, number(by)))

        def rounded(value: SSAValue, by: int, bias: int) -> SSAValue:
            odd = self.op(arith.AndIOp(down(value, by), number(1)))
            return down(self.op(arith.AddiOp(self.op(arith.AddiOp(value, number(bias))), odd)), by)

        nan = self.compare(x, x, "uno")
        if dtype.name == "bfloat16":
            quiet = self.op(arith.OrIOp(down(bits, 16), number(0x40)))
            return self.op(arith.TruncIOp(self.select(nan, quiet, rounded(bits, 16, 0x7FFF)), i16))
        size = self.op(arith.AndIOp(bits, number(0x7FFFFFFF)))
        sign = down(self.op(arith.AndIOp(bits, number(-0x80000000))), 16)
        normal = rounded(size, 13, 0xFFF - (112 << 23))
        # The last bit of 0.5 has the value of the smallest subnormal 16-bit float, so the addition rounds to it.
        moved = self.add(self.op(arith.BitcastOp(size, f32)), self.constant(0.5, f32))
        small = self.op(arith.SubiOp(self.op(arith.BitcastOp(moved, i32)), number(0x3F000000)))
        value = self.select(self.op(arith.CmpiOp(size, number(0x38800000), "ult")), small, normal)
        value = self.select(self.op(arith.CmpiOp(size, number(0x47800000), "uge")), number(0x7C00), value)
        value = self.select(nan, number(0x7E00), value)
        return self.op(arith.TruncIOp(self.op(arith.OrIOp(value, sign)), i16))

    def convert(self, x: SSAValue, source: DType, to: DType) -> SSAValue:
        """Converts between element types."""
        f32_ = np.dtype(np.float32)
        if source == to:
            return x
        if source.name in BITS:
            return self.convert(packed_value(self, x, source.name), np.dtype(np.int32), to)
        if source.name in BYTES:
            return self.convert(widened_byte(self, x, source.name), f32_, to)
        if source.name in HALVES:
            return self.convert(self.widened(x, source), f32_, to)
        if to.name in BITS:  # the last bits of an i8
            return self.op(arith.AndIOp(x, self.constant(BITS[to.name], i8)))
        if to.name in BYTES:
            return narrowed_byte(self, self.convert(x, source, f32_), to.name)
        if to.name in HALVES:
            if source == np.float64 and to.name == "float16":
                return self.narrowed(self.rounded_to_odd(x), to)
            return self.narrowed(self.convert(x, source, f32_), to)
        type = element_type(to)
        if to.kind == "b":
            zero = self.constant(0, x.type)
            return self.compare(x, zero, "une") if source.kind == "f" else self.op(arith.CmpiOp(x, zero, "ne"))
        if source.kind == "f" and to.kind in "iu":
            return self.to_integer(x, to)
        if source.kind == "f":
            return self.op(arith.ExtFOp(x, type) if to.itemsize > source.itemsize else arith.TruncFOp(x, type))
        if isinstance(type, AnyFloat):
            if source.kind == "i":
                return self.op(arith.SIToFPOp(x, type))
            if source.itemsize == 8:
                return self.from_unsigned(x, type)
            return self.op(arith.SIToFPOp(self.op(arith.ExtUIOp(x, IntegerType(32 if source.itemsize < 4 else 64))), type))
        narrow, wide = as_integer(x.type), as_integer(type)
        assert narrow is not None, x.type
        assert wide is not None, type
        if narrow.bitwidth == wide.bitwidth:
            return x
        if narrow.bitwidth > wide.bitwidth:
            return self.op(arith.TruncIOp(x, wide))
        return self.op(arith.ExtSIOp(x, wide) if source.kind == "i" else arith.ExtUIOp(x, wide))

    def saturated(self, x: SSAValue, source: DType, to: DType) -> SSAValue:
        """Converts f32 or f64 to a float of 8 or 4 bits; larger numbers become the largest."""
        x = self.convert(x, source, np.dtype(np.float32))
        largest = largest_byte(to.name)
        end, other = self.constant(largest, f32), self.constant(-largest, f32)
        x = self.select(self.compare(x, end, "ogt"), end, x)
        return narrowed_byte(self, self.select(self.compare(x, other, "olt"), other, x), to.name)

    def rounded_to_odd(self, x: SSAValue) -> SSAValue:
        """Rounds f64 to one of the two next f32, to that whose last bit is set. A second rounding then gives what one would give."""
        near = self.op(arith.TruncFOp(x, f32))
        back, bits = self.op(arith.ExtFOp(near, f64)), self.op(arith.BitcastOp(near, i32))
        one = self.constant(1, i32)
        low = self.compare(self.op(math.AbsFOp(back)), self.op(math.AbsFOp(x)), "olt")
        other = self.select(low, self.op(arith.AddiOp(bits, one)), self.op(arith.SubiOp(bits, one)))
        even = self.op(arith.CmpiOp(self.op(arith.AndIOp(bits, one)), self.constant(0, i32), "eq"))
        moved = self.op(arith.AndIOp(even, self.compare(back, x, "one")))
        return self.op(arith.BitcastOp(self.select(moved, other, bits), f32))

    def from_unsigned(self, x: SSAValue, to: AnyFloat) -> SSAValue:
        """Converts ui64 to a float. Half of a large number, with a last bit that says whether it is exact, rounds alike."""
        one = self.constant(1, i64)
        half = self.op(arith.OrIOp(self.op(arith.ShRUIOp(x, one)), self.op(arith.AndIOp(x, one))))
        large = self.op(arith.CmpiOp(x, self.constant(0, i64), "slt"))
        value = self.op(arith.SIToFPOp(self.select(large, half, x), to))
        return self.select(large, self.add(value, value), value)

    def to_integer(self, x: SSAValue, to: DType) -> SSAValue:
        """Rounds a float towards zero, as `tape.truncate` does: to i32 or i64, of which smaller integers are the last bits."""
        if to == np.uint64:
            two63 = self.constant(2.0**63, x.type)
            high = self.op(arith.AndIOp(self.compare(x, two63, "oge"), self.compare(x, self.constant(2.0**64, x.type), "olt")))
            value = self.truncated(self.select(high, self.sub(x, two63), x), i64)
            return self.select(high, self.op(arith.XOrIOp(value, self.constant(1 << 63, i64))), value)
        wide = i64 if to.itemsize == 8 or to == np.uint32 else i32
        value = self.truncated(x, wide)
        return value if wide.bitwidth == 8 * to.itemsize else self.op(arith.TruncIOp(value, IntegerType(8 * to.itemsize)))

    def bounded(self, x: SSAValue, to: DType) -> SSAValue:
        """Rounds f32 within the range of a small integer, or NaN, to it; NaN becomes 0."""
        number = self.op(math.TruncOp(self.select(self.compare(x, x, "ord"), x, self.constant(0.0, x.type))))
        # 1.5 2^23 and a small integer have the integer's bits at their end. LLVM converts vectors that saturate one by one.
        moved = self.op(arith.BitcastOp(self.add(number, self.constant(12582912.0, x.type)), i32))
        return self.op(arith.TruncIOp(moved, IntegerType(8 * to.itemsize)))

    def truncated(self, x: SSAValue, to: IntegerType) -> SSAValue:
        """Converts a float to i32 or i64. NaN and numbers beyond the range give the least integer, as x86's conversion does."""
        end = 2.0 ** (to.bitwidth - 1)
        below = -end - 1 if x.type == f64 and to.bitwidth == 32 else -end  # f64 has numbers that round towards zero to -2^31
        least = self.compare(x, self.constant(below, x.type), "oge" if below == -end else "ogt")
        inside = self.op(arith.AndIOp(least, self.compare(x, self.constant(end, x.type), "olt")))
        number = self.op(arith.FPToSIOp(self.select(inside, x, self.constant(0.0, x.type)), to))
        return self.select(inside, number, self.constant(-(1 << (to.bitwidth - 1)), to))
