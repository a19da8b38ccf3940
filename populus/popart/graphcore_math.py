"""Element-wise ops of `ai.graphcore` and reshaping ones, written as ONNX ops."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from populus.dialects.support.diagnostics import PopulusError
from populus.popart.enums import DataType
from populus.popart.stated import StatedError
from populus.popart.tensor_info import dtype_of_number
from populus.popart.translation import Body


def _op(b: Body, *inputs: str, op: str, **attributes: Any) -> str:
    return b(op, *inputs, **attributes)


def _binary(b: Body, x: str, y: str, *, op: str, **attributes: Any) -> str:
    """Computes an op of two operands, broadcast. Raises PopulusError if their element types differ."""
    if b.dtype(0) != b.dtype(1):
        raise PopulusError(f"its inputs are of {b.dtype(0)} and {b.dtype(1)}; one type is expected")
    return b(op, x, y, **attributes)


def scale(b: Body, x: str) -> str:
    """Computes `y = scale x`."""
    return b("Mul", x, b.like(b.attr("scale")))


def scaled_add(b: Body, x: str, y: str, s0: str | None = None, s1: str | None = None) -> str:
    """Computes `z = s0 x + s1 y`, the factors attributes or tensors."""
    factors = [b.like(b.attr(n, 1.0)) if s is None else b.cast(b.reshape(s, ()), b.dtype()) for n, s in (("scale0", s0), ("scale1", s1))]
    return b("Add", b("Mul", x, factors[0]), b("Mul", y, factors[1]))


def swish(b: Body, x: str) -> str:
    """Computes `y = x sigmoid(x)`."""
    return b("Mul", x, b("Sigmoid", x))


def xnor(b: Body, x: str, y: str) -> str:
    """Computes bits that are equal."""
    return b("BitwiseNot", b("BitwiseXor", x, y))


def remainder(b: Body, x: str, y: str) -> str:
    """Computes the remainder with the sign of y."""
    if b.dtype().kind != "f":
        return _binary(b, x, y, op="Mod")
    return b("Sub", x, b("Mul", y, b("Floor", b("Div", x, y))))


def round_away(b: Body, x: str) -> str:
    """Computes the nearest whole number; halves go away from 0."""
    return b("Mul", b("Sign", x), b("Floor", b("Add", b("Abs", x), b.like(0.5))))


def increment(b: Body, x: str) -> str:
    """Computes the remainder of `(x + increment) / modulus`, of the sign of the sum: PopART's op is C's, for whole numbers too."""
    return b("Mod", b("Add", x, b.like(b.attr("increment"))), b.like(b.attr("modulus")), fmod=1)


def reshape(b: Body, x: str) -> str:
    """Computes x in another shape; 0 keeps a dimension, -1 follows from the others."""
    return b("Reshape", x, b.ints(b.attr("shape")))


def reverse(b: Body, x: str) -> str:
    """Computes x read backwards along dimensions. Raises PopulusError for one named twice, or that there is not."""
    rank, dims = len(b.shape()), b.attr("dimensions", [])
    if twice := [d for d in dims if dims.count(d) > 1]:
        raise PopulusError(f"dimensions = {dims}. Dimension {twice[0]} appears multiple times; each is named once")
    if strange := [d for d in dims if not 0 <= d < rank]:
        fault = ". Only positive dimensions are supported" if strange[0] < 0 else f" for input tensor of rank {rank}"
        raise PopulusError(f"invalid dimension '{strange[0]}'{fault}")
    if not dims:
        return b("Identity", x)
    return b("Slice", x, b.ints([-1] * len(dims)), b.ints([-(2**62)] * len(dims)), b.ints(dims), b.ints([-1] * len(dims)))


def slice_(b: Body, x: str) -> str:
    """Computes elements from `starts` up to `ends`."""
    starts, ends = b.attr("starts"), b.attr("ends")
    axes = b.attr("axes") or range(len(starts))
    return b("Slice", x, b.ints(starts), b.ints(ends), b.ints(axes))


def subsample(b: Body, x: str) -> str:
    """Computes every n-th element along each dimension."""
    strides = b.attr("strides")
    rank = len(strides)
    return b("Slice", x, b.ints([0] * rank), b.ints([2**62] * rank), b.ints(range(rank)), b.ints(strides))


def init(b: Body) -> str:
    """Computes a tensor of zeros; where nothing was promised of its values, zeros too."""
    return b("Expand", b.const(0, dtype_of_number(b.attr("data_type", DataType.FLOAT))), b.ints(b.attr("shape", [])))


def normalize_image(b: Body, x: str, offsets: str, scales: str) -> str:
    """Computes three channels as four: `(scale x - offset) scales`, the fourth 0."""
    y = b("Sub", b("Mul", b.cast(x, b.dtype(1)), b.like(b.attr("scale", 1.0), 1)), offsets)
    y = b("Mul", y, scales)
    rank = len(b.shape())
    return b("Pad", y, b.ints([0] * rank + [0] * (rank - 1) + [1]))


def depth_to_space(b: Body, x: str) -> str:
    """Computes ONNX's DepthToSpace with `mode`."""
    return b("DepthToSpace", x, blocksize=b.attr("blocksize"), mode=b.attr("mode", "DCR"))


