"""Ops on each element."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import reduce
from typing import Any

from populus.popxl import dtypes
from populus.popxl.errors import WrongType, WrongValue
from populus.popxl.ops.common import cast_to, emit, fixed, in_place, pair, stated
from populus.popxl.tensor import Tensor


def _unary(name: str, op: str, formula: str, **properties: Any) -> Callable[[Tensor], Tensor]:
    def compute(t: Tensor) -> Tensor:
        return emit(op, t, **properties)

    return stated(compute, name, f"Computes `{formula}`.")


def _binary(name: str, op: str, formula: str, **properties: Any) -> Callable[[Any, Any], Tensor]:
    def compute(lhs: Any, rhs: Any) -> Tensor:
        return emit(op, *pair(lhs, rhs), **properties)

    return stated(compute, name, f"Computes `{formula}`; shapes are broadcast, and a number is of the other's element type.")


abs = _unary("abs", "abs", "|t|")
ceil = _unary("ceil", "ceil", "the least integer that is not below t")
cos = _unary("cos", "cos", "cos t")
exp = _unary("exp", "exp", "e^t")
floor = _unary("floor", "floor", "the greatest integer that is not above t")
gelu = _unary("gelu", "gelu", "t/2 (1 + tanh(sqrt(2/pi) (t + 0.044715 t^3)))", tanh=True)
geluerf = _unary("geluerf", "gelu", "t/2 (1 + erf(t / sqrt 2))")
isinf = _unary("isinf", "is_inf", "whether t is infinite")
isnan = _unary("isnan", "is_nan", "whether t is not a number")
log = _unary("log", "log", "log t, the natural logarithm")
negate = _unary("negate", "neg", "-t")
relu = _unary("relu", "relu", "max(t, 0)")
sign = _unary("sign", "sign", "-1, 0 or 1")
sin = _unary("sin", "sin", "sin t")
sqrt = _unary("sqrt", "sqrt", "t^(1/2)")
swish = _unary("swish", "swish", "t / (1 + e^-t)")
tanh = _unary("tanh", "tanh", "tanh t")

add = _binary("add", "add", "lhs + rhs")
div = _binary("div", "div", "lhs / rhs, of integers towards zero")
equal = _binary("equal", "equal", "lhs = rhs, a boolean")
fmod = _binary("fmod", "mod", "the remainder of lhs / rhs, of the sign of lhs", fmod=True)
mul = _binary("mul", "mul", "lhs rhs")
sub = _binary("sub", "sub", "lhs - rhs")

add_, exp_, gelu_, geluerf_, relu_, swish_ = (
    in_place(function, f"{function.__name__}_") for function in (add, exp, gelu, geluerf, relu, swish)
)


def greater(input: Any, other: Any) -> Tensor:
    """Computes `input > other`, a boolean; shapes are broadcast."""
    return emit("greater", *pair(input, other))


def pow(t: Any, e: Any) -> Tensor:
    """Computes `t^e`; a number is of the other's element type."""
    return emit("pow", *pair(t, e))


def log2(t: Tensor) -> Tensor:
    """Computes the logarithm to base 2."""
    return mul(log(t), 1 / math.log(2))


def isfinite(t: Tensor) -> Tensor:
    """Computes whether t is neither infinite nor NaN."""
    return emit("not", emit("or", isinf(t), isnan(t)))


def logical_not(t: Tensor) -> Tensor:
    """Computes `not t`; what is no boolean is true unless it is 0."""
    return emit("not", cast_to(t, dtypes.bool))


def logical_and(lhs: Any, rhs: Any) -> Tensor:
    """Computes `lhs and rhs`; what is no boolean is true unless it is 0."""
    return emit("and", *(cast_to(t, dtypes.bool) for t in pair(lhs, rhs)))


def logical_or(lhs: Any, rhs: Any) -> Tensor:
    """Computes `lhs or rhs`; what is no boolean is true unless it is 0."""
    return emit("or", *(cast_to(t, dtypes.bool) for t in pair(lhs, rhs)))


def maximum(*ts: Tensor) -> Tensor:
    """Computes the largest of tensors, element by element. Raises ValueError for none."""
    if not ts:
        raise WrongValue("maximum takes at least one tensor")
    return reduce(lambda a, b: emit("max", a, b), ts)


def clip(t: Tensor, min: float = -math.inf, max: float = math.inf) -> Tensor:
    """Computes t within `min` and `max`."""
    low = t if min == -math.inf else emit("max", t, fixed(min, t))
    return low if max == math.inf else emit("min", low, fixed(max, t))


clamp = clip


def where(condition: Tensor, lhs: Any, rhs: Any) -> Tensor:
    """Computes lhs where `condition` holds, rhs elsewhere; shapes are broadcast."""
    return emit("where", cast_to(condition, dtypes.bool), *pair(lhs, rhs))


def cast(t: Tensor, data_type: dtypes.dtype) -> Tensor:
    """Converts t to another element type, floats to integers towards zero. Raises TypeError for an 8-bit float, which has a scale."""
    if data_type.as_numpy().names:
        raise WrongType(f"cast does not give {data_type}; consider pow2scale_cast_to_fp8")
    return cast_to(t, data_type)


def increment_mod(t: Tensor, increment: float, modulus: float) -> Tensor:
    """Computes `(t + increment) mod modulus`."""
    return emit("mod", *pair(add(t, increment), modulus))


increment_mod_ = in_place(increment_mod, "increment_mod_")


def scaled_add(X: Tensor, Y: Tensor, a: float | Tensor = 1.0, b: float | Tensor = 1.0) -> Tensor:
    """Computes `a X + b Y`."""
    return add(_scaled(X, a), _scaled(Y, b))


def _scaled(t: Tensor, k: float | Tensor) -> Tensor:
    if isinstance(k, Tensor):
        return mul(t, cast_to(k, t.dtype))
    return t if k == 1 else mul(t, k)


scaled_add_ = in_place(scaled_add, "scaled_add_")
