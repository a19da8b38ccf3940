"""Table of the steps of a tape that have a native form. It needs no builder of code, so a program with cached kernels
loads none.

`formulas.py` has the forms, by the same names.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from populus.runtime.endings import HALVES
from populus.runtime.tape import PACKED, SATURATING, Tape, TapeStep

DType = np.dtype[Any]

# A byte in registers; only moved, selected and converted.
BYTES = SATURATING | PACKED | {"float8_e8m0fnu"}
COMPARES = frozenset(("equal", "gt", "gte", "lt", "lte"))
FLOATS = frozenset(("abs", "add", "ceil", "divide", "floor", "mul", "nearbyint", "neg", "rem", "sqrt", "sub", "trunc"))
TESTS = frozenset(("isfinite", "isinf", "isnan"))
F64_INSIDE = frozenset(
    ("acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "cos", "cosh", "expm1", "log1p", "pow", "sin", "sinh", "tan")
)
ROUNDED = {"float32": F64_INSIDE | {"exp", "log", "tanh"}, "float64": frozenset(("exp", "log", "tanh"))}
INTEGERS = frozenset(("add", "bitwise_and", "bitwise_or", "bitwise_xor", "mul", "sub"))
# Of integers.
COMPOSED = frozenset(("abs", "bitwise_not", "int_divide", "int_power", "max", "min", "neg", "rem", "shift_left", "shift_right", "signum"))
LOGICAL = frozenset(("logical_and", "logical_not", "logical_or", "logical_xor"))


def of_numpy(dtype: DType) -> bool:
    """Tells whether a type is NumPy's own, in the CPU's byte order. A copy of one is (its `isbuiltin` is 0), another library's is not."""
    return dtype.isbuiltin != 2 and dtype.isnative


def held(dtype: DType) -> bool:
    """Tells whether a register holds values of the type. Halves are 16 bits there; their arithmetic is that of f32."""
    plain = dtype.kind == "b" or (dtype.kind in "iu" and of_numpy(dtype))
    return plain or dtype.name in ("float32", "float64") or dtype.name in HALVES or dtype.name in BYTES


def has_form(tape: Tape) -> bool:
    """Tells whether all steps of a tape have a native form."""
    if not all(held(d) for d in (*tape.operands, *(x.dtype for x in tape.literals), *(s.dtype for s in tape.steps))):
        return False
    dtypes = [*tape.operands, *(x.dtype for x in tape.literals)]
    for step in tape.steps:
        if not _step(step, dtypes[step.args[0]]):
            return False
        dtypes.append(step.dtype)
    return True


def fits(tape: Tape, step: TapeStep) -> bool:
    """Tells whether a conversion from f32 to integers is of numbers that are known to be within their range, or NaN.

    They are if literals bound them from both sides. Such conversions take fewer operations.
    """
    first = len(tape.operands) + len(tape.literals)
    value, to, bounds = step.args[0], step.dtype, dict[str, float]()
    while value >= first and not bounds.keys() >= {"max", "min"}:
        made = tape.steps[value - first]
        if made.dtype != np.float32 or made.name not in ("max", "min", "nearbyint"):
            break
        literal = [i for i in made.args if len(tape.operands) <= i < first]
        if made.name != "nearbyint":
            if len(literal) != 1:
                break
            bounds.setdefault(made.name, float(tape.literals[literal[0] - len(tape.operands)]))
        value = next(i for i in made.args if i not in literal)
    if to.kind not in "iu" or not of_numpy(to) or to.itemsize > 2 or bounds.keys() != {"max", "min"}:
        return False
    limits = np.iinfo(to)
    return bool(limits.min <= bounds["max"] <= limits.max and limits.min <= bounds["min"] <= limits.max)


def _step(step: TapeStep, dtype: DType) -> bool:
    name, kind = step.name, dtype.kind
    if name in ("mask", "blend"):
        return True
    if name == "convert":
        return _converts(dtype, step.dtype)
    if name == "bits":
        return True
    if name == "saturate":
        return dtype.name in ("float32", "float64")
    if dtype.name in HALVES or dtype.name in BYTES:
        return False
    if name in COMPARES:
        return True
    if kind == "f":
        return name in FLOATS or name in TESTS or name in ("max", "min", "signum") or name in ROUNDED.get(dtype.name, ())
    if kind == "b":
        return name in LOGICAL
    return name in INTEGERS or name in COMPOSED


def _converts(source: DType, to: DType) -> bool:
    """Tells whether a conversion has a form. Tapes round to small floats by `saturate`, and to packed integers from i8."""
    if to.name in SATURATING:
        return False
    if to.name in PACKED:
        return source == np.int8
    return True


def long_work(tape: Tape, elements: int) -> int:
    """Estimates the ns of a formula's steps that are polynomials, or functions in f64."""
    return elements * sum(6 if s.name in ("exp", "log", "tanh") else 30 for s in tape.steps if s.name in ROUNDED["float32"]) // 20
