"""Powers as products: `pow(u, 2)` is `square(u)`, and `pow(u, -0.75)` of a number from 0 on is `r sqrt(r)` with `r = 1 / sqrt(u)`.

A power of a float takes 312 cycles of a worker, a square root 10 for two.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from xdsl.dialects.builtin import f32
from xdsl.ir import SSAValue

from populus.dialects.expr import Arg, Call, Const, Expr, args_of, call, infer
from populus.dialects.popnn import PoolOp
from populus.dialects.popops import ReduceOp, ReshapeOp
from populus.dialects.support.element_types import element_type_of, is_float

MOST = 2.0  # a larger power is one of many factors, each with its rounding
WHOLE: dict[float, Callable[[Expr], Expr]] = {
    -1.0: lambda u: call("inv", u),
    1.0: lambda u: u,
    2.0: lambda u: call("square", u),
    3.0: lambda u: call("square", u) * u,
}
"""Literal powers of any float; but for the third, the result is the float nearest to the power."""


def with_roots(e: Expr, operands: Sequence[SSAValue]) -> Expr:
    """Replaces powers of floats by products, where the power is a literal of WHOLE; and by roots those of f32 where the base is
    known to be 0 or more and the power is a literal multiple of 1/4 between -2 and 2.

    0, infinity and NaN give what the power gives. To rounding: at most four units in the last place.
    """
    if not isinstance(e, Call):
        return e
    e = Call(e.function, tuple(with_roots(a, operands) for a in e.args))
    match e:
        case Call("pow", (u, Const(power))) if args_of(u):
            number, element = float(power), infer(u, [element_type_of(o.type) for o in operands])
            if number in WHOLE and is_float(element):
                return WHOLE[number](u)
            return _product(u, number) if _of_quarters(number) and element == f32 and not _negative(u, operands) else e
        case _:
            return e


def _of_quarters(power: float) -> bool:
    """Tells whether a power is a multiple of 1/4, no whole number, and small."""
    return abs(power) <= MOST and (4 * power).is_integer() and not power.is_integer()


def _product(u: Expr, power: float) -> Expr:
    """Writes a power of quarters, not a whole number, as a product of roots of u or of 1 / u."""
    quarters = round(abs(power) * 4)
    root = call("rsqrt" if power < 0 else "sqrt", u)
    factors = [root] * (quarters >> 1 & 1) + [call("sqrt", root)] * (quarters & 1)
    factors += [call("inv", u) if power < 0 else u] * (quarters >> 2)
    product = factors[0]
    for factor in factors[1:]:
        product = product * factor
    return product


def _negative(e: Expr, operands: Sequence[SSAValue]) -> bool:
    """Tells whether an expression may be less than 0, or -0."""
    match e:
        case Const(value):
            return not value > 0
        case Arg(i):
            return not _sums_squares(operands[i - 1])
        case Call("add" | "mul" | "max", args):
            return any(_negative(a, operands) for a in args)
        case Call("square" | "exp" | "abs" | "sigmoid", _):
            return False
        case _:
            return True


def _sums_squares(value: SSAValue) -> bool:
    """Tells whether a value is a sum of squares."""
    owner = value.owner
    if isinstance(owner, ReshapeOp):
        return _sums_squares(owner.x)
    if isinstance(owner, PoolOp):
        return owner.kind.data == "square_sum"
    return isinstance(owner, ReduceOp) and owner.op.data == "square_add"
