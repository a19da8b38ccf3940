"""Conversions of reductions, windows and maps, whose regions are computed on whole tensors."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from xdsl.dialects.builtin import i1
from xdsl.ir import Attribute, SSAValue

from populus.dialects import popart
from populus.dialects.base.tensor_op import TensorOp
from populus.dialects.data import constant_value
from populus.dialects.support import shapes
from populus.lowering.stablehlo.to_popart.conversion import Conversion, Pair, Rules, Value, element, leaves, rebuilt, shape
from populus.lowering.stablehlo.to_popart.monoids import monoid, neutral
from populus.lowering.stablehlo.to_popart.tensors import padded

REDUCTIONS: dict[str, tuple[type[TensorOp], type[TensorOp]]] = {
    "add": (popart.ReduceSumOp, popart.AddOp),
    "mul": (popart.ReduceProdOp, popart.MulOp),
    "max": (popart.ReduceMaxOp, popart.MaxOp),
    "min": (popart.ReduceMinOp, popart.MinOp),
}
MOST_STEPS = 16  # positions of a window that are combined in their order


def changes_nothing(kind: str, init: SSAValue) -> bool:
    """Tells whether an initial value is the constant that changes nothing."""
    array = constant_value(init)
    return array is not None and array.size > 0 and array.reshape(-1)[0] == neutral(kind, element(init))


def binary_of(kind: str, own: Attribute) -> type[TensorOp]:
    """Gives the op of `popart` that combines two tensors."""
    if own == i1:
        return popart.OrOp if kind == "max" else popart.AndOp
    return REDUCTIONS[kind][1]


def mapped(values: Sequence[Value], f: Callable[[SSAValue], SSAValue]) -> list[Value]:
    """Applies a function to the tensors of values."""
    return rebuilt(values, iter([f(v) for v in leaves(values)]))


def combined(c: Conversion, a: Sequence[Value], b: Sequence[Value], kind: str | None = None) -> list[Value]:
    """Combines tensors element by element by the op's first region, and gives results of their common shape.

    `kind`: what the region does, if that is one op of `popart`; then halves may have been cast to floats.
    """
    if kind is not None:
        binary = binary_of(kind, element(next(leaves(a))))
        return rebuilt(a, iter([c(binary, x, y) for x, y in zip(leaves(a), leaves(b))]))
    to = shapes.broadcast(*(shape(v) for v in leaves([*a, *b])))
    return mapped(c.combine([*a, *b]), lambda v: c.expand(v, to))


def reduce(c: Conversion) -> list[Value]:
    """Converts reduce: one library call for sums, products and extremes; otherwise neighbours are combined until one is left."""
    count, dims = len(c.inputs) // 2, c.ints("dimensions")
    values, inits = c.inputs[:count], c.inputs[count:]
    kind = monoid(c.body, element(next(leaves(values))))
    whole = kind in REDUCTIONS and (kind == "add" or not isinstance(values[0], Pair))
    if whole and count == 1:
        assert kind is not None
        return mapped_pairs(c, values, inits, lambda x, init: reduced(c, kind, x, init, dims))
    (full,) = {shape(v) for v in leaves(values)}
    order = [*dims, *(d for d in range(len(full)) if d not in dims)]
    size = math.prod(full[d] for d in dims)
    rest = tuple(full[d] for d in order[len(dims) :])
    values = mapped(values, lambda v: c.reshape(c.transpose(v, order), (size, *rest)))
    if size == 0:
        return mapped(inits, lambda v: c.expand(v, rest))
    values = folded(c, values, size)
    values = mapped(values, lambda v: c.reshape(v, rest))
    return combined(c, inits, values)


def mapped_pairs(
    c: Conversion, values: Sequence[Value], inits: Sequence[Value], f: Callable[[SSAValue, SSAValue], SSAValue]
) -> list[Value]:
    """Applies a function to tensors and their initial values."""
    return rebuilt(values, iter([f(x, init) for x, init in zip(leaves(values), leaves(inits))]))


def folded(c: Conversion, values: Sequence[Value], size: int) -> list[Value]:
    """Combines neighbours along the first dimension until one is left: [1, ..]. The order of elements is kept."""
    now = list(values)
    while size > 1:
        even = size // 2 * 2
        left = mapped(now, lambda v, even=even: c.slice(v, {0: (0, even, 2)}))
        right = mapped(now, lambda v, even=even: c.slice(v, {0: (1, even, 2)}))
        new = combined(c, left, right)
        if size % 2:
            last = mapped(now, lambda v, size=size: c.slice(v, {0: (size - 1, size, 1)}))
            ends = zip(leaves(new), leaves(last))
            new = rebuilt(now, iter([c(popart.ConcatOp, a, b, axis=0) for a, b in ends]))
        now, size = new, size // 2 + size % 2
    return now


def reduced(c: Conversion, kind: str, x: SSAValue, init: SSAValue, dims: Sequence[int]) -> SSAValue:
    """Reduces by a library call. Sums and products of halves are computed in f32."""
    library, own = REDUCTIONS[kind][0], element(x)
    if 0 in shape(x):
        return c.expand(init, shapes.reduced(shape(x), dims, keep=False))
    wide = c.wide(x) if kind in ("add", "mul") else x
    y = c(library, wide, axes=tuple(dims), keep=False) if dims else wide
    if changes_nothing(kind, init):
        return c.cast(y, own)
    return c.cast(c(binary_of(kind, own), c.cast(init, element(y)), y), own)


def reduce_window(c: Conversion) -> list[Value]:
    """Converts reduce_window: position by position of a small window, otherwise one dimension after the other, by halves."""
    import numpy as np

    count = len(c.inputs) // 2
    values, inits = list(c.inputs[:count]), c.inputs[count:]
    (full,) = {shape(v) for v in leaves(values)}
    rank = len(full)
    windows = c.ints("window_dimensions")
    strides, base, apart = (c.ints(n, rank) for n in ("window_strides", "base_dilations", "window_dilations"))
    pads = c.ints("padding", 2 * rank, 0)
    own = [element(v) for v in leaves(values)]
    kind = monoid(c.body, own[0])
    if kind not in REDUCTIONS or (kind != "add" and isinstance(values[0], Pair)) or count > 1:
        kind = None
    if kind in ("add", "mul"):
        values, inits = mapped(values, c.wide), mapped(inits, c.wide)
    if 0 in c.shape():
        return mapped(inits, lambda v: c.expand(v, c.shape()))
    low, high, inside = pads[::2], pads[1::2], [b - 1 for b in base]
    values = mapped_pairs(c, values, inits, lambda v, init: padded(c, v, init, low, high, inside))

    if math.prod(windows) <= MOST_STEPS:
        found: list[Value] | None = None
        for first in np.ndindex(*windows):
            ends = {d: (at := f * apart[d], at + (c.shape()[d] - 1) * strides[d] + 1, strides[d]) for d, f in enumerate(first)}
            here = mapped(values, lambda v, ends=ends: c.slice(v, ends))
            found = here if found is None else combined(c, found, here, kind)
        assert found is not None
        values = found
    else:
        for d in range(rank):
            values = halved(c, values, d, windows[d], apart[d], kind)
            values = mapped(values, lambda v, d=d: c.slice(v, {d: (0, shape(v)[d], strides[d])}))
    if kind is None or not all(changes_nothing(kind, v) for v in leaves(inits)):
        values = combined(c, values, inits, kind) if kind is not None else combined(c, inits, values)
    return rebuilt(values, iter([c.cast(v, t) for v, t in zip(leaves(values), own)]))


def halved(c: Conversion, values: list[Value], d: int, wanted: int, apart: int, kind: str | None) -> list[Value]:
    """Combines the elements of windows along a dimension, at each position: those of 1, 2, 4, .. elements make the others."""

    def side(parts: Sequence[Value], first: int, size: int) -> list[Value]:
        return mapped(parts, lambda v: c.slice(v, {d: (first, first + size, 1)}))

    made, done, taken = values, 1, 0
    found: list[Value] | None = None
    reach = shape(next(leaves(values)))[d] - (wanted - 1) * apart
    while True:
        if wanted & done:
            here = side(made, taken * apart, reach)
            found = here if found is None else combined(c, found, here, kind)
            taken += done
        if taken == wanted:
            assert found is not None
            return found
        size = shape(next(leaves(made)))[d] - done * apart
        made = combined(c, side(made, 0, size), side(made, done * apart, size), kind)
        done *= 2


def select_and_scatter(c: Conversion) -> list[Value]:
    """Converts select_and_scatter: the element that wins each window by the first region gets the source's, by the second.

    The positions of a window are compared one after the other, for all windows at once.
    """
    import numpy as np

    from populus.lowering.stablehlo.to_popart.indexing import scattered

    x, source, init = c.input(0), c.input(1), c.input(2)
    full, out, rank = shape(x), shape(source), len(shape(x))
    windows, strides = c.ints("window_dimensions"), c.ints("window_strides", rank)
    pads = c.ints("padding", 2 * rank, 0)
    low, high = pads[::2], pads[1::2]
    flat = c.constant(np.arange(math.prod(full), dtype=np.int32).reshape(full))
    outside = c.scalar(-1, flat)
    reach = [shapes.reach(o, s, w, 1) for o, s, w in zip(out, strides, windows)]
    spare = [max(r - (n + a + b), 0) for r, n, a, b in zip(reach, full, low, high)]
    high = [b + s for b, s in zip(high, spare)]
    values = padded(c, x, c.scalar(0, x), low, high, (0,) * rank)
    places = padded(c, flat, outside, low, high, (0,) * rank)
    best: SSAValue | None = None
    at: SSAValue | None = None
    for first in np.ndindex(*windows):
        bounds = {d: (f, f + (out[d] - 1) * strides[d] + 1, strides[d]) for d, f in enumerate(first)}
        value, place = c.slice(values, bounds), c.slice(places, bounds)
        if best is None or at is None:
            best, at = value, place
            continue
        (kept,) = leaves(c.combine([best, value]))
        seen, new = (c(popart.GreaterOrEqualOp, p, c.scalar(0, p)) for p in (at, place))
        keep = c(popart.OrOp, c(popart.NotOp, new), c(popart.AndOp, seen, kept))
        best, at = c(popart.WhereOp, keep, best, value), c(popart.WhereOp, keep, at, place)
    assert at is not None
    count = math.prod(full)
    inside = c(popart.GreaterOrEqualOp, at, c.scalar(0, at))
    table, flat_out = c.expand(init, (count,)), (math.prod(out),)
    (found,) = scattered(c.by(1), [table], c.reshape(at, flat_out), c.reshape(inside, flat_out), [c.reshape(source, flat_out)], 1)
    return [mapped([found], lambda v: c.reshape(v, full))[0]]


def map_(c: Conversion) -> list[Value]:
    """Converts map: the region is computed on whole tensors."""
    return mapped(c.combine(c.inputs), lambda v: c.expand(v, c.shape()))


RULES: Rules = {
    "map": map_,
    "reduce": reduce,
    "reduce_window": reduce_window,
    "select_and_scatter": select_and_scatter,
}
