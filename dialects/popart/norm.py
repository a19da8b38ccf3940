"""Normalisation by given statistics, or by those of an instance, a group of channels, or a layer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

from xdsl.builder import Builder
from xdsl.dialects.builtin import TensorType, bf16, f16, f32
from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import irdl_op_definition, operand_def, opt_operand_def, result_def
from xdsl.utils.exceptions import VerifyException

from populus.dialects.base.tensor_op import HIGH_VALUE
from populus.dialects.data import constant, constant_value
from populus.dialects.expr import Arg, Expr, cast, rsqrt, sqrt
from populus.dialects.popart import calls
from populus.dialects.popart.base import Link, PopartOp
from populus.dialects.poplar.sums import narrowed, widened
from populus.dialects.poplar.target import sum_type
from populus.dialects.popnn import WhitenOp
from populus.dialects.support import shapes
from populus.dialects.support.constraints import number, whole
from populus.dialects.support.element_types import dtype_of, element_type_of, is_float, shape_of, tensor
from populus.dialects.support.shapes import ShapeError


def per_channel(b: Builder, x: SSAValue, rank: int) -> SSAValue:
    """Reshapes a vector of one element per channel to [1, channels, 1..], which broadcasts against x of `rank` dimensions."""
    return calls.reshape(b, x, (1, *calls.shape(x), *(1,) * (rank - 2)))


def _floats(op: PopartOp) -> None:
    for o in op.operands:
        if not is_float(element_type_of(o.type)):
            raise VerifyException(f"an operand is {o.type}; floats are expected")


def _channels(op: PopartOp, x: SSAValue, vectors: Sequence[SSAValue]) -> None:
    """Raises where x has no channels, or a vector has not one element for each."""
    shape = shape_of(x.type)
    if len(shape) < 2:
        raise ShapeError(f"x is {shapes.text(shape)}; batch and channels are expected")
    for v in vectors:
        if shape_of(v.type) != (shape[1],):
            raise ShapeError(f"an operand is {shapes.text(shape_of(v.type))}; one element for each of the {shape[1]} channels is expected")
    _floats(op)


@irdl_op_definition
class BatchNormOp(PopartOp):
    """`y = (x - mean) scale / sqrt(variance + epsilon) + bias`, statistics given for each channel (inference).

    x: [batch, channels, size..], the others: [channels]. Where all four are constants, this is `x s + t` with s and t
    computed in f64. Source: ONNX BatchNormalization-15, training_mode = 0.
    """

    OUTLINE_VALUE: ClassVar[float] = HIGH_VALUE

    name = "popart.batch_norm"
    x = operand_def(TensorType)
    scale = operand_def(TensorType)
    bias = operand_def(TensorType)
    mean = operand_def(TensorType)
    variance = operand_def(TensorType)
    epsilon = number(1e-5)
    y = result_def(TensorType)

    def independent(self) -> Sequence[Link]:
        return [(0, d, 0, d) for d in range(len(shape_of(self.x.type))) if d != 1]

    def infer(self) -> Sequence[TensorType[Attribute]]:
        _channels(self, self.x, self.operands[1:])
        return [tensor(shape_of(self.x.type), element_type_of(self.x.type))]

    def lower(self, b: Builder) -> Sequence[SSAValue]:
        rank = len(calls.shape(self.x))
        known = [constant_value(o) for o in self.operands[1:]]
        if all(k is not None for k in known):
            scale, bias, mean, variance = (k.astype("float64") for k in known if k is not None)
            s = scale / (variance + self.epsilon) ** 0.5
            dtype = dtype_of(calls.element(self.x))
            factors = [per_channel(b, b.insert(constant(v.astype(dtype))).result, rank) for v in (s, bias - mean * s)]
            return [calls.map(b, Arg(1) * Arg(2) + Arg(3), self.x, *factors)]
        # ONNX lets the statistics be of a wider type than x.
        wide, element = calls.element(self.mean), calls.element(self.x)
        scale, variance, x, bias = (
            Arg(i) if calls.element(o) == wide else cast(Arg(i), wide)
            for i, o in ((1, self.scale), (2, self.variance), (1, self.x), (4, self.bias))
        )
        factor = calls.map(b, scale / sqrt(variance + self.epsilon), self.scale, self.variance)
        y = (x - Arg(2)) * Arg(3) + bias
        vectors = (per_channel(b, o, rank) for o in (self.mean, factor, self.bias))
        return [calls.map(b, y if wide == element else cast(y, element), self.x, *vectors)]

    def gradient(self, b: Builder, grads: Sequence[SSAValue]) -> Sequence[SSAValue | None]:
        # With r = 1 / sqrt(variance + epsilon), w = (x - mean) r and sums over all but the channels: dbias = sum g, dscale = sum g w,
        # dmean = - scale r dbias, dvariance = - scale r^2 / 2 dscale, dx = scale r g. Roots and quotients are those of the channels.
        x, g, rank = self.x, grads[0], len(calls.shape(self.x))
        element, wide, dims = calls.element(x), calls.element(self.mean), [d for d in range(rank) if d != 1]
        sums = sum_type(wide)

        def to(value: Expr, own: Attribute, other: Attribute) -> Expr:
            return value if own == other else cast(value, other)

        def vector(e: Expr, own: Attribute, like: SSAValue, *values: SSAValue) -> SSAValue:
            return calls.map(b, to(e, own, calls.element(like)), *values)

        factor = calls.map(b, to(Arg(1), calls.element(self.scale), wide) * rsqrt(Arg(2) + self.epsilon), self.scale, self.variance)
        root = calls.map(b, rsqrt(Arg(1) + self.epsilon), self.variance)
        along = [per_channel(b, v, rank) for v in (self.mean, root, factor)]
        white = (to(Arg(1), element, wide) - Arg(2)) * Arg(3)
        dx = calls.map(b, to(to(Arg(1), element, wide) * Arg(2), wide, element), g, along[2])
        total = calls.reduce(b, "add", g, dims, sums)
        moment = calls.reduce(b, "add", calls.map(b, to(Arg(4), element, wide) * white, x, along[0], along[1], g), dims, sums)
        slope = -to(Arg(2), wide, sums) * Arg(1)
        dmean = vector(slope, sums, self.mean, total, factor)
        dvariance = vector(0.5 * slope * to(Arg(3), wide, sums), sums, self.variance, moment, factor, root)
        return [dx, vector(Arg(1), sums, self.scale, moment), vector(Arg(1), sums, self.bias, total), dmean, dvariance]


@irdl_op_definition
class BatchVarianceOp(PopartOp):
    """`variance = mean of (x - mean)^2` over all dimensions but that of channels, for statistics of a batch.

    x: [batch, channels, size..], mean: [channels], which is the mean of x, or of the x of all replicas. There the variance is
    least, so that no gradient flows to the mean. Halves are summed as floats, and then the mean may be a float: the variance has its
    type. Source: ONNX BatchNormalization-15, training_mode = 1.
    """

    name = "popart.batch_variance"
    INTERNAL: ClassVar[bool] = True
    x = operand_def(TensorType)
    mean = operand_def(TensorType)
    variance = result_def(TensorType)

    def infer(self) -> Sequence[TensorType[Attribute]]:
        _channels(self, self.x, self.operands[1:])
        element, own = element_type_of(self.x.type), element_type_of(self.mean.type)
        if own not in (element, sum_type(element)):
            wide = "" if sum_type(element) == element else f" or {sum_type(element)}"
            raise VerifyException(f"x is {self.x.type} and its mean of {own}; {element}{wide} is expected")
        return [tensor(shape_of(self.mean.type), own)]

    def _count(self) -> int:
        shape = calls.shape(self.x)
        return math.prod(shape) // max(shape[1], 1)

    def _centred(self, b: Builder, e: Expr, *more: SSAValue) -> SSAValue:
        rank = len(calls.shape(self.x))
        return calls.map(b, e, self.x, *(per_channel(b, v, rank) for v in (self.mean, *more)))

    def _left(self) -> Expr:
        """Builds `x - mean`, of the mean's type."""
        own = calls.element(self.mean)
        return (Arg(1) if calls.element(self.x) == own else cast(Arg(1), own)) - Arg(2)

    def lower(self, b: Builder) -> Sequence[SSAValue]:
        own = calls.element(self.mean)
        dims = [d for d in range(len(calls.shape(self.x))) if d != 1]
        total = calls.reduce(b, "square_add", self._centred(b, self._left()), dims, sum_type(own))
        return [calls.map(b, narrowed(Arg(1) / self._count(), own), total)]

    def gradient(self, b: Builder, grads: Sequence[SSAValue]) -> Sequence[SSAValue | None]:
        # In the wide type: a 16-bit float holds no count beyond 65,504.
        element, own = calls.element(self.x), calls.element(self.mean)
        slope = calls.map(b, narrowed(widened(Arg(1), own) * (2 / self._count()), own), grads[0])
        dx = self._left() * Arg(3)
        return [self._centred(b, dx if own == element else cast(dx, element), slope), None]


