"""ONNX's reductions and normalisations."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from xdsl.dialects.builtin import i1

from populus.dialects import expr
from populus.dialects.poplar.affine import Map, box, every, names, read_map, within
from populus.dialects.support.element_types import is_float
from populus.proof.onnx.node import Node, Results
from populus.proof.report import Undecided
from populus.proof.rows import moments, softmax, whitened
from populus.proof.trees import Pieces

_1, _2 = expr.Arg(1), expr.Arg(2)


def _row_map(full: tuple[int, ...], axes: Sequence[int], keep: bool = True) -> Map:
    """Maps indices to those of their row along axes, which stay with size 1 or vanish."""
    i = names("i", len(full))
    to = ["0" if d in axes else v for d, v in enumerate(i) if keep or d not in axes]
    return read_map(f"{{ [{', '.join(i)}] -> [{', '.join(to)}] : {within(i, full)} }}")


BEFORE: Mapping[str, tuple[str, expr.Expr | None, Callable[[expr.Expr, int], expr.Expr] | None]] = {
    "ReduceSum": ("add", None, None),
    "ReduceMax": ("max", None, None),
    "ReduceMin": ("min", None, None),
    "ReduceProd": ("mul", None, None),
    "ReduceMean": ("add", None, lambda e, count: e / float(count)),
    "ReduceSumSquare": ("square_add", None, None),
    "ReduceL1": ("add", expr.absolute(_1), None),
    "ReduceL2": ("square_add", None, lambda e, count: expr.sqrt(e)),
    "ReduceLogSum": ("add", None, lambda e, count: expr.log(e)),
}
"""Of a reduction: the operation, the formula of its terms, and that of its result, for a number of terms."""


def _reduction(n: Node) -> Results:
    shape, floats = n.shape(0), is_float(n.element(0))
    axes = n.ints(1, "axes")
    if not axes:  # over no axes, the formulas of terms and result are left
        axes = [] if n.get("noop_with_empty_axes") else list(range(len(shape)))
    axes = [a % len(shape) for a in axes]
    op, before, after = BEFORE[n.op.OP_TYPE]
    if n.element(0) == i1:
        op = {"max": "or", "min": "and"}[op]
    if after is not None and not floats:
        raise Undecided("integers")
    x = n.x(0) if before is None else n.t.elementwise(before, box(shape), [n.x(0)], floats)
    to_row = _row_map(shape, axes, n.get("keepdims") != 0)
    y = n.t.reduced(op, to_row.range(), to_row.reverse(), x, every(shape))
    if after is None:
        return [y]
    return [n.t.elementwise(after(_1, math.prod(shape[a] for a in axes)), box(n.full), [y], floats)]


def _log_sum_exp(n: Node) -> Results:
    """Gives `m + log(sum of e^(x - m))`, the same for every m: the largest, where it is finite."""
    axes = n.ints(1, "axes") or ([] if n.get("noop_with_empty_axes") else list(range(len(n.shape(0)))))
    if not is_float(n.element(0)):
        raise Undecided("integers")
    full = box(n.shape(0))
    to_row = _row_map(n.shape(0), [a % len(n.shape(0)) for a in axes], n.get("keepdims") != 0)
    largest = n.t.reduced("max", to_row.range(), to_row.reverse(), n.x(0), every(n.shape(0)))
    m = n.t.elementwise(expr.select(_1, 0.0, expr.isfinite(_1)), to_row.range(), [largest], True)
    e = n.t.elementwise(expr.exp(_1 - _2), full, [n.x(0), n.t.seen(m, to_row)], True)
    total = n.t.reduced("add", to_row.range(), to_row.reverse(), e, every(n.shape(0)))
    return [n.t.elementwise(expr.log(_1) + _2, to_row.range(), [total, m], True)]


def _softmax(n: Node) -> Results:
    shape, log = n.full, n.op.OP_TYPE == "LogSoftmax"
    axis = n.axis(len(shape))
    axes = [axis] if n.op.VERSION >= 13 else list(range(axis, len(shape)))
    return [softmax(n.t, n.x(0), box(shape), _row_map(shape, axes), log)]


def _affine(n: Node, y: Pieces, scale: Pieces, bias: Pieces | None) -> Pieces:
    y = n.t.elementwise(_1 * _2, box(n.full), [y, scale], True)
    return y if bias is None else n.t.elementwise(_1 + _2, box(n.full), [y, bias], True)


def _normalised_layer(n: Node) -> Results:
    axes = list(range(n.axis(len(n.full)), len(n.full)))
    centre = n.op.OP_TYPE == "LayerNormalization"
    to_row, count = _row_map(n.full, axes), math.prod(n.full[a] for a in axes)
    x, mean, root = moments(n.t, n.x(0), box(n.full), to_row, count, float(n.get("epsilon")), centre)
    y = n.t.elementwise(_1 / _2, box(n.full), [x, n.t.seen(root, to_row)], True)
    bias = n.stretched(2, n.full) if n.has(2) else None
    statistics = [mean, n.t.elementwise(1.0 / _1, to_row.range(), [root], True)] if centre else []
    return [_affine(n, y, n.stretched(1, n.full), bias), *statistics[: len(n.op.results) - 1]]


def _channel(n: Node, i: int) -> Pieces:
    """Gives an input of one number for each channel at all elements."""
    index = names("i", len(n.full))
    return n.t.seen(n.x(i), read_map(f"{{ [{', '.join(index)}] -> [{index[1]}] : {within(index, n.full)} }}"))


def _normalised_groups(n: Node) -> Results:
    batch, channels = n.full[:2]
    groups = int(n.get("num_groups")) if n.op.OP_TYPE == "GroupNormalization" else channels
    if n.op.OP_TYPE == "GroupNormalization" and n.shape(1) != (channels,):
        raise Undecided("one scale for each group")
    inner = (batch, groups, math.prod(n.full) // (batch * groups))
    x = n.t.reshaped(n.x(0), n.full, inner)
    y = whitened(n.t, x, box(inner), _row_map(inner, [2]), inner[2], float(n.get("epsilon")))
    return [_affine(n, n.t.reshaped(y, inner, n.full), _channel(n, 1), _channel(n, 2))]


def _normalised_batch(n: Node) -> Results:
    if n.get("training_mode") or n.op.VERSION < 9 or len([r for r in n.op.results if r.uses]) > 1:
        raise Undecided("training")
    scale, bias, mean, variance = (_channel(n, i) for i in (1, 2, 3, 4))
    by = _2 / expr.sqrt(expr.Arg(5) + float(n.get("epsilon")))  # of constants: weights are multiplied by it once
    e = (_1 - expr.Arg(4)) * by + expr.Arg(3)
    return [n.t.elementwise(e, box(n.full), [n.x(0), scale, bias, mean, variance], True), *([] for _ in n.op.results[1:])]


def _normalised_across_channels(n: Node) -> Results:
    """Gives `x / (bias + alpha / size sum)^beta` with the sum of squares over `size` channels around, as far as they exist."""
    size, i = int(n.get("size")), names("i", len(n.full))
    where = within([*i, "k"], [*n.full, size])
    channel = f"{i[1]} + k - {(size - 1) // 2}"
    point = f"[{', '.join([*i, 'k'])}]"
    to_points = read_map(f"{{ [{', '.join(i)}] -> {point} : {where} }}")
    to_x = read_map(f"{{ {point} -> [{', '.join([i[0], channel, *i[2:]])}] : {where} and 0 <= {channel} < {n.full[1]} }}")
    total = n.t.reduced("square_add", box(n.full), to_points, n.x(0), to_x)
    e = _1 / expr.call("pow", float(n.get("bias")) + float(n.get("alpha")) / size * _2, float(n.get("beta")))
    return [n.t.elementwise(e, box(n.full), [n.x(0), total], True)]


def _lp(n: Node) -> Results:
    axis, p = n.axis(len(n.full)), int(n.get("p"))
    to_row = _row_map(n.full, [axis])
    x = n.x(0) if p == 2 else n.t.elementwise(expr.absolute(_1), box(n.full), [n.x(0)], True)
    total = n.t.reduced("square_add" if p == 2 else "add", to_row.range(), to_row.reverse(), x, every(n.full))
    norm = n.t.elementwise(expr.sqrt(_1) if p == 2 else _1, to_row.range(), [total], True)
    quotient = _1 / expr.select(1.0, _2, expr.equal(_2, 0.0))  # where the norm is 0, so are the elements
    return [n.t.elementwise(quotient, box(n.full), [n.x(0), n.t.seen(norm, to_row)], True)]


ROWS: Mapping[str, Callable[[Node], Results]] = {
    **dict.fromkeys(BEFORE, _reduction),
    "ReduceLogSumExp": _log_sum_exp,
    **dict.fromkeys(("Softmax", "LogSoftmax"), _softmax),
    **dict.fromkeys(("LayerNormalization", "RMSNormalization"), _normalised_layer),
    **dict.fromkeys(("InstanceNormalization", "GroupNormalization"), _normalised_groups),
    "BatchNormalization": _normalised_batch,
    "LRN": _normalised_across_channels,
    "LpNormalization": _lp,
}
"""The definition of each op."""
