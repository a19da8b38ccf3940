"""Conversions of Det, by Gaussian elimination, and of MaxRoiPool, by a maximum along each dimension."""

from __future__ import annotations

import math

from xdsl.dialects.builtin import i64
from xdsl.ir import SSAValue

from populus.dialects import popart
from populus.dialects.support.diagnostics import PopulusError
from populus.dialects.support.element_types import dtype_of
from populus.lowering.onnx.to_popart.conversion import Conversion, Output, Rules, element, shape
from populus.lowering.onnx.to_popart.formula import Term
from populus.lowering.onnx.to_popart.tensor import sliced

LARGEST = 32  # rows of a matrix: the number of ops grows with them


def det(c: Conversion) -> Output:
    """Converts Det: the product of the pivots of Gaussian elimination, with the largest pivot of each column.

    x: [.., n, n]. Raises PopulusError if the matrices are not square or n is above `LARGEST`. Source: ONNX Det-22.
    """
    import numpy as np

    x = c.input(0)
    *lead, n, columns = shape(x)
    if n != columns or n > LARGEST:
        raise PopulusError(f"x is {n} by {columns}; square matrices of a side up to {LARGEST} are supported")
    count = math.prod(lead)
    rest = Term(c, c.reshape(x, (count, n, n)))
    result = Term(c, c.constant(np.ones(count, dtype_of(element(x)))))

    def column(v: Term, rows: int) -> Term:
        return Term(c, sliced(c, v.value, {2: (0, 1, 1)})).reshape(count, rows)

    for m in range(n, 1, -1):
        first = column(rest, m)
        at = Term(c, c.insert(popart.TopKOp(first.abs().value, k=1, largest=True))).cast(i64)
        chosen = Term(c, c.constant(np.arange(m, dtype=np.int64).reshape(1, m))).equals(at)
        row = Term(c, c.insert(popart.ReduceSumOp(chosen.reshape(count, m, 1).where(rest, 0).value, axes=(1,), keep=True)))
        top = Term(c, sliced(c, rest.value, {1: (0, 1, 1)}))
        others = Term(c, sliced(c, chosen.value, {1: (1, m, 1)})).reshape(count, m - 1, 1)
        below = others.where(top, Term(c, sliced(c, rest.value, {1: (1, m, 1)})))
        pivot = column(row, 1)
        sign = at.equals(0).where(pivot, pivot * -1)
        result = result * sign.reshape(count)
        factor = column(below, m - 1).reshape(count, m - 1, 1) / pivot.equals(0).where(pivot + 1, pivot).reshape(count, 1, 1)
        rest = Term(c, sliced(c, below.value, {2: (1, m, 1)})) - factor * Term(c, sliced(c, row.value, {2: (1, m, 1)}))
    return (result * rest.reshape(count) if n else result).reshape(*lead).value


def max_roi_pool(c: Conversion) -> Output:
    """Converts MaxRoiPool: the largest element of each bin of each region, 0 for an empty bin.

    x: [n, channels, height, width], rois: [regions, 5]. Source: ONNX MaxRoiPool-22; Caffe's ROIPooling.
    """
    import numpy as np

    x, rois = c.input(0), c.input(1)
    parts = [int(v) for v in c.get("pooled_shape")]
    count, scale = shape(rois)[0], float(c.get("spatial_scale"))
    batch = c.reshape(c.cast(sliced(c, rois, {1: (0, 1, 1)}), i64), (count,))
    lowest = float(np.finfo(dtype_of(element(x))).min)
    y: SSAValue = c.insert(popart.GatherOp(x, batch, axis=0))  # [count, channels, height, width]
    for d, extent in enumerate(shape(x)[2:]):
        first, last = ((Term(c, sliced(c, rois, {1: (i, i + 1, 1)})) * scale + 0.5).floor() for i in (2 - d, 4 - d))
        size = (last - first + 1).max(1) / parts[d]
        steps = np.arange(parts[d], dtype=dtype_of(element(rois))).reshape(1, -1)
        begin = (size * Term(c, c.constant(steps))).floor() + first
        end = ((size * Term(c, c.constant(steps + 1))) * -1).floor() * -1 + first
        places = Term(c, c.constant(np.arange(extent, dtype=dtype_of(element(rois))).reshape(1, 1, -1)))
        inside = (places >= begin.reshape(count, parts[d], 1)) & (places < end.reshape(count, parts[d], 1))
        # The dimension to pool goes last: first the rows, then the columns of that result.
        moved = c.transpose(y, (0, 1, 3, 2)) if d == 0 else y
        seen = Term(c, c.reshape(moved, (*shape(moved)[:-1], 1, extent)))
        masked = inside.reshape(count, 1, 1, parts[d], extent).where(seen, lowest)
        y = c.insert(popart.ReduceMaxOp(masked.value, axes=(4,), keep=False))
        y = c.transpose(y, (0, 1, 3, 2)) if d == 0 else y
    largest = Term(c, y)
    return (largest <= lowest).where(largest * 0, largest).value


RULES: Rules = {"Det": det, "MaxRoiPool": max_roi_pool}
