"""`%` and `//` of floats as Python has them, as functions of `arith` and `math`."""

from __future__ import annotations

from xdsl.dialects import arith, func, math
from xdsl.dialects.builtin import AnyFloat, FloatAttr, f64
from xdsl.ir import Block, Operation, Region, SSAValue

FLOORED = ("python_mod", "python_floordiv")


def floored(name: str, type: AnyFloat) -> func.FuncOp:
    """Makes one of the functions, which calls C's `fmod`. For f32 their names have an f at the end.

    `%` has the sign of the divisor. `//` is exact, where a rounded quotient might be one too many.
    """
    suffix = "" if type == f64 else "f"
    entry = Block(arg_types=[type, type])
    a, b = entry.args

    def op(made: Operation) -> SSAValue:
        entry.add_op(made)
        return made.results[0]

    def number(value: float) -> SSAValue:
        return op(arith.ConstantOp(FloatAttr(value, type)))

    def compare(how: str, x: SSAValue, y: SSAValue) -> SSAValue:
        return op(arith.CmpfOp(x, y, how))

    def apart() -> SSAValue:
        return op(arith.XOrIOp(compare("olt", b, zero), compare("olt", rest, zero)))

    zero = number(0.0)
    rest = op(func.CallOp(f"fmod{suffix}", [a, b], [type]))
    if name == "python_mod":
        moved = op(arith.SelectOp(apart(), op(arith.AddfOp(rest, b)), rest))
        none = op(math.CopySignOp(zero, b))
        result = op(arith.SelectOp(compare("oeq", rest, zero), none, moved))
    else:
        one, half = number(1.0), number(0.5)
        quotient = op(arith.DivfOp(op(arith.SubfOp(a, rest)), b))
        below = op(arith.AndIOp(compare("une", rest, zero), apart()))
        exact = op(arith.SelectOp(below, op(arith.SubfOp(quotient, one)), quotient))
        floor = op(math.FloorOp(exact))
        far = compare("ogt", op(arith.SubfOp(exact, floor)), half)
        near = op(arith.SelectOp(far, op(arith.AddfOp(floor, one)), floor))
        plain = op(arith.DivfOp(a, b))
        sign = op(math.CopySignOp(zero, plain))
        signed = op(arith.SelectOp(compare("oeq", exact, zero), sign, near))
        result = op(arith.SelectOp(compare("oeq", b, zero), plain, signed))
    entry.add_op(func.ReturnOp(result))
    return func.FuncOp(name + suffix, ([type, type], [type]), Region(entry), visibility="private")
