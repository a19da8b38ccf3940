"""Builder of the ops of one element: numbers, sums, comparisons. Formulas and conversions are written with it."""

from __future__ import annotations

import math as pymath
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from xdsl.dialects import arith
from xdsl.dialects.builtin import AnyFloat, FloatAttr, IntegerAttr, IntegerType, f32, f64, i1, i8, i16
from xdsl.ir import Attribute, Operation, SSAValue

from populus.runtime.engine.native.kernels.native_support import BYTES, HALVES, of_numpy

DType = np.dtype[Any]


def element_type(dtype: DType) -> Attribute:
    """Returns the type of a value in a register: i1 for booleans, signless integers, i16 or i8 for smaller floats."""
    match dtype.kind, dtype.name:
        case "b", _:
            return i1
        case "i" | "u", _ if of_numpy(dtype):
            return IntegerType(8 * dtype.itemsize)
        case _, name if name in HALVES:
            return i16
        case _, name if name in BYTES:
            return i8
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
class ElementOps:
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
