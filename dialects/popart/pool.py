"""Pooling windows, and normalisation over neighbouring channels."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import ClassVar

from xdsl.builder import Builder
from xdsl.dialects.builtin import DenseArrayBase, TensorType, i64
from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import irdl_op_definition, operand_def, prop_def, result_def
from xdsl.utils.exceptions import VerifyException

from populus.dialects.base.tensor_op import HIGH_VALUE, ints
from populus.dialects.data import constant
from populus.dialects.expr import Arg, Const, call, equal, select
from populus.dialects.popart import calls
from populus.dialects.popart.base import Link, Neutral, PopartOp
from populus.dialects.poplar.sums import narrowed, widened
from populus.dialects.poplar.target import sum_type
from populus.dialects.popnn import PoolOp
from populus.dialects.support import shapes
from populus.dialects.support.constraints import flag, number, whole
from populus.dialects.support.element_types import dtype_of, element_type_of, is_float, shape_of, tensor
from populus.dialects.support.shapes import ShapeError


class _WindowOp(PopartOp):
    """One result for each window of x: [batch, channels, size..]."""

    x = operand_def(TensorType)
    kernel = prop_def(DenseArrayBase.constr(i64))
    strides = prop_def(DenseArrayBase.constr(i64))
    pads = prop_def(DenseArrayBase.constr(i64))
    dilations = prop_def(DenseArrayBase.constr(i64))
    ceil = flag()
    y = result_def(TensorType)

    def infer(self) -> Sequence[TensorType[Attribute]]:
        x = shape_of(self.x.type)
        lists = (ints(self.kernel), ints(self.strides), ints(self.pads), ints(self.dilations))
        return [tensor((*x[:2], *shapes.windows(x, *lists, ceil=self.ceil)), element_type_of(self.x.type))]

    def independent(self) -> Sequence[Link]:
        return [(0, 0, 0, 0), (0, 1, 0, 1)]

    def _pool(self, b: Builder, kind: str, count_padding: bool = False) -> list[SSAValue]:
        """Inserts the library's pooling of x over this op's windows."""
        lists = {"kernel": self.kernel, "strides": self.strides, "pads": self.pads, "dilations": self.dilations}
        return [calls.insert(b, PoolOp(self.x, kind=kind, ceil=self.ceil, count_padding=count_padding, **lists))]

    def _pads(self) -> list[tuple[int, int]]:
        pads = ints(self.pads)
        return list(zip(pads[: len(pads) // 2], pads[len(pads) // 2 :]))

    def _reaches(self) -> list[tuple[int, int, int, int]]:
        """Lists, per spatial dimension: dilation, stride, lower pad, and the extent of windows beyond x and that pad."""
        found: list[tuple[int, int, int, int]] = []
        for d, (n, windows) in enumerate(zip(calls.shape(self.x)[2:], calls.shape(self.y)[2:])):
            k, stride, dilation = ints(self.kernel)[d], ints(self.strides)[d], ints(self.dilations)[d]
            before = self._pads()[d][0]
            found.append((dilation, stride, before, shapes.reach(windows, stride, k, dilation) - n - before))
        return found


@irdl_op_definition
class MaxPoolOp(_WindowOp):
    """`y[o] = max over window o of x`; padding never is the largest. The gradient goes to the first of equals. Source: ONNX MaxPool-22."""

    name = "popart.max_pool"

    def neutral(self) -> Sequence[Neutral]:
        return [(0, d, "lowest") for d in shapes.overhanging(ints(self.pads), self.ceil)]

    def lower(self, b: Builder) -> Sequence[SSAValue]:
        return self._pool(b, "max")

    def gradient(self, b: Builder, grads: Sequence[SSAValue]) -> Sequence[SSAValue | None]:
        # Position by position of the kernel: where x there is y, what is left of g goes back to it, and nothing is left.
        x, y, left = self.x, self.y, grads[0]
        reaches = self._reaches()
        size, windows = calls.shape(x)[2:], calls.shape(y)[2:]
        low = fill = None
        if any(before > 0 or behind > 0 for _, _, before, behind in reaches):
            low = calls.fill(b, -math.inf, calls.element(x))
        outside = calls.pad(b, x, (0, 0, *(r[2] for r in reaches)), (0, 0, *(max(r[3], 0) for r in reaches)), value=low)
        parts: list[SSAValue] = []
        # Windows side by side: each element is in one.
        apart = all((r[0] == 1 or k == 1) and (r[1:] == (k, 0, 0)) for k, r in zip(ints(self.kernel), reaches))
        dx: SSAValue | None = None
        for position in itertools.product(*map(range, ints(self.kernel))):
            first = [k * dilation for k, (dilation, *_) in zip(position, reaches)]
            last = [f + shapes.reach(w, r[1], 1, 1) for f, w, r in zip(first, windows, reaches)]
            here = calls.slice(b, outside, (0, 0, *first), (*calls.shape(x)[:2], *last), (1, 1, *(r[1] for r in reaches)))
            chosen = equal(Arg(1), Arg(2))
            part = calls.map(b, select(Arg(3), 0.0, chosen), here, y, left)
            left = calls.map(b, select(0.0, Arg(3), chosen), here, y, left)
            if apart:
                parts.append(part)
                continue
            fill = fill or calls.fill(b, 0, calls.element(x))
            back = calls.pad(
                b,
                part,
                (0, 0, *(f - r[2] for f, r in zip(first, reaches))),
                (0, 0, *(n + r[2] - end for n, r, end in zip(size, reaches, last))),
                (0, 0, *(r[1] - 1 for r in reaches)),
                fill,
            )
            dx = back if dx is None else calls.map(b, Arg(1) + Arg(2), dx, back)
        return [calls.reshape(b, self._interleaved(b, parts), calls.shape(x)) if apart else dx]

    def _interleaved(self, b: Builder, parts: Sequence[SSAValue]) -> SSAValue:
        """Puts the parts of all positions of the kernel side by side: [batch, channels, windows, kernel, windows, kernel, ..]."""
        kernel, found = ints(self.kernel), list(parts)
        shape = [*calls.shape(self.y)[:2], *(n for windows in calls.shape(self.y)[2:] for n in (windows, 1))]
        found = [calls.reshape(b, part, shape) for part in found]
        for d in reversed(range(len(kernel))):
            rows = range(0, len(found), kernel[d])
            found = [calls.concat(b, found[i : i + kernel[d]], 3 + 2 * d) for i in rows]
        return found[0]


@irdl_op_definition
class AveragePoolOp(_WindowOp):
    """The mean of each window, over the elements of x in it; with `count_padding`, padding counts as zeros of x.

    Source: ONNX AveragePool-22.
    """

    name = "popart.average_pool"
    count_padding = flag()

    def neutral(self) -> Sequence[Neutral]:
        # Without them, zeros would be counted.
        return [(0, d, "zero") for d in shapes.overhanging(ints(self.pads))] if self.count_padding and not self.ceil else []

    def lower(self, b: Builder) -> Sequence[SSAValue]:
        return self._pool(b, "average", self.count_padding)

    def gradient(self, b: Builder, grads: Sequence[SSAValue]) -> Sequence[SSAValue | None]:
        # Each element of x gets a share of each window that it is in: a sum over windows, which again is a pooling.
        import numpy as np

        shares = np.ones((), np.float64)
        for d, (n, windows) in enumerate(zip(calls.shape(self.x)[2:], calls.shape(self.y)[2:])):
            before, behind = self._pads()[d] if self.count_padding else (0, 0)
            starts = np.arange(windows) * ints(self.strides)[d] - self._pads()[d][0]
            touched = starts[:, None] + np.arange(ints(self.kernel)[d]) * ints(self.dilations)[d]
            shares = shares[..., None] * ((touched >= -before) & (touched < n + behind)).sum(1)
        own = calls.element(self.x)
        weights = b.insert(constant((1 / shares).astype(dtype_of(sum_type(own))))).result
        g = calls.map(b, narrowed(widened(Arg(1), own) * Arg(2), own), grads[0], weights)
        reaches, kernel = self._reaches(), ints(self.kernel)
        spread = [(k - 1) * r[0] for k, r in zip(kernel, reaches)]
        g = calls.pad(
            b,
            g,
            (0, 0, *(s - r[2] for s, r in zip(spread, reaches))),
            (0, 0, *(s - r[3] for s, r in zip(spread, reaches))),
            (0, 0, *(r[1] - 1 for r in reaches)),
        )
        one, none = (1,) * len(kernel), (0,) * 2 * len(kernel)
        return [calls.insert(b, PoolOp(g, kind="sum", kernel=kernel, strides=one, pads=none, dilations=ints(self.dilations)))]


@irdl_op_definition
class LrnOp(PopartOp):
    """`y[n, c] = x[n, c] / (bias + alpha / size * sum of x[n, c']^2)^beta` over the `size` channels c' around c.

    From c - floor((size - 1) / 2) to c + ceil((size - 1) / 2), as far as they exist. Source: ONNX LRN-13.
    """

    OUTLINE_VALUE: ClassVar[float] = HIGH_VALUE

    name = "popart.lrn"
    x = operand_def(TensorType)
    size = whole()
    alpha = number(0.0001)
    beta = number(0.75)
    bias = number(1.0)
    y = result_def(TensorType)

    def infer(self) -> Sequence[TensorType[Attribute]]:
        shape, element = shape_of(self.x.type), element_type_of(self.x.type)
        if len(shape) < 2 or not is_float(element):
            raise VerifyException(f"x is {self.x.type}; floats with batch and channels are expected")
        if self.size < 1:
            raise ShapeError(f"size = {self.size} channels; at least 1 is expected")
        return [tensor(shape, element)]

    def independent(self) -> Sequence[Link]:
        return [(0, d, 0, d) for d in range(len(shape_of(self.x.type))) if d != 1]

    def neutral(self) -> Sequence[Neutral]:
        return [(0, 1, "zero", 1)]

    def _neighbours(self, b: Builder, x: SSAValue, before: int, kind: str) -> SSAValue:
        """Sums (of squares) of x over `size` channels, from `before` before each. No window is wider than all channels on each side."""
        shape = calls.shape(x)
        flat = calls.reshape(b, x, (shape[0], 1, shape[1], math.prod(shape[2:])))
        before, after = (min(n, max(shape[1] - 1, 0)) for n in (before, self.size - 1 - before))
        kernel, pads = (before + 1 + after, 1), (before, 0, after, 0)
        return calls.reshape(b, calls.insert(b, PoolOp(flat, kind=kind, kernel=kernel, strides=(1, 1), pads=pads, dilations=(1, 1))), shape)

    def _scale(self, b: Builder) -> SSAValue:
        """Sums the squares of neighbouring channels; halves as floats."""
        x = calls.map(b, widened(Arg(1), calls.element(self.x)), self.x)
        return self._neighbours(b, x, (self.size - 1) // 2, "square_sum")

    def lower(self, b: Builder) -> Sequence[SSAValue]:
        own = calls.element(self.x)
        x, u = widened(Arg(1), own), self.bias + self.alpha / self.size * Arg(2)
        return [calls.map(b, narrowed(x * call("pow", u, -self.beta), own), self.x, self._scale(b))]

    def gradient(self, b: Builder, grads: Sequence[SSAValue]) -> Sequence[SSAValue | None]:
        size, beta, alpha, own = self.size, self.beta, self.alpha / self.size, calls.element(self.x)
        s = self._scale(b)
        x, g, u = widened(Arg(1), own), widened(Arg(2), own), self.bias + alpha * Arg(3)
        t = calls.map(b, g * x * call("pow", u, Const(-beta - 1)), self.x, grads[0], s)
        # c is a neighbour of those that it is on the other side of.
        around = self._neighbours(b, t, size - 1 - (size - 1) // 2, "sum")
        dx = g * call("pow", u, -beta) - 2 * alpha * beta * x * Arg(4)
        return [calls.map(b, narrowed(dx, own), self.x, grads[0], s, around)]
