"""Propagation of run-time valid lengths: the results of an op that are only partly valid, and along which axis.

    NonZero -> Transpose -> GatherND -> ReduceSum      # 2 x n?, n? x 2, n?, one number

The valid part comes first; the rest may hold anything. Element-wise ops ignore the difference. Where an op would mix
the two parts, the rest is replaced first (`Passed.fill`): by index 0, or by 0 in a sum. Other ops are refused.
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
    """A valid length `count` along `axis`; bounds of one `count` have equal lengths."""

    axis: int
    count: object


@dataclass(frozen=True)
class Passed:
    """The bounds of an op's results, by position, and the replacement of invalid elements, by input position."""

    outputs: Mapping[int, Bound] = field(default_factory=dict[int, Bound])
    fill: Mapping[int, str] = field(default_factory=dict[int, str])  # zero, one, lowest or highest


def mark(op: OnnxOp, axes: Mapping[int, int]) -> None:
    """Records on an op, for later passes, the outputs with a valid length and their axes."""
    marks = [next((axis for i, axis in axes.items() if op.output(i) is result), -1) for result in op.results]
    if max(marks, default=-1) >= 0:
        op.attributes[KEY] = DenseArrayBase.from_list(i64, marks)


def is_marked(value: SSAValue) -> bool:
    """Tells whether a value has a run-time valid length."""
    owner = value.owner
    marks = owner.attributes.get(KEY) if isinstance(owner, OnnxOp) else None
    if not isinstance(value, OpResult) or not isinstance(marks, DenseArrayBase):
        return False
    return ints(cast("DenseArrayBase[Any]", marks))[value.index] >= 0


def passed_on(op: OnnxOp, bounds: Mapping[int, Bound], known: Known) -> Passed:
    """Propagates the bounds of an op's inputs to its results. Raises PopulusError if the op does not allow one."""
    rule = None if op.DOMAIN else _RULES.get(op.OP_TYPE)
    passed = None if rule is None else rule(op, bounds, known)
    if passed is None:
        raise PopulusError(REFUSED.format(op.OP_TYPE))
    return passed


def _shape(op: OnnxOp, i: int) -> tuple[int, ...]:
    """Gives the shape of input `i`."""
    value = op.inputs[i]
    assert value is not None, (op.name, i)
    return shape_of(value.type)


def _elementwise(op: OnnxOp, bounds: Mapping[int, Bound], known: Known) -> Passed | None:
    """Propagates the one bound of all operands; an operand without it has size 1 along its axis."""
    sizes = {i: _shape(op, i) for i, v in enumerate(op.inputs) if v is not None}
    rank = max(len(s) for s in sizes.values())
    shifted = {Bound(b.axis + rank - len(sizes[i]), b.count) for i, b in bounds.items()}
    if len(shifted) != 1:
        return None
    (bound,) = shifted
    for i, shape in sizes.items():
        at = bound.axis - rank + len(shape)
        if i not in bounds and at >= 0 and shape[at] != 1:
            return None
    widest = max(s[bound.axis - rank + len(s)] for s in sizes.values() if bound.axis - rank + len(s) >= 0)
    if any(sizes[i][b.axis] != widest for i, b in bounds.items()):
        return None
    return Passed({0: bound})


def _ints(op: OnnxOp, i: int, name: str, known: Known) -> list[int] | None:
    """Gives the integers of an attribute or of input `i`; None if it is absent or not known."""
    if (listed := op.property(name) if name in op.KINDS else None) is not None:
        return [int(v) for v in listed]
    value = op.input(i)
    array = None if value is None else known(value)
    return None if array is None else [int(v) for v in array.reshape(-1)]


def _transpose(op: OnnxOp, bounds: Mapping[int, Bound], known: Known) -> Passed | None:
    """Moves the bound with its axis."""
    rank = len(_shape(op, 0))
    order = [int(p) for p in op.property("perm") or reversed(range(rank))]
    return Passed({0: Bound(order.index(bounds[0].axis), bounds[0].count)})


def _unsqueeze(op: OnnxOp, bounds: Mapping[int, Bound], known: Known) -> Passed | None:
    """Moves the bound's axis past new dimensions."""
    if 0 not in bounds or (listed := _ints(op, 1, "axes", known)) is None:
        return None
    rank = len(_shape(op, 0)) + len(listed)
    new = shapes.axes(listed, rank)
    return Passed({0: Bound([d for d in range(rank) if d not in new][bounds[0].axis], bounds[0].count)})


