"""Kinds of nodes that move elements: shapes, slices, indices."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import helper

from fuzz.drawing import ANY, BOOL, F32, F64, FLOATS, I8, I32, I64, U8, Draw, Kind, Span, Unfit, Value

MOVED = ANY


def reshape(g: Draw) -> None:
    x = g.value(MOVED)
    rest, dims = x.size, []
    if not x.size:
        dims = [g.rng.choice([0, 1, 2]) for _ in range(g.rng.randint(0, 2))] + [0]
        if g.opset < 14:
            raise Unfit
        g.node("Reshape", [x, g.ints(dims)], [x.span], allowzero=1)
        return
    while rest > 1 or g.chance(0.3):
        d = g.rng.choice([d for d in range(1, rest + 1) if rest % d == 0]) if rest > 1 else 1
        dims.append(d)
        rest //= d
        if len(dims) > 5:
            raise Unfit
    if dims and g.chance(0.4):
        dims[g.rng.randrange(len(dims))] = -1
    elif dims and x.shape and dims[0] == x.shape[0] and g.chance(0.5):
        dims[0] = 0
    g.node("Reshape", [x, g.ints(np.array(dims, np.int64))], [x.span])


def flatten(g: Draw) -> None:
    x = g.value((F32, F64) if g.opset < 9 else MOVED)
    axis = g.rng.randint(-x.rank if g.opset >= 11 else 0, x.rank)
    g.node("Flatten", [x], [x.span], **({} if axis == 1 and g.chance(0.5) else {"axis": axis}))


def axes_given(g: Draw, since: int, axes: list[int] | None) -> tuple[list[Value | None], dict[str, Any]]:
    """Axes as an input from an opset on, before as an attribute."""
    if axes is None:
        return [], {}
    return ([g.ints(np.array(axes, np.int64))], {}) if g.opset >= since else ([], {"axes": axes})


def plain(g: Draw, axes: list[int], rank: int) -> list[int]:
    """Axes as opsets below 11 have them: none of them negative."""
    return axes if g.opset >= 11 else [a % rank for a in axes]


def squeeze(g: Draw) -> None:
    x = g.value(MOVED, lambda v: 1 in v.shape, least=1)
    ones = [i for i, d in enumerate(x.shape) if d == 1]
    axes = plain(g, [a - x.rank if g.chance(0.3) else a for a in g.rng.sample(ones, g.rng.randint(1, len(ones)))], x.rank)
    if g.opset < 11:
        axes.sort()
    extra, said = axes_given(g, 13, None if g.chance(0.25) else axes)
    g.node("Squeeze", [x, *extra], [x.span], **said)


def unsqueeze(g: Draw) -> None:
    x = g.value(MOVED, most=3)
    count = g.rng.randint(1, 2)
    rank = x.rank + count
    axes = plain(g, [a - rank if g.chance(0.3) else a for a in g.rng.sample(range(rank), count)], rank)
    extra, said = axes_given(g, 13, axes)
    g.node("Unsqueeze", [x, *extra], [x.span], **said)


def transpose(g: Draw) -> None:
    x = g.value(MOVED)
    perm = list(range(x.rank))[::-1] if g.chance(0.3) else g.rng.sample(range(x.rank), x.rank)
    said = {} if perm == list(range(x.rank))[::-1] else {"perm": perm}
    g.node("Transpose", [x], [x.span], [[x.shape[a] for a in perm]], **said)


def concat(g: Draw) -> None:
    x = g.value(MOVED, least=1)
    axis = g.axis(x.rank) if g.opset >= 11 else g.rng.randrange(x.rank)
    at = axis % x.rank
    parts = [x]
    for _ in range(g.rng.randint(0, 3)):
        shape = (*x.shape[:at], g.rng.randint(1, 3), *x.shape[at + 1 :])
        parts.append(g.value((x.type,), shape=x.shape) if g.chance(0.5) else g.new(x.type, shape))
    g.rng.shuffle(parts)
    g.node("Concat", parts, [parts[0].span.over(*(p.span for p in parts[1:]))], axis=axis)


def split(g: Draw) -> None:
    x = g.value(MOVED, lambda v: max(v.shape) > 1, least=1)
    axis = g.rng.choice([i for i, d in enumerate(x.shape) if d > 1])
    size = x.shape[axis]
    if g.opset >= 11 and g.chance(0.3):
        axis -= x.rank
    if g.opset >= 18 and g.chance(0.4):
        n = g.rng.randint(1, size)
        if (n - 1) * -(-size // n) >= size:
            raise Unfit
        g.node("Split", [x], [x.span] * n, axis=axis, num_outputs=n)
        return
    equal = [n for n in range(1, size + 1) if size % n == 0]
    if g.chance(0.3):
        n = g.rng.choice(equal)
        if g.opset >= 18:
            g.node("Split", [x, g.ints([size // n] * n)], [x.span] * n, axis=axis)
        else:
            g.node("Split", [x], [x.span] * n, axis=axis)
        return
    cuts = sorted(g.rng.choices(range(size + 1), k=g.rng.randint(1, 3)))
    sizes = [b - a for a, b in zip([0, *cuts], [*cuts, size])]
    if g.opset < 11 and 0 in sizes:
        raise Unfit
    if g.opset >= 13:
        g.node("Split", [x, g.ints(sizes)], [x.span] * len(sizes), axis=axis)
    else:
        g.node("Split", [x], [x.span] * len(sizes), axis=axis, split=sizes)


def kept(size: int, start: int, end: int, step: int) -> int:
    """How many elements a slice keeps. Backwards from before the first element it keeps the first, where Python keeps none."""
    start, end = (v + size if v < 0 else v for v in (start, end))
    if step < 0:
        return max(-(-(min(max(start, 0), size - 1) - min(max(end, -1), size - 1)) // -step), 0) if size else 0
    return len(range(min(max(start, 0), size), min(max(end, 0), size), step))


def slices(g: Draw) -> None:
    x = g.value(MOVED, least=1)
    axes = plain(g, g.axes(x.rank), x.rank)
    starts, ends, steps = [], [], []
    for axis in axes:
        size = x.shape[axis]
        step = 1 if g.opset < 10 else g.rng.choice([1, 1, 2, 3, -1, -1, -2])
        a, b = g.rng.randint(-size - 2, size + 2), g.rng.randint(-size - 2, size + 2)
        if step > 0 and g.chance(0.3):
            b = 2**31 - 1 if g.opset < 10 or g.chance(0.5) else 2**63 - 1
        if step < 0 and g.chance(0.4):
            b = -(2**31) if g.chance(0.5) else -(2**63) + 1
        if step > 0 and g.opset < 10:
            a = g.rng.randint(0, max(size - 1, 0))
        starts.append(a)
        ends.append(b)
        steps.append(step)
    named = axes != list(range(len(axes))) or g.chance(0.5)
    shape = list(x.shape)
    for axis, start, end, step in zip(axes, starts, ends, steps):
        shape[axis] = kept(shape[axis], start, end, step)
    if g.opset < 10:
        g.node("Slice", [x], [x.span], [shape], starts=starts, ends=ends, **({"axes": axes} if named else {}))
        return
    extra: list[Value | None] = [g.ints(starts), g.ints(ends), g.ints(axes) if named else None]
    if any(s != 1 for s in steps) or g.chance(0.3):
        extra.append(g.ints(steps))
    g.node("Slice", [x, *extra], [x.span], [shape])


def pad(g: Draw) -> None:
    x = g.value(FLOATS if g.opset < 11 else (*FLOATS, I32, I64, U8, I8), least=1)
    mode = g.rng.choice(["constant", "constant", "reflect", "edge", *(["wrap"] if g.opset >= 19 else [])])
    axes = g.axes(x.rank) if g.opset >= 18 and g.chance(0.5) else list(range(x.rank))
    before, after = [], []
    for axis in axes:
        size = x.shape[axis]
        least = -1 if mode == "constant" and size > 2 and g.chance(0.3) else 0
        most = 3 if mode == "constant" else 0 if not size else max(size - 1, 0) if mode in ("reflect", "wrap") else 2
        before.append(g.rng.randint(least, min(most, 3)))
        after.append(g.rng.randint(least, min(most, 3)))
    value = g.rng.choice([0, 1, 3])
    span = x.span.over(Span(0, value, 1)) if mode == "constant" else x.span
    dims = list(x.shape)
    for axis, a, b in zip(axes, before, after):
        dims[axis] += a + b
    if min(dims) < 0:
        raise Unfit
    if g.opset < 11:
        g.node("Pad", [x], [span], pads=before + after, mode=mode, value=float(value))
        return
    extra: list[Value | None] = [g.ints(before + after)]
    extra.append(g.scalar(value, x.type) if mode == "constant" and g.chance(0.7) else None)
    if axes != list(range(x.rank)):
        extra.append(g.ints(axes))  # of int32 ONNX's own inference cannot read them
    g.node("Pad", [x, *extra], [span], [dims], **({} if mode == "constant" and g.chance(0.5) else {"mode": mode}))


def tile(g: Draw) -> None:
    x = g.value(MOVED, least=1)
    repeats = [g.rng.choice([1, 1, 2, 3, *([0] if g.chance(0.05) else [])]) for _ in range(x.rank)]
    g.node("Tile", [x, g.ints(repeats)], [x.span])


def expand(g: Draw) -> None:
    x = g.value(MOVED)
    dims = [d if d != 1 else g.rng.choice([1, 2, 3]) for d in x.shape]
    dims = [1 if g.chance(0.2) else d for d in dims]
    if g.chance(0.3):
        dims = [g.rng.choice([1, 2]), *dims]
    elif dims and g.chance(0.2):
        dims = dims[1:]
    g.node("Expand", [x, g.ints(np.array(dims, np.int64))], [x.span])


def depth_to_space(g: Draw) -> None:
    b, c = g.rng.choice([1, 2, 3]), g.rng.choice([1, 2])
    x = g.value((F32, F64), shape=(g.rng.choice([1, 2]), c * b * b, g.rng.randint(1, 3), g.rng.randint(1, 3)))
    said = {"mode": g.rng.choice(["DCR", "CRD"])} if g.opset >= 11 and g.chance(0.8) else {}
    g.node("DepthToSpace", [x], [x.span], blocksize=b, **said)


def space_to_depth(g: Draw) -> None:
    b = g.rng.choice([1, 2, 3])
    x = g.value((F32, F64), shape=(1, g.rng.choice([1, 2, 3]), b * g.rng.randint(1, 2), b * g.rng.randint(1, 2)))
    g.node("SpaceToDepth", [x], [x.span], blocksize=b)


def shape_of(g: Draw) -> None:
    x = g.value(MOVED)
    said = {}
    if g.opset >= 15 and g.chance(0.5):
        said = {"start": g.rng.randint(-x.rank - 1, x.rank + 1), "end": g.rng.randint(-x.rank - 1, x.rank + 1)}
    start, end, _ = slice(said.get("start"), said.get("end")).indices(x.rank)
    g.node("Shape", [x], [Span(0, max(x.shape, default=0), 1)], [(max(end - start, 0),)], **said)


def size_of(g: Draw) -> None:
    x = g.value(MOVED)
    g.node("Size", [x], [Span(0, x.size, 1)])


def reshape_by_shape(g: Draw) -> None:
    """A shape computed from a shape: what exporters write for `x.view(x.shape[0], -1)`."""
    x = g.value((*FLOATS, I32, I64), least=2, empty=False)
    (shape,) = g.node("Shape", [x], [Span(0, 64, 1)])
    axis = g.rng.randrange(x.rank)
    (kept,) = g.node("Gather", [shape, g.ints([axis])], [Span(0, 64, 1)])
    first = g.chance(0.5)
    (dims,) = g.node("Concat", [kept, g.ints([-1])] if first else [g.ints([-1]), kept], [Span(-1, 64, 1)], axis=0)
    sizes = (x.shape[axis], x.size // x.shape[axis])
    g.node("Reshape", [x, dims], [x.span], [sizes if first else sizes[::-1]])


def constant_of_shape(g: Draw) -> None:
    dims = g.shape(0, 3)
    type = g.rng.choice([F32, F64, I32, I64, BOOL])
    said = {} if g.chance(0.2) else {"value": helper.make_tensor("", type, [1], [1])}
    g.node("ConstantOfShape", [g.ints(np.array(dims, np.int64))], [Span(0, 1, 1)], [dims], **said)


def arange(g: Draw) -> None:
    type = g.rng.choice([F32, F64, I32, I64])
    start, step = g.rng.randint(-4, 4), g.rng.choice([1, 2, 3, -1, -2])
    n = g.rng.choice([0, 1, 2, 5])
    g.node("Range", [g.scalar(v, type) for v in (start, start + n * step, step)], [Span(-14, 14, 1)], [(n,)])


def eye_like(g: Draw) -> None:
    x = g.value((F32, F64, I32, I64), least=2, most=2)
    said = {"dtype": g.rng.choice([F32, F64, I32, I64])} if g.chance(0.4) else {}
    g.node("EyeLike", [x], [Span(0, 1, 1)], k=g.rng.randint(-3, 3), **said)


def trilu(g: Draw) -> None:
    x = g.value((F32, F64, I64, BOOL), least=2)
    k = [g.ints(np.array(g.rng.randint(-3, 3)))] if g.chance(0.6) else []
    g.node("Trilu", [x, *k], [x.span.with_zero()], upper=g.rng.randint(0, 1))


def reverse_sequence(g: Draw) -> None:
    x = g.value((*FLOATS, I32, I64), least=2, empty=False)
    batch, time = g.rng.choice([(0, 1), (1, 0)])
    lengths = g.new(I64, (x.shape[batch],), 1, x.shape[time])
    g.node("ReverseSequence", [x, lengths], [x.span], batch_axis=batch, time_axis=time)


def space(g: Draw, rank: int, most: int = 7) -> tuple[int, ...]:
    return tuple(g.rng.randint(1, most) for _ in range(rank))


def crop_pad(g: Draw) -> None:
    x = g.value((F32, I64, I32), least=1, empty=False)
    axes = g.axes(x.rank) if g.chance(0.6) else list(range(x.rank))
    dims = [g.rng.randint(1, 6) for _ in axes]
    said = {} if axes == list(range(x.rank)) else {"axes": axes}
    g.node("CenterCropPad", [x, g.ints(dims)], [x.span.with_zero()], **said)


KINDS = [
    Kind("Reshape", reshape, weight=5),
    Kind("Reshape", reshape_by_shape),
    Kind("Flatten", flatten),
    Kind("Squeeze", squeeze, weight=3),
    Kind("Unsqueeze", unsqueeze, weight=3),
    Kind("Transpose", transpose, weight=5),
    Kind("Concat", concat, weight=5),
    Kind("Split", split, weight=5),
    Kind("Slice", slices, weight=7),
    Kind("Pad", pad, weight=5),
    Kind("Tile", tile, weight=3),
    Kind("Expand", expand, 8, weight=3),
    Kind("DepthToSpace", depth_to_space),
    Kind("SpaceToDepth", space_to_depth),
    Kind("Shape", shape_of),
    Kind("Size", size_of, weight=1),
    Kind("ConstantOfShape", constant_of_shape, 9),
    Kind("Range", arange, 11),
    Kind("EyeLike", eye_like, 9),
    Kind("Trilu", trilu, 14),
    Kind("ReverseSequence", reverse_sequence, 10),
    Kind("CenterCropPad", crop_pad, 18),
]
