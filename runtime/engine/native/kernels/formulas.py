"""Steps of a tape as `arith` and `math` ops on one element, equal to NumPy's loops to the last bit except exp, log, tanh
and what `wide_formulas.py` and `circular_formulas.py` compute in f64.

Polynomials compute these three, to 2 units in the last place (their tests allow 4). None uses fused operations, so all CPUs agree.
"""

from __future__ import annotations

import math as pymath
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from xdsl.dialects import arith, math
from xdsl.dialects.builtin import AnyFloat, FloatAttr, IntegerAttr, IntegerType, bf16, f16, f32, f64, i1, i8, i16, i32
from xdsl.ir import Attribute, Operation, SSAValue

from populus.dialects.support.element_types import dtype_of
from populus.runtime.engine.native.kernels import circular_formulas, wide_formulas
from populus.runtime.engine.native.kernels.native_support import COMPARES, FLOATS, HALVES, INTEGERS
from populus.runtime.tape import Tape, TapeStep

DType = np.dtype[Any]


def element_type(dtype: DType) -> Attribute:
    """Returns the type of a value in a register: i1 for booleans, signless integers, i16 for floats of 16 bits."""
    match dtype.kind, dtype.name:
        case "b", _:
            return i1
        case "i" | "u", _ if dtype.isbuiltin == 1:
            return IntegerType(8 * dtype.itemsize)
        case _, name if name in HALVES:
            return i16
        case _, "float32":
            return f32
        case _, "float64":
            return f64
        case _:
            raise AssertionError(dtype)


def as_integer(type: Attribute) -> IntegerType | None:
    """Returns the type if it is an integer type, else None."""
    return cast("IntegerType", type) if isinstance(type, IntegerType) else None


