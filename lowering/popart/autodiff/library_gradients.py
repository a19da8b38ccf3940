"""Gradients of library calls, for higher derivatives: an op's gradient may insert library calls.

Each call has an equivalent at the `popart` level, whose `gradient` is used. Maps are differentiated by formula,
and the gradient of a pad is a slice.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeAlias

from xdsl.builder import Builder
from xdsl.ir import Operation, SSAValue

from populus.dialects import popart, poplin, popnn, popops
from populus.dialects.base.tensor_op import ints
from populus.dialects.expr import Arg, cast
from populus.dialects.popart import PopartOp, calls

Gradients: TypeAlias = "Sequence[SSAValue | None]"

REDUCTIONS: dict[str, type[PopartOp]] = {
    "add": popart.ReduceSumOp,
    "max": popart.ReduceMaxOp,
    "min": popart.ReduceMinOp,
    "mul": popart.ReduceProdOp,
    "square_add": popart.ReduceSumSquareOp,
}


def library_gradient(op: Operation, b: Builder, grads: Sequence[SSAValue]) -> Gradients | None:
    """Computes the gradients as `PopartOp.gradient` does; None for an op without a rule."""
    match op:
        case popops.MapOp():
            operands = list(op.operands)
            return calls.pull(b, calls.slopes(op.expr.data, [calls.element(o) for o in operands]), operands, op.results[0], grads[0])
        case popops.PadOp():
            return _cut(op, b, grads[0])
        case popops.IotaOp():
            return []
        case popnn.PoolOp() if op.kind.data == "sum" and not op.ceil:
            scaled = calls.map(b, Arg(1) * math.prod(ints(op.kernel)), grads[0])
            return _through(_average(op, count_padding=True), op, b, [scaled])
        case popops.ReduceOp() if op.to is not None:
            return _of_wide_reduction(op, b, grads[0])
        case _ if (twin := _twin(op, b)) is not None:
            return _through(twin, op, b, grads)[: len(op.operands)]
        case _:
            return None


def _twin(op: Operation, b: Builder) -> PopartOp | None:
    """Builds the equivalent `popart` op; None if there is none."""
    match op:
        case popops.BroadcastOp():
            return popart.ExpandOp(op.x, shape=op.shape)
        case popops.ConcatOp():
            return popart.ConcatOp(*op.operands, axis=op.dim)
        case popops.DimShuffleOp():
            return popart.TransposeOp(op.x, permutation=op.permutation)
        case popops.MultiSliceOp():
            return popart.GatherOp(op.table, op.indices, axis=op.dim)
        case popops.MultiUpdateOp():
            return popart.ScatterOp(op.table, op.indices, op.updates, reduction=op.op)
        case popops.ReduceOp():
            kind = REDUCTIONS.get(op.op.data)
            return None if kind is None else kind(op.x, axes=ints(op.dims), keep=False)
        case popops.ReshapeOp():
            return popart.ReshapeOp(op.x, shape=op.shape)
        case popops.SliceOp():
            return popart.SliceOp(op.x, begins=op.begins, ends=op.ends, steps=op.steps)
        case poplin.ConvolutionOp():
            return popart.ConvOp(op.x, op.w, strides=op.strides, pads=op.pads, dilations=op.dilations, group=op.groups)
        case poplin.MatMulOp():
            return popart.MatMulOp(op.a, op.b)
        case popnn.PoolOp() if op.kind.data == "max":
            return popart.MaxPoolOp(op.x, kernel=op.kernel, strides=op.strides, pads=op.pads, dilations=op.dilations, ceil=op.ceil)
        case popnn.PoolOp() if op.kind.data == "average":
            return _average(op, op.count_padding)
        case popnn.SoftmaxOp():
            kind = popart.LogSoftmaxOp if op.log else popart.SoftmaxOp
            return kind(op.x, axis=len(calls.shape(op.x)) - 1)
        case popnn.WhitenOp():
            return popart.LayerNormOp(op.x, calls.fill(b, 1, calls.element(op.x)), axis=len(calls.shape(op.x)) - 1, epsilon=op.epsilon)
        case _:
            return None


def _through(twin: PopartOp, op: Operation, b: Builder, grads: Sequence[SSAValue]) -> Gradients:
    """Computes the equivalent op's gradients, and replaces uses of its results by the results of `op`."""
    gradients = twin.gradient(b, grads)
    twin.results[0].replace_all_uses_with(op.results[0])
    twin.erase()
    return gradients


def _of_wide_reduction(op: popops.ReduceOp, b: Builder, g: SSAValue) -> Gradients | None:
    """Computes the gradient of a reduction to a wider type: that of the wide elements, rounded."""
    assert op.to is not None
    wide = calls.map(b, cast(Arg(1), op.to), op.x)
    twin = _twin(popops.ReduceOp(wide, op=op.op, dims=op.dims), b)
    if twin is None:
        return None
    (dx,) = _through(twin, op, b, [g])
    return [None if dx is None else calls.map(b, cast(Arg(1), calls.element(op.x)), dx)]


def _cut(op: popops.PadOp, b: Builder, g: SSAValue) -> Gradients:
    """Splits g, the gradient of a pad: the part over x, and the sum of the rest for the padding value."""
    lower, steps = ints(op.lower), [i + 1 for i in ints(op.interior)]
    ends = [low + (n - 1) * s + 1 if n else low for low, n, s in zip(lower, calls.shape(op.x), steps)]
    dx = calls.slice(b, g, lower, ends, steps)
    return [dx, calls.sum_around(b, g, dx)]


def _average(op: popnn.PoolOp, count_padding: bool) -> PopartOp:
    return popart.AveragePoolOp(
        op.x, kernel=op.kernel, strides=op.strides, pads=op.pads, dilations=op.dilations, ceil=op.ceil, count_padding=count_padding
    )
