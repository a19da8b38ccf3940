"""Conversions of ONNX's `reduction` category."""

from __future__ import annotations

from populus.dialects import popart
from populus.dialects.base.tensor_op import TensorOp
from populus.dialects.support import shapes
from populus.lowering.onnx.to_popart.conversion import Conversion, Output, Rule, Rules, shape


def reduction(kind: type[TensorOp]) -> Rule:
    """Makes the rule of a reduction.

    `axes` became an input in opset 13 (ReduceSum) or 18. No axes mean all, or none with `noop_with_empty_axes`.
    """

    def rule(c: Conversion) -> Output:
        x = c.input(0)
        axes = c.ints(1, "axes")
        if not axes:
            if c.get("noop_with_empty_axes"):
                axes = []
            else:
                axes = list(range(len(shape(x))))
        return c.insert(kind(x, axes=shapes.axes(axes, len(shape(x))), keep=c.get("keepdims") != 0))

    return rule


RULES: Rules = {
    "ReduceL1": reduction(popart.ReduceL1Op),
    "ReduceL2": reduction(popart.ReduceL2Op),
    "ReduceLogSum": reduction(popart.ReduceLogSumOp),
    "ReduceLogSumExp": reduction(popart.ReduceLogSumExpOp),
    "ReduceMax": reduction(popart.ReduceMaxOp),
    "ReduceMean": reduction(popart.ReduceMeanOp),
    "ReduceMin": reduction(popart.ReduceMinOp),
    "ReduceProd": reduction(popart.ReduceProdOp),
    "ReduceSum": reduction(popart.ReduceSumOp),
    "ReduceSumSquare": reduction(popart.ReduceSumSquareOp),
}
