"""Convolutions and pools of images whose size is bounded: what windows read beyond the valid part."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from xdsl.ir import Operation, SSAValue

from populus.dialects import popart
from populus.dialects.base.tensor_op import ints
from populus.dialects.data import constant
from populus.dialects.support import shapes
from populus.dialects.support.element_types import dtype_of
from populus.lowering.onnx.to_popart.conversion import element, shape
from populus.lowering.onnx.to_popart.declared import kept, put, read, refilled, refuse
from populus.lowering.onnx.to_popart.masks import Masks, Place, Rule
from populus.lowering.onnx.valid_sizes import Axes, Axis, bound_of, described, is_prefix, is_whole, prefix, size_of


def spatial_sizes(m: Masks, op: Any) -> list[Axis]:
    """Computes the axes of windows over the spatial axes of x."""
    x, kernel, ceil = m.valid.of(op.x), op_kernel(op), getattr(op, "ceil", False)
    n = len(kernel)
    axes: list[Axis] = []
    for i, (a, bound) in enumerate(zip(x[2:], shape(op.y)[2:])):
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
    return shape(op.w)[2:] if isinstance(op, popart.ConvOp | popart.IntegerConvOp) else ints(op.kernel)


def windows(m: Masks, c: Place, op: Any) -> SSAValue:
    """Inserts a convolution or pool: windows that reach beyond the valid part read the op's neutral element there, as in padding."""
    axes = window_axes(m, op)
    read(m, c, op)
    return put(m, c, op, axes)


def window_axes(m: Masks, op: Any) -> Axes:
    """Gives the axes of a convolution or pool: those that it keeps, then those of windows."""
    n = len(m.valid.of(op.x)) - 2
    (axes,) = kept(m, op, {(0, d) for d in range(2, n + 2)})
    if isinstance(op, popart.ConvTransposeOp):
        return (*axes[:2], *transposed_sizes(m, op))
    return (*axes[:2], *spatial_sizes(m, op))


def transposed_sizes(m: Masks, op: popart.ConvTransposeOp) -> list[Axis]:
    """Computes the spatial axes of a transposed convolution: one element more of x is a stride more."""
    x = m.valid.of(op.x)
    axes: list[Axis] = []
    for a, bound, stride in zip(x[2:], shape(op.y)[2:], ints(op.strides)):
        if not is_prefix(a):
            raise refuse(m, op, f"{described(x)} has windows over merged dimensions")
        axes.append(prefix(bound, (size_of(a) - bound_of(a)) * stride + bound))
    return axes


def average_pool(m: Masks, c: Place, op: popart.AveragePoolOp) -> SSAValue:
    """Divides the sum of a window by the number of its valid elements, each computed as a mean that counts padding."""
    import numpy as np

    x, axes = m.valid.of(op.x), window_axes(m, op)
    over = [d for d in shapes.overhanging(ints(op.pads), op.ceil) if not is_whole(x[d])]
    if not over or (op.count_padding and not op.ceil):
        return windows(m, c, op)
    if op.count_padding:
        raise refuse(m, op, "an average that counts padding and rounds the number of windows up")
    refilled(op, {0: m.filled(c, op.x, over, "zero")})
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
    popart.ConvOp: windows,
    popart.ConvTransposeOp: windows,
    popart.IntegerConvOp: windows,
    popart.MaxPoolOp: windows,
}
