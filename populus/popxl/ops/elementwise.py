"""Ops on each element."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import reduce
from typing import Any

from populus.popxl import dtypes
from populus.popxl.errors import WrongType, WrongValue
from populus.popxl.internals.recording import recorded
from populus.popxl.ops.common import cast_to, emit, fixed, in_place, pair, stated, wide
from populus.popxl.tensor import Tensor


def _unary(kind: str, name: str, op: str, formula: str, **properties: Any) -> Callable[[Tensor], Tensor]:
    def compute(t: Tensor) -> Tensor:
        return emit(op, t, **properties)

    return recorded(kind)(stated(compute, name, f"Computes `{formula}`."))


def _binary(kind: str, name: str, op: str, formula: str, **properties: Any) -> Callable[[Any, Any], Tensor]:
    def compute(lhs: Any, rhs: Any) -> Tensor:
        return emit(op, *pair(lhs, rhs), **properties)

    doc = f"Computes `{formula}`; shapes are broadcast, and a number is of the other's element type."
    return recorded(kind)(stated(compute, name, doc))


abs = _unary("Abs", "abs", "abs", "|t|")
ceil = _unary("Ceil", "ceil", "ceil", "the least integer that is not below t")
cos = _unary("Cos", "cos", "cos", "cos t")
exp = _unary("Exp", "exp", "exp", "e^t")
floor = _unary("Floor", "floor", "floor", "the greatest integer that is not above t")
gelu = _unary("Gelu", "gelu", "gelu", "t/2 (1 + tanh(sqrt(2/pi) (t + 0.044715 t^3)))", tanh=True)
geluerf = _unary("GeluErf", "geluerf", "gelu", "t/2 (1 + erf(t / sqrt 2))")
isinf = _unary("IsInf", "isinf", "is_inf", "whether t is infinite")
isnan = _unary("IsNaN", "isnan", "is_nan", "whether t is not a number")
log = _unary("Log", "log", "log", "log t, the natural logarithm")
negate = _unary("Neg", "negate", "neg", "-t")
relu = _unary("Relu", "relu", "relu", "max(t, 0)")
sign = _unary("Sign", "sign", "sign", "-1, 0 or 1")
sin = _unary("Sin", "sin", "sin", "sin t")
sqrt = _unary("Sqrt", "sqrt", "sqrt", "t^(1/2)")
swish = _unary("Swish", "swish", "swish", "t / (1 + e^-t)")
tanh = _unary("Tanh", "tanh", "tanh", "tanh t")

add = _binary("Add", "add", "add", "lhs + rhs")
div = _binary("Div", "div", "div", "lhs / rhs, of integers towards zero")
equal = _binary("Equal", "equal", "equal", "lhs = rhs, a boolean")
fmod = _binary("Fmod", "fmod", "mod", "the remainder of lhs / rhs, of the sign of lhs", fmod=True)
mul = _binary("Mul", "mul", "mul", "lhs rhs")
sub = _binary("Sub", "sub", "sub", "lhs - rhs")

add_ = in_place("AddLhsInplace", add)
exp_, gelu_, geluerf_, relu_, swish_ = (
    in_place(f"{kind}Inplace", function)
    for kind, function in {"Exp": exp, "Gelu": gelu, "GeluErf": geluerf, "Relu": relu, "Swish": swish}.items()
)


@recorded("Greater")
def greater(input: Any, other: Any) -> Tensor:
    """Computes `input > other`, a boolean; shapes are broadcast."""
    return emit("greater", *pair(input, other))


@recorded("Pow")
def pow(t: Any, e: Any) -> Tensor:
    """Computes `t^e`; a number is of the other's element type."""
    return emit("pow", *pair(t, e))


def log2(t: Tensor) -> Tensor:
    """Computes the logarithm to base 2."""
    return div(log(t), log(fixed(2, t)))


def isfinite(t: Tensor) -> Tensor:
    """Computes whether t is neither infinite nor NaN."""
    return logical_and(logical_not(isinf(t)), logical_not(isnan(t)))


_not = _unary("Not", "_not", "not", "not t")
_and = _binary("And", "_and", "and", "lhs and rhs")
_or = _binary("Or", "_or", "or", "lhs or rhs")


def logical_not(t: Tensor) -> Tensor:
    """Computes `not t`; what is no boolean is true unless it is 0."""
    return _not(cast(t, dtypes.bool))


def logical_and(lhs: Any, rhs: Any) -> Tensor:
    """Computes `lhs and rhs`; what is no boolean is true unless it is 0."""
    return _and(*(cast(t, dtypes.bool) for t in pair(lhs, rhs)))


def logical_or(lhs: Any, rhs: Any) -> Tensor:
    """Computes `lhs or rhs`; what is no boolean is true unless it is 0."""
    return _or(*(cast(t, dtypes.bool) for t in pair(lhs, rhs)))


@recorded("Max")
def maximum(*ts: Tensor) -> Tensor:
    """Computes the largest of tensors, element by element. Raises ValueError for none."""
    if not ts:
        raise WrongValue("maximum takes at least one tensor")
    return reduce(lambda a, b: emit("max", a, b), ts)


@recorded("Clip")
def clip(t: Tensor, min: float = -math.inf, max: float = math.inf) -> Tensor:
    """Computes t within `min` and `max`."""
    if min == -math.inf and max == math.inf:
        return emit("reshape", t, shape=t.shape)
    low = t if min == -math.inf else emit("max", t, fixed(min, t))
    return low if max == math.inf else emit("min", low, fixed(max, t))


clamp = clip


@recorded("Where")
def _where(condition: Tensor, lhs: Tensor, rhs: Tensor) -> Tensor:
    return emit("where", condition, lhs, rhs)


def where(condition: Tensor, lhs: Any, rhs: Any) -> Tensor:
    """Computes lhs where `condition` holds, rhs elsewhere; shapes are broadcast."""
    return _where(cast(condition, dtypes.bool), *pair(lhs, rhs))


def cast(t: Tensor, data_type: dtypes.dtype) -> Tensor:
    """Converts t to another element type, floats to integers towards zero; gives t itself if it is of that type.

    Raises TypeError for an 8-bit float, which has a scale.
    """
    if data_type.as_numpy().names:
        raise WrongType(f"cast does not give {data_type}; consider pow2scale_cast_to_fp8")
    return t if t.dtype is data_type else _cast(t, data_type)


@recorded("Cast")
def _cast(t: Tensor, data_type: dtypes.dtype) -> Tensor:
    return t.graph.tensor(cast_to(t, data_type).ssa, f"{t.name}_{data_type}")


@recorded("IncrementMod")
def increment_mod(t: Tensor, increment: float, modulus: float) -> Tensor:
    """Computes the remainder of `(t + increment) / modulus`, of the sign of the sum, as PopART's op does."""
    return fmod(add(t, fixed(increment, t)), fixed(modulus, t))


increment_mod_ = in_place("IncrementModInplace", increment_mod)


@recorded("ScaledAdd")
def scaled_add(X: Tensor, Y: Tensor, a: float | Tensor = 1.0, b: float | Tensor = 1.0) -> Tensor:
    """Computes `a X + b Y`, of floats of 16 bits in f32 and rounded once, in X's element type."""
    return cast_to(add(_scaled(wide(X), a), _scaled(cast_to(Y, wide(X).dtype), b)), X.dtype)


def _scaled(t: Tensor, k: float | Tensor) -> Tensor:
    if isinstance(k, Tensor):
        return mul(t, cast_to(k, t.dtype))
    return t if k == 1 else mul(t, k)


scaled_add_ = in_place("ScaledAddLhsInplace", scaled_add)