def median(b: Body, x: str) -> Sequence[str]:
    """Computes the lower median over axes, and its position among what is reduced. Raises PopulusError for an axis that there is not."""
    shape = b.shape()
    rank = len(shape)
    axes = b.attr("axes")
    for axis in axes or ():
        if not -rank <= axis < rank:
            raise StatedError(f"Axis {axis} is out of acceptable range [{-rank}, {rank - 1}]")
    dims = sorted({a % max(rank, 1) for a in (range(rank) if axes is None else axes)})
    if not dims:
        return [b("Identity", x), b.cast(b("Sub", x, x), "int32")]
    rest = [d for d in range(rank) if d not in dims]
    n = math.prod(shape[d] for d in dims)
    flat = b.reshape(b("Transpose", x, perm=[*rest, *dims]), [*(shape[d] for d in rest), n])
    values, at = b("TopK", flat, b.ints([(n + 1) // 2]), axis=len(rest), largest=0, sorted=1, outputs=2)
    last = ((n + 1) // 2 - 1, (n + 1) // 2)
    out = [1 if d in dims else shape[d] for d in range(rank)] if b.attr("keepdims", 1) else [shape[d] for d in rest]
    cut = [b("Slice", v, b.ints(last[:1]), b.ints(last[1:]), b.ints([len(rest)])) for v in (values, at)]
    return [b.reshape(cut[0], out), b.cast(b.reshape(cut[1], out), "int32")]


def sort(b: Body, x: str) -> Sequence[str]:
    """Computes values in order along an axis, and where they were."""
    axis = int(b.attr("axis", -1))
    values, at = b("TopK", x, b.ints([b.shape()[axis]]), axis=axis, largest=b.attr("descending", 0), sorted=1, outputs=2)
    return [values, b.cast(at, "int32")]


def bucketize(b: Body, x: str, edges: str) -> str:
    """Computes the position of the first edge that is not below x, or with `right` above it; their number if there is none."""
    import numpy as np

    column = b.cast(b.reshape(x, [*b.shape(), 1]), np.float32)
    found = b("Greater" if b.attr("right", 0) else "GreaterOrEqual", b.cast(edges, np.float32), column)
    last = b("Expand", b.const(1, np.int32), b.ints([*b.shape(), 1]))
    return b.cast(b("ArgMax", b("Concat", b.cast(found, np.int32), last, axis=-1), axis=-1, keepdims=0), np.int32)


OPS: Mapping[str, Callable[..., str | Sequence[str]]] = {
    "BitwiseAnd": partial(_binary, op="BitwiseAnd"),
    "BitwiseNot": partial(_op, op="BitwiseNot"),
    "BitwiseOr": partial(_binary, op="BitwiseOr"),
    "BitwiseXnor": xnor,
    "BitwiseXor": partial(_binary, op="BitwiseXor"),
    "Bucketize": bucketize,
    "DepthToSpace": depth_to_space,
    "Fmod": partial(_binary, op="Mod", fmod=1),
    "Gelu": partial(_op, op="Gelu", approximate="tanh"),
    "GeluErf": partial(_op, op="Gelu"),
    "IncrementMod": increment,
    "Init": init,
    "NearbyInt": partial(_op, op="Round"),
    "Nop": partial(_op, op="Identity"),
    "NormalizeImage": normalize_image,
    "PrintTensor": partial(_op, op="Identity"),
    "ReduceMedian": median,
    "Remainder": remainder,
    "Reshape": reshape,
    "Reverse": reverse,
    "Round": round_away,
    "Scale": scale,
    "ScaledAdd": scaled_add,
    "Slice": slice_,
    "Sort": sort,
    "Subsample": subsample,
    "Swish": swish,
}
