"""Conversions of ONNX's ops whose operands have bounded dimensions, or are made of sizes.

An op of `UNIFORM` is converted as at its bounds: the ops that its rule inserts mask what they mix (`masked_ops.py`). An op of
`RULES` asks for sizes, offsets or counts. An op that ONNX defines by other ops is those. Any other is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from populus.dialects.support.diagnostics import PopulusError
from populus.lowering.onnx.to_popart import open_layers, open_shapes
from populus.lowering.onnx.to_popart.conversion import Conversion, shape
from populus.lowering.onnx.to_popart.open_shapes import Rule, agreed, aligned, compacted, masks_of
from populus.lowering.onnx.valid_sizes import dimensions, is_whole

Prepare: TypeAlias = "Callable[[Conversion], None]"

ELEMENTWISE = (
    "Abs", "Acos", "Acosh", "Add", "And", "Asin", "Asinh", "Atan", "Atanh", "BitShift", "BitwiseAnd", "BitwiseNot", "BitwiseOr",
    "BitwiseXor", "Cast", "Ceil", "Celu", "Clip", "Cos", "Cosh", "Div", "Elu", "Equal", "Erf", "Exp", "Floor", "Gelu", "Greater",
    "GreaterOrEqual", "HardSigmoid", "HardSwish", "Identity", "IsInf", "IsNaN", "LeakyRelu", "Less", "LessOrEqual", "Log", "Max", "Mean",
    "Min", "Mish", "Mod", "Mul", "Neg", "Not", "Or", "PRelu", "Pow", "Reciprocal", "Relu", "Round", "Selu", "Shrink", "Sigmoid", "Sign",
    "Sin", "Sinh", "Softplus", "Softsign", "Sqrt", "Sub", "Sum", "Swish", "Tan", "Tanh", "ThresholdedRelu", "Where", "Xor",
)  # fmt: skip


def broadcasting(c: Conversion) -> None:
    """Makes the inputs of an element-wise op alike. Raises PopulusError for opset 6 and older, which aligns them otherwise."""
    if c.version < 7 and len(c.op.operands) > 1:
        raise PopulusError("before opset 7 its inputs are aligned by an axis; bind the dimensions to one size, or convert the model")
    c.op.operands = aligned(c, list(c.op.operands))
    c.inputs = c.op.inputs


def matrices(c: Conversion, second: int = 1) -> None:
    """Makes inputs 0 and `second`, two matrices, alike: batch axes that broadcast, and the axis that is summed over."""
    a, b = c.input(0), c.input(second)
    m, n = len(shape(a)), len(shape(b))
    groups: list[list[int | None]] = [[m - 1, max(n - 2, 0)]]
    for d in range(3, max(m, n) + 1):
        groups.append([m - d if d <= m else None, n - d if d <= n else None])
    a, b = agreed(c, [a, b], groups)
    c.op.operands = [a if i == 0 else b if i == second else v for i, v in enumerate(c.op.operands)]
    c.inputs = c.op.inputs


def second_at_three(c: Conversion) -> None:
    """Makes the matrices of a QLinearMatMul alike."""
    matrices(c, 3)


def floors(c: Conversion) -> None:
    """Prepares windows as `same_pads`, and refuses a number of windows that is rounded up."""
    same_pads(c)
    if c.get("ceil_mode"):
        raise PopulusError(f"ceil_mode adds padding that depends on the size of {_named(c)}")


def gemm(c: Conversion) -> None:
    """Makes the inputs of a Gemm alike."""
    a, b = c.input(0), c.input(1)
    inner, summed = (0 if c.get("transA") else 1), (1 if c.get("transB") else 0)
    rest = list(c.op.operands[2:])
    rows = [1 - inner, None, *(len(shape(v)) - 2 if len(shape(v)) == 2 else None for v in rest)]
    columns = [None, 1 - summed, *(len(shape(v)) - 1 if shape(v) else None for v in rest)]
    c.op.operands = agreed(c, [a, b, *rest], [[inner, summed, *[None] * len(rest)], rows, columns])
    c.inputs = c.op.inputs


def prefixes(c: Conversion) -> None:
    """Moves the valid elements of all inputs to the front of their axes."""
    c.op.operands = [compacted(c, v) for v in c.op.operands]
    c.inputs = c.op.inputs


def pads_by_size(c: Conversion) -> bool:
    """Tells whether `auto_pad` pads a bounded dimension by amounts that depend on its size, as it does for strides."""
    axes, strides = masks_of(c).valid.of(c.input(0)), c.list("strides")
    same = (c.get("auto_pad") or "NOTSET").startswith("SAME") and c.op.OP_TYPE != "ConvTranspose"
    return same and any(s != 1 and not is_whole(a) for s, a in zip(strides, axes[2:]))


def same_pads(c: Conversion) -> None:
    """Prepares windows. Raises PopulusError for padding or positions that depend on the size."""
    prefixes(c)
    x = masks_of(c).valid.of(c.input(0))
    if pads_by_size(c):
        raise PopulusError(f"auto_pad {c.get('auto_pad')} with strides pads by amounts that depend on the size of {_named(c)}")
    if c.op.OP_TYPE == "ConvTranspose" and c.get("output_shape") and not all(map(is_whole, x[2:])):
        raise PopulusError(f"output_shape is stated for one size of {_named(c)}")
    if len(c.op.outputs) > 1 and c.used(1):
        raise PopulusError(f"positions of the largest elements depend on the size of {_named(c)}")


def _named(c: Conversion) -> str:
    """Names the bounded dimensions of the inputs."""
    return dimensions(masks_of(c).valid.axes, c.op.operands)


def nothing(c: Conversion) -> None:
    """Leaves the inputs as they are."""


RULES: Mapping[str, Rule] = {**open_shapes.RULES, **open_layers.RULES}
"""Ops that ask for sizes, offsets or counts."""


def rule_of(c: Conversion) -> Rule | None:
    """Gives the rule of an op that asks for sizes; None for another op."""
    if c.op.OP_TYPE in ("Conv", "MaxPool") and pads_by_size(c):
        return open_layers.same_windows
    return RULES.get(c.op.OP_TYPE)


KEEPING = ("Dropout", "Hardmax", "ReverseSequence")
"""Ops whose results have the axes of input 0, also where only constants say so."""

UNIFORM: Mapping[str, Prepare] = {
    **dict.fromkeys(ELEMENTWISE, broadcasting),
    "ArgMax": prefixes,
    "ArgMin": prefixes,
    "AveragePool": same_pads,
    "BatchNormalization": nothing,
    "CastLike": nothing,
    "Conv": same_pads,
    "ConvTranspose": same_pads,
    "ConvInteger": same_pads,
    "CumProd": prefixes,
    "CumSum": prefixes,
    "DepthToSpace": prefixes,
    "DequantizeLinear": nothing,
    "Dropout": nothing,
    "DynamicQuantizeLinear": nothing,
    "Einsum": open_layers.einsum,
    "Flatten": nothing,
    "GatherElements": open_layers.elements,
    "GatherND": prefixes,
    "Gemm": gemm,
    "GlobalAveragePool": nothing,
    "GlobalLpPool": nothing,
    "GlobalMaxPool": nothing,
    "GroupNormalization": nothing,
    "Hardmax": prefixes,
    "InstanceNormalization": nothing,
    "LRN": nothing,
    "LayerNormalization": nothing,
    "LogSoftmax": nothing,
    "LpNormalization": nothing,
    "MeanVarianceNormalization": nothing,
    "LpPool": floors,
    "MatMul": matrices,
    "MatMulInteger": matrices,
    "MaxPool": same_pads,
    "OneHot": nothing,
    "QLinearConv": same_pads,
    "QLinearMatMul": second_at_three,
    "QuantizeLinear": nothing,
    "ReduceL1": nothing,
    "ReduceL2": nothing,
    "ReduceLogSum": nothing,
    "ReduceLogSumExp": nothing,
    "ReduceMax": nothing,
    "ReduceMean": nothing,
    "ReduceMin": nothing,
    "ReduceProd": nothing,
    "ReduceSum": nothing,
    "ReduceSumSquare": nothing,
    "ReverseSequence": prefixes,
    "Scatter": open_layers.elements,
    "ScatterElements": open_layers.elements,
    "ScatterND": prefixes,
    "Softmax": nothing,
    "SpaceToDepth": prefixes,
    "Transpose": nothing,
    "Trilu": prefixes,
}
"""Ops that are converted as at their bounds, and what is done to their inputs first."""