@dataclass
class Formula:
    """Ops that compute one element. `emit` receives each op when it is made.

    `converts`: the CPU converts f16 and f32; else the same bits come from integers, but for those of a NaN.
    """

    emit: Callable[[Operation], object]
    converts: bool = False

    def op(self, op: Operation) -> SSAValue:
        """Emits an op and returns its result."""
        self.emit(op)
        return op.results[0]

    def constant(self, value: float, type: Attribute) -> SSAValue:
        """Emits a number."""
        if (integer := as_integer(type)) is not None:
            n = integer.bitwidth
            bits = int(value) & ((1 << n) - 1)
            return self.op(arith.ConstantOp(IntegerAttr(bits - (1 << n) if n > 1 and bits >> (n - 1) else bits, integer)))
        assert isinstance(type, AnyFloat), type
        if not pymath.isfinite(value):
            width = 32 if type == f32 else 64
            bits = int(np.array(value, f"f{width // 8}").view(f"i{width // 8}"))
            return self.op(arith.BitcastOp(self.op(arith.ConstantOp(IntegerAttr(bits, IntegerType(width)))), type))
        return self.op(arith.ConstantOp(FloatAttr(value, type)))

    def compare(self, a: SSAValue, b: SSAValue, predicate: str) -> SSAValue:
        """Emits a comparison of floats."""
        return self.op(arith.CmpfOp(a, b, predicate))

    def select(self, condition: SSAValue, a: SSAValue, b: SSAValue) -> SSAValue:
        """Emits a selection."""
        return self.op(arith.SelectOp(condition, a, b))

    def add(self, a: SSAValue, b: SSAValue) -> SSAValue:
        """Emits a sum of floats."""
        return self.op(arith.AddfOp(a, b))

    def sub(self, a: SSAValue, b: SSAValue) -> SSAValue:
        """Emits a difference of floats."""
        return self.op(arith.SubfOp(a, b))

    def mul(self, a: SSAValue, b: SSAValue) -> SSAValue:
        """Emits a product of floats."""
        return self.op(arith.MulfOp(a, b))

    def polynomial(self, x: SSAValue, coefficients: tuple[float, ...]) -> SSAValue:
        """Evaluates a polynomial by Horner's rule; the coefficient of the highest power is first."""
        value = self.constant(coefficients[0], x.type)
        for c in coefficients[1:]:
            value = self.add(self.mul(value, x), self.constant(c, x.type))
        return value

    # -- whole tapes

    def run(self, tape: Tape, operands: list[SSAValue], numbers: Iterable[int] = ()) -> SSAValue:
        """Emits a tape all of whose steps have a form; returns its result. `numbers`: operands that are known not to be NaN."""
        values = list(operands)
        dtypes: list[DType] = list(tape.operands)
        literals = set(numbers)
        for literal in tape.literals:
            if not pymath.isnan(float(literal.item())):
                literals.add(len(values))
            number = literal.view(np.int16) if literal.dtype.name in HALVES else literal
            values.append(self.constant(number.item(), element_type(literal.dtype)))
            dtypes.append(literal.dtype)
        for step in tape.steps:
            args = [values[i] for i in step.args]
            values.append(self.step(step, args, dtypes[step.args[0]], [i in literals for i in step.args]))
            dtypes.append(step.dtype)
        return values[tape.result]

    def step(self, step: TapeStep, args: list[SSAValue], dtype: DType, literal: list[bool]) -> SSAValue:
        """Emits one step of a tape."""
        kind, name = dtype.kind, step.name
        match name:
            case "mask":  # the condition itself is the mask
                return args[0]
            case "blend":
                mask = args[2]
                if mask.type != i1:  # a literal: all bits or none
                    mask = self.op(arith.CmpiOp(mask, self.constant(0, mask.type), "ne"))
                return self.select(mask, args[0], args[1])
            case "convert":
                return self.convert(args[0], dtype, step.dtype)
            case "bits":
                return self.bits(args[0], dtype, step.dtype)
            case "max" | "min" if kind == "f":
                return self.extreme(name, args[0], args[1], literal)
            case "signum" if kind == "f":
                return self.signum(args[0])
            case _:
                pass
        if name in COMPARES and kind == "f":
            return self.compare(args[0], args[1], _COMPARES[name][0])
        if name in COMPARES:
            return self.op(arith.CmpiOp(args[0], args[1], _COMPARES[name][1 if kind == "i" else 2]))
        if kind == "f" and name in FLOATS:
            return self.op(_FLOATS[name](*args))
        if kind == "f" and name in _TESTS:
            return _TESTS[name](self, args[0])
        if kind == "f":
            return _ROUNDED[dtype.name][name](self, *args)
        if kind == "b":
            return self.op(arith.XOrIOp(args[0], self.constant(1, i1)) if name == "logical_not" else _LOGICAL[name](*args))
        if name in INTEGERS:
            return self.op(_INTEGERS[name](*args))
        return self.of_integers(name, kind == "i", *args)

    def of_integers(self, name: str, signed: bool, a: SSAValue, *rest: SSAValue) -> SSAValue:
        """Emits an integer function as NumPy defines it where LLVM leaves it undefined.

        Division by 0 is 0, and a shift by the width or more shifts all bits out.
        """
        zero, one, minus = (self.constant(n, a.type) for n in (0, 1, -1))
        negative = self.op(arith.SubiOp(zero, a))
        match name:
            case "neg":
                return negative
            case "abs":
                return self.select(self.op(arith.CmpiOp(a, zero, "slt")), negative, a) if signed else a
            case "bitwise_not":
                return self.op(arith.XOrIOp(a, minus))
            case "signum":
                positive = self.select(self.op(arith.CmpiOp(a, zero, "sgt" if signed else "ugt")), one, zero)
                return self.select(self.op(arith.CmpiOp(a, zero, "slt")), minus, positive) if signed else positive
            case _:
                pass
        (b,) = rest
        if name in ("max", "min"):
            return self.op(_EXTREMES[name, "i" if signed else "u"](a, b))
        if name in ("shift_left", "shift_right"):
            width = as_integer(a.type)
            assert width is not None, a.type
            fits = self.op(arith.CmpiOp(b, self.constant(width.bitwidth, a.type), "ult"))
            by = self.select(fits, b, zero)
            if name == "shift_left":
                return self.select(fits, self.op(arith.ShLIOp(a, by)), zero)
            if not signed:
                return self.select(fits, self.op(arith.ShRUIOp(a, by)), zero)
            last = self.constant(width.bitwidth - 1, a.type)
            return self.op(arith.ShRSIOp(a, self.select(fits, b, last)))
        none = self.op(arith.CmpiOp(b, zero, "eq"))
        divisor = self.select(none, one, b)
        if signed:  # the smallest integer divided by -1
            turned = self.op(arith.CmpiOp(b, minus, "eq"))
            divisor = self.select(turned, one, divisor)
            if name == "rem":
                value = self.op(arith.RemSIOp(a, divisor))
            else:
                value = self.select(turned, negative, self.op(arith.DivSIOp(a, divisor)))
        else:
            value = self.op(arith.RemUIOp(a, divisor) if name == "rem" else arith.DivUIOp(a, divisor))
        return self.select(none, zero, value)

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

    def float16(self, x: SSAValue) -> SSAValue:
        """Rounds f32 to the values of f16."""
        return self.widened(self.narrowed(x, np.dtype(np.float16)), np.dtype(np.float16))

    def bfloat16(self, x: SSAValue) -> SSAValue:
        """Rounds f32 to the values of bf16."""
        return self.widened(self.narrowed(x, dtype_of(bf16)), dtype_of(bf16))

    def convert(self, x: SSAValue, source: DType, to: DType) -> SSAValue:
        """Converts between element types."""
        if source.name in HALVES:
            return self.convert(self.widened(x, source), np.dtype(np.float32), to)
        if to.name in HALVES:
            return self.narrowed(self.convert(x, source, np.dtype(np.float32)), to)
        type = element_type(to)
        if to.kind == "b":
            zero = self.constant(0, x.type)
            return self.compare(x, zero, "une") if source.kind == "f" else self.op(arith.CmpiOp(x, zero, "ne"))
        if source.kind == "f" and to.kind == "i" and to.itemsize >= 4:
            return self.truncated(x, IntegerType(8 * to.itemsize))
        if source.kind == "f" and to.kind in "iu":  # within the range of the integers, as `native_support.fits` has it
            number = self.op(math.TruncOp(self.select(self.compare(x, x, "ord"), x, self.constant(0.0, x.type))))
            # 1.5 2^23 and a small integer have the integer's bits at their end. LLVM converts vectors that saturate one by one.
            moved = self.op(arith.BitcastOp(self.add(number, self.constant(12582912.0, x.type)), i32))
            return self.op(arith.TruncIOp(moved, IntegerType(8 * to.itemsize)))
        if source.kind == "f":
            if source.itemsize == to.itemsize:
                return x
            return self.op(arith.ExtFOp(x, type) if to.itemsize > source.itemsize else arith.TruncFOp(x, type))
        if isinstance(type, AnyFloat):
            if source.kind == "i":
                return self.op(arith.SIToFPOp(x, type))
            return self.op(arith.SIToFPOp(self.op(arith.ExtUIOp(x, IntegerType(32 if source.itemsize < 4 else 64))), type))
        narrow, wide = as_integer(x.type), as_integer(type)
        assert narrow is not None, x.type
        assert wide is not None, type
        if narrow.bitwidth == wide.bitwidth:
            return x
        if narrow.bitwidth > wide.bitwidth:
            return self.op(arith.TruncIOp(x, wide))
        return self.op(arith.ExtSIOp(x, wide) if source.kind == "i" else arith.ExtUIOp(x, wide))

    def truncated(self, x: SSAValue, to: IntegerType) -> SSAValue:
        """Converts a float to i32 or i64. NaN and numbers beyond the range give the least integer, as x86's conversion does."""
        end = 2.0 ** (to.bitwidth - 1)
        below = -end - 1 if x.type == f64 and to.bitwidth == 32 else -end  # f64 has numbers that round towards zero to -2^31
        least = self.compare(x, self.constant(below, x.type), "oge" if below == -end else "ogt")
        inside = self.op(arith.AndIOp(least, self.compare(x, self.constant(end, x.type), "olt")))
        number = self.op(arith.FPToSIOp(self.select(inside, x, self.constant(0.0, x.type)), to))
        return self.select(inside, number, self.constant(-(1 << (to.bitwidth - 1)), to))

    def extreme(self, name: str, a: SSAValue, b: SSAValue, literal: list[bool]) -> SSAValue:
        """Emits a maximum or minimum, which is NaN if either operand is.

        A false comparison selects the second operand, so a literal there needs no test for NaN.
        """
        predicate = "ogt" if name == "max" else "olt"
        if literal[1]:
            return self.select(self.compare(b, a, predicate), b, a)
        value = self.select(self.compare(a, b, predicate), a, b)
        return value if literal[0] else self.select(self.compare(a, a, "uno"), a, value)

    def signum(self, x: SSAValue) -> SSAValue:
        """Emits the sign: -1, 1, or x itself if it is 0 or NaN."""
        zero, one = self.constant(0.0, x.type), self.constant(1.0, x.type)
        value = self.select(self.compare(x, zero, "oeq"), zero, x)
        value = self.select(self.compare(x, zero, "olt"), self.constant(-1.0, x.type), value)
        return self.select(self.compare(x, zero, "ogt"), one, value)

    # -- exp, log, tanh; coefficients of Cephes (Moshier), expf, logf and tanhf

    def exp(self, x: SSAValue) -> SSAValue:
        """Computes 2^n p(r), with x = n ln 2 + r. Two factors make up 2^n, so that subnormal results are right."""
        high, low = self.constant(89.0, f32), self.constant(-104.0, f32)
        x = self.select(self.compare(x, high, "ogt"), high, x)
        x = self.select(self.compare(x, low, "olt"), low, x)
        magic = self.constant(12582912.0, f32)  # 1.5 2^23: adding a number to it rounds the number to an integer
        shifted = self.add(self.mul(x, self.constant(1.44269504088896341, f32)), magic)
        n = self.sub(shifted, magic)
        r = self.add(x, self.mul(n, self.constant(-0.693359375, f32)))
        r = self.add(r, self.mul(n, self.constant(2.12194440e-4, f32)))
        p = self.polynomial(r, (1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1))
        p = self.add(self.add(self.mul(p, self.mul(r, r)), r), self.constant(1.0, f32))
        bits = self.op(arith.SubiOp(self.op(arith.BitcastOp(shifted, i32)), self.constant(0x4B400000, i32)))
        half = self.op(arith.ShRSIOp(bits, self.constant(1, i32)))
        rest = self.op(arith.SubiOp(bits, half))
        return self.mul(self.mul(p, self.power_of_two(half)), self.power_of_two(rest))

    def power_of_two(self, n: SSAValue) -> SSAValue:
        """Builds 2^n from its exponent bits."""
        biased = self.op(arith.AddiOp(n, self.constant(127, i32)))
        return self.op(arith.BitcastOp(self.op(arith.ShLIOp(biased, self.constant(23, i32))), f32))

    def log(self, x: SSAValue) -> SSAValue:
        """Computes e ln 2 + log m, with x = 2^e m and m between sqrt(1/2) and sqrt(2)."""
        zero, one = self.constant(0.0, f32), self.constant(1.0, f32)
        tiny = self.compare(x, self.constant(1.17549435e-38, f32), "olt")
        scaled = self.select(tiny, self.mul(x, self.constant(8388608.0, f32)), x)
        bits = self.op(arith.SubiOp(self.op(arith.BitcastOp(scaled, i32)), self.constant(0x3F3504F3, i32)))  # sqrt(1/2)
        exponent = self.op(arith.SIToFPOp(self.op(arith.ShRSIOp(bits, self.constant(23, i32))), f32))
        mantissa = self.op(arith.AddiOp(self.op(arith.AndIOp(bits, self.constant(0x7FFFFF, i32))), self.constant(0x3F3504F3, i32)))
        e = self.sub(exponent, self.select(tiny, self.constant(23.0, f32), zero))
        m = self.sub(self.op(arith.BitcastOp(mantissa, f32)), one)
        square = self.mul(m, m)
        p = self.polynomial(
            m,
            (7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1, 1.4249322787e-1, -1.6668057665e-1, 2.0000714765e-1,
             -2.4999993993e-1, 3.3333331174e-1),
        )  # fmt: skip
        y = self.mul(self.mul(m, square), p)
        y = self.add(y, self.mul(e, self.constant(-2.12194440e-4, f32)))
        y = self.sub(y, self.mul(square, self.constant(0.5, f32)))
        y = self.add(self.add(m, y), self.mul(e, self.constant(0.693359375, f32)))
        infinite = self.constant(pymath.inf, f32)
        y = self.select(self.compare(x, infinite, "oeq"), x, y)
        y = self.select(self.compare(x, zero, "oeq"), self.constant(-pymath.inf, f32), y)
        return self.select(self.compare(x, zero, "ult"), self.sub(self.select(self.compare(x, x, "uno"), x, infinite), infinite), y)

    def tanh(self, x: SSAValue) -> SSAValue:
        """Computes 1 - 2 / (exp(2 |x|) + 1) with the sign of x, or a polynomial for small x."""
        one, two = self.constant(1.0, f32), self.constant(2.0, f32)
        a = self.op(math.AbsFOp(x))
        far = self.sub(one, self.op(arith.DivfOp(two, self.add(self.exp(self.add(a, a)), one))))
        far = self.select(self.compare(x, self.constant(0.0, f32), "olt"), self.op(arith.NegfOp(far)), far)
        s = self.mul(x, x)
        p = self.polynomial(s, (-5.70498872745e-3, 2.06390887954e-2, -5.37397155531e-2, 1.33314422036e-1, -3.33332819422e-1))
        near = self.add(self.mul(self.mul(p, s), x), x)
        return self.select(self.compare(a, self.constant(0.625, f32), "olt"), near, far)


