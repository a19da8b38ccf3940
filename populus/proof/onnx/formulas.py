"""Element-wise ops of ONNX as formulas of their operands, as ONNX's documentation has them; of opsets 7 and newer.

`None` where the definition depends on something that has no formula here, such as a conversion that saturates.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from xdsl.dialects.builtin import Float8E8M0FNUType, i1
from xdsl.ir import Attribute

from populus.dialects import expr
from populus.dialects.expr import Arg, Expr, absolute, call, cast, clamp, equal, exp, isinf, log, maximum, minimum, select, tanh
from populus.dialects.onnx.types import element_numbered
from populus.dialects.support.element_types import is_float, size_in_bytes

Get: TypeAlias = Callable[[str], Any]
Types: TypeAlias = "list[Attribute]"
Formula: TypeAlias = "Callable[[Get, Types], Expr | None]"

_1, _2, _3 = Arg(1), Arg(2), Arg(3)


def _plain(e: Expr) -> Formula:
    return lambda get, types: e


def _floats(e: Expr) -> Formula:
    return lambda get, types: e if all(map(is_float, types)) else None


def _chain(function: str) -> Formula:
    def formula(get: Get, types: Types) -> Expr:
        e: Expr = _1
        for i in range(1, len(types)):
            e = call(function, e, Arg(i + 1))
        return e

    return formula


def _mean(get: Get, types: Types) -> Expr | None:
    total = _chain("add")(get, types)
    return None if total is None or not is_float(types[0]) else total / float(len(types))


def converted(x: Expr, old: Attribute, to: Attribute, saturates: bool) -> Expr | None:
    """Converts an element, by truncation to integers and by comparison with 0 to booleans; 8-bit floats are those in range."""
    if to == old:
        return x
    if isinstance(to, Float8E8M0FNUType) or (is_float(to) and size_in_bytes(to) == 1 and not saturates):
        return None
    return call("not", equal(x, 0.0 if is_float(old) else 0)) if to == i1 else cast(x, to)


def _cast(get: Get, types: Types) -> Expr | None:
    to = element_numbered(get("to"))
    return None if to is None else converted(_1, types[0], to, get("saturate") != 0)


def _clip(get: Get, types: Types) -> Expr | None:
    low, high = get("min"), get("max")
    e: Expr = _1
    if low is not None:
        e = maximum(e, low)
    return e if high is None else minimum(e, high)


def _gelu(get: Get, types: Types) -> Expr:
    if get("approximate") == "tanh":
        return 0.5 * _1 * (1.0 + tanh(math.sqrt(2 / math.pi) * (_1 + 0.044715 * _1 * _1 * _1)))
    return 0.5 * _1 * (1.0 + expr.erf(_1 / math.sqrt(2.0)))


def _isinf(get: Get, types: Types) -> Expr:
    negative, positive = (equal(_1, value) for value in (-math.inf, math.inf))
    match bool(get("detect_negative")), bool(get("detect_positive")):
        case True, True:
            return isinf(_1)
        case True, False:
            return negative
        case False, True:
            return positive
        case _:
            return isinf(_1) & False


def _mod(get: Get, types: Types) -> Expr:
    rest = call("rem", _1, _2)  # of the dividend's sign
    if get("fmod"):
        return rest
    zero = 0.0 if is_float(types[0]) else 0
    return select(rest + _2, rest, ~equal(rest, zero) & call("xor", call("lt", rest, zero), call("lt", _2, zero)))


def _power(get: Get, types: Types) -> Expr:
    base, exponent = types
    if base == exponent:
        return call("pow", _1, _2)
    if is_float(exponent) and not is_float(base):
        return cast(call("pow", cast(_1, exponent), _2), base)
    return call("pow", _1, cast(_2, base))


def _shifted(get: Get, types: Types) -> Expr:
    return call("shift_left" if get("direction") == "LEFT" else "shift_right", _1, _2)


def _bits(get: Get, types: Types) -> Expr | None:
    to = element_numbered(get("to"))
    return None if to is None else _1 if to == types[0] else expr.bits(_1, to)


def _softplus(get: Get, types: Types) -> Expr:
    return log(exp(_1) + 1.0)


FORMULAS: Mapping[str, Formula] = {
    **{name: _plain(call(function, _1)) for name, function in (
        ("Abs", "abs"), ("Neg", "neg"), ("Not", "not"), ("Sign", "signum"), ("BitwiseNot", "bitwise_not"),
    )},
    **{name: _floats(call(function, _1)) for name, function in (
        ("Exp", "exp"), ("Log", "log"), ("Sqrt", "sqrt"), ("Sigmoid", "sigmoid"), ("Tanh", "tanh"), ("Erf", "erf"), ("Sin", "sin"),
        ("Cos", "cos"), ("Tan", "tan"), ("Asin", "asin"), ("Acos", "acos"), ("Atan", "atan"), ("Sinh", "sinh"), ("Cosh", "cosh"),
        ("Asinh", "asinh"), ("Acosh", "acosh"), ("Atanh", "atanh"), ("Floor", "floor"), ("Ceil", "ceil"), ("Round", "nearbyint"),
        ("Reciprocal", "inv"), ("IsNaN", "isnan"),
    )},
    **{name: _plain(call(function, _1, _2)) for name, function in (
        ("Add", "add"), ("Sub", "sub"), ("Mul", "mul"), ("And", "and"), ("Or", "or"), ("Xor", "xor"), ("Equal", "equal"), ("Less", "lt"),
        ("Greater", "gt"), ("LessOrEqual", "lte"), ("GreaterOrEqual", "gte"), ("BitwiseAnd", "bitwise_and"),
        ("BitwiseOr", "bitwise_or"), ("BitwiseXor", "bitwise_xor"),
    )},
    **{name: _chain(function) for name, function in (("Sum", "add"), ("Max", "max"), ("Min", "min"))},
    "Mean": _mean,
    "Div": _plain(_1 / _2),
    "Pow": _power,
    "Mod": _mod,
    "BitShift": _shifted,
    "BitCast": _bits,
    "Identity": _plain(_1),
    "Where": _plain(select(_2, _3, _1)),
    "Relu": lambda get, types: maximum(_1, 0.0 if is_float(types[0]) else 0),
    "LeakyRelu": lambda get, types: select(get("alpha") * _1, _1, call("lt", _1, 0.0)),
    "PRelu": lambda get, types: select(_2 * _1, _1, call("lt", _1, 0.0)) if is_float(types[0]) else None,
    "ThresholdedRelu": lambda get, types: select(_1, 0.0, call("gt", _1, get("alpha"))),
    "Elu": lambda get, types: select(_1, get("alpha") * (exp(_1) - 1.0), call("gte", _1, 0.0)),
    "Selu": lambda get, types: get("gamma") * select(_1, get("alpha") * exp(_1) - get("alpha"), call("gt", _1, 0.0)),
    "HardSigmoid": lambda get, types: clamp(get("alpha") * _1 + get("beta"), 0.0, 1.0),
    "HardSwish": _plain(_1 * clamp(_1 / 6.0 + 0.5, 0.0, 1.0)),
    "Softplus": _softplus,
    "Softsign": _plain(_1 / (1.0 + absolute(_1))),
    "Mish": _plain(_1 * tanh(log(exp(_1) + 1.0))),
    "Swish": lambda get, types: _1 * expr.sigmoid(_1 * get("alpha")),
    "Gelu": _gelu,
    "Clip": _clip,
    "IsInf": _isinf,
    "Cast": _cast,
    "CastLike": lambda get, types: converted(_1, types[0], types[1], get("saturate") != 0),
    "Shrink": lambda get, types: select(
        _1 + get("bias"), select(_1 - get("bias"), 0.0, call("gt", _1, get("lambd"))), call("lt", _1, -get("lambd"))
    ) if is_float(types[0]) else None,
}  # fmt: skip
"""The formula of an op, from its attributes and its operands' element types; None where it has none here."""
