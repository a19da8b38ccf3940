"""Conversions of NonZero, Compress, Unique and NonMaxSuppression, whose result size depends on the data.

Each result is a tensor of the largest possible size, with a valid length along one axis.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import cast

from xdsl.dialects.builtin import i1, i32, i64
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import SSAValue

from populus.dialects import popart
from populus.dialects.data import constant_value
from populus.dialects.onnx.sizes import size
from populus.dialects.signature import output_names, state_names
from populus.dialects.signature.bounded_dimensions import sizes
from populus.dialects.signature.valid_lengths import Bounded
from populus.dialects.signature.valid_lengths import bound as record_bound
from populus.dialects.support import shapes
from populus.dialects.support.diagnostics import PopulusError
from populus.dialects.support.element_types import dtype_of, is_float, shape_of
from populus.lowering.onnx.dynamic_sizes import Bound
from populus.lowering.onnx.to_popart.conversion import Conversion, Output, Rules, element, shape
from populus.lowering.onnx.to_popart.formula import Term
from populus.lowering.onnx.to_popart.masks import Place
from populus.lowering.onnx.to_popart.tensor import element_positions, gathered, sliced
from populus.lowering.onnx.valid_sizes import VALID, is_counted, size_of

MOST_ROWS = 4096  # rows that Unique compares pairwise
MOST_COLUMNS = 64  # columns of such a row, one comparison each
MOST_BOXES = 512  # boxes of a class, each a step of NonMaxSuppression


def counted(c: Conversion, i: int, axis: int, count: SSAValue) -> None:
    """Records `count` (an i64 scalar) as the valid length of output `i` along `axis`."""
    if c.used(i):
        c.counts[i] = Bound(axis, count)


def count_of(bound: Bound) -> SSAValue:
    """Gives the valid length of a bound: an i64 scalar."""
    assert isinstance(bound.count, SSAValue), bound
    return cast("SSAValue", bound.count)


def count_named(c: Conversion, name: str) -> SSAValue:
    """Gives a count by its name, as the result of the op that computes it again."""
    import numpy as np

    assert c.masks is not None
    result = c.op.results[0]
    array = np.empty(shape(result), object)
    array.fill(size(name))
    return c.masks.materialised(c, array, element(result))


def divided(c: Conversion, count: SSAValue, by: int) -> SSAValue:
    """Divides a count by the number of times that each element is counted: an i64 scalar."""
    import numpy as np

    return count if by == 1 else c.insert(popart.DivOp(count, c.constant(np.array(by, np.int64))))


def give_counts(function: FuncOp, end: Place, values: Sequence[SSAValue]) -> None:
    """Appends the sizes of a function's results that the data decide to its results, named `NAME.count`.

    `end`: inserts in front of the terminator. `values`: the results, whose valid elements come first along each axis.
    """
    assert end.masks is not None
    last = function.body.block.last_op
    assert isinstance(last, ReturnOp), last
    names = output_names(function)
    for name, value in zip(list(names), values):
        for d, axis in enumerate(end.masks.valid.of(value)):
            if any(map(is_counted, size_of(axis).names())):
                count = f"{name}.count" if f"{name}.count" not in names else f"{name}.count.{d}"
                record_bound(function, Bounded(name, count, d))
                names.append(count)
                last.operands = [*last.operands, end.masks.scalar(end, size_of(axis), i64)]
                state_names(function, outputs=names)


def running(c: Conversion, x: SSAValue) -> Term:
    """Computes the inclusive prefix sum of `x` along its last dimension, in log2(n) additions."""
    rank, n, by = len(shape(x)), shape(x)[-1], 1
    while by < n:
        lower, upper = (tuple(v if d == rank - 1 else 0 for d in range(rank)) for v in (by, -by))
        x = c.insert(popart.AddOp(x, c.insert(popart.PadOp(x, None, lower=lower, upper=upper, mode="constant"))))
        by *= 2
    return Term(c, x)


def placed(c: Conversion, places: SSAValue, rows: SSAValue, most: int, reduction: str = "set") -> SSAValue:
    """Scatters `rows` into a tensor of zeros: [most, ..].

    `places`: [n], the row of the result for each of the n rows; the index `most` drops a row.
    `reduction`: how rows of the same index combine.
    """
    import numpy as np

    table = c.constant(np.zeros((most + 1, *shape(rows)[1:]), dtype_of(element(rows))))
    written = c.insert(popart.ScatterOp(table, places, rows, reduction=reduction))
    return sliced(c, written, {0: (0, most, 1)})


def total(c: Conversion, mask: Term) -> SSAValue:
    """Counts the true elements of a mask: an i64 scalar."""
    ones = mask.cast(i64).value
    return c.insert(popart.ReduceSumOp(ones, axes=tuple(range(len(shape(ones)))), keep=False))


def packed(c: Conversion, mask: Term, rows: SSAValue, most: int) -> tuple[SSAValue, SSAValue]:
    """Moves the rows whose `mask` is true to the front, in order.

    mask: [n], rows: [n, ..]. Returns [most, ..], zeros after the last true row, and the number of true rows (i64).
    """
    place = running(c, mask.cast(i32).value) - 1
    return placed(c, mask.where(place, most).value, rows, most), total(c, mask)


def nonzero(c: Conversion) -> Output:
    """Converts NonZero: the indices of all nonzero elements, one column each. Source: ONNX NonZero-13."""
    import numpy as np

    x = c.input(0)
    size = shape(x) or (1,)
    n = math.prod(size)
    flat = c.reshape(x, (n,))
    mask = Term(c, flat if element(x) == i1 else c.cast(flat, i1))
    rows = c.constant(np.stack(np.unravel_index(np.arange(n), size), 1).astype(np.int64).reshape(n, len(size)))
    columns, count = packed(c, mask, rows, n)
    counted(c, 0, 1, count)
    return c.transpose(columns, (1, 0))


def compress(c: Conversion) -> Output:
    """Converts Compress: the slices whose condition is true; a short condition continues with false.

    A constant condition gives a result of a known size, unless it was too large for the inference to read, or is
    constant only now. Source: ONNX Compress-11.
    """
    x, condition = c.input(0), c.input(1)
    if c.get("axis") is None:
        x = c.reshape(x, (math.prod(shape(x)),))
    axis = c.axis(len(shape(x)))
    known = constant_value(condition)
    if known is not None and not _bounded(c, axis, int(known.sum())):
        return gathered(c, x, known.nonzero()[0].tolist(), axis)
    most = min(shape(x)[axis], shape(condition)[0])
    order = [axis, *(d for d in range(len(shape(x))) if d != axis)]
    rows = sliced(c, c.transpose(x, order), {0: (0, most, 1)})
    slices, count = packed(c, Term(c, sliced(c, condition, {0: (0, most, 1)})), rows, most)
    counted(c, 0, axis, count)
    return c.transpose(slices, [order.index(d) for d in range(len(order))])


def _bounded(c: Conversion, axis: int, count: int) -> bool:
    """Tells whether the inference gave the first output a bound, not `count` elements along an axis."""
    inferred = c.op.output(0)
    return bool(sizes(c.op, VALID)) and (c.masks is None or (inferred is not None and shape_of(inferred.type)[axis] != count))


def unique(c: Conversion) -> list[Output]:
    """Converts Unique by comparing all pairs of rows: sorted, or in the order of first occurrence.

    NaNs are equal to each other and sort last. Raises PopulusError above `MOST_ROWS` rows or `MOST_COLUMNS` columns.
    Source: ONNX Unique-11.
    """
    import numpy as np

    x = c.input(0)
    axis = c.get("axis")
    if axis is None:
        x, axis = c.reshape(x, (math.prod(shape(x)),)), 0
    axis = shapes.axis(axis, len(shape(x)))
    order = [axis, *(d for d in range(len(shape(x))) if d != axis)]
    rows = c.transpose(x, order)
    n, *rest = shape(rows)
    columns = math.prod(rest)
    if n > MOST_ROWS or columns > MOST_COLUMNS:
        raise PopulusError(f"{n} rows of {columns} are compared with each other; at most {MOST_ROWS} of {MOST_COLUMNS} are")
    flat = c.reshape(rows, (n, columns))
    same, less = Term(c, c.constant(np.ones((n, n), np.bool_))), Term(c, c.constant(np.zeros((n, n), np.bool_)))
    for k in reversed(range(columns)):
        column = Term(c, sliced(c, flat, {1: (k, k + 1, 1)}))
        if element(flat) == i1:
            column = column.cast(i32)
        own, other = column.reshape(n, 1), column.reshape(1, n)
        equal, below = own.equals(other), other < own
        if is_float(element(flat)):
            nan = Term(c, c.insert(popart.IsNanOp(column.value)))
            here, there = nan.reshape(n, 1), nan.reshape(1, n)
            equal = equal | (here & there)
            below = below | Term(c, c.insert(popart.NotOp((there | Term(c, c.insert(popart.NotOp(here.value)))).value)))
        same, less = same & equal, below | (equal & less)
    # Row j is a first occurrence if no earlier row equals it.
    numbers = np.arange(n, dtype=np.int32)
    equal_rows = same.where(Term(c, c.constant(numbers.reshape(1, n))), n).value
    first_of = Term(c, c.insert(popart.ReduceMinOp(equal_rows, axes=(1,), keep=False)))
    first = first_of.equals(Term(c, c.constant(numbers)))
    if c.get("sorted") != 0:
        before = (less & first.reshape(1, n)).cast(i32)
        rank = Term(c, c.insert(popart.ReduceSumOp(before.value, axes=(1,), keep=False)))
    else:
        seen = running(c, first.cast(i32).value) - 1
        rank = Term(c, c.insert(popart.GatherOp(seen.value, first_of.value, axis=0)))
    places, count = first.where(rank, n).value, total(c, first)
    y = c.transpose(placed(c, places, rows, n), [order.index(d) for d in range(len(order))])
    indices = placed(c, places, c.constant(np.arange(n, dtype=np.int64)), n)
    counts = placed(c, rank.value, c.constant(np.ones(n, np.int64)), n, "add")
    for i, along in ((0, axis), (1, 0), (3, 0)):
        if i < len(c.op.outputs):
            counted(c, i, along, count)
    outputs: list[Output] = [y, indices, rank.cast(i64).value, counts]
    return outputs[: len(c.op.outputs)]


def non_max_suppression(c: Conversion) -> Output:
    """Converts NonMaxSuppression: boxes by falling score, less those that overlap a box selected before.

    boxes: [batch, n, 4], scores: [batch, classes, n]. Raises PopulusError above `MOST_BOXES` boxes.
    Source: ONNX NonMaxSuppression-11.
    """
    import numpy as np

    boxes, scores = c.input(0), c.input(1)
    batch, classes, n = shape(scores)
    most = min(int(c.number(2)) if c.has(2) else 0, n)
    if n > MOST_BOXES:
        raise PopulusError(f"{n} boxes are gone through one after the other; at most {MOST_BOXES} are")
    order = c.insert(popart.TopKOp(scores, k=n, largest=True))
    positions = element_positions(c, scores, order, 2)
    alive = Term(c, c.constant(np.ones(shape(scores), np.bool_)))
    if c.has(4):
        ordered = c.insert(popart.GatherOp(c.reshape(scores, (batch * classes * n,)), positions, axis=0))
        alive = Term(c, ordered) > Term(c, c.reshape(c.input(4), ()))
    rows = Term(c, c.cast(order, i64)) + Term(c, c.constant(np.arange(batch, dtype=np.int64).reshape(batch, 1, 1) * n))
    sorted_boxes = c.insert(popart.GatherOp(c.reshape(boxes, (batch * n, 4)), rows.value, axis=0))
    sides = [Term(c, c.reshape(sliced(c, sorted_boxes, {3: (i, i + 1, 1)}), (batch, classes, n))) for i in range(4)]
    if c.get("center_point_box"):
        across, down, width, height = sides
        sides = [down - height / 2, across - width / 2, down + height / 2, across + width / 2]
    low, high = [sides[i].min(sides[i + 2]) for i in (0, 1)], [sides[i].max(sides[i + 2]) for i in (0, 1)]
    area = (high[0] - low[0]) * (high[1] - low[1])
    here, there = (batch, classes, n, 1), (batch, classes, 1, n)
    shared: Term | None = None
    for first, last in zip(low, high):
        begin = first.reshape(*here).max(first.reshape(*there))
        length = (last.reshape(*here).min(last.reshape(*there)) - begin).max(0)
        shared = length if shared is None else shared * length
    assert shared is not None
    union = area.reshape(*here) + area.reshape(*there) - shared
    threshold: Term | float = Term(c, c.reshape(c.input(3), ())) if c.has(3) else 0.0
    over = (shared > 0) & (shared / union > threshold)
    for i in range(n - 1):
        taken = Term(c, sliced(c, alive.value, {2: (i, i + 1, 1)}))
        hit = Term(c, c.reshape(sliced(c, over.value, {2: (i, i + 1, 1)}), (batch, classes, n)))
        gone = taken & hit & Term(c, c.constant(np.arange(n) > i))
        alive = alive & Term(c, c.insert(popart.NotOp(gone.value)))
    alive = alive & (running(c, alive.cast(i32).value) <= most)
    places = np.stack(np.meshgrid(np.arange(batch), np.arange(classes), indexing="ij"), -1).astype(np.int64)
    lead = c.constant(np.broadcast_to(places[:, :, None], (batch, classes, n, 2)).copy())
    last = c.reshape(c.cast(order, i64), (batch, classes, n, 1))
    triples = c.reshape(c.insert(popart.ConcatOp(lead, last, axis=3)), (batch * classes * n, 3))
    y, count = packed(c, alive.reshape(batch * classes * n), triples, batch * classes * most)
    counted(c, 0, 0, count)
    return y


RULES: Rules = {"Compress": compress, "NonMaxSuppression": non_max_suppression, "NonZero": nonzero, "Unique": unique}
