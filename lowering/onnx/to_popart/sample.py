"""Conversions of AffineGrid, GridSample, RoiAlign and DeformConv, which interpolate between elements."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

from xdsl.dialects.builtin import f32, f64, i64
from xdsl.ir import SSAValue

from populus.dialects import popart
from populus.dialects.support.budget import check_constant
from populus.dialects.support.diagnostics import PopulusError
from populus.dialects.support.element_types import dtype_of
from populus.lowering.onnx.to_popart.conversion import Conversion, Output, Rules, element, shape
from populus.lowering.onnx.to_popart.formula import Term
from populus.lowering.onnx.to_popart.nn import spatial
from populus.lowering.onnx.to_popart.tensor import sliced

Tap = tuple[Term, Term]  # an index along a dimension, as a float, and the weight of the element there; below 0 is no element, but a 0
CUBIC = -0.75  # the coefficient of ONNX's and PyTorch's cubic convolution


def read(c: Conversion, x: SSAValue, taps: Sequence[Sequence[Tap]], rows: SSAValue | None = None, zeros: bool = True) -> Iterator[Term]:
    """Gives, for each choice of one tap in every dimension, the element there times its weight: [B, points, C].

    x: [N, C, size..]; indices and weights of taps: [B, points], or 1 in place of either. `rows`: [B, 1], i64, the image
    that each of the B reads; without it, the b-th reads image b. `zeros`: whether indices below 0 stand for zeros.
    """
    import numpy as np

    n, channels, *size = shape(x)
    order = [0, *range(2, len(size) + 2), 1]
    table = c.reshape(c.transpose(x, order), (n * math.prod(size), channels))
    image = c.constant(np.arange(n, dtype=np.int64).reshape(n, 1)) if rows is None else rows
    for choice in itertools.product(*taps):
        at, weight = Term(c, image), None
        inside: Term | None = None
        for extent, (index, part) in zip(size, choice):
            if zeros:
                there = index >= 0
                inside = there if inside is None else inside & there
                index = index.max(0)
            at = at * extent + index.cast(i64)
            weight = part if weight is None else weight * part
        assert weight is not None
        elements = Term(c, c.insert(popart.GatherOp(table, at.value, axis=0)))
        if inside is not None:  # 0 times an element that is not read may be NaN
            elements = inside.reshape(*shape(inside.value), 1).where(elements, 0)
        yield elements * weight.cast(element(x)).reshape(*shape(weight.value), 1)


def total(values: Iterator[Term]) -> Term:
    """Adds the terms up."""
    result = next(values)
    for value in values:
        result = result + value
    return result


def reflected(x: Term, low: float, high: float) -> Term:
    """Mirrors `x` at `low` and `high` until it lies between them."""
    if low == high:
        return x * 0 + low
    t = (x - low).abs()
    n = (t / (high - low)).floor()
    rest = t - n * (high - low)
    even = (n - (n / 2).floor() * 2).equals(0)
    return even.where(rest + low, high - rest)


def weights(x: Term, mode: str) -> list[Tap]:
    """Gives the neighbours of a coordinate and their weights, for the mode `nearest`, `linear` or `cubic`."""
    if mode == "nearest":
        return [(x, x * 0 + 1)]
    low = x.floor()
    t = x - low
    if mode == "linear":
        return [(low, 1 - t), (low + 1, t)]
    a = CUBIC
    near = [((a + 2) * v - (a + 3)) * v * v + 1 for v in (t, 1 - t)]
    far = [((a * v - 5 * a) * v + 8 * a) * v - 4 * a for v in (t + 1, 2 - t)]
    return [(low - 1, far[0]), (low, near[0]), (low + 1, near[1]), (low + 2, far[1])]


def bounded(taps: list[Tap], n: int, padding: str, low: float, high: float) -> list[Tap]:
    """Moves the taps inside 0 .. n - 1.

    `padding`: `zeros` gives a tap outside, or at no number, the index -1 and weight 0, `border` clamps it, and `reflection` mirrors
    it at `low` and `high`.
    """
    result: list[Tap] = []
    for index, weight in taps:
        if padding == "zeros":
            inside = (index >= 0) & (index < n)
            result.append((inside.where(index, -1), inside.where(weight, 0)))
            continue
        elif padding == "reflection":
            mirrored = reflected(index, low, high)
            index = ((index < low) | (index > high)).where(mirrored, index)
            index = index.max(0).floor()
        result.append((index.max(0).min(n - 1), weight))
    return result


def affine_grid(c: Conversion) -> Output:
    """Converts AffineGrid: `y[n, d, h, w, i] = theta[n, i, :] . (w, h, d, 1)`; images have no d.

    w, h and d go from edge to edge of -1 .. 1. Without `align_corners`, the first and last stand half a step
    inside. With it, a dimension of one element is at -1. Source: ONNX AffineGrid-20, whose function fails for
    one image.
    """
    import numpy as np

    n, _, *size = (int(v) for v in c.known(1))
    kind, rank, align = element(c.input(0)), len(size), bool(c.get("align_corners"))
    if shape(c.input(0)) != (n, rank, rank + 1):
        raise PopulusError(f"theta is {list(shape(c.input(0)))}, the size {[n, *size]}; {[n, rank, rank + 1]} is expected")
    wide = kind if kind == f64 else f32
    theta = c.reshape(c.cast(c.input(0), wide), (n, *(1,) * rank, rank, rank + 1))

    def column(k: int) -> Term:
        return Term(c, c.reshape(sliced(c, theta, {rank + 2: (k, k + 1, 1)}), (n, *(1,) * rank, rank)))

    y = column(rank)
    for k, extent in enumerate(reversed(size)):  # theta has the last dimension first
        step = 2 / max(extent - 1, 1) if align else 2 / max(extent, 1)
        places = (np.arange(extent) * step + (-1 if align else step / 2 - 1)).astype(dtype_of(wide))
        y = y + column(k) * Term(c, c.constant(places.reshape(*(-1 if d == rank - 1 - k else 1 for d in range(rank)), 1)))
    return c.cast(y.value, kind)


def grid_sample(c: Conversion) -> Output:
    """Converts GridSample. `padding_mode` defines elements outside; mirrors are at the corners or outer edges.

    x: [n, c, size..], grid: [n, out.., dimensions]. A coordinate that is NaN or beyond i64 is that of the first edge, as in
    onnxruntime. Source: ONNX GridSample-22.
    """
    x = c.input(0)
    grid = c.cast(c.input(1), f64 if f64 in (element(x), element(c.input(1))) else f32)
    n, channels, *size = shape(x)
    out = shape(grid)[1:-1]
    points = math.prod(out)
    stated = str(c.get("mode"))
    mode = {"bilinear": "linear", "bicubic": "cubic"}.get(stated, stated)
    padding, align = c.get("padding_mode"), bool(c.get("align_corners"))
    grid = c.reshape(grid, (n, points, len(size)))
    taps: list[list[Tap]] = []
    for d, extent in enumerate(size):
        k = len(size) - 1 - d  # the grid has the last dimension first
        g = Term(c, c.reshape(sliced(c, grid, {2: (k, k + 1, 1)}), (n, points)))
        low, high = (0.0, extent - 1.0) if align else (-0.5, extent - 0.5)
        at = (g + 1) / 2 * (extent - 1) if align else ((g + 1) * extent - 1) / 2
        at = (at.abs() < 2.0**63).where(at, low)
        if mode == "nearest":
            at = at.round()
        if padding == "reflection" or (padding == "border" and mode != "cubic"):  # cubic taps move to the border one by one
            inside = at.max(0).min(extent - 1) if padding == "border" else reflected(at, low, high)
            at = ((at < low) | (at > high)).where(inside, at)
        if mode == "nearest" and padding == "reflection":
            at = at.max(0).floor()
        taps.append(bounded(weights(at, mode), extent, padding, low, high))
    y = total(read(c, x, taps, zeros=padding == "zeros")).value
    return c.reshape(c.transpose(y, (0, 2, 1)), (n, channels, *out))


def roi_align(c: Conversion) -> Output:
    """Converts RoiAlign: the mean, or largest, of samples on a regular grid in each bin of each region.

    Source: ONNX RoiAlign-22.
    """
    import numpy as np

    x, rois, batch = c.input(0), c.input(1), c.cast(c.input(2), i64)
    channels, height, width = shape(x)[1:]
    count = shape(rois)[0]
    ratio = int(c.get("sampling_ratio") or 0)
    parts = (int(c.get("output_height") or 1), int(c.get("output_width") or 1))
    if ratio <= 0:
        raise PopulusError("sampling_ratio is 0: how many samples it takes depends on the data, and tiles need static shapes")
    half_pixel = c.version >= 16 and c.get("coordinate_transformation_mode") == "half_pixel"
    scale, offset = float(c.get("spatial_scale")), 0.5 if half_pixel else 0.0
    left, top, right, bottom = (Term(c, sliced(c, rois, {1: (i, i + 1, 1)})) * scale - offset for i in range(4))
    inside: Term | None = None
    taps: list[list[Tap]] = []
    points = [parts[0] * ratio, parts[1] * ratio]
    check_constant(max(points), "the samples along a dimension")
    for d, (first, last, extent) in enumerate(((top, bottom, height), (left, right, width))):
        length = last - first if half_pixel else (last - first).max(1)
        steps = (np.arange(points[d]) // ratio + (np.arange(points[d]) % ratio + 0.5) / ratio).astype(dtype_of(element(rois)))
        at = length / parts[d] * Term(c, c.constant(steps.reshape(1, -1))) + first
        within = (at >= -1) & (at <= extent)
        at = within.where(at, 0).max(0).min(extent - 1)
        low = at.floor()
        ones = (1, points[d]) if d else (points[d], 1)
        low, t, within = (v.reshape(count, *ones) for v in (low, at - low, within))
        inside = within if inside is None else inside & within
        taps.append([(low, 1 - t), ((low + 1).min(extent - 1), t)])
    assert inside is not None
    flat: list[list[Tap]] = []
    whole = (count, points[0], points[1])
    for pair in taps:
        spread = [tuple(Term(c, c.reshape(c.expand(v.value, whole), (count, points[0] * points[1]))) for v in tap) for tap in pair]
        flat.append([(index, weight) for index, weight in spread])
    mask = inside.reshape(count, points[0] * points[1])
    flat[0] = [(mask.where(index, -1), mask.where(weight, 0)) for index, weight in flat[0]]
    values = read(c, x, flat, c.reshape(batch, (count, 1)))
    split = (count, parts[0], ratio, parts[1], ratio, channels)
    if c.get("mode") == "max":
        result = next(values)
        for value in values:
            result = result.max(value)
        y = c.insert(popart.ReduceMaxOp(result.reshape(*split).value, axes=(2, 4), keep=False))
    else:
        y = c.insert(popart.ReduceMeanOp(total(values).reshape(*split).value, axes=(2, 4), keep=False))
    return c.transpose(y, (0, 3, 1, 2))


def deform_conv(c: Conversion) -> Output:
    """Converts DeformConv: a convolution that reads at offset positions, linearly between elements.

    Elements outside are 0. Source: ONNX DeformConv-22.
    """
    import numpy as np

    x, w, offset, bias, mask = c.input(0), c.input(1), c.input(2), c.optional(3), c.optional(4)
    n, channels, *size = shape(x)
    rank, kernel, out = len(size), shape(w)[2:], shape(offset)[2:]
    group, moved = int(c.get("group") or 1), int(c.get("offset_group") or 1)
    strides, dilations, pads = spatial(c, "strides", rank), spatial(c, "dilations", rank), list(c.get("pads") or [0] * 2 * rank)
    places, cells = math.prod(kernel), math.prod(out)
    offset = c.reshape(offset, (n, moved, places, rank, cells))
    samples: list[SSAValue] = []
    for g in range(moved):
        taps: list[list[Tap]] = []
        for d, extent in enumerate(size):
            inner = np.arange(kernel[d]).reshape([-1 if e == d else 1 for e in range(rank)]) * dilations[d]
            outer = np.arange(out[d]).reshape([-1 if e == d else 1 for e in range(rank)]) * strides[d] - pads[d]
            inner, outer = np.broadcast_to(inner, kernel).reshape(1, -1, 1), np.broadcast_to(outer, out).reshape(1, 1, -1)
            own = c.reshape(sliced(c, offset, {1: (g, g + 1, 1), 3: (d, d + 1, 1)}), (n, places, cells))
            at = Term(c, own) + Term(c, c.constant((inner + outer).astype(dtype_of(element(x)))))
            taps.append(bounded(weights(at.reshape(n, places * cells), "linear"), extent, "zeros", 0, extent - 1))
        each = channels // moved
        sampled = total(read(c, sliced(c, x, {1: (g * each, (g + 1) * each, 1)}), taps)).value
        part = Term(c, c.reshape(c.transpose(sampled, (0, 2, 1)), (n, each, places, cells)))
        if mask is not None:
            own = sliced(c, c.reshape(mask, (n, moved, places, cells)), {1: (g, g + 1, 1)})
            part = part * Term(c, own)
        samples.append(part.value)
    columns = samples[0] if moved == 1 else c.insert(popart.ConcatOp(*samples, axis=1))
    columns = c.reshape(columns, (n, group, channels // group * places, cells))
    filters = c.reshape(w, (1, group, shape(w)[0] // group, channels // group * places))
    y = c.reshape(c.insert(popart.MatMulOp(filters, columns)), (n, shape(w)[0], *out))
    return y if bias is None else c.insert(popart.AddOp(y, c.reshape(bias, (1, shape(w)[0], *(1,) * rank))))


RULES: Rules = {"AffineGrid": affine_grid, "DeformConv": deform_conv, "GridSample": grid_sample, "RoiAlign": roi_align}
