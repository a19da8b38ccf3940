"""Convolutions and pools of images whose size is bounded: what windows read beyond the valid part."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from xdsl.ir import Operation, SSAValue

from populus.dialects import popart
from populus.dialects.base.tensor_op import ints
from populus.dialects.data import constant
from populus.dialects.support import shapes
from populus.dialects.support.element_types import dtype_of
from populus.lowering.onnx.to_popart.conversion import element, shape
from populus.lowering.onnx.to_popart.masked_ops import put, refilled, refuse
from populus.lowering.onnx.to_popart.masks import Masks, Place, Rule
from populus.lowering.onnx.valid_sizes import Axes, Axis, bound_of, described, is_prefix, is_whole, prefix, size_of, whole


def spatial_sizes(m: Masks, op: Any, x: Axes, size: Sequence[int], ceil: bool = False) -> list[Axis]:
    """Computes the axes of windows over the spatial axes of x, whose results have the bounds `size`."""
    kernel, n = op_kernel(op), len(x) - 2
    axes: list[Axis] = []
    for i, (a, bound) in enumerate(zip(x[2:], size)):
        if is_whole(a):
            axes.append(prefix(bound, bound))
            continue
        if not is_prefix(a):
            raise refuse(m, op, f"{described(x)} has windows over merged dimensions")
        stride, before, after = ints(op.strides)[i], ints(op.pads)[i], ints(op.pads)[n + i]
        extent = shapes.reach(1, stride, kernel[i], ints(op.dilations)[i])
        room = size_of(a) + before + after - extent
        if ceil and stride + after > extent:
            raise refuse(m, op, f"windows of {extent} at distance {stride} may begin in the padding of a bounded dimension")
        if room.lower(m.valid.bounds) < 0:
            least = size_of(a).lower(m.valid.bounds)
            raise refuse(m, op, f"a kernel that reaches {extent} does not fit the least size {least}, padded by {before} and {after}")
        axes.append(prefix(bound, (room.ceildiv(stride) if ceil else room // stride) + 1))
    return axes


def op_kernel(op: Any) -> tuple[int, ...]:
    """Gives the spatial size of an op's kernel."""
    return shape(op.w)[2:] if isinstance(op, popart.ConvOp | popart.ConvTransposeOp | popart.IntegerConvOp) else ints(op.kernel)


def overhanging(op: Any, rank: int, ceil: bool = False) -> list[int]:
    """Lists the axes of x beyond whose end windows reach."""
    after = ints(op.pads)[rank - 2 :]
    return [d + 2 for d, p in enumerate(after) if p > 0 or ceil]


def conv(m: Masks, c: Place, op: popart.ConvOp | popart.IntegerConvOp) -> SSAValue:
    """Convolves: windows that reach beyond the valid part read zeros there, as in padding."""
    x = m.valid.of(op.x)
    if any(map(m.valid.sized, op.operands[1:])) or not is_whole(x[1]):
        raise refuse(m, op, "the channels or the kernel of a convolution are of a bounded dimension")
    refilled(op, {0: m.filled(c, op.x, overhanging(op, len(x)), "zero")})
    return put(m, c, op, (x[0], *whole(shape(op.y)[1:2]), *spatial_sizes(m, op, x, shape(op.y)[2:])))


def conv_transpose(m: Masks, c: Place, op: popart.ConvTransposeOp) -> SSAValue:
    """Fills x with zeros, which add nothing."""
    x, n = m.valid.of(op.x), len(m.valid.of(op.x)) - 2
    if m.valid.sized(op.w) or (op.bias is not None and m.valid.sized(op.bias)) or not is_whole(x[1]):
        raise refuse(m, op, "the channels or the kernel of a convolution are of a bounded dimension")
    axes: list[Axis] = []
    for i, (a, bound) in enumerate(zip(x[2:], shape(op.y)[2:])):
        if not is_prefix(a):
            raise refuse(m, op, f"{described(x)} has windows over merged dimensions")
        stride = ints(op.strides)[i]
        axes.append(prefix(bound, (size_of(a) - bound_of(a)) * stride + bound))
    refilled(op, {0: m.filled(c, op.x, range(2, n + 2), "zero")})
    return put(m, c, op, (x[0], *whole(shape(op.y)[1:2]), *axes))


def max_pool(m: Masks, c: Place, op: popart.MaxPoolOp) -> SSAValue:
    """Takes the largest: windows that reach beyond the valid part read the least number there, as in padding."""
    x = m.valid.of(op.x)
    refilled(op, {0: m.filled(c, op.x, overhanging(op, len(x), op.ceil), "lowest")})
    return put(m, c, op, (*x[:2], *spatial_sizes(m, op, x, shape(op.y)[2:], op.ceil)))


def average_pool(m: Masks, c: Place, op: popart.AveragePoolOp) -> SSAValue:
    """Divides the sum of a window by the number of its valid elements, each computed as a mean that counts padding."""
    import numpy as np

    x = m.valid.of(op.x)
    axes = (*x[:2], *spatial_sizes(m, op, x, shape(op.y)[2:], op.ceil))
    over = [d for d in overhanging(op, len(x), op.ceil) if not is_whole(x[d])]
    if not over:
        return put(m, c, op, axes)
    refilled(op, {0: m.filled(c, op.x, over, "zero")})
    if op.count_padding and not op.ceil:
        return put(m, c, op, axes)
    if op.count_padding:
        raise refuse(m, op, "an average that counts padding and rounds the number of windows up")
    settings: dict[str, Any] = {name: getattr(op, name) for name in ("kernel", "strides", "pads", "dilations")}
    size = [bound_of(a) for a in x[2:]]
    ones = m.plain(c, constant(np.ones((1, 1, *size), dtype_of(element(op.x)))))
    counted = m.filled(c, m.state(ones, ((), (), *x[2:])), over, "zero")
    # The mean of a window over all its elements at the bound: padding beyond the bound has no elements.
    share = m.plain(c, popart.AveragePoolOp(counted, **settings, ceil=op.ceil, count_padding=False))
    means = m.plain(c, op)
    return put(m, c, popart.DivOp(means, share), axes)


RULES: Mapping[type[Operation], Rule] = {
    popart.AveragePoolOp: average_pool,
    popart.ConvOp: conv,
    popart.ConvTransposeOp: conv_transpose,
    popart.IntegerConvOp: conv,
    popart.MaxPoolOp: max_pool,
}
