"""What ops make of tensors of which the data decide how much is valid: which of their results are so too, and along which axis.

    NonZero -> Transpose -> GatherND -> ReduceSum      # 2 x n?, n? x 2, n?, one number

The valid part is in front, what is behind it may be anything. Ops that go element by element need not know; where an op would mix
the two parts, what is behind is replaced first (`Passed.fill`): indices by 0, what is summed by 0. Other ops are refused.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from xdsl.dialects.builtin import DenseArrayBase, i64
from xdsl.ir import OpResult, SSAValue

from populus.dialects.base.tensor_op import ints
from populus.dialects.onnx.schema import OnnxOp
from populus.dialects.support import shapes
from populus.dialects.support.diagnostics import PopulusError
from populus.dialects.support.element_types import shape_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

Known: TypeAlias = "Callable[[SSAValue], NDArray[Any] | None]"

KEY = "bounded"
REFUSED = "the size of what it reads depends on the data; {0} is not among the ops that tiles compute then"


@dataclass(frozen=True)
class Bound:
    """The elements along `axis` are valid up to a number that `count` stands for: equal where the numbers are."""

    axis: int
    count: object


@dataclass(frozen=True)
class Passed:
    """What becomes of bounds: those of results by number; and of inputs by number what their other part is replaced by."""

    outputs: Mapping[int, Bound] = field(default_factory=dict[int, Bound])
    fill: Mapping[int, str] = field(default_factory=dict[int, str])  # zero, one, lowest or highest


def mark(op: OnnxOp, axes: Mapping[int, int]) -> None:
    """Records on an op which of its outputs are valid in part, along which axis: what `onnx-infer-shapes` found, for passes behind it."""
    found = [next((axis for i, axis in axes.items() if op.output(i) is result), -1) for result in op.results]
    if max(found, default=-1) >= 0:
        op.attributes[KEY] = DenseArrayBase.from_list(i64, found)


def is_marked(value: SSAValue) -> bool:
    """Whether a value is valid in part."""
    owner = value.owner
    found = owner.attributes.get(KEY) if isinstance(owner, OnnxOp) else None
    if not isinstance(value, OpResult) or not isinstance(found, DenseArrayBase):
        return False
    return ints(cast("DenseArrayBase[Any]", found))[value.index] >= 0


def passed_on(op: OnnxOp, bounds: Mapping[int, Bound], known: Known) -> Passed:
    """The bounds of an op's results from those of its inputs. Raises PopulusError for an op that cannot be computed so."""
    rule = None if op.DOMAIN else _RULES.get(op.OP_TYPE)
    found = None if rule is None else rule(op, bounds, known)
    if found is None:
        raise PopulusError(REFUSED.format(op.OP_TYPE))
    return found


def _shape(op: OnnxOp, i: int) -> tuple[int, ...]:
    value = op.inputs[i]
    assert value is not None, (op.name, i)
    return shape_of(value.type)


def _elementwise(op: OnnxOp, bounds: Mapping[int, Bound], known: Known) -> Passed | None:
    """All bounds are one, and what has none has one element along its axis."""
    sizes = {i: _shape(op, i) for i, v in enumerate(op.inputs) if v is not None}
    rank = max(len(s) for s in sizes.values())
    found = {Bound(b.axis + rank - len(sizes[i]), b.count) for i, b in bounds.items()}
    if len(found) != 1:
        return None
    (bound,) = found
    for i, shape in sizes.items():
        at = bound.axis - rank + len(shape)
        if i not in bounds and at >= 0 and shape[at] != 1:
            return None
    widest = max(s[bound.axis - rank + len(s)] for s in sizes.values() if bound.axis - rank + len(s) >= 0)
    if any(sizes[i][b.axis] != widest for i, b in bounds.items()):
        return None
    return Passed({0: bound})


def _ints(op: OnnxOp, i: int, name: str, known: Known) -> list[int] | None:
    """What is an attribute or input i, as it is known; None if it is not there or not known."""
    if (given := op.property(name) if name in op.KINDS else None) is not None:
        return [int(v) for v in given]
    value = op.input(i)
    array = None if value is None else known(value)
    return None if array is None else [int(v) for v in array.reshape(-1)]


