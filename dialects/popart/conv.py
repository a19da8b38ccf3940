"""Convolutions and transposed convolutions over any number of spatial dimensions, in groups."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from xdsl.builder import Builder
from xdsl.dialects.builtin import DenseArrayBase, TensorType, i64
from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import irdl_op_definition, operand_def, opt_operand_def, prop_def, result_def
from xdsl.utils.exceptions import VerifyException

from populus.dialects.base.tensor_op import HIGH_VALUE, ints
from populus.dialects.data import ConstantOp, computed_constant
from populus.dialects.expr import Arg, cast
from populus.dialects.popart import calls
from populus.dialects.popart.base import Link, Neutral, PopartOp
from populus.dialects.poplin import ConvolutionOp
from populus.dialects.support import shapes
from populus.dialects.support.constraints import whole
from populus.dialects.support.element_types import element_type_of, shape_of, tensor
from populus.dialects.support.shapes import ShapeError

if TYPE_CHECKING:
    from numpy.typing import NDArray


class _ConvolvingOp(PopartOp):
    """The base of convolutions and their transposes."""

    OUTLINE_VALUE: ClassVar[float] = HIGH_VALUE

    x = operand_def(TensorType)
    w = operand_def(TensorType)
    bias = opt_operand_def(TensorType)
    strides = prop_def(DenseArrayBase.constr(i64))
    pads = prop_def(DenseArrayBase.constr(i64))
    dilations = prop_def(DenseArrayBase.constr(i64))
    group = whole(1)
    y = result_def(TensorType)

    def independent(self) -> Sequence[Link]:
        return [(0, 0, 0, 0)]

    def _check(self, channels: int) -> int:
        """Checks the attributes and returns the number of spatial dimensions. `channels`: the expected size of the bias."""
        x, w = shape_of(self.x.type), shape_of(self.w.type)
        spatial = len(x) - 2
        if spatial < 1 or len(w) != len(x) or (len(self.strides), len(self.pads), len(self.dilations)) != (spatial, 2 * spatial, spatial):
            raise ShapeError(
                f"x {shapes.text(x)}, w {shapes.text(w)}, {len(self.strides)} strides, {len(self.pads)} pads and "
                f"{len(self.dilations)} dilations do not agree on the number of spatial dimensions"
            )
        if min((*ints(self.strides), *ints(self.dilations))) < 1:
            raise ShapeError(f"strides {list(ints(self.strides))} and dilations {list(ints(self.dilations))} are to be at least 1")
        operands = (self.x, self.w) if self.bias is None else (self.x, self.w, self.bias)
        if len(elements := {element_type_of(o.type) for o in operands}) > 1:
            raise VerifyException(f"element types {', '.join(sorted(map(str, elements)))} are mixed; equal ones are expected")
        if self.bias is not None and shape_of(self.bias.type) != (channels,):
            raise ShapeError(f"the bias is {shapes.text(shape_of(self.bias.type))}; one for each of {channels} output channels is expected")
        return spatial

    def _pads(self) -> list[tuple[int, int]]:
        pads = ints(self.pads)
        return list(zip(pads[: len(pads) // 2], pads[len(pads) // 2 :]))

    def _biased(self, b: Builder, y: SSAValue) -> SSAValue:
        if self.bias is None:
            return y
        channels = (1, -1, *(1,) * (len(calls.shape(y)) - 2))
        n = calls.shape(self.bias)[0]
        return calls.map(b, Arg(1) + Arg(2), y, calls.reshape(b, self.bias, tuple(n if c == -1 else c for c in channels)))

    def _bias_gradient(self, b: Builder, g: SSAValue) -> list[SSAValue | None]:
        if self.bias is None:
            return []
        return [calls.reduce(b, "add", g, [d for d in range(len(calls.shape(g))) if d != 1])]


def convolution(
    b: Builder,
    x: SSAValue,
    w: SSAValue,
    strides: Sequence[int],
    pads: Sequence[tuple[int, int]],
    dilations: Sequence[int],
    group: int,
) -> SSAValue:
    """Inserts `poplin.convolution`; a negative pad crops x instead."""
    if min((p for pair in pads for p in pair), default=0) < 0:
        x = calls.pad(b, x, (0, 0, *(min(p, 0) for p, _ in pads)), (0, 0, *(min(p, 0) for _, p in pads)))
    around = (*(max(p, 0) for p, _ in pads), *(max(p, 0) for _, p in pads))
    return calls.insert(b, ConvolutionOp(x, w, strides=tuple(strides), pads=around, dilations=tuple(dilations), groups=group))


def weight_gradient(
    b: Builder,
    x: SSAValue,
    g: SSAValue,
    kernel: Sequence[int],
    strides: Sequence[int],
    pads: Sequence[tuple[int, int]],
    dilations: Sequence[int],
    group: int,
) -> SSAValue:
    """Builds the gradient of a convolution's weights: x convolved with g, batch and channels, strides and dilations exchanged.

    `dw[oc, ic, k] = sum over n, o of g[n, oc, o] x[n, ic, o stride + k dilation - pad]`
    """
    n, channels, *size = calls.shape(x)
    rest = range(2, 2 + len(size))
    x = calls.reshape(b, x, (n, group, channels // group, *size))
    x = calls.reshape(b, calls.transpose(b, x, (2, 1, 0, *(d + 1 for d in rest))), (channels // group, group * n, *size))
    # Elements of x beyond the last window are cropped: they would count as further kernel positions here.
    reach = [(o - 1) * s + (k - 1) * d + 1 for o, k, s, d in zip(calls.shape(g)[2:], kernel, strides, dilations)]
    pads = [(before, r - m - before) for (before, _), r, m in zip(pads, reach, size)]
    y = convolution(b, x, calls.transpose(b, g, (1, 0, *rest)), dilations, pads, strides, group)
    return calls.transpose(b, y, (1, 0, *rest))


@irdl_op_definition
class ConvOp(_ConvolvingOp):
    """`y[n, oc, o] = bias[oc] + sum over ic, k of x[n, ic, o stride + k dilation - pad] w[oc, ic, k]`, in groups.

    x: [batch, group * in, size..], w: [group * out, in, kernel..], bias: [group * out], y: [batch, group * out, windows..].
    Source: ONNX Conv-22.
    """

    name = "popart.conv"

    def infer(self) -> Sequence[TensorType[Attribute]]:
        x, w, group = shape_of(self.x.type), shape_of(self.w.type), self.group
        self._check(w[0] if w else 0)
        if group < 1 or x[1] != w[1] * group:
            raise ShapeError(f"w has {w[1]} input channels, x has {x[1]}; group = {group} needs {group} times as many")
        if w[0] % group:
            raise ShapeError(f"w has {w[0]} output channels, which do not divide into group = {group}")
        windows = shapes.windows(x, w[2:], ints(self.strides), ints(self.pads), ints(self.dilations), crops=True)
        return [tensor((x[0], w[0], *windows), element_type_of(self.x.type))]

    def neutral(self) -> Sequence[Neutral]:
        return [(0, d, "zero") for d in shapes.overhanging(ints(self.pads))]

    def block_rows(self) -> Mapping[int, int]:
        return {1: 0}  # the units multiply [windows, taps] x [taps, channels out]

    def lower(self, b: Builder) -> Sequence[SSAValue]:
        strides, dilations, group = ints(self.strides), ints(self.dilations), self.group
        y = convolution(b, self.x, self.w, strides, self._pads(), dilations, group)
        if calls.element(y) != calls.element(self.y):  # of 8-bit integers, whose sums wrap around here
            y = calls.map(b, cast(Arg(1), calls.element(self.y)), y)
        return [self._biased(b, y)]

    def gradient(self, b: Builder, grads: Sequence[SSAValue]) -> Sequence[SSAValue | None]:
        g, (x, w) = grads[0], (calls.shape(self.x), calls.shape(self.w))
        strides, dilations, pads, group = ints(self.strides), ints(self.dilations), self._pads(), self.group
        plain = [shapes.transposed_window(o, k, s, d, *p, 0) for o, k, s, d, p in zip(calls.shape(g)[2:], w[2:], strides, dilations, pads)]
        dx = ConvTransposeOp(
            g,
            self.w,
            strides=strides,
            pads=ints(self.pads),
            dilations=dilations,
            group=group,
            output_padding=tuple(n - m for n, m in zip(x[2:], plain)),
        )
        dw = weight_gradient(b, self.x, g, w[2:], strides, pads, dilations, group)
        return [calls.insert(b, dx), dw, *self._bias_gradient(b, g)]


@irdl_op_definition
class ConvTransposeOp(_ConvolvingOp):
    """The transpose of a convolution: `y[n, oc, i stride + k dilation - pad] += x[n, ic, i] w[ic, oc, k]`, plus bias, in groups.

    x: [batch, group * in, size..], w: [group * in, out, kernel..], bias: [group * out]. y has `output_padding` more elements
    at its end than the windows of x need at least. Source: ONNX ConvTranspose-22.
    """

    name = "popart.conv_transpose"
    output_padding = prop_def(DenseArrayBase.constr(i64))

    def infer(self) -> Sequence[TensorType[Attribute]]:
        x, w, group = shape_of(self.x.type), shape_of(self.w.type), self.group
        channels = math.prod(w[1:2]) * group
        spatial = self._check(channels)
        if x[1] != w[0] or group < 1 or x[1] % group:
            raise ShapeError(f"w has {w[0]} input channels, x has {x[1]}; equal ones that divide into group = {group} are expected")
        extra = ints(self.output_padding)
        if len(extra) != spatial:
            raise ShapeError(f"{len(extra)} output paddings for {spatial} spatial dimensions")
        strides, dilations, pads = ints(self.strides), ints(self.dilations), self._pads()
        size = [shapes.transposed_window(x[2 + d], w[2 + d], strides[d], dilations[d], *pads[d], extra[d]) for d in range(spatial)]
        if min(size) < 1:
            raise ShapeError(f"pads {list(ints(self.pads))} leave nothing of the result: {shapes.text(size)}")
        return [tensor((x[0], channels, *size), element_type_of(self.x.type))]

    def neutral(self) -> Sequence[Neutral]:
        return [(0, d, "zero") for d in range(2, len(shape_of(self.x.type)))]

    def lower(self, b: Builder) -> Sequence[SSAValue]:
        strides, dilations, group = ints(self.strides), ints(self.dilations), self.group
        inputs, out, *kernel = calls.shape(self.w)
        if group == 1 == max(dilations, default=1) < max(strides, default=1) and not any(k % s for k, s in zip(kernel, strides)):
            return [self._biased(b, self._by_places(b))]
        # Strides put zeros between the elements of x; over these runs the kernel, turned round.
        reach = [(k - 1) * d for k, d in zip(kernel, dilations)]
        lower = [r - p for r, (p, _) in zip(reach, self._pads())]
        upper = [r - p + e for r, (_, p), e in zip(reach, self._pads(), ints(self.output_padding))]
        x = calls.pad(b, self.x, (0, 0, *lower), (0, 0, *upper), (0, 0, *(s - 1 for s in strides)))
        w = calls.reverse(b, self.w, range(2, 2 + len(kernel)))
        w = calls.reshape(b, w, (group, inputs // group, out, *kernel))
        w = calls.transpose(b, w, (0, 2, 1, *range(3, 3 + len(kernel))))
        w = calls.reshape(b, w, (group * out, inputs // group, *kernel))
        one, none = (1,) * len(kernel), [(0, 0)] * len(kernel)
        return [self._biased(b, convolution(b, x, w, one, none, dilations, group))]

    def _by_places(self, b: Builder) -> SSAValue:
        """Computes y by its places modulo the strides s, as channels of one convolution, which are then put side by side.

        `y[q s + r] = sum over j of x[q - j] w[j s + r]` for each r below s: no product is by a zero between elements of x. Each place has
        as many taps: by a tap of zero, an infinite x would be NaN.
        """
        strides, n = ints(self.strides), len(calls.shape(self.w)) - 2
        out, sides, none, one = calls.shape(self.w)[1], range(n), (0,) * (2 + n), (1,) * n
        w = self._kernel_by_places(b)
        y = convolution(b, self.x, w, one, [(t - 1, t - 1) for t in calls.shape(w)[2:]], one, 1)
        batch, _, *made = calls.shape(y)
        y = calls.reshape(b, y, (batch, out, *strides, *made))
        y = calls.transpose(b, y, (0, 1, *(v for d in sides for v in (2 + n + d, 2 + d))))
        y = calls.reshape(b, y, (batch, out, *(m * s for m, s in zip(made, strides))))
        lower = [-p for p, _ in self._pads()]
        upper = [size - m * s - low for size, m, s, low in zip(calls.shape(self.y)[2:], made, strides, lower)]
        return calls.pad(b, y, (0, 0, *lower), (0, 0, *upper), none)

    def _kernel_by_places(self, b: Builder) -> SSAValue:
        """Gives the kernel of `_by_places`: [out s.., in, taps..], turned round."""
        strides, owner = ints(self.strides), self.w.owner
        inputs, out, *kernel = calls.shape(self.w)
        taps, sides = [k // s for k, s in zip(kernel, strides)], range(len(kernel))
        split = (inputs, out, *(v for pair in zip(taps, strides) for v in pair))
        order = (1, *(3 + 2 * d for d in sides), 0, *(2 + 2 * d for d in sides))
        turned, axes = (out * math.prod(strides), inputs, *taps), tuple(2 + d for d in sides)
        if isinstance(owner, ConstantOp):

            def compute() -> NDArray[Any]:
                import numpy as np

                return np.ascontiguousarray(np.flip(owner.array().reshape(split).transpose(order).reshape(turned), axes))

            made = computed_constant([self.w], ("kernel by places", strides), compute)
            made.location = owner.location
            return b.insert(made).result
        w = calls.transpose(b, calls.reshape(b, self.w, split), order)
        return calls.reverse(b, calls.reshape(b, w, turned), axes)

    def gradient(self, b: Builder, grads: Sequence[SSAValue]) -> Sequence[SSAValue | None]:
        g, (x, w) = grads[0], (calls.shape(self.x), calls.shape(self.w))
        strides, dilations, pads, group = ints(self.strides), ints(self.dilations), self._pads(), self.group
        dx = ConvOp(g, self.w, strides=strides, pads=ints(self.pads), dilations=dilations, group=group)
        # An output padding of a stride or more makes room for windows that x has no elements for.
        dx = calls.slice(b, calls.insert(b, dx), (0,) * len(x), x)
        dw = weight_gradient(b, g, self.x, w[2:], strides, pads, dilations, group)
        return [dx, dw, *self._bias_gradient(b, g)]
