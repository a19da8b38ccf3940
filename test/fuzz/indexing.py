"""Kinds of nodes that read and write by index, pick, and count."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fuzz.drawing import BOOL, F32, F64, I32, I64, Draw, Kind, Span, Unfit, Value
from fuzz.shaping import MOVED


def indices(g: Draw, size: int, shape: Any, negative: bool = True, different: bool = False) -> Value:
    """Indices into a dimension, as a constant or an input."""
    type = g.rng.choice([I32, I64])
    if not size:
        raise Unfit
    if different:
        return g.ints(np.array(g.rng.sample(range(size), int(np.prod(shape)))).reshape(shape), type)
    return g.new(type, shape, -size if negative and g.opset >= 11 else 0, size - 1)


def gather(g: Draw) -> None:
    x = g.value(MOVED, least=1, empty=False)
    axis = g.axis(x.rank) if g.opset >= 11 else g.rng.randrange(x.rank)
    at = indices(g, x.shape[axis], g.shape(0, 2))
    g.node("Gather", [x, at], [x.span], axis=axis)


def gather_elements(g: Draw) -> None:
    x = g.value(MOVED, least=1, empty=False)
    axis = g.axis(x.rank)
    shape = [g.rng.randint(1, d) for d in x.shape]
    shape[axis] = g.rng.randint(1, 4)
    g.node("GatherElements", [x, indices(g, x.shape[axis], shape)], [x.span], axis=axis)


def gather_nd(g: Draw) -> None:
    x = g.value((F32, I64, I32, BOOL), least=1, empty=False)
    batch = g.rng.randint(0, x.rank - 1) if g.opset >= 12 and g.chance(0.4) else 0
    depth = g.rng.randint(1, x.rank - batch)
    outer = (*x.shape[:batch], *g.shape(0, 2, empty=False)[: 3 - batch])
    sizes, rows = x.shape[batch : batch + depth], int(np.prod(outer, dtype=int))
    columns = [[g.rng.randint(-d, d - 1) for d in sizes] for _ in range(rows)]
    at = g.ints(np.array(columns, np.int64).reshape(*outer, depth))
    said = {"batch_dims": batch} if batch or (g.opset >= 12 and g.chance(0.3)) else {}
    g.node("GatherND", [x, at], [x.span], [(*outer, *x.shape[batch + depth :])], **said)


def scatter_elements(op: str) -> Callable[[Draw], None]:
    def draw(g: Draw) -> None:
        x = g.value((F32, F64, I32, I64), least=1, empty=False)
        axis = g.axis(x.rank) if g.opset >= 11 else g.rng.randrange(x.rank)
        shape = [g.rng.randint(1, d) for d in x.shape]
        at = axis % x.rank
        reduction = g.rng.choice(["none", "add", "mul", *(["max", "min"] if g.opset >= 18 else [])]) if g.opset >= 16 else "none"
        rows = int(np.prod(shape, dtype=int)) // shape[at]
        lines = [g.rng.sample(range(x.shape[at]), shape[at]) for _ in range(rows)]
        if reduction != "none":
            lines = [[g.rng.randrange(x.shape[at]) for _ in line] for line in lines]
        which = np.moveaxis(np.array(lines).reshape(*shape[:at], *shape[at + 1 :], shape[at]), -1, at)
        if g.opset >= 11 and g.chance(0.3):
            which = np.where(which % 2 == 1, which - x.shape[at], which)
        updates = g.new(x.type, shape)
        n = shape[at]
        if reduction == "add":
            size = x.span.size + n * updates.span.size
            span = Span(-size, size, None if not x.span.step or not updates.span.step else min(x.span.step, updates.span.step))
        elif reduction == "mul":
            size = max(x.span.size, 1) * max(updates.span.size, 1) ** n
            span = Span(-size, size)
        else:
            span = x.span.over(updates.span)
        said = {"reduction": reduction} if reduction != "none" or (g.opset >= 16 and g.chance(0.3)) else {}
        g.node(op, [x, g.ints(which, g.rng.choice([I32, I64])), updates], [span], axis=axis, **said)

    return draw


def scatter_nd(g: Draw) -> None:
    x = g.value((F32, F64, I32, I64), least=1, empty=False)
    depth = g.rng.randint(1, x.rank)
    sizes = x.shape[:depth]
    count = g.rng.randint(1, min(4, int(np.prod(sizes))))
    reduction = g.rng.choice(["none", "add", "mul", *(["max", "min"] if g.opset >= 18 else [])]) if g.opset >= 16 else "none"
    flat = g.rng.sample(range(int(np.prod(sizes))), count)
    if reduction != "none":
        flat = [g.rng.choice(flat) for _ in flat]
    at = np.stack(np.unravel_index(np.array(flat), sizes), -1)
    if g.chance(0.3):
        at = np.where(at % 2 == 1, at - np.array(sizes), at)
    updates = g.new(x.type, (count, *x.shape[depth:]))
    size = x.span.size + count * updates.span.size if reduction == "add" else max(x.span.size, 1) * max(updates.span.size, 1) ** count
    span = x.span.over(updates.span) if reduction in ("none", "max", "min") else Span(-size, size)
    said = {"reduction": reduction} if reduction != "none" else {}
    g.node("ScatterND", [x, g.ints(at), updates], [span], **said)


def one_hot(g: Draw) -> None:
    depth = g.rng.randint(1, 5)
    at = g.new(I64, g.shape(1, 3), -depth if g.opset >= 11 else 0, depth + 1)
    if g.chance(0.4):
        (at,) = g.node("Cast", [at], [at.span], to=F32)
    values = g.new(I64 if at.type == F32 else g.rng.choice([F32, I64]), (2,))
    count = g.ints(np.array([depth]) if g.chance(0.5) else np.array(depth))
    axis = g.rng.randint(-at.rank - 1, at.rank) if g.chance(0.7) else None
    g.node("OneHot", [at, count, values], [values.span], **({} if axis is None else {"axis": axis}))


def top_k(g: Draw) -> None:
    x = g.value((F32, F64, I64, I32) if g.opset >= 11 else (F32,), least=1, exact=True, empty=False)
    axis = g.axis(x.rank) if g.opset >= 11 else g.rng.randrange(x.rank)
    k = g.rng.randint(0 if g.opset >= 10 and g.chance(0.05) else 1, x.shape[axis])
    spans = [x.span, Span(0, x.shape[axis], 1)]
    if g.opset < 10:
        g.node("TopK", [x], spans, axis=axis, k=k)
        return
    said = {"largest": g.rng.randint(0, 1), "sorted": 1} if g.opset >= 11 and g.chance(0.7) else {}
    g.node("TopK", [x, g.ints([k])], spans, axis=axis, **said)


def arg(op: str) -> Callable[[Draw], None]:
    def draw(g: Draw) -> None:
        x = g.value((F32, F64, I32), least=1, exact=True, empty=False)
        axis = g.axis(x.rank) if g.opset >= 11 else g.rng.randrange(x.rank)
        said = {"select_last_index": g.rng.randint(0, 1)} if g.opset >= 12 and g.chance(0.5) else {}
        g.node(op, [x], [Span(0, x.shape[axis], 1)], axis=axis, keepdims=g.rng.randint(0, 1), **said)

    return draw


def cumsum(g: Draw) -> None:
    x = g.value((F32, F64, I32, I64), least=1)
    axis = g.axis(x.rank)
    n = max(x.shape[axis], 1)
    span = Span(-n * x.span.size, n * x.span.size, x.span.step or None)
    at = g.ints(np.array(axis), g.rng.choice([I32, I64]))
    g.node("CumSum", [x, at], [span], exclusive=g.rng.randint(0, 1), reverse=g.rng.randint(0, 1))


def compress(g: Draw) -> None:
    x = g.value((F32, I64, I32), least=1, empty=False)
    axis = g.axis(x.rank) if g.chance(0.7) else None
    n = x.size if axis is None else x.shape[axis]
    keep = np.array([g.chance(0.5) for _ in range(g.rng.randint(1, n))])
    count = int(keep.sum())
    shape = (count,) if axis is None else tuple(count if i == axis % x.rank else d for i, d in enumerate(x.shape))
    said = {} if axis is None else {"axis": axis if g.opset >= 11 else axis % x.rank}
    g.node("Compress", [x, g.constant(keep)], [x.span], [shape], **said)


KINDS = [
    Kind("Gather", gather, weight=5),
    Kind("GatherElements", gather_elements, 11, weight=3),
    Kind("GatherND", gather_nd, 11, weight=3),
    Kind("Scatter", scatter_elements("Scatter"), 9, 10, weight=4),
    Kind("ScatterElements", scatter_elements("ScatterElements"), 11, weight=5),
    Kind("ScatterND", scatter_nd, 11, weight=4),
    Kind("OneHot", one_hot, 9, weight=3),
    Kind("TopK", top_k, weight=4),
    *(Kind(op, arg(op)) for op in ("ArgMax", "ArgMin")),
    Kind("CumSum", cumsum, 11, weight=4),
    Kind("Compress", compress, 9),
]
