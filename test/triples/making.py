"""Functions of the table of producers: each adds inputs and nodes to a chain, and gives the value in the middle."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from triples.chain import CONTRIB, Chain, Infeasible

Add = Callable[[Chain], str]
HALF = np.dtype(np.float16)


# -- products


def matmul(c: Chain, lead: tuple[str, ...] = (), left: bool = False, given: bool = False, vector: bool = False, swap: bool = False) -> str:
    z = c.size
    batch = tuple({"b": z.b, "h": 3}[n] for n in lead)
    if left:
        return c.op("MatMul", c.weight(z.m, z.k, terms=z.k), c.input(*batch, z.k, z.o))
    x = (
        c.op("Transpose", c.input(*batch, z.k, z.m), perm=[*range(len(batch)), len(batch) + 1, len(batch)])
        if swap
        else c.input(*batch, z.m, z.k)
    )
    if given:
        return c.op("MatMul", x, c.input(*batch, z.k, z.o, draw="unit" if not c.values.grid else "values"))
    return c.op("MatMul", x, c.weight(*((z.k,) if vector else (z.k, z.o)), terms=z.k))


def gemm(c: Chain, transposed: tuple[int, int] = (0, 0), alpha: float = 1.0, beta: float = 1.0) -> str:
    z = c.size
    a = c.input(*((z.k, z.m) if transposed[0] else (z.m, z.k)), batch=not transposed[0])
    b = c.weight(*((z.o, z.k) if transposed[1] else (z.k, z.o)), terms=z.k)
    return c.op("Gemm", a, b, c.weight(z.o), transA=transposed[0], transB=transposed[1], alpha=alpha, beta=beta)


def then(add: Add, *ops: str) -> Add:
    """The producer, and element-wise ops behind it that the engine may join to it."""

    def made(c: Chain) -> str:
        y = add(c)
        for op in ops:
            y = c.op(op, y, c.constant(np.asarray(0.5, c.types[y]))) if op in ("Add", "Mul") else c.op(op, y)
        return y

    return made


def einsum(c: Chain) -> str:
    z = c.size
    y = c.input(z.b, 2, z.o, z.k, draw="values" if c.values.grid else "unit")
    return c.op("Einsum", c.input(z.b, 2, z.m, z.k), y, equation="bhik,bhjk->bihj")


def attention(c: Chain) -> str:
    z = c.size
    q, k, v = (c.input(z.b, 2, n, z.c, draw="unit") for n in (z.m, z.s, z.s))
    scores = c.op("Softmax", c.op("MatMul", q, c.op("Transpose", k, perm=[0, 1, 3, 2])), axis=-1)
    return c.op("MatMul", scores, v)


# -- convolutions


def conv(
    c: Chain,
    kernel: tuple[int, ...] = (3, 3),
    strides: int = 1,
    dilation: int = 1,
    group: int = 1,
    multiplier: int = 0,
    pads: tuple[int, ...] | None = None,
    bias: bool = False,
    transposed: bool = False,
    **attributes: Any,
) -> str:
    """A convolution. `multiplier`: depthwise, with this many outputs of each channel."""
    z, dims = c.size, len(kernel)
    ic = z.c + z.c % group if not multiplier else z.c
    oc = z.o + (-z.o) % group if not multiplier else z.c * multiplier
    group = z.c if multiplier else group
    side = {1: 3 * z.s, 2: z.s, 3: min(z.s, 9)}[dims]
    if any((k - 1) * dilation + 1 > side + 2 * (k // 2) * dilation for k in kernel):
        raise Infeasible("the kernel is larger than the image")
    x = c.input(z.b, ic, *[side] * dims)
    terms = ic // group * int(np.prod(kernel))
    w = c.weight(*((ic, oc // group) if transposed else (oc, ic // group)), *kernel, terms=terms)
    given = [x, w, c.weight(oc)] if bias else [x, w]
    padding = list(pads) if pads is not None else [k // 2 * dilation for k in kernel] * 2
    kinds = {"strides": [strides] * dims, "dilations": [dilation] * dims, "group": group, "pads": padding, "kernel_shape": list(kernel)}
    return c.op("ConvTranspose" if transposed else "Conv", *given, **kinds, **attributes)


def of(add: Callable[..., str], *args: Any, **options: Any) -> Add:
    return lambda c: add(c, *args, **options)


def half(add: Add) -> Add:
    """The same in f16."""

    def made(c: Chain) -> str:
        c.float_type = HALF
        return add(c)

    return made


# -- 8-bit and 4-bit


def qlinear_conv(
    c: Chain,
    kernel: tuple[int, ...] = (3, 3),
    group: int = 1,
    depthwise: bool = False,
    strides: int = 1,
    per_channel: bool = False,
    signed: bool = False,
) -> str:
    z, dims = c.size, len(kernel)
    group = z.c if depthwise else group
    ic, oc = (z.c, z.c) if depthwise else (z.c + z.c % group, z.o + (-z.o) % group)
    kind: Any = np.int8 if signed else np.uint8
    x = c.input(z.b, ic, *[3 * z.s if dims == 1 else min(z.s, 9) if dims == 3 else z.s] * dims, dtype=kind)
    rng, terms = c.rng("points"), ic // group * int(np.prod(kernel))
    w = c.constant(rng.integers(-64, 65, (oc, ic // group, *kernel)).astype(np.int8))
    scale = 2.0 ** -np.ceil(np.log2(np.sqrt(terms) * 40))
    scales = c.constant(np.full(oc, scale) * 2.0 ** rng.integers(0, 2, oc) if per_channel else scale, np.float32)
    points = c.constant(np.zeros(oc, np.int8) if per_channel else np.int8(3))
    one, zero = c.constant(1.0, np.float32), c.constant(0 if signed else 128, kind)
    bias = c.constant(rng.integers(-999, 999, oc).astype(np.int32))
    return c.op(
        "QLinearConv",
        x,
        one,
        zero,
        w,
        scales,
        points,
        one,
        zero,
        bias,
        pads=[k // 2 for k in kernel] * 2,
        group=group,
        strides=[strides] * dims,
    )


def conv_integer(c: Chain, kernel: tuple[int, ...] = (3, 3), group: int = 1) -> str:
    z = c.size
    ic, oc = z.c + z.c % group, z.o + (-z.o) % group
    x = c.input(z.b, ic, z.s, z.s, dtype=np.uint8)
    w = c.constant(c.rng("w").integers(0, 128, (oc, ic // group, *kernel)).astype(np.uint8))
    return c.op(
        "ConvInteger",
        x,
        w,
        c.constant(7, np.uint8),
        c.constant(60, np.uint8),
        pads=[k // 2 for k in kernel] * 2,
        group=group,
        dtype=np.int32,
    )


def matmul_integer(c: Chain, lead: tuple[str, ...] = (), given: bool = False) -> str:
    z = c.size
    batch = tuple({"b": z.b, "h": 3}[n] for n in lead)
    x = c.input(*batch, z.m, z.k, dtype=np.uint8)
    w = c.input(*batch, z.k, z.o, dtype=np.uint8) if given else c.constant(c.rng("w").integers(0, 128, (z.k, z.o)).astype(np.uint8))
    return c.op("MatMulInteger", x, w, c.constant(7, np.uint8), c.constant(60, np.uint8), dtype=np.int32)


def qlinear_matmul(c: Chain, lead: tuple[str, ...] = ()) -> str:
    z = c.size
    batch = tuple({"b": z.b, "h": 3}[n] for n in lead)
    x = c.input(*batch, z.m, z.k, dtype=np.uint8)
    w = c.constant(c.rng("w").integers(0, 256, (z.k, z.o)).astype(np.uint8))
    one, zero = c.constant(1.0, np.float32), c.constant(128, np.uint8)
    return c.op("QLinearMatMul", x, one, zero, w, c.constant(2.0 ** -np.ceil(np.log2(np.sqrt(z.k) * 80)), np.float32), zero, one, zero)


def qdq(c: Chain, kind: str) -> str:
    """Values quantised and back before a float op with quantised weights: the form that exporters write."""
    z, rng = c.size, c.rng("qdq")
    step, zero = c.constant(0.5, np.float32), c.constant(128, np.uint8)
    x = c.input(*((z.b, z.c, z.s, z.s) if kind != "MatMul" else (z.b, z.m, z.k)))
    x = c.op("DequantizeLinear", c.op("QuantizeLinear", x, step, zero, dtype=np.uint8), step, zero, dtype=np.float32)
    shape = {"Conv": (z.o, z.c, 3, 3), "Depthwise": (z.c, 1, 3, 3), "MatMul": (z.k, z.o)}[kind]
    w = c.constant(rng.integers(-64, 65, shape).astype(np.int8))
    w = c.op("DequantizeLinear", w, c.constant(2.0**-9, np.float32), c.constant(0, np.int8), dtype=np.float32)
    y = c.op("MatMul", x, w) if kind == "MatMul" else c.op("Conv", x, w, pads=[1] * 4, group=z.c if kind == "Depthwise" else 1)
    wide = c.constant(2.0**-4, np.float32)
    return c.op("DequantizeLinear", c.op("QuantizeLinear", y, wide, zero, dtype=np.uint8), wide, zero, dtype=np.float32)


def nbits(c: Chain, bits: int = 4) -> str:
    z, block = c.size, 32
    blocks = -(-z.k // block)
    rng = c.rng("nbits")
    w = c.constant(rng.integers(0, 256, (z.o, blocks, block * bits // 8)).astype(np.uint8))
    scales = c.constant(np.full(z.o * blocks, 2.0**-4) * 2.0 ** rng.integers(-1, 2, z.o * blocks), c.float_type)
    return c.op(
        "MatMulNBits", c.input(z.b, z.m, z.k), w, scales, domain=CONTRIB, K=z.k, N=z.o, bits=bits, block_size=block, accuracy_level=1
    )


def blocked(c: Chain) -> str:
    """A MatMul with weights of int8 that have a scale for each 16 rows."""
    z = c.size
    k, rng = z.k + (-z.k) % 16, c.rng("blocked")
    w = c.constant(rng.integers(-8, 8, (k, z.o)).astype(np.int8))
    scales = c.constant(2.0 ** rng.integers(-4, -1, (k // 16, z.o)), np.float32)
    return c.op("MatMul", c.input(z.b, z.m, k), c.op("DequantizeLinear", w, scales, axis=0, block_size=16, dtype=np.float32))


# -- pools, reductions, norms


def image(c: Chain, dims: int = 2) -> str:
    z = c.size
    return c.input(z.b, z.c, *[3 * z.s if dims == 1 else min(z.s, 9) if dims == 3 else z.s] * dims)


def rows(c: Chain) -> str:
    z = c.size
    return c.input(z.b, z.c, z.s) if z.name == "long" else c.input(z.b, z.c, z.s, z.o)


def pool(c: Chain, op: str, kernel: tuple[int, ...] = (), **attributes: Any) -> str:
    x = image(c, len(kernel) or 2)
    given = {"kernel_shape": list(kernel)} if kernel else {}
    if "dilations" in attributes and c.size.s < 7:
        raise Infeasible("the window is larger than the image")
    return c.op(op, x, **given, **attributes)


def reduce(c: Chain, op: str, axes: tuple[int, ...], keepdims: int = 1) -> str:
    return c.op(op, rows(c), c.ints(*axes), keepdims=keepdims)


def unary(op: str, inputs: Add = rows, **attributes: Any) -> Add:
    return lambda c: c.op(op, inputs(c), **attributes)


def last(c: Chain) -> int:
    return c.size.s if c.size.name == "long" else c.size.o


def layer_norm(c: Chain, axis: int = -1) -> str:
    z, x = c.size, rows(c)
    shape = {-1: (last(c),), 1: (z.c, z.s) if z.name == "long" else (z.c, z.s, z.o)}[axis]
    return c.op("LayerNormalization", x, c.scale(*shape), c.weight(*shape), axis=axis)


def norm(c: Chain, op: str) -> str:
    z, x = c.size, rows(c) if op == "InstanceNormalization" else image(c)
    if op == "GroupNormalization":
        g = 2 if z.c % 2 == 0 else 1
        return c.op(op, x, c.scale(z.c), c.weight(z.c), num_groups=g)
    if op == "LRN":
        return c.op(op, x, size=3, alpha=0.5)
    more = (c.weight(z.c), c.scale(z.c)) if op == "BatchNormalization" else ()
    return c.op(op, x, c.scale(z.c), c.weight(z.c), *more)


# -- what moves elements


def resize(c: Chain, mode: str, scale: tuple[float, float], coordinates: str = "half_pixel") -> str:
    scales = c.constant([1.0, 1.0, *scale], np.float32)
    return c.op("Resize", image(c), "", scales, mode=mode, coordinate_transformation_mode=coordinates, nearest_mode="floor")


def grid_sample(c: Chain, mode: str = "linear") -> str:
    z = c.size
    return c.op("GridSample", image(c), c.input(z.b, z.s, z.m, 2, draw="unit"), mode=mode, align_corners=1)


def scatter(c: Chain, op: str, **attributes: Any) -> str:
    z, rng = c.size, c.rng("indices")
    x = c.input(z.b, z.c, z.s, z.o)
    if op == "ScatterElements":
        return c.op(
            op,
            x,
            c.constant(np.argsort(rng.random((z.b, z.c, z.s, z.o)), 2)[:, :, ::2].astype(np.int64)),
            c.input(z.b, z.c, -(-z.s // 2), z.o),
            axis=2,
            **attributes,
        )
    places = rng.choice(z.b * z.c, z.c, replace=False)
    return c.op(
        op, x, c.constant(np.stack([places // z.c, places % z.c], -1).astype(np.int64)), c.input(z.c, z.s, z.o, batch=False), **attributes
    )


def gather(c: Chain, op: str, axis: int = 0) -> str:
    z, rng, x = c.size, c.rng("indices"), image(c)
    shape = (z.b, z.c, z.s, z.s)
    if op == "Gather":
        return c.op(op, x, c.constant(rng.integers(-shape[axis], shape[axis], (5,)).astype(np.int64)), axis=axis)
    if op == "GatherElements":
        return c.op(op, x, c.constant(rng.integers(0, shape[axis], (z.b, z.c, z.s, z.s)).astype(np.int64)), axis=axis)
    return c.op(
        op,
        x,
        c.constant(np.stack([rng.integers(0, n, (z.s, 4)) for n in (z.c, z.s)], -1)[None].repeat(z.b, 0).astype(np.int64)),
        batch_dims=1,
    )


def concat(c: Chain, axis: int = 1, several: int = 2) -> str:
    return c.op("Concat", *[rows(c) for _ in range(several)], axis=axis)


def concat_convs(c: Chain) -> str:
    """Two convolutions side by side, as in an inception block."""
    z = c.size
    x = image(c)
    branches = [c.op("Conv", x, c.weight(z.o, z.c, k, k, terms=z.c * k * k), pads=[k // 2] * 4) for k in (1, 3)]
    return c.op("Concat", *branches, axis=1)


def split(c: Chain, axis: int = 1) -> str:
    z = c.size
    x = rows(c)
    n = (z.b, z.c, z.s, z.o)[axis]
    if n < 2:
        raise Infeasible("nothing to split")
    return c.op("Split", x, c.ints(n // 2, n - n // 2), axis=axis, outputs=2, at=1)


def pad(c: Chain, mode: str = "constant") -> str:
    if mode == "constant":
        return c.op(
            "Pad",
            rows(c),
            c.ints(*([0, 1, 2] if c.size.name == "long" else [0, 1, 2, 0]), *([1, 0, 1] if c.size.name == "long" else [1, 0, 1, 3])),
        )
    return c.op("Pad", image(c), c.ints(0, 0, 2, 1, 0, 0, 1, 2), mode=mode)


def cropped(c: Chain, steps: tuple[int, ...]) -> str:
    dims = len(steps)
    begins = c.ints(*[-1 if s < 0 else 0 for s in steps])
    ends = c.ints(*[-(2**31) if s < 0 else 2**31 - 1 for s in steps])
    return c.op("Slice", image(c), begins, ends, c.ints(*range(4 - dims, 4)), c.ints(*steps))


def blocks(c: Chain, op: str) -> str:
    z = c.size
    x = c.input(z.b, z.c, 2 * z.s, 2 * z.s) if op == "SpaceToDepth" else c.input(z.b, 4 * z.c, z.s, z.s)
    return c.op(op, x, blocksize=2)


def recurrent(c: Chain, op: str, at: int = 0, direction: str = "forward", **attributes: Any) -> str:
    z, gates = c.size, {"LSTM": 4, "GRU": 3, "RNN": 1}[op]
    d, hidden = (2 if direction == "bidirectional" else 1), z.c
    steps = min(z.s, 11)
    x = c.input(steps, z.b, z.k, batch=False)
    rng = c.rng("recurrent")
    w, r, bias = (
        (0.4 * rng.standard_normal(s)).astype(c.float_type)
        for s in ((d, gates * hidden, z.k), (d, gates * hidden, hidden), (d, 2 * gates * hidden))
    )
    w /= np.sqrt(z.k)
    outputs = 3 if op == "LSTM" else 2
    return c.op(
        op, x, c.constant(w), c.constant(r), c.constant(bias), hidden_size=hidden, direction=direction, outputs=outputs, at=at, **attributes
    )


def binary(c: Chain, op: str, spread: str = "same") -> str:
    z, x = c.size, rows(c)
    n = last(c)
    other = {
        "same": lambda: rows(c),
        "channel": lambda: c.weight(z.c, *([1] * (1 if z.name == "long" else 2))),
        "last": lambda: c.weight(n),
    }[spread]()
    return c.op(op, x, other)


def where(c: Chain) -> str:
    x = rows(c)
    return c.op("Where", c.op("Greater", x, c.constant(0, c.float_type), dtype=bool), x, c.constant(0.25, c.float_type), dtype=c.float_type)


def top(c: Chain, at: int = 0) -> str:
    n = max(last(c) // 2, 1)
    y = c.op("TopK", rows(c), c.ints(n), axis=-1, outputs=2, at=at)
    if at:
        c.types[y] = np.dtype(np.int64)
    return y


def double(c: Chain, add: Add) -> str:
    c.float_type = np.dtype(np.float64)
    return add(c)
