"""Conversions between element types: Cast, CastLike, BitCast."""

from __future__ import annotations

from xdsl.dialects.builtin import Float8E8M0FNUType, f32, i32
from xdsl.ir import Attribute, SSAValue

from populus.dialects import popart
from populus.dialects.onnx.types import element_numbered
from populus.dialects.support.diagnostics import PopulusError
from populus.dialects.support.element_types import dtype_of, is_float, is_known, size_in_bytes, ui8
from populus.lowering.onnx.shape_arithmetic import CAST_1
from populus.lowering.onnx.to_popart.conversion import Conversion, Output, Rules, element


def cast(c: Conversion) -> Output:
    """Converts Cast. Raises PopulusError for an element type that ONNX or tiles do not have. Source: ONNX Cast-25."""
    to = c.get("to")
    target = element_numbered(CAST_1[to.upper()] if isinstance(to, str) else to)
    if target is None:
        raise PopulusError(f"there is no element type {to}")
    return converted(c, c.input(0), held(target))


def cast_like(c: Conversion) -> Output:
    """Converts CastLike: a cast to the element type of the second input. Source: ONNX CastLike-25."""
    return converted(c, c.input(0), held(element(c.input(1))))


def bit_cast(c: Conversion) -> Output:
    """Converts BitCast, which reinterprets the bits of each element.

    Raises PopulusError if the two element types differ in size. Source: ONNX BitCast-26.
    """
    x, target = c.input(0), element_numbered(c.get("to"))
    if target is None:
        raise PopulusError(f"there is no element type {c.get('to')}")
    if size_in_bytes(element(x)) != size_in_bytes(held(target)):
        raise PopulusError(f"elements of {element(x)} do not have the size of {target}")
    return x if target == element(x) else c.insert(popart.BitCastOp(x, to=target))


def held(target: Attribute) -> Attribute:
    """Checks that tiles can hold an element type, and gives it. Raises PopulusError otherwise."""
    if not is_known(target):
        raise PopulusError(f"element type {target} has no array form: tiles cannot hold it yet")
    return target


def converted(c: Conversion, x: SSAValue, target: Attribute) -> SSAValue:
    """Casts `x` as the node's `saturate` and `round_mode` say. Source: ONNX Cast-25."""
    if target == element(x):
        return x
    if isinstance(target, Float8E8M0FNUType):
        return _power_of_two(c, x, target)
    if is_float(target) and size_in_bytes(target) == 1 and c.get("saturate") == 0:
        return unsaturated(c, x, target)
    return c.cast(x, target)


def unsaturated(c: Conversion, x: SSAValue, target: Attribute) -> SSAValue:
    """Casts `x` to an 8-bit float without saturation: an overflow gives infinity, or NaN in types without one."""
    import numpy as np

    dtype = dtype_of(target)
    x = c.cast(x, f32)
    with np.errstate(all="ignore"):
        # The limit is half a step above the largest number. It rounds to even: down if that is still finite.
        bytes = np.arange(128, dtype=np.uint8).view(dtype).astype(np.float32)
        below, largest = np.sort(bytes[np.isfinite(bytes)])[-2:]
        limit = largest + (largest - below) / 2
        inclusive = bool(np.isfinite(limit.astype(dtype).astype(np.float32)))
        beyond = np.array([np.inf, -np.inf, np.nan], np.float32).astype(dtype)
    size = c.insert(popart.AbsOp(x))
    fits = c.insert((popart.LessOrEqualOp if inclusive else popart.LessOp)(size, c.scalar(float(limit), x)))
    y = c.cast(x, target)
    if np.isnan(beyond[0].astype(np.float32)):
        return c.insert(popart.WhereOp(fits, y, c.constant(beyond[2])))
    negative = c.insert(popart.LessOp(x, c.scalar(0.0, x)))
    infinite = c.insert(popart.WhereOp(negative, c.constant(beyond[1]), c.constant(beyond[0])))
    other = c.insert(popart.WhereOp(c.insert(popart.IsNanOp(x)), c.constant(beyond[2]), infinite))
    return c.insert(popart.WhereOp(fits, y, other))


def _power_of_two(c: Conversion, x: SSAValue, target: Attribute) -> SSAValue:
    """Casts `x` to f8E8M0FNU: the powers of 2 from 2^-127 to 2^127, and NaN.

    The result is the exponent field of |x| as f32, rounded up or down. Infinity gives NaN, as does an overflow
    beyond 2^127 without saturation. Source: onnx.numpy_helper.to_float8e8m0.
    """
    import numpy as np

    x = c.cast(x, f32)
    mode = c.get("round_mode") or "up"
    if mode not in ("up", "down"):
        raise PopulusError(f"round_mode {mode} is not supported; up and down are")
    bits = c.insert(popart.BitCastOp(c.insert(popart.AbsOp(x)), to=i32))
    infinity = c.scalar(0x7F800000, bits)
    if mode == "up":
        bits = c.insert(popart.AddOp(c.insert(popart.MinOp(bits, infinity)), c.scalar(0x7FFFFF, bits)))
    exponent = c.insert(popart.DivOp(bits, c.scalar(1 << 23, bits)))
    if c.get("saturate") != 0:
        exponent = c.insert(popart.MinOp(exponent, c.scalar(254, exponent)))
    value = c.insert(popart.BitCastOp(c.cast(exponent, ui8), to=target))
    finite = c.insert(popart.LessOp(c.insert(popart.AbsOp(x)), c.scalar(np.inf, x)))
    return c.insert(popart.WhereOp(finite, value, c.constant(np.array(np.nan, np.float32).astype(dtype_of(target)))))


RULES: Rules = {"BitCast": bit_cast, "Cast": cast, "CastLike": cast_like}
