"""Conversions of ops on quantized elements: the op on floats between `dequantize` and `quantize`, which the 8-bit path takes.

A quantized value is the tensor of its stored integers. An op that only moves elements is converted on these.
Source: StableHLO's specification, "Quantization computations" (dequantize_op_quantize).
"""

from __future__ import annotations

from xdsl.dialects.builtin import f32
from xdsl.ir import Operation, SSAValue

from populus.dialects import popart
from populus.dialects.support.diagnostics import PopulusError
from populus.dialects.support.element_types import dtype_of, i8, is_float, ui8
from populus.lowering.stablehlo.quantized_types import BETWEEN, PREFIX, Quantization, quantization_of, range_of
from populus.lowering.stablehlo.to_popart.conversion import Conversion, Rule, Value, element, part_type, real, shape
from populus.lowering.stablehlo.to_popart.elementwise import converted

MOVES = frozenset(["broadcast_in_dim", "concatenate", "gather", "optimization_barrier", "reshape", "reverse", "slice", "transpose"])
"""The ops whose results have elements of their operands, if all have one quantization."""
HYBRID = frozenset(["convolution", "dot_general"])
"""The ops that take a quantized operand beside one of floats, and give floats."""


def is_quantized(op: Operation) -> bool:
    """Tells whether an operand or a result is quantized."""
    return any(quantization_of(v.type) is not None for v in (*op.operands, *op.results))


def quantized(rule: Rule, c: Conversion) -> list[Value]:
    """Converts an op with quantized operands or results; `rule` converts it on floats.

    Raises PopulusError for an op with regions, and for one that mixes floats and quantized elements where none may be mixed.
    """
    op = c.any
    given, wanted = ([quantization_of(v.type) for v in values] for values in (op.operands, op.results))
    kind = op.name.partition(".")[2]
    if kind == "custom_call" and str(c.get("call_target_name")).removeprefix(PREFIX) in BETWEEN:
        return [between(c, c.input(0), given[0], wanted[0])]
    if op.regions:
        raise PopulusError("it has a region on quantized elements; ops without one are converted")
    floats = [v.type for v, q in zip((*op.operands, *op.results), (*given, *wanted)) if q is None and is_float(part_type(v.type))]
    if floats and not (kind in HYBRID and wanted == [None]):
        raise PopulusError(f"an element type is {floats[0]}, and another is quantized; quantized ones are expected")
    if kind in MOVES and len({q for q in (*given, *wanted) if q is not None}) == 1 and (given[0] is None or given[0].axis is None):
        found = rule(c)
        return found if isinstance(found, list) else [found]
    inner = Conversion(op, [v if q is None else dequantize(c, real(v), q) for v, q in zip(c.inputs, given)], c.builder, c.regions)
    found = rule(inner)
    results = found if isinstance(found, list) else [found]
    return [v if q is None else quantize(c, real(v), q) for v, q in zip(results, wanted)]


def between(c: Conversion, x: SSAValue, own: Quantization | None, to: Quantization | None) -> SSAValue:
    """Converts uniform_quantize, uniform_dequantize and bitcast_convert, of which an operand or the result is quantized."""
    if c.get("call_target_name") == f"{PREFIX}bitcast_convert":
        stored = to.storage if to is not None else part_type(c.any.results[0].type)
        if element(x) != stored or shape(x) != c.shape():
            raise PopulusError(f"{c.any.operands[0].type} has other integers than {c.any.results[0].type}")
        return x
    y = x if own is None else dequantize(c, x, own)
    if element(y) != f32:
        raise PopulusError(f"its operand is {c.any.operands[0].type}; f32 or quantized elements are expected")
    return y if to is None else quantize(c, y, to)


def constants(c: Conversion, x: SSAValue, q: Quantization) -> tuple[SSAValue, SSAValue]:
    """Inserts the scales and zeros of a tensor's quantization."""
    rank = len(shape(x))
    return c.constant(q.along(q.scales, rank, "float32")), c.constant(q.along(q.zeros, rank, dtype_of(q.storage)))


def dequantize(c: Conversion, x: SSAValue, q: Quantization) -> SSAValue:
    """Gives `(x - zero) scale`."""
    return c(popart.DequantizeOp, x, *constants(c, x, q))


def quantize(c: Conversion, x: SSAValue, q: Quantization) -> SSAValue:
    """Gives `clamp(round(x / scale) + zero)`: to the nearest even, within the range that is stored."""
    scale, zero = constants(c, x, q)
    if q.storage in (i8, ui8):
        y = c(popart.QuantizeOp, x, scale, zero)
    else:
        steps = c(popart.RoundOp, c(popart.DivOp, x, scale))
        y = converted(c, c(popart.AddOp, steps, c.cast(zero, f32)), q.storage)
    return bounded(c, y, q)


def bounded(c: Conversion, y: SSAValue, q: Quantization) -> SSAValue:
    """Clamps to a range that is smaller than that of the integer type."""
    least, most = range_of(q.storage)
    if q.low > least:
        y = c(popart.MaxOp, y, c.scalar(q.low, y))
    return y if q.high == most else c(popart.MinOp, y, c.scalar(q.high, y))