class _WhiteningOp(PopartOp):
    """`y = (x - mean) / sqrt(variance + epsilon) scale + bias`, with the statistics of rows of x. Of `size` elements each."""

    OUTLINE_VALUE: ClassVar[float] = HIGH_VALUE

    x = operand_def(TensorType)
    scale = operand_def(TensorType)
    bias = opt_operand_def(TensorType)
    epsilon = number(1e-5)
    y = result_def(TensorType)

    def row(self) -> int:
        """Counts the elements that are normalised together; they are contiguous in x."""
        raise NotImplementedError

    def factors(self, b: Builder) -> list[SSAValue]:
        """Reshapes `scale` and `bias`, if present, to broadcast against x."""
        rank = len(calls.shape(self.x))
        return [per_channel(b, o, rank) for o in self.operands[1:]]

    def _rows(self, b: Builder, x: SSAValue) -> SSAValue:
        return calls.reshape(b, x, (math.prod(calls.shape(x)) // max(self.row(), 1), self.row()))

    def _white(self, b: Builder) -> SSAValue:
        rows = calls.insert(b, WhitenOp(self._rows(b, self.x), epsilon=self.epsilon))
        return calls.reshape(b, rows, calls.shape(self.x))

    def _formula(self) -> Expr:
        element = calls.element(self.x)
        white, scale, bias = (
            Arg(i) if i > len(self.operands) or calls.element(self.operands[i - 1]) == element else cast(Arg(i), element) for i in (1, 2, 3)
        )
        return white * scale if self.bias is None else white * scale + bias

    def lower(self, b: Builder) -> Sequence[SSAValue]:
        return [calls.map(b, self._formula(), self._white(b), *self.factors(b))]

    def gradient(self, b: Builder, grads: Sequence[SSAValue]) -> Sequence[SSAValue | None]:
        # With w the whitened x, r = 1 / sqrt(variance + epsilon) and h the gradient of w: dx = r (h - mean h - w mean(h w)).
        operands = [self._white(b), *self.factors(b)]
        slopes = calls.slopes(self._formula(), [calls.element(o) for o in operands])
        dw, *rest = calls.pull(b, slopes, operands, self.y, grads[0])
        assert dw is not None
        # Halves are summed as floats: a row's sums may pass what a half holds, and a count beyond 65,504 does.
        n, own = self.row(), calls.element(self.x)
        x, w, h = self._rows(b, self.x), self._rows(b, operands[0]), self._rows(b, dw)
        first, second, third = (widened(Arg(i), own) for i in (1, 2, 3))

        def mean(e: Expr, *values: SSAValue) -> SSAValue:
            s = calls.reduce(b, "add", calls.map(b, e, *values), [1])
            return calls.reshape(b, calls.map(b, Arg(1) / n, s), (calls.shape(x)[0], 1))

        variance = mean((first - Arg(2)) * (first - Arg(2)), x, mean(first, x))
        slope = rsqrt(Arg(5) + self.epsilon) * (first - Arg(2) - third * Arg(4))
        dx = calls.map(b, narrowed(slope, own), h, mean(first, h), w, mean(first * second, h, w), variance)
        others = [None if r is None else calls.reshape(b, r, calls.shape(o)) for o, r in zip(self.operands[1:], rest)]
        return [calls.reshape(b, dx, calls.shape(self.x)), *others]


@irdl_op_definition
class InstanceNormOp(_WhiteningOp):
    """`y = (x - mean) / sqrt(variance + epsilon) scale + bias`, statistics over the spatial dimensions of each instance and channel.

    x: [batch, channels, size..], scale, bias: [channels]. Source: ONNX InstanceNormalization-22.
    """

    name = "popart.instance_norm"

    def infer(self) -> Sequence[TensorType[Attribute]]:
        _channels(self, self.x, self.operands[1:])
        return [tensor(shape_of(self.x.type), element_type_of(self.x.type))]

    def row(self) -> int:
        return math.prod(calls.shape(self.x)[2:])

    def independent(self) -> Sequence[Link]:
        return [(0, 0, 0, 0), (0, 1, 0, 1), *((i, 0, 0, 1) for i in range(1, len(self.operands)))]


@irdl_op_definition
class GroupNormOp(_WhiteningOp):
    """As `instance_norm`, with statistics over groups of neighbouring channels too. scale, bias: [channels].

    Source: ONNX GroupNormalization-21.
    """

    name = "popart.group_norm"
    groups = whole(1)

    def infer(self) -> Sequence[TensorType[Attribute]]:
        _channels(self, self.x, self.operands[1:])
        channels, groups = shape_of(self.x.type)[1], self.groups
        if groups < 1 or channels % groups:
            raise ShapeError(f"{channels} channels do not divide into {groups} groups")
        return [tensor(shape_of(self.x.type), element_type_of(self.x.type))]

    def row(self) -> int:
        return math.prod(calls.shape(self.x)[1:]) // self.groups

    def independent(self) -> Sequence[Link]:
        return [(0, 0, 0, 0)]


def links_before(op: PopartOp, axis: int) -> list[Link]:
    """Says that a norm over the dimensions from `axis` on keeps those before it apart, of x and of what broadcasts to x."""
    ranks = [len(shape_of(o.type)) for o in op.operands]
    return [(i, d - ranks[0] + r, 0, d) for i, r in enumerate(ranks) for d in range(axis) if d >= ranks[0] - r]


@irdl_op_definition
class LayerNormOp(_WhiteningOp):
    """`y = (x - mean) / sqrt(variance + epsilon) scale + bias`, statistics over the dimensions from `axis` on.

    scale and bias broadcast to x. Source: ONNX LayerNormalization-17.
    """

    name = "popart.layer_norm"
    axis = whole()

    def infer(self) -> Sequence[TensorType[Attribute]]:
        shape = shape_of(self.x.type)
        shapes.front(self.axis, len(shape))
        for o in self.operands[1:]:
            if shapes.broadcast(shape_of(o.type), shape) != shape:
                raise ShapeError(f"{shapes.text(shape_of(o.type))} does not stretch to {shapes.text(shape)}")
        _floats(self)
        return [tensor(shape, element_type_of(self.x.type))]

    def row(self) -> int:
        return math.prod(calls.shape(self.x)[self.axis :])

    def independent(self) -> Sequence[Link]:
        return links_before(self, self.axis)

    def factors(self, b: Builder) -> list[SSAValue]:
        return list(self.operands[1:])


@irdl_op_definition
class RmsNormOp(PopartOp):
    """`y = x / sqrt(mean of x^2 + epsilon) scale`, the mean over the dimensions from `axis` on.

    scale broadcasts to x. Source: ONNX RMSNormalization-23.
    """

    name = "popart.rms_norm"
    x = operand_def(TensorType)
    scale = operand_def(TensorType)
    axis = whole()
    epsilon = number(1e-5)
    y = result_def(TensorType)

    def infer(self) -> Sequence[TensorType[Attribute]]:
        shape = shape_of(self.x.type)
        shapes.front(self.axis, len(shape))
        if shapes.broadcast(shape_of(self.scale.type), shape) != shape:
            raise ShapeError(f"{shapes.text(shape_of(self.scale.type))} does not stretch to {shapes.text(shape)}")
        _floats(self)
        return [tensor(shape, element_type_of(self.x.type))]

    def independent(self) -> Sequence[Link]:
        return links_before(self, self.axis)

    def _root(self, b: Builder) -> tuple[SSAValue, int]:
        """Computes `mean of x^2 + epsilon` in f32 or wider, with reduced dimensions of 1, and the number of elements reduced."""
        shape, axis, element = calls.shape(self.x), self.axis, calls.element(self.x)
        dims, count = range(axis, len(shape)), math.prod(shape[axis:])
        wide = self.x if element == self._wide() else calls.map(b, cast(Arg(1), self._wide()), self.x)
        squares = calls.reduce(b, "square_add", wide, dims)
        mean = calls.map(b, Arg(1) / count + self.epsilon, squares)
        return calls.reshape(b, mean, shapes.reduced(shape, dims, keep=True)), count

    def _wide(self) -> Attribute:
        element = calls.element(self.x)
        return f32 if element in (f16, bf16) else element

    def _as_x(self, i: int, value: SSAValue) -> Expr:
        """Casts operand i of a formula to x's element type."""
        element = calls.element(self.x)
        return Arg(i) if calls.element(value) == element else cast(Arg(i), element)

    def lower(self, b: Builder) -> Sequence[SSAValue]:
        root, _ = self._root(b)
        element = calls.element(self.x)
        factor = rsqrt(Arg(2)) if self._wide() == element else cast(rsqrt(Arg(2)), element)
        return [calls.map(b, Arg(1) * factor * self._as_x(3, self.scale), self.x, root, self.scale)]

    def gradient(self, b: Builder, grads: Sequence[SSAValue]) -> Sequence[SSAValue | None]:
        # With r = 1 / sqrt(mean of x^2 + epsilon) and h = g scale: dx = r h - x r^3 mean(h x).
        g, shape, axis, wide = grads[0], calls.shape(self.x), self.axis, self._wide()
        root, count = self._root(b)

        def widened(i: int, value: SSAValue) -> Expr:
            return Arg(i) if calls.element(value) == wide else cast(Arg(i), wide)

        dims = range(axis, len(shape))
        x, gs, s = widened(1, self.x), widened(2, g), widened(3, self.scale)
        inner = calls.reduce(b, "add", calls.map(b, x * gs * s, self.x, g, self.scale), dims)
        mean = calls.reshape(b, calls.map(b, Arg(1) / count, inner), shapes.reduced(shape, dims, keep=True))
        dx = rsqrt(Arg(4)) * (gs * s - x * Arg(5) / Arg(4))
        ds = gs * x * rsqrt(Arg(3))
        given = [
            (dx, [self.x, g, self.scale, root, mean], self.x),
            (ds, [self.x, g, root], self.scale),
        ]
        results: list[SSAValue | None] = []
        for formula, values, operand in given:
            narrow = formula if calls.element(operand) == wide else cast(formula, calls.element(operand))
            results.append(calls.sum_to(b, calls.map(b, narrow, *values), calls.shape(operand)))
        return results