_COMPARES = {
    "equal": ("oeq", "eq", "eq"),
    "gt": ("ogt", "sgt", "ugt"),
    "gte": ("oge", "sge", "uge"),
    "lt": ("olt", "slt", "ult"),
    "lte": ("ole", "sle", "ule"),
}
_FLOATS: dict[str, Callable[..., Operation]] = {
    "abs": math.AbsFOp,
    "add": arith.AddfOp,
    "ceil": math.CeilOp,
    "divide": arith.DivfOp,
    "floor": math.FloorOp,
    "mul": arith.MulfOp,
    "nearbyint": math.RoundEvenOp,
    "neg": arith.NegfOp,
    "sqrt": math.SqrtOp,
    "sub": arith.SubfOp,
    "trunc": math.TruncOp,
}
_INTEGERS: dict[str, Callable[..., Operation]] = {
    "add": arith.AddiOp,
    "bitwise_and": arith.AndIOp,
    "bitwise_or": arith.OrIOp,
    "bitwise_xor": arith.XOrIOp,
    "mul": arith.MuliOp,
    "sub": arith.SubiOp,
}
_LOGICAL: dict[str, Callable[..., Operation]] = {"logical_and": arith.AndIOp, "logical_or": arith.OrIOp, "logical_xor": arith.XOrIOp}
_EXTREMES: dict[tuple[str, str], Callable[..., Operation]] = {
    ("max", "i"): arith.MaxSIOp,
    ("max", "u"): arith.MaxUIOp,
    ("min", "i"): arith.MinSIOp,
    ("min", "u"): arith.MinUIOp,
}
_TESTS: dict[str, Callable[[Formula, SSAValue], SSAValue]] = {
    "isfinite": lambda f, x: f.compare(f.op(math.AbsFOp(x)), f.constant(pymath.inf, x.type), "olt"),
    "isinf": lambda f, x: f.compare(f.op(math.AbsFOp(x)), f.constant(pymath.inf, x.type), "oeq"),
    "isnan": lambda f, x: f.compare(x, x, "uno"),
}
_ROUNDED: dict[str, dict[str, Callable[..., SSAValue]]] = {
    "float32": {
        "exp": Formula.exp,
        "log": Formula.log,
        "pow": wide_formulas.power,
        "tanh": Formula.tanh,
        **{name: getattr(wide_formulas, name) for name in ("acosh", "asinh", "atanh", "cosh", "expm1", "log1p", "sinh")},
        **{name: getattr(circular_formulas, name) for name in ("acos", "asin", "atan", "cos", "sin", "tan")},
    },
    "float64": {"exp": wide_formulas.exp, "log": wide_formulas.log, "tanh": wide_formulas.tanh},
}