def _transpose(op: OnnxOp, bounds: Mapping[int, Bound], known: Known) -> Passed | None:
    rank = len(_shape(op, 0))
    order = [int(p) for p in op.property("perm") or reversed(range(rank))]
    return Passed({0: Bound(order.index(bounds[0].axis), bounds[0].count)})


def _unsqueeze(op: OnnxOp, bounds: Mapping[int, Bound], known: Known) -> Passed | None:
    if 0 not in bounds or (given := _ints(op, 1, "axes", known)) is None:
        return None
    rank = len(_shape(op, 0)) + len(given)
    new = shapes.axes(given, rank)
    return Passed({0: Bound([d for d in range(rank) if d not in new][bounds[0].axis], bounds[0].count)})


def _squeeze(op: OnnxOp, bounds: Mapping[int, Bound], known: Known) -> Passed | None:
    if 0 not in bounds or (given := _ints(op, 1, "axes", known)) is None:
        return None
    gone = shapes.axes(given, len(_shape(op, 0)))
    return None if bounds[0].axis in gone else Passed({0: _without(bounds[0], gone)})


def _without(bound: Bound, gone: Sequence[int]) -> Bound:
    return Bound(bound.axis - sum(d < bound.axis for d in gone), bound.count)


def _reshape(op: OnnxOp, bounds: Mapping[int, Bound], known: Known) -> Passed | None:
    """Where the dimension stays one, and the rest of the shape is given by numbers."""
    result = op.results[0].type
    if 0 not in bounds or 1 in bounds or (asked := _ints(op, 1, "shape", known)) is None:
        return None
    before, after, bound = _shape(op, 0), shape_of(result), bounds[0]
    for d, n in enumerate(after):
        same = n == before[bound.axis] and math.prod(after[:d]) == math.prod(before[: bound.axis])
        if same and math.prod(after[d:]) == math.prod(before[bound.axis :]) and (asked[d] == -1 or (asked[d] == 0 and d == bound.axis)):
            return Passed({0: Bound(d, bound.count)})
    return None


def _slice(op: OnnxOp, bounds: Mapping[int, Bound], known: Known) -> Passed | None:
    """Along other axes."""
    begins = _ints(op, 1, "starts", known)
    axes = _ints(op, 3, "axes", known)
    if 0 not in bounds or begins is None or (axes is None and op.input(3) is not None):
        return None
    rank = len(_shape(op, 0))
    cut = list(range(len(begins))) if axes is None else shapes.axes(axes, rank)
    return None if bounds[0].axis in cut else Passed({0: bounds[0]})


def _gather(op: OnnxOp, bounds: Mapping[int, Bound], known: Known) -> Passed | None:
    """Rows by indices, or of every row the same elements."""
    axis = shapes.axis(op.property("axis") or 0, len(_shape(op, 0)))
    if 0 not in bounds:
        return Passed({0: Bound(axis + bounds[1].axis, bounds[1].count)}, {1: "zero"})
    if 1 in bounds or bounds[0].axis == axis:
        return None
    more = len(_shape(op, 1)) - 1
    return Passed({0: Bound(bounds[0].axis + (more if bounds[0].axis > axis else 0), bounds[0].count)})


def _gather_nd(op: OnnxOp, bounds: Mapping[int, Bound], known: Known) -> Passed | None:
    if 0 in bounds or op.property("batch_dims") or bounds[1].axis == len(_shape(op, 1)) - 1:
        return None
    return Passed({0: bounds[1]}, {1: "zero"})