def _squeeze(op: OnnxOp, bounds: Mapping[int, Bound], known: Known) -> Passed | None:
    """Moves the bound's axis; the axis itself has to stay."""
    if 0 not in bounds or (listed := _ints(op, 1, "axes", known)) is None:
        return None
    gone = shapes.axes(listed, len(_shape(op, 0)))
    return None if bounds[0].axis in gone else Passed({0: _without(bounds[0], gone)})


def _without(bound: Bound, gone: Sequence[int]) -> Bound:
    """Gives the bound after other dimensions are removed."""
    return Bound(bound.axis - sum(d < bound.axis for d in gone), bound.count)


def _reshape(op: OnnxOp, bounds: Mapping[int, Bound], known: Known) -> Passed | None:
    """Propagates the bound if its dimension stays one, and the other sizes are constants."""
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
    """Propagates the bound if only other axes are sliced."""
    begins = _ints(op, 1, "starts", known)
    axes = _ints(op, 3, "axes", known)
    if 0 not in bounds or begins is None or (axes is None and op.input(3) is not None):
        return None
    rank = len(_shape(op, 0))
    cut = list(range(len(begins))) if axes is None else shapes.axes(axes, rank)
    return None if bounds[0].axis in cut else Passed({0: bounds[0]})


def _gather(op: OnnxOp, bounds: Mapping[int, Bound], known: Known) -> Passed | None:
    """Propagates the bound of indices along `axis`, or of data along another axis."""
    axis = shapes.axis(op.property("axis") or 0, len(_shape(op, 0)))
    if 0 not in bounds:
        return Passed({0: Bound(axis + bounds[1].axis, bounds[1].count)}, {1: "zero"})
    if 1 in bounds or bounds[0].axis == axis:
        return None
    more = len(_shape(op, 1)) - 1
    return Passed({0: Bound(bounds[0].axis + (more if bounds[0].axis > axis else 0), bounds[0].count)})


def _gather_nd(op: OnnxOp, bounds: Mapping[int, Bound], known: Known) -> Passed | None:
    """Propagates the bound of indices."""
    if 0 in bounds or op.property("batch_dims") or bounds[1].axis == len(_shape(op, 1)) - 1:
        return None
    return Passed({0: bounds[1]}, {1: "zero"})


def _reduction(neutral: str | None) -> Rule:
    """Makes the rule of a reduction with this neutral element, which replaces invalid elements along its axis.

    Without a neutral element, only other axes may be reduced.
    """

    def rule(op: OnnxOp, bounds: Mapping[int, Bound], known: Known) -> Passed | None:
        listed = _ints(op, 1, "axes", known)
        rank = len(_shape(op, 0))
        if 0 not in bounds or (listed is None and op.input(1) is not None):
            return None
        if not listed and op.property("noop_with_empty_axes"):
            return None
        axes = shapes.axes(listed, rank) if listed else tuple(range(rank))
        bound = bounds[0]
        if bound.axis in axes:
            return None if neutral is None else Passed({}, {0: neutral})
        return Passed({0: bound if op.property("keepdims") != 0 else _without(bound, axes)})

    return rule


def _rows(op: OnnxOp, bounds: Mapping[int, Bound], known: Known) -> Passed | None:
    """Propagates the bound if the op works along another axis."""
    axis = shapes.axis(-1 if op.property("axis") is None else op.property("axis"), len(_shape(op, 0)))
    return None if bounds[0].axis == axis or op.VERSION < 13 else Passed({0: bounds[0]})


def _matmul(op: OnnxOp, bounds: Mapping[int, Bound], known: Known) -> Passed | None:
    """Propagates the bound of rows of the left operand."""
    rank = len(_shape(op, 0))
    if 1 in bounds or rank < 2 or len(_shape(op, 1)) != 2 or bounds[0].axis == rank - 1:
        return None
    return Passed({0: bounds[0]})


def _concat(op: OnnxOp, bounds: Mapping[int, Bound], known: Known) -> Passed | None:
    """Propagates the one bound of all operands along another axis."""
    axis = shapes.axis(op.property("axis"), len(_shape(op, 0)))
    shifted = set(bounds.values())
    if len(shifted) != 1 or len(bounds) != len(op.inputs) or next(iter(shifted)).axis == axis:
        return None
    return Passed({0: next(iter(shifted))})


def _measured(op: OnnxOp, bounds: Mapping[int, Bound], known: Known) -> Passed | None:
    """Gives no bound: the result of Shape or Size is computed."""
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
