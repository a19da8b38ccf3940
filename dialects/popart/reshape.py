"""The same elements elsewhere: shapes, permutations, slices, pads, repetitions. Most results are views of the operand."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.builder import Builder
from xdsl.dialects.builtin import DenseArrayBase, StringAttr, TensorType, i64
from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import irdl_op_definition, operand_def, opt_operand_def, prop_def, result_def, var_operand_def
from xdsl.utils.exceptions import VerifyException

from populus.dialects.base.tensor_op import ints
from populus.dialects.expr import Arg
from populus.dialects.popart import calls
from populus.dialects.popart.base import Link, PopartOp
from populus.dialects.support import shapes
from populus.dialects.support.constraints import whole
from populus.dialects.support.element_types import element_type_of, shape_of, tensor
from populus.dialects.support.shapes import ShapeError

MODES = ("constant", "reflect", "edge")


class _ViewOp(PopartOp):
    """An op whose result may share memory with x."""

    x = operand_def(TensorType)
    y = result_def(TensorType)

    def aliases(self) -> Sequence[tuple[int, int]]:
        return ((0, 0),)

    @property
    def is_view(self) -> bool:
        return True


@irdl_op_definition
class ReshapeOp(_ViewOp):
    """`y[flat i] = x[flat i]`: the same elements in row-major order under another shape. Source: ONNX Reshape-24."""

    name = "popart.reshape"
    shape = prop_def(DenseArrayBase.constr(i64))

    def infer(self) -> Sequence[TensorType[Attribute]]:
        return [tensor(shapes.reshape(shape_of(self.x.type), ints(self.shape)), element_type_of(self.x.type))]

    def lower(self, b: Builder) -> Sequence[SSAValue]:
        return [calls.reshape(b, self.x, calls.shape(self.y))]

    def gradient(self, b: Builder, grads: Sequence[SSAValue]) -> Sequence[SSAValue | None]:
        return [calls.reshape(b, grads[0], calls.shape(self.x))]


@irdl_op_definition
class TransposeOp(_ViewOp):
    """`y[i[permutation]] = x[i]`: dimension d of y is dimension permutation[d] of x. Source: ONNX Transpose-24."""

    name = "popart.transpose"
    permutation = prop_def(DenseArrayBase.constr(i64))

    def infer(self) -> Sequence[TensorType[Attribute]]:
        return [tensor(shapes.permuted(shape_of(self.x.type), ints(self.permutation)), element_type_of(self.x.type))]

    def independent(self) -> Sequence[Link]:
        return [(0, d, 0, i) for i, d in enumerate(ints(self.permutation))]

    def lower(self, b: Builder) -> Sequence[SSAValue]:
        return [calls.transpose(b, self.x, ints(self.permutation))]

    def gradient(self, b: Builder, grads: Sequence[SSAValue]) -> Sequence[SSAValue | None]:
        permutation = ints(self.permutation)
        return [calls.transpose(b, grads[0], [permutation.index(d) for d in range(len(permutation))])]


@irdl_op_definition
class ExpandOp(_ViewOp):
    """x and `shape` broadcast against each other: y has the common shape. Source: ONNX Expand-13."""

    name = "popart.expand"
    shape = prop_def(DenseArrayBase.constr(i64))

    def infer(self) -> Sequence[TensorType[Attribute]]:
        return [tensor(shapes.broadcast(shape_of(self.x.type), shapes.natural(ints(self.shape))), element_type_of(self.x.type))]

    def lower(self, b: Builder) -> Sequence[SSAValue]:
        return [calls.stretch(b, self.x, calls.shape(self.y))]

    def gradient(self, b: Builder, grads: Sequence[SSAValue]) -> Sequence[SSAValue | None]:
        return [calls.sum_to(b, grads[0], calls.shape(self.x))]


@irdl_op_definition
class ConcatOp(PopartOp):
    """The operands one after the other along `axis`. Source: ONNX Concat-13."""

    name = "popart.concat"
    parts = var_operand_def(TensorType)
    axis = whole()
    y = result_def(TensorType)

    def infer(self) -> Sequence[TensorType[Attribute]]:
        shape = shapes.concatenated([shape_of(o.type) for o in self.operands], self.axis)
        if len(elements := {element_type_of(o.type) for o in self.operands}) > 1:
            raise VerifyException(f"the operands' element types differ: {', '.join(sorted(map(str, elements)))}")
        return [tensor(shape, elements.pop())]

    def independent(self) -> Sequence[Link]:
        dims = [d for d in range(len(shape_of(self.y.type))) if d != self.axis]
        return [(i, d, 0, d) for i in range(len(self.operands)) for d in dims]

    def lower(self, b: Builder) -> Sequence[SSAValue]:
        return [calls.concat(b, self.operands, self.axis)]

    def gradient(self, b: Builder, grads: Sequence[SSAValue]) -> Sequence[SSAValue | None]:
        axis, at = self.axis, 0
        results: list[SSAValue | None] = []
        for part in self.operands:
            size = calls.shape(part)[axis]
            results.append(calls.slice_dim(b, grads[0], axis, at, at + size))
            at += size
        return results


@irdl_op_definition
class SliceOp(_ViewOp):
    """`x[begins : ends : steps]` in every dimension, bounds clamped already; with a negative step, an end of -1 is before 0.

    Source: ONNX Slice-13, with its starts, ends, axes and steps worked out.
    """

    name = "popart.slice"
    begins = prop_def(DenseArrayBase.constr(i64))
    ends = prop_def(DenseArrayBase.constr(i64))
    steps = prop_def(DenseArrayBase.constr(i64))

    def bounds(self) -> list[tuple[int, int, int]]:
        """Lists (begin, end, step) per dimension."""
        return list(zip(ints(self.begins), ints(self.ends), ints(self.steps)))

    def infer(self) -> Sequence[TensorType[Attribute]]:
        shape = shapes.sliced(shape_of(self.x.type), ints(self.begins), ints(self.ends), ints(self.steps))
        return [tensor(shape, element_type_of(self.x.type))]

    def lower(self, b: Builder) -> Sequence[SSAValue]:
        return [calls.slice(b, self.x, ints(self.begins), ints(self.ends), ints(self.steps))]

    def gradient(self, b: Builder, grads: Sequence[SSAValue]) -> Sequence[SSAValue | None]:
        # Backwards steps are undone by turning round; then each element goes back to its place, zeros between.
        g = calls.reverse(b, grads[0], [d for d, (_, _, step) in enumerate(self.bounds()) if step < 0])
        lower: list[int] = []
        upper: list[int] = []
        interior: list[int] = []
        for n, size, (begin, _, step) in zip(calls.shape(self.x), calls.shape(self.y), self.bounds()):
            last = begin + max(size - 1, 0) * step
            low, high = (min(begin, last), max(begin, last)) if size else (n, n - 1)
            lower.append(low)
            upper.append(n - 1 - high)
            interior.append(abs(step) - 1 if size > 1 else 0)
        return [calls.pad(b, g, lower, upper, interior)]


@irdl_op_definition
class PadOp(PopartOp):
    """x with `lower` elements before and `upper` after it in each dimension; negative ones crop x.

    mode `constant`: they are `value`, a scalar (0 if absent); `reflect`: x mirrored at its ends, which are not repeated;
    `edge`: the nearest element. Source: ONNX Pad-24.
    """

    name = "popart.pad"
    x = operand_def(TensorType)
    value = opt_operand_def(TensorType)
    lower_ = prop_def(DenseArrayBase.constr(i64), prop_name="lower")
    upper = prop_def(DenseArrayBase.constr(i64))
    mode = prop_def(StringAttr, default_value=StringAttr("constant"))
    y = result_def(TensorType)

    def infer(self) -> Sequence[TensorType[Attribute]]:
        shape, lower, upper, mode = shape_of(self.x.type), ints(self.lower_), ints(self.upper), self.mode.data
        if mode not in MODES:
            raise VerifyException(f"'{mode}' is not one of {', '.join(MODES)}")
        if not len(shape) == len(lower) == len(upper):
            raise ShapeError(f"{len(lower)} and {len(upper)} pads for the {len(shape)} dimensions of {shapes.text(shape)}")
        if self.value is not None and (mode != "constant" or self.value.type != tensor((), element_type_of(self.x.type))):
            raise VerifyException(f"the value is {self.value.type}; a scalar of x's element type is expected, with mode constant")
        for n, low, high in zip(shape, lower, upper):
            if mode == "reflect" and max(low, high) > 0 and max(low, high) >= n:
                raise ShapeError(f"a dimension of {n} cannot be mirrored by {max(low, high)}; at most {max(n - 1, 0)}")
            if mode == "edge" and n == 0 and max(low, high) > 0:
                raise ShapeError("a dimension of 0 has no edge to repeat")
            if n < -min(low, 0) - min(high, 0):
                raise ShapeError(f"pads {low} and {high} cut off more than the {n} elements of a dimension")
        return [tensor([n + low + high for n, low, high in zip(shape, lower, upper)], element_type_of(self.x.type))]

    def independent(self) -> Sequence[Link]:
        return [(0, d, 0, d) for d, pads in enumerate(zip(ints(self.lower_), ints(self.upper))) if pads == (0, 0)]

    def lower(self, b: Builder) -> Sequence[SSAValue]:
        lower, upper = ints(self.lower_), ints(self.upper)
        if self.mode.data == "constant":
            return [calls.pad(b, self.x, lower, upper, value=self.value)]
        x = self.x
        for d, (low, high) in enumerate(zip(lower, upper)):
            n = calls.shape(x)[d]
            before = [self._outside(b, x, d, low, 0)] if low > 0 else []
            behind = [self._outside(b, x, d, high, n - 1)] if high > 0 else []
            x = calls.concat(b, [*before, x, *behind], d)
            x = calls.slice_dim(b, x, d, max(-low, 0), calls.shape(x)[d] - max(-high, 0))
        return [x]

    def _outside(self, b: Builder, x: SSAValue, d: int, count: int, end: int) -> SSAValue:
        """Builds the `count` elements beyond one end of dimension d: before element 0 or after the last."""
        if self.mode.data == "edge":
            one = calls.slice_dim(b, x, d, end, end + 1)
            shape = calls.shape(x)
            return calls.stretch(b, one, (*shape[:d], count, *shape[d + 1 :]))
        first = 1 if end == 0 else end - count
        return calls.reverse(b, calls.slice_dim(b, x, d, first, first + count), [d])

    def gradient(self, b: Builder, grads: Sequence[SSAValue]) -> Sequence[SSAValue | None]:
        lower, upper = ints(self.lower_), ints(self.upper)
        if self.mode.data != "constant":
            return [self._folded(b, grads[0])]
        dx = calls.pad(b, grads[0], [-p for p in lower], [-p for p in upper])
        if self.value is None:
            return [dx]
        return [dx, calls.sum_around(b, grads[0], dx)]

    def _folded(self, b: Builder, g: SSAValue) -> SSAValue:
        """Adds the gradients of padding elements to those of the elements that they repeat, from the last dimension to the first."""
        lower, upper = ints(self.lower_), ints(self.upper)
        for d in reversed(range(len(lower))):
            n, low, high = calls.shape(self.x)[d], lower[d], upper[d]
            size = calls.shape(g)[d]
            total = self._placed(b, calls.slice_dim(b, g, d, max(low, 0), size - max(high, 0)), d, n, max(-low, 0))
            outside = [(0, low, 0 if self.mode.data == "edge" else 1)] if low > 0 else []
            if high > 0:
                outside.append((size - high, size, n - 1 if self.mode.data == "edge" else n - 1 - high))
            for begin, end, at in outside:
                part = calls.slice_dim(b, g, d, begin, end)
                if self.mode.data == "edge":
                    part = calls.sum_to(b, part, shapes.reduced(calls.shape(part), [d], keep=True))
                else:
                    part = calls.reverse(b, part, [d])
                total = calls.map(b, Arg(1) + Arg(2), total, self._placed(b, part, d, n, at))
            g = total
        return g

    def _placed(self, b: Builder, part: SSAValue, d: int, n: int, at: int) -> SSAValue:
        """Places `part` at position `at` of dimension d, of n elements; zeros elsewhere."""
        shape = calls.shape(part)
        lower, upper = [0] * len(shape), [0] * len(shape)
        lower[d], upper[d] = at, n - at - shape[d]
        return calls.pad(b, part, lower, upper)


@irdl_op_definition
class TileOp(PopartOp):
    """`y[i] = x[i mod shape of x]`, repeats[d] times in dimension d. Source: ONNX Tile-13."""

    name = "popart.tile"
    x = operand_def(TensorType)
    repeats = prop_def(DenseArrayBase.constr(i64))
    y = result_def(TensorType)

    def infer(self) -> Sequence[TensorType[Attribute]]:
        shape, repeats = shape_of(self.x.type), ints(self.repeats)
        if len(shape) != len(repeats) or min(repeats, default=0) < 0:
            raise ShapeError(f"repeats {list(repeats)} for the {len(shape)} dimensions of {shapes.text(shape)}")
        return [tensor([n * r for n, r in zip(shape, repeats)], element_type_of(self.x.type))]

    def independent(self) -> Sequence[Link]:
        return [(0, d, 0, d) for d, r in enumerate(ints(self.repeats)) if r == 1]

    def _split(self) -> list[int]:
        return [part for n, r in zip(calls.shape(self.x), ints(self.repeats)) for part in (r, n)]

    def lower(self, b: Builder) -> Sequence[SSAValue]:
        x = calls.reshape(b, self.x, [part for n in calls.shape(self.x) for part in (1, n)])
        return [calls.reshape(b, calls.stretch(b, x, self._split()), calls.shape(self.y))]

    def gradient(self, b: Builder, grads: Sequence[SSAValue]) -> Sequence[SSAValue | None]:
        g = calls.reshape(b, grads[0], self._split())
        return [calls.reshape(b, calls.reduce(b, "add", g, range(0, 2 * len(self.repeats), 2)), calls.shape(self.x))]
