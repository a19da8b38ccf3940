"""Functions of the table of consumers: each takes a chain, the value behind the layout op and its shape, and gives a result."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np
from onnx import helper

from triples.chain import Chain, Infeasible

Shape = tuple[int, ...]
Take = Callable[[Chain, str, Shape], str]


def scalar(c: Chain, x: str, number: float) -> str:
    return c.constant(np.asarray(number, c.types[x]))


def unary(op: str, **attributes: Any) -> Take:
    """An op of one operand; along an axis, if it has one, of two elements and more."""

    def made(c: Chain, x: str, shape: Shape) -> str:
        if "axis" in attributes:
            several(shape, attributes["axis"])
        return c.op(op, x, **attributes)

    return made


def several(shape: Shape, axis: int) -> None:
    """Raises Infeasible where a row of this axis is so short that the result says little."""
    if shape[axis] < 3:
        raise Infeasible("rows of fewer than 3")


def needs(shape: Shape, *ranks: int, most: int = 200_000) -> None:
    if len(shape) not in ranks:
        raise Infeasible("of another rank")
    if prod(shape) > most:
        raise Infeasible("too large")


def ranked(c: Chain, x: str, shape: Shape, rank: int) -> tuple[str, Shape]:
    """Gives the value with this rank: dimensions of 1 are added after the first, or dimensions behind it are merged."""
    if len(shape) < rank:
        axes = list(range(1, 1 + rank - len(shape)))
        return c.op("Unsqueeze", x, c.ints(*axes)), (shape[0], *[1] * len(axes), *shape[1:])
    if len(shape) > rank:
        to = (prod(shape[: len(shape) - rank + 1]), *shape[len(shape) - rank + 1 :])
        return c.op("Reshape", x, c.ints(-1, *to[1:])), to
    return x, shape


def constant_like(c: Chain, x: str, shape: Shape, side: str) -> str:
    """Adds another operand: of the last dimension, of the dimension of channels, of all, or one element."""
    to = {"last": shape[-1:], "channel": (shape[1], *[1] * (len(shape) - 2)) if len(shape) > 1 else shape, "all": shape, "one": ()}[side]
    return c.constant(np.asarray(c.rng("operand", side).integers(1, 4, to), c.types[x]))


def binary(op: str, side: str, first: bool = True) -> Take:
    def made(c: Chain, x: str, shape: Shape) -> str:
        other = constant_like(c, x, shape, side)
        return c.op(op, x, other) if first else c.op(op, other, x)

    return made


def matmul(c: Chain, x: str, shape: Shape, side: str = "right") -> str:
    if len(shape) < 2 or prod(shape) > 200_000:
        raise Infeasible("no rows")
    m, k = shape[-2:]
    if side == "left":
        return c.op("MatMul", c.weight(9, m, terms=m), x)
    if side == "itself":
        if m * prod(shape) > 20_000_000:
            raise Infeasible("too large")
        return c.op("MatMul", x, c.op("Transpose", x, perm=[*range(len(shape) - 2), len(shape) - 1, len(shape) - 2]))
    return c.op("MatMul", x, c.weight(k, 11, terms=k))


def gemm(c: Chain, x: str, shape: Shape, transposed: int = 0) -> str:
    x, shape = ranked(c, x, shape, 2)
    n = shape[0] if transposed else shape[1]
    if n > 20_000:
        raise Infeasible("too large")
    return c.op("Gemm", x, c.weight(n, 6, terms=n), c.weight(6), transA=transposed)


def conv(
    c: Chain,
    x: str,
    shape: Shape,
    kernel: tuple[int, ...] = (1, 1),
    depthwise: bool = False,
    transposed: bool = False,
    group: int = 1,
    **more: Any,
) -> str:
    x, shape = ranked(c, x, shape, len(kernel) + 2)
    ic = shape[1]
    oc = ic if depthwise else 10
    group = ic if depthwise else group
    if ic % group or ic > 800 or prod(shape) > 200_000:
        raise Infeasible("groups do not divide the channels" if ic % group else "too large")
    w = c.weight(*((ic, oc // group) if transposed else (oc, ic // group)), *kernel, terms=ic // group * prod(kernel))
    return c.op("ConvTranspose" if transposed else "Conv", x, w, group=group, pads=[k // 2 for k in kernel] * 2, **more)


def pool(c: Chain, x: str, shape: Shape, op: str, kernel: tuple[int, ...] = (), **more: Any) -> str:
    x, shape = ranked(c, x, shape, len(kernel) + 2 if kernel else max(len(shape), 3))
    dilations = more.get("dilations", [1] * len(kernel))
    if any((k - 1) * d >= n for k, d, n in zip(kernel, dilations, shape[2:])):
        raise Infeasible("the window is larger than the image")
    return c.op(op, x, **({"kernel_shape": list(kernel)} if kernel else {}), **more)


def reduce(op: str, *axes: int, keepdims: int = 0) -> Take:
    def made(c: Chain, x: str, shape: Shape) -> str:
        chosen = sorted({a % len(shape) for a in axes})
        return c.op(op, x, c.ints(*chosen), keepdims=keepdims)

    return made


def arg(c: Chain, x: str, shape: Shape, op: str, axis: int) -> str:
    several(shape, axis)
    return c.op(op, x, axis=axis % len(shape), keepdims=0, dtype=np.int64)


def layer_norm(c: Chain, x: str, shape: Shape, axis: int = -1, op: str = "LayerNormalization") -> str:
    if prod(shape[axis:]) < 4:
        raise Infeasible("a row of fewer than 4")
    axis = max(axis, -len(shape))
    return c.op(op, x, c.scale(*shape[axis:]), c.weight(*shape[axis:]), axis=axis)


def norm(c: Chain, x: str, shape: Shape, op: str) -> str:
    if op in ("InstanceNormalization", "GroupNormalization", "LRN"):
        x, shape = ranked(c, x, shape, max(len(shape), 3))
    if len(shape) < 2 or (op == "InstanceNormalization" and prod(shape[2:]) < 4) or (op == "GroupNormalization" and prod(shape[1:]) < 8):
        raise Infeasible("too few elements to normalise")
    n = shape[1]
    if op == "LRN":
        return c.op(op, x, size=3, alpha=0.3)
    if op == "GroupNormalization":
        return c.op(op, x, c.scale(n), c.weight(n), num_groups=2 if n % 2 == 0 else 1)
    more = (c.weight(n), c.scale(n)) if op == "BatchNormalization" else ()
    return c.op(op, x, c.scale(n), c.weight(n), *more)


def gather(c: Chain, x: str, shape: Shape, axis: int) -> str:
    n = shape[axis]
    return c.op("Gather", x, c.constant(c.rng("gather").integers(-n, n, (2, 3)).astype(np.int64)), axis=axis % len(shape))


def gather_elements(c: Chain, x: str, shape: Shape, axis: int = -1) -> str:
    return c.op("GatherElements", x, c.constant(c.rng("places").integers(0, shape[axis], shape).astype(np.int64)), axis=axis)


def gather_nd(c: Chain, x: str, shape: Shape) -> str:
    depth = min(2, len(shape))
    return c.op(
        "GatherND", x, c.constant(np.stack([c.rng("nd", i).integers(0, n, 7) for i, n in enumerate(shape[:depth])], -1).astype(np.int64))
    )


def scatter(c: Chain, x: str, shape: Shape, role: str) -> str:
    """`data`: x is what is written to; `updates`: x is written somewhere, in another order."""
    rng, dtype = c.rng("scatter", role), c.types[x]
    n = shape[-1]
    if role == "updates":
        where = np.argsort(rng.random(shape), -1).astype(np.int64)
        return c.op("ScatterElements", c.constant(np.zeros(shape, dtype)), c.constant(where), x, axis=-1, dtype=dtype)
    where = np.argsort(rng.random(shape), -1)[..., : -(-n // 2)].astype(np.int64)
    return c.op("ScatterElements", x, c.constant(where), c.constant(rng.integers(-3, 4, where.shape).astype(dtype)), axis=-1)


def scatter_nd(c: Chain, x: str, shape: Shape, reduction: str = "none") -> str:
    rng = c.rng("scatter-nd")
    rows = rng.permutation(shape[0])[: -(-shape[0] // 2)]
    updates = rng.integers(-3, 4, (len(rows), *shape[1:])).astype(c.types[x])
    return c.op("ScatterND", x, c.constant(rows[:, None].astype(np.int64)), c.constant(updates), reduction=reduction)


def top(c: Chain, x: str, shape: Shape, axis: int = -1, at: int = 0) -> str:
    axis %= len(shape)
    if at:
        several(shape, axis)
    y = c.op("TopK", x, c.ints(min(3, shape[axis])), axis=axis, outputs=2, at=at)
    if at:
        c.types[y] = np.dtype(np.int64)
    return y


def reverse(c: Chain, x: str, shape: Shape) -> str:
    if len(shape) < 2:
        raise Infeasible("of rank 1")
    lengths = c.constant(c.rng("lengths").integers(1, shape[0] + 1, shape[1]).astype(np.int64))
    return c.op("ReverseSequence", x, lengths, batch_axis=1, time_axis=0)


def recurrent(c: Chain, x: str, shape: Shape, op: str) -> str:
    x, (steps, _, n) = ranked(c, x, shape, 3)  # pyright: ignore[reportAssignmentType]
    if steps > 48 or n > 2000:
        raise Infeasible("too long")
    gates, hidden, rng = {"LSTM": 4, "GRU": 3, "RNN": 1}[op], 6, c.rng("recurrent consumer")
    w = (rng.standard_normal((1, gates * hidden, n)) / np.sqrt(n) / 2).astype(c.types[x])
    r = (0.3 * rng.standard_normal((1, gates * hidden, hidden))).astype(c.types[x])
    return c.op(op, x, c.constant(w), c.constant(r), hidden_size=hidden, outputs=2)


def concat(c: Chain, x: str, shape: Shape, axis: int, f: str = "") -> str:
    other = c.op(f, x) if f else constant_like(c, x, shape, "all")
    return c.op("Concat", x, other, axis=axis % len(shape))


def split_sum(c: Chain, x: str, shape: Shape) -> str:
    if shape[-1] % 2 or shape[-1] < 2:
        raise Infeasible("no halves")
    first = c.op("Split", x, axis=len(shape) - 1, num_outputs=2, outputs=2)
    return c.op("Sub", first, first[:-1] + "1")


def pad(c: Chain, x: str, shape: Shape, mode: str) -> str:
    rank = len(shape)
    if mode != "constant" and min(shape[-2:]) < 3:
        raise Infeasible("too small to reflect")
    more = [0] * max(rank - 2, 0)
    return c.op("Pad", x, c.ints(*more, *[1, 2][-rank:], *more, *[2, 0][-rank:]), mode=mode)


def resize(c: Chain, x: str, shape: Shape, mode: str) -> str:
    x, shape = ranked(c, x, shape, 4)
    if prod(shape) > 60_000:
        raise Infeasible("too large")
    mapping = "asymmetric" if mode == "nearest" else "half_pixel"
    return c.op(
        "Resize", x, "", c.constant([1, 1, 2, 2], np.float32), mode=mode, coordinate_transformation_mode=mapping, nearest_mode="floor"
    )


def grid_sample(c: Chain, x: str, shape: Shape) -> str:
    x, shape = ranked(c, x, shape, 4)
    if prod(shape) > 60_000:
        raise Infeasible("too large")
    grid = c.rng("grid").uniform(-1, 1, (shape[0], 3, 5, 2)).astype(c.types[x])
    return c.op("GridSample", x, c.constant(grid), align_corners=1)


def blocks(c: Chain, x: str, shape: Shape, op: str) -> str:
    needs(shape, 4)
    if (shape[1] % 4) if op == "DepthToSpace" else (shape[2] % 2 or shape[3] % 2):
        raise Infeasible("no blocks of 2")
    return c.op(op, x, blocksize=2)


def quantise(c: Chain, x: str, shape: Shape) -> str:
    return c.op("QuantizeLinear", x, c.constant(np.asarray(0.25, c.types[x])), c.constant(128, np.uint8), dtype=np.uint8)


def quantised_product(c: Chain, x: str, shape: Shape) -> str:
    if len(shape) < 2 or prod(shape) > 200_000:
        raise Infeasible("no rows")
    w = c.constant(c.rng("bytes").integers(0, 128, (shape[-1], 7)).astype(np.uint8))
    return c.op("MatMulInteger", quantise(c, x, shape), w, c.constant(128, np.uint8), c.constant(3, np.uint8), dtype=np.int32)


def pool_of_bytes(c: Chain, x: str, shape: Shape) -> str:
    x, shape = ranked(c, x, shape, 4)
    return pool(c, quantise(c, x, shape), shape, "MaxPool", (3, 3), pads=[1] * 4, strides=[2, 1])


def quantised_conv(c: Chain, x: str, shape: Shape) -> str:
    x, shape = ranked(c, x, shape, 4)
    if shape[1] > 800 or prod(shape) > 200_000:
        raise Infeasible("too large")
    w = c.constant(c.rng("bytes").integers(0, 128, (9, shape[1], 3, 3)).astype(np.uint8))
    return c.op("ConvInteger", quantise(c, x, shape), w, c.constant(128, np.uint8), c.constant(3, np.uint8), pads=[1] * 4, dtype=np.int32)


def cast(to: Any) -> Take:
    def made(c: Chain, x: str, shape: Shape) -> str:
        if c.types[x] == np.dtype(to):
            raise Infeasible("of that type")
        return c.op("Cast", x, to=helper.np_dtype_to_tensor_dtype(np.dtype(to)), dtype=to)

    return made


def where(c: Chain, x: str, shape: Shape) -> str:
    keep = c.constant(c.rng("mask").integers(0, 2, shape).astype(bool))
    return c.op("Where", keep, x, scalar(c, x, 7), dtype=c.types[x])


def trilu(c: Chain, x: str, shape: Shape) -> str:
    if len(shape) < 2:
        raise Infeasible("no matrix")
    return c.op("Trilu", x, upper=0)


def cumsum(c: Chain, x: str, shape: Shape, axis: int, **more: int) -> str:
    several(shape, axis)
    return c.op("CumSum", x, c.constant(axis % len(shape), np.int64), **more)


def reshape_product(c: Chain, x: str, shape: Shape) -> str:
    """A Reshape to rows, and a product: the classifier's head."""
    if prod(shape[1:]) > 20_000:
        raise Infeasible("too large")
    y = c.op("Reshape", x, c.ints(0, -1)) if len(shape) > 1 else c.op("Unsqueeze", x, c.ints(0))
    n = prod(shape[1:] if len(shape) > 1 else shape)
    return c.op("MatMul", y, c.weight(n, 5, terms=n))


def attention(c: Chain, x: str, shape: Shape) -> str:
    if len(shape) < 3 or shape[-2] * prod(shape) > 5_000_000 or prod(shape) > 100_000:
        raise Infeasible("no rows to attend to")
    small = c.op("Mul", x, scalar(c, x, 0.5 / np.sqrt(shape[-1])))
    scores = c.op("MatMul", small, c.op("Transpose", x, perm=[*range(len(shape) - 2), len(shape) - 1, len(shape) - 2]))
    return c.op("MatMul", c.op("Softmax", scores, axis=-1), x)