def _reduction(neutral: str | None) -> Rule:
    """What is reduced along the axis is neutral behind the valid part. Without such a value, only other axes are."""

    def rule(op: OnnxOp, bounds: Mapping[int, Bound], known: Known) -> Passed | None:
        given = _ints(op, 1, "axes", known)
        rank = len(_shape(op, 0))
        if 0 not in bounds or (given is None and op.input(1) is not None):
            return None
        if not given and op.property("noop_with_empty_axes"):
            return None
        axes = shapes.axes(given, rank) if given else tuple(range(rank))
        bound = bounds[0]
        if bound.axis in axes:
            return None if neutral is None else Passed({}, {0: neutral})
        return Passed({0: bound if op.property("keepdims") != 0 else _without(bound, axes)})

    return rule


def _rows(op: OnnxOp, bounds: Mapping[int, Bound], known: Known) -> Passed | None:
    """Along another axis, each row for itself."""
    axis = shapes.axis(-1 if op.property("axis") is None else op.property("axis"), len(_shape(op, 0)))
    return None if bounds[0].axis == axis or op.VERSION < 13 else Passed({0: bounds[0]})


def _matmul(op: OnnxOp, bounds: Mapping[int, Bound], known: Known) -> Passed | None:
    """Rows of the left operand."""
    rank = len(_shape(op, 0))
    if 1 in bounds or rank < 2 or len(_shape(op, 1)) != 2 or bounds[0].axis == rank - 1:
        return None
    return Passed({0: bounds[0]})


def _concat(op: OnnxOp, bounds: Mapping[int, Bound], known: Known) -> Passed | None:
    """Beside each other, all of the same number."""
    axis = shapes.axis(op.property("axis"), len(_shape(op, 0)))
    found = set(bounds.values())
    if len(found) != 1 or len(bounds) != len(op.inputs) or next(iter(found)).axis == axis:
        return None
    return Passed({0: next(iter(found))})


def _measured(op: OnnxOp, bounds: Mapping[int, Bound], known: Known) -> Passed | None:
    """Shape and Size: what they give is computed."""
    return Passed()


Rule: TypeAlias = "Callable[[OnnxOp, Mapping[int, Bound], Known], Passed | None]"

MEASURES = ("Shape", "Size")
ELEMENTWISE = (
    "Abs", "Acos", "Acosh", "Add", "And", "Asin", "Asinh", "Atan", "Atanh", "BitShift", "BitwiseAnd", "BitwiseNot", "BitwiseOr",
    "BitwiseXor", "Cast", "Ceil", "Celu", "Clip", "Cos", "Cosh", "Div", "Elu", "Equal", "Erf", "Exp", "Floor", "Gelu", "Greater",
    "GreaterOrEqual", "HardSigmoid", "HardSwish", "Identity", "IsInf", "IsNaN", "LeakyRelu", "Less", "LessOrEqual", "Log", "Max", "Mean",
    "Min", "Mish", "Mod", "Mul", "Neg", "Not", "Or", "PRelu", "Pow", "Reciprocal", "Relu", "Round", "Selu", "Shrink", "Sigmoid", "Sign",
    "Sin", "Sinh", "Softplus", "Softsign", "Sqrt", "Sub", "Sum", "Swish", "Tan", "Tanh", "ThresholdedRelu", "Where", "Xor",
)  # fmt: skip
_REDUCTIONS = {
    "ReduceL1": "zero",
    "ReduceL2": "zero",
    "ReduceLogSum": "zero",
    "ReduceLogSumExp": "lowest",
    "ReduceMax": "lowest",
    "ReduceMean": None,
    "ReduceMin": "highest",
    "ReduceProd": "one",
    "ReduceSum": "zero",
    "ReduceSumSquare": "zero",
}
_RULES: Mapping[str, Rule] = {
    **dict.fromkeys(ELEMENTWISE, _elementwise),
    **{name: _reduction(neutral) for name, neutral in _REDUCTIONS.items()},
    **dict.fromkeys(MEASURES, _measured),
    "Concat": _concat,
    "Gather": _gather,
    "GatherND": _gather_nd,
    "LogSoftmax": _rows,
    "MatMul": _matmul,
    "Reshape": _reshape,
    "Slice": _slice,
    "Softmax": _rows,
    "Squeeze": _squeeze,
    "Transpose": _transpose,
    "Unsqueeze": _unsqueeze,
}
