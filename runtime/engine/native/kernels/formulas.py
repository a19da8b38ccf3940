"""Steps of a tape as `arith` and `math` ops on one element, equal to NumPy's loops to the last bit except exp, log, tanh
and what `wide_formulas.py` and `circular_formulas.py` compute in f64.

Polynomials compute these three, to 2.5 units in the last place (their tests allow 4). None uses fused operations, so all CPUs agree.
"""

from __future__ import annotations

import math as pymath
from collections.abc import Callable, Iterable

import numpy as np
from xdsl.dialects import arith, llvm, math
from xdsl.dialects.builtin import f32, i1, i32
from xdsl.ir import Operation, SSAValue

from populus.runtime.engine.native.kernels import circular_formulas, wide_formulas
from populus.runtime.engine.native.kernels.conversions import Conversions
from populus.runtime.engine.native.kernels.element_ops import DType, as_integer, element_type
from populus.runtime.engine.native.kernels.endings import LN2, MAGIC, TANH, TANH_END
from populus.runtime.engine.native.kernels.native_support import BYTES, COMPARES, FLOATS, HALVES, INTEGERS, fits
from populus.runtime.tape import Tape, TapeStep


class Formula(Conversions):
    """Steps of a tape on one element."""

    # -- whole tapes

    def run(self, tape: Tape, operands: list[SSAValue], numbers: Iterable[int] = ()) -> SSAValue:
        """Emits a tape all of whose steps have a form; returns its result. `numbers`: operands that are known not to be NaN."""
        values = list(operands)
        dtypes: list[DType] = list(tape.operands)
        literals = set(numbers)
        for literal in tape.literals:
            if not pymath.isnan(float(literal.item())):
                literals.add(len(values))
            small = literal.dtype.name in HALVES or literal.dtype.name in BYTES
            number = literal.view(f"i{literal.itemsize}") if small else literal
            values.append(self.constant(number.item(), element_type(literal.dtype)))
            dtypes.append(literal.dtype)
        for step in tape.steps:
            args = [values[i] for i in step.args]
            if step.name == "convert" and dtypes[step.args[0]] == np.float32 and fits(tape, step):
                values.append(self.bounded(args[0], step.dtype))
            else:
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
            case "saturate":
                return self.saturated(args[0], dtype, step.dtype)
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
        if name == "int_power":
            return self.integer_power(a, b, signed)
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

    def integer_power(self, a: SSAValue, b: SSAValue, signed: bool) -> SSAValue:
        """Emits a^b modulo 2^bits, by the bits of b. For negative b it is 1 / a^-b truncated: 0 except for a = 1 and -1."""
        zero, one, minus = (self.constant(n, a.type) for n in (0, 1, -1))
        width = as_integer(a.type)
        assert width is not None, a.type
        result, power = one, a
        for bit in range(width.bitwidth - signed):
            has = self.op(arith.CmpiOp(self.op(arith.AndIOp(b, self.constant(1 << bit, a.type))), zero, "ne"))
            result = self.select(has, self.op(arith.MuliOp(result, power)), result)
            power = self.op(arith.MuliOp(power, power))
        if not signed:
            return result
        odd = self.op(arith.CmpiOp(self.op(arith.AndIOp(b, one)), zero, "ne"))
        unit = self.op(arith.OrIOp(self.op(arith.CmpiOp(a, one, "eq")), self.op(arith.CmpiOp(a, minus, "eq"))))
        inverse = self.select(unit, self.select(odd, a, one), zero)
        return self.select(self.op(arith.CmpiOp(b, zero, "slt")), inverse, result)

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

    # -- exp, log, tanh; coefficients of Cephes (Moshier), expf and logf

    def exp(self, x: SSAValue) -> SSAValue:
        """Computes 2^n p(r), with x = n ln 2 + r. Two factors make up 2^n, so that subnormal results are right."""
        high, zero = self.constant(89.0, f32), self.constant(0.0, f32)
        # Below, the result is 0; computed, it would be a subnormal number that rounds to 0, which takes some CPUs dozens of cycles.
        under = self.compare(x, self.constant(-104.0, f32), "olt")
        x = self.select(self.compare(x, high, "ogt"), high, x)
        x = self.select(under, zero, x)
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
        return self.select(under, zero, self.mul(self.mul(p, self.power_of_two(half)), self.power_of_two(rest)))

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
        """Computes y / (y + 2) with the sign of x, where y = exp(2 |x|) - 1.

        y is 2^n (p(r) r^2 + r) + 2^n - 1, with 2 |x| = n ln 2 + r.
        From 9.1 on the result is 1. p is a fit of our own by least squares, whose relative error in exp(r) - 1 is 2e-8.
        """
        end, magic, one = self.constant(TANH_END, f32), self.constant(MAGIC, f32), self.constant(1.0, f32)
        a = self.op(math.AbsFOp(x))
        a = self.select(self.compare(end, a, "olt"), end, a)  # NaN stays
        shifted = self.add(self.mul(a, self.constant(2 / pymath.log(2), f32)), magic)
        n = self.sub(shifted, magic)
        r = self.add(self.add(a, a), self.mul(n, self.constant(-LN2[0], f32)))
        r = self.add(r, self.mul(n, self.constant(LN2[1], f32)))
        p = self.polynomial(r, TANH)
        q = self.add(self.mul(p, self.mul(r, r)), r)
        # n is in the last bits, and the others are shifted out.
        exponent = self.op(arith.ShLIOp(self.op(arith.BitcastOp(shifted, i32)), self.constant(23, i32)))
        power = self.op(arith.BitcastOp(self.op(arith.AddiOp(exponent, self.constant(127 << 23, i32))), f32))
        y = self.add(self.mul(q, power), self.sub(power, one))
        return self.op(math.CopySignOp(self.op(arith.DivfOp(y, self.add(y, self.constant(2.0, f32)))), x))


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
    "rem": llvm.FRemOp,
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
        "atan2": circular_formulas.atan2,
        "tanh": Formula.tanh,
        **{name: getattr(wide_formulas, name) for name in ("acosh", "asinh", "atanh", "cosh", "expm1", "log1p", "sinh")},
        **{name: getattr(circular_formulas, name) for name in ("acos", "asin", "atan", "cos", "sin", "tan")},
    },
    "float64": {"exp": wide_formulas.exp, "log": wide_formulas.log, "tanh": wide_formulas.tanh},
}
