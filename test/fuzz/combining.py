"""Kinds of nodes that combine many elements: reductions, windows, products, normalisations."""

from __future__ import annotations

from collections.abc import Callable
from math import log, log2
from typing import Any

import numpy as np

from fuzz.drawing import F16, F32, F64, FLOATS, I8, I32, I64, U8, Draw, Kind, Span, Unfit, Value
from fuzz.shaping import axes_given, plain, space

WIDE = (F32, F32, F64)


def finest(x: Span) -> float | None:
    return x.step or None


def product(size: float, n: int) -> Span:
    """The span of products of n numbers up to `size`; a float's range ends at 2^1024."""
    most = size**n if n * log2(size) < 1023 else 2.0**1023
    return Span(-most, most)


REDUCED: dict[str, tuple[tuple[int, ...], float, float, Callable[[Span, int], Span]]] = {
    "ReduceSum": ((*FLOATS, I32, I64), -1e4, 1e4, lambda s, n: Span(n * s.low if s.low < 0 else 0, n * max(s.high, 0), finest(s))),
    "ReduceMean": ((*FLOATS, I32), -1e4, 1e4, lambda s, n: Span(min(s.low, 0), max(s.high, 0))),
    "ReduceMax": ((*FLOATS, I32, I64), -np.inf, np.inf, lambda s, n: s),
    "ReduceMin": ((*FLOATS, I32, I64), -np.inf, np.inf, lambda s, n: s),
    "ReduceProd": ((*WIDE, I32, I64), -4, 4, lambda s, n: product(max(s.size, 1), n)),
    "ReduceL1": ((*FLOATS, I32), -1e4, 1e4, lambda s, n: Span(0, n * s.size, finest(s))),
    "ReduceL2": (FLOATS, -30, 30, lambda s, n: Span(0, n * s.size)),
    "ReduceSumSquare": ((*FLOATS, I32), -30, 30, lambda s, n: Span(0, n * s.size**2)),
    "ReduceLogSum": (FLOATS, 0.125, 1e4, lambda s, n: Span(log(s.low), log(n * s.high))),
    "ReduceLogSumExp": (WIDE, -20, 20, lambda s, n: Span(s.low, s.high + log(n))),
}


def reduction(op: str) -> Callable[[Draw], None]:
    types, low, high, of = REDUCED[op]

    def draw(g: Draw) -> None:
        x = g.value(types, low=low, high=high, empty=False)
        axes = None if g.chance(0.25) or not x.rank else plain(g, g.axes(x.rank), x.rank)
        n = x.size if axes is None else int(np.prod([x.shape[a] for a in axes]))
        since = 13 if op == "ReduceSum" else 18
        extra, said = axes_given(g, since, axes)
        if g.opset >= since and axes is None and g.chance(0.4):
            said["noop_with_empty_axes"] = g.rng.randint(0, 1)
            if g.chance(0.5):
                extra = [g.ints(np.zeros(0, np.int64))]
        if not g.chance(0.3):
            said["keepdims"] = g.rng.randint(0, 1)
        span = of(x.span, max(n, 1))
        if said.get("noop_with_empty_axes"):
            span = of(x.span, 1)
        g.node(op, [x, *extra], [span], **said)

    return draw


def softmax(op: str) -> Callable[[Draw], None]:
    def draw(g: Draw) -> None:
        x = g.value((F32,) if op == "Hardmax" else FLOATS, least=1, low=-30, high=30, exact=op == "Hardmax", empty=False)
        axis = g.axis(x.rank) if g.opset >= 11 else g.rng.randrange(x.rank)
        said = {"axis": axis} if g.chance(0.7) or x.rank < 2 else {}
        span = {"Softmax": Span(0, 1), "LogSoftmax": Span(-70, 0), "Hardmax": Span(0, 1, 1)}[op]
        g.node(op, [x], [span], **said)

    return draw


def global_pool(op: str) -> Callable[[Draw], None]:
    def draw(g: Draw) -> None:
        x = g.value((F32,), shape=(g.rng.randint(1, 2), g.rng.randint(1, 3), *space(g, g.rng.randint(1, 3), 4)))
        said = {"p": g.rng.randint(1, 3)} if op == "GlobalLpPool" else {}
        size = x.span.size * (64 if said else 1)
        g.node(op, [x], [x.span if op == "GlobalMaxPool" else Span(0 if said else -size, size)], **said)

    return draw


def misses(size: int, kernel: int, dilation: int, stride: int, before: int, after: int) -> bool:
    """Whether some window of an axis, the last of ceil_mode included, has no element of it."""
    starts = range(-before, size + after - (kernel - 1) * dilation - 1 + stride, stride)
    return any(not any(0 <= s + k * dilation < size for k in range(kernel)) for s in starts if s < size)


def windows(
    g: Draw, sizes: tuple[int, ...], kernel: tuple[int, ...], *, dilated: bool, padded: tuple[int, ...], pooled: bool = False
) -> dict[str, Any]:
    """Strides, dilations and pads of windows, each of which holds something. `padded`: the most pads of each axis."""
    rank = len(sizes)
    said: dict[str, Any] = {}
    dilations = [g.rng.choice([1, 1, 2, 3]) if dilated else 1 for _ in range(rank)]
    if g.chance(0.8):
        said["strides"] = [g.rng.choice([1, 1, 2, 3]) for _ in range(rank)]
    if dilations != [1] * rank or (dilated and g.chance(0.3)):
        said["dilations"] = dilations
    auto = g.rng.choice(["SAME_UPPER", "SAME_LOWER", "VALID"]) if g.chance(0.3) else None
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations)]
    if auto:
        if auto != "VALID" and dilations != [1] * rank:
            raise Unfit  # onnxruntime refuses some of these, and pools of opset 10 forget the dilations
        said["auto_pad"] = auto
        if auto == "VALID" and any(r > n for r, n in zip(reach, sizes)):
            raise Unfit
        return said
    pads = [g.rng.randint(0, p) for p in (*padded, *padded)]
    if any(r > n + a + b for r, n, a, b in zip(reach, sizes, pads[:rank], pads[rank:])):
        raise Unfit
    strides = said.get("strides", [1] * rank)
    if pooled and any(map(misses, sizes, kernel, dilations, strides, pads[:rank], pads[rank:])):
        raise Unfit  # of nothing there is no largest and no mean
    if any(pads) or g.chance(0.3):
        said["pads"] = pads
    return said


def pool(op: str) -> Callable[[Draw], None]:
    def draw(g: Draw) -> None:
        rank = g.rng.choice([1, 2, 2, 3])
        sizes = space(g, rank, 7 if rank < 3 else 4)
        kernel = tuple(g.rng.randint(1, min(3, n)) for n in sizes)
        types: tuple[int, ...] = (F32,)
        if op == "MaxPool":
            types = (F32,) if g.opset < 8 else (F32, F64) if g.opset < 12 else (F32, F64, I8, U8)
        x = g.value(types, shape=(g.rng.randint(1, 2), g.rng.randint(1, 2), *sizes), exact=op == "MaxPool")
        dilated = g.opset >= {"MaxPool": 10, "AveragePool": 19, "LpPool": 18}[op] and g.chance(0.4)
        said = windows(g, sizes, kernel, dilated=dilated, padded=tuple(k - 1 for k in kernel), pooled=True)
        if "auto_pad" not in said and g.opset >= (18 if op == "LpPool" else 10) and g.chance(0.4):
            said["ceil_mode"] = 1
        spans: list[Span | None] = [x.span]
        if op == "AveragePool":
            if said.get("auto_pad", "").startswith("SAME") and any(k < s for k, s in zip(kernel, said.get("strides", kernel))):
                raise Unfit  # onnxruntime takes some of these for negative pads
            said |= {"count_include_pad": 1} if g.chance(0.4) else {}
            spans = [Span(min(x.span.low, 0), max(x.span.high, 0))]
        if op == "LpPool":
            said |= {"p": g.rng.randint(1, 3)} if g.chance(0.7) else {}
            spans = [Span(0, 30 * x.span.size)]
        if op == "MaxPool" and g.opset >= 8 and g.chance(0.4):
            spans.append(Span(0, x.size, 1))
            said |= {"storage_order": g.rng.randint(0, 1)} if g.chance(0.4) else {}
        shape = pooled(x.shape, kernel, said)
        g.node(op, [x], spans, [shape] * len(spans), kernel_shape=kernel, **said)

    return draw


def pooled(x: tuple[int, ...], kernel: tuple[int, ...], said: dict[str, Any]) -> tuple[int, ...]:
    """The shape of a pool's result. ONNX's inference counts windows that start in the padding behind, before opset 22."""
    rank = len(kernel)
    pads, strides, dilations = said.get("pads", [0] * 2 * rank), said.get("strides", [1] * rank), said.get("dilations", [1] * rank)
    sizes: list[int] = []
    for n, k, s, d, a, b in zip(x[2:], kernel, strides, dilations, pads[:rank], pads[rank:]):
        room = n + a + b - (k - 1) * d - 1
        if said.get("auto_pad", "").startswith("SAME"):
            sizes.append(-(-n // s))
        elif said.get("ceil_mode"):
            windows = -(-room // s) + 1
            sizes.append(windows - ((windows - 1) * s >= n + a))
        else:
            sizes.append(room // s + 1)
    return (*x[:2], *sizes)


def convolution(g: Draw) -> None:
    rank = g.rng.choice([1, 2, 2, 2, 3])
    sizes = space(g, rank, 7 if rank < 3 else 4)
    kernel = space(g, rank, 3)
    groups, each, outs = g.rng.choice([(1, 1, 2), (1, 2, 3), (2, 1, 1), (2, 2, 3), (3, 1, 2), (1, 3, 4)])
    x = g.value((F32,), shape=(g.rng.randint(1, 2), groups * each, *sizes))
    w = g.new(x.type, (groups * outs, each, *kernel), constant=0.7)
    b = g.new(x.type, (groups * outs,)) if g.chance(0.5) else None
    said = windows(g, sizes, kernel, dilated=g.chance(0.4), padded=tuple(2 for _ in kernel))
    if g.chance(0.5):
        said["kernel_shape"] = kernel
    if groups > 1 or g.chance(0.3):
        said["group"] = groups
    size = x.span.size * w.span.size * each * int(np.prod(kernel)) + 4
    step = x.span.step * w.span.step if x.span.step and w.span.step and b is None else None
    g.node("Conv", [x, w, b], [Span(-size, size, step)], **said)


def transposed(g: Draw) -> None:
    rank = g.rng.choice([1, 2, 2, 3])
    sizes = space(g, rank, 4)
    kernel = space(g, rank, 3)
    groups, each, outs = g.rng.choice([(1, 1, 2), (1, 2, 3), (2, 1, 1), (2, 2, 3)])
    x = g.value((F32,), shape=(g.rng.randint(1, 2), groups * each, *sizes))
    w = g.new(x.type, (groups * each, outs, *kernel), constant=0.7)
    b = g.new(x.type, (groups * outs,)) if g.chance(0.5) else None
    strides = [g.rng.choice([1, 1, 2, 3]) for _ in range(rank)]
    dilations = [g.rng.choice([1, 1, 2]) for _ in range(rank)]
    said: dict[str, Any] = {"strides": strides} if strides != [1] * rank or g.chance(0.5) else {}
    said |= {"dilations": dilations} if dilations != [1] * rank or g.chance(0.3) else {}
    said |= {"group": groups} if groups > 1 else {}
    if g.chance(0.3):
        said["output_padding"] = [g.rng.randint(0, s - 1) for s in strides]
    more = said.get("output_padding", [0] * rank)
    full = [s * (n - 1) + o + (k - 1) * d + 1 for s, n, o, k, d in zip(strides, sizes, more, kernel, dilations)]
    if g.chance(0.5):
        pads = [g.rng.randint(0, 2) for _ in range(2 * rank)]
        full = [f - a - b for f, a, b in zip(full, pads[:rank], pads[rank:])]
        if min(full) < 1:
            raise Unfit
        said["pads"] = pads
    elif g.chance(0.4):
        shape = [g.rng.randint(max(f - 2, 1), f) for f in full]
        said |= {"output_shape": shape, "auto_pad": g.rng.choice(["NOTSET", "SAME_UPPER", "SAME_LOWER"])}
        full = shape
    elif g.chance(0.3):
        said |= {"auto_pad": "VALID"}
    if g.chance(0.4):
        said["kernel_shape"] = kernel
    size = x.span.size * w.span.size * each * int(np.prod(kernel)) + 4
    g.node("ConvTranspose", [x, w, b], [Span(-size, size)], [(x.shape[0], groups * outs, *full)], **said)


def products(x: Value, y: Value, n: int) -> Span:
    size = x.span.size * y.span.size * max(n, 1)
    return Span(-size, size, x.span.step * y.span.step if x.span.step and y.span.step else None)


def matmul(g: Draw) -> None:
    x = g.value((*WIDE, F16, I32, I64) if g.opset >= 9 else (*WIDE, F16), least=1)
    k, n = x.shape[-1], g.rng.randint(1, 5)
    way = g.rng.choice(["vector", "matrix", "matrix", "batch", "batch"])
    shape = {"vector": (k,), "matrix": (k, n), "batch": (*(1 if g.chance(0.3) else d for d in x.shape[:-2]), k, n)}[way]
    if g.chance(0.15):
        shape = (2, *shape) if len(shape) == 2 and x.rank <= 2 else shape
    y = g.value((x.type,), shape=shape) if g.chance(0.7) else g.new(x.type, shape)
    g.node("MatMul", [x, y], [products(x, y, k)])


def large_product(g: Draw) -> None:
    """A product of more than a million terms, which the native engine runs by default."""
    m, k, n = g.rng.choice([72, 131, 200]), g.rng.choice([131, 160]), g.rng.choice([128, 131, 256])
    x, y = g.new(F32, (*g.rng.choice([(), (2,)]), m, k), -1, 1, constant=0), g.new(F32, (k, n), -1, 1)
    g.node("MatMul", [x, y], [products(x, y, k)])


def gemm(g: Draw) -> None:
    m, k, n = (g.rng.choice([1, 2, 3, 5]) for _ in range(3))
    ta, tb = g.rng.randint(0, 1), g.rng.randint(0, 1)
    x = g.value((*WIDE, F16), shape=(k, m) if ta else (m, k))
    y = g.value((x.type,), shape=(n, k) if tb else (k, n))
    c = None
    if g.opset < 11 or g.chance(0.6):
        c = g.value((x.type,), shape=g.rng.choice([(m, n), (n,), (1, n), (m, 1), (1,), (), (1, 1)]), low=-1e3, high=1e3)
    said: dict[str, Any] = {"transA": ta} if ta or g.chance(0.5) else {}
    said |= {"transB": tb} if tb else {}
    said |= {"alpha": g.rng.choice([0.5, -1.0, 0.25])} if g.chance(0.4) else {}
    said |= {"beta": g.rng.choice([0.5, -1.0, 2.0, 0.0])} if g.chance(0.4) else {}
    size = products(x, y, k).size + (2 * c.span.size if c is not None else 0)
    g.node("Gemm", [x, y, c], [Span(-size, size)], **said)


def matmul_integer(g: Draw) -> None:
    m, k, n = (g.rng.choice([1, 2, 3, 5]) for _ in range(3))
    x = g.value((U8, I8), shape=(*g.shape(0, 1, empty=False), m, k))
    y = g.value((U8, I8), shape=(k, n))
    zero = [g.scalar(g.rng.randint(0, 5), v.type) if g.chance(0.5) else None for v in (x, y)]
    g.node("MatMulInteger", [x, y, *zero], [Span(-3e5, 3e5, 1)])


def conv_integer(g: Draw) -> None:
    x = g.value((U8,), shape=(1, g.rng.randint(1, 2), *space(g, 2, 5)))
    kernel = space(g, 2, 3)
    w = g.new(U8, (2, x.shape[1], *kernel))
    said = windows(g, x.shape[2:], kernel, dilated=g.chance(0.3), padded=(1, 1))
    zero = [g.scalar(g.rng.randint(0, 5), U8) if g.chance(0.5) else None, None]
    g.node("ConvInteger", [x, w, *zero], [Span(-3e5, 3e5, 1)], **said)


def quantize(g: Draw) -> None:
    x = g.value((F32,), low=-100, high=100)
    scale = g.constant(np.float32(g.rng.choice([0.5, 0.25, 1.0])))
    if not x.span.exact:
        raise Unfit
    zero = g.scalar(g.rng.randint(0, 5), g.rng.choice([U8, I8])) if g.chance(0.7) else None
    (q,) = g.node("QuantizeLinear", [x, scale, zero], [Span(-128, 255, 1)])
    if g.chance(0.6):
        g.node("DequantizeLinear", [q, scale, zero], [Span(-300, 300)])


def batch_norm(g: Draw) -> None:
    c = g.rng.randint(1, 4)
    x = g.value((*WIDE,), shape=(g.rng.randint(1, 2), c, *space(g, g.rng.randint(0, 3), 3)))
    scale, bias, mean = (g.new(x.type, (c,), constant=0.8) for _ in range(3))
    var = g.new(x.type, (c,), 0.5, 2, constant=0.8)
    said = {"epsilon": 1e-3} if g.chance(0.5) else {}
    g.node("BatchNormalization", [x, scale, bias, mean, var], [Span(-8 * x.span.size - 50, 8 * x.span.size + 50)], **said)


def instance_norm(g: Draw) -> None:
    c = g.rng.randint(1, 3)
    x = g.new(F32, (g.rng.randint(1, 2), c, *(g.rng.randint(2, 4) for _ in range(g.rng.randint(1, 3)))))
    scale, bias = g.new(x.type, (c,)), g.new(x.type, (c,))
    g.node("InstanceNormalization", [x, scale, bias], [Span(-50, 50)], epsilon=g.rng.choice([1e-2, 0.1]))


def group_norm(g: Draw) -> None:
    groups, each = g.rng.choice([(1, 2), (2, 1), (2, 2), (3, 2)])
    x = g.new(F32, (g.rng.randint(1, 2), groups * each, *(g.rng.randint(2, 4) for _ in range(g.rng.randint(1, 2)))))
    n = groups if g.opset < 21 else groups * each
    g.node("GroupNormalization", [x, g.new(F32, (n,)), g.new(F32, (n,))], [Span(-50, 50)], [x.shape], num_groups=groups, epsilon=0.01)


def layer_norm(g: Draw) -> None:
    x = g.value((F32, F32, F64), least=1, empty=False, low=-100, high=100)
    axis = g.axis(x.rank)
    shape = x.shape[axis % x.rank :]
    scale, bias = g.new(x.type, shape), g.new(x.type, shape) if g.chance(0.6) else None
    spans: list[Span | None] = [Span(-100, 100)]
    if g.chance(0.3):
        spans += [Span(-x.span.size, x.span.size), Span(0, 100)]
        if x.type == F64:
            spans = spans[:1]
    said = {} if axis == -1 and g.chance(0.5) else {"axis": axis}
    g.node("LayerNormalization", [x, scale, bias], spans, epsilon=0.05, **said)


def rms_norm(g: Draw) -> None:
    x = g.value((F32,), least=1, empty=False, low=-100, high=100)
    axis = g.axis(x.rank)
    g.node("RMSNormalization", [x, g.new(x.type, x.shape[axis % x.rank :])], [Span(-100, 100)], axis=axis, epsilon=0.05)


def lrn(g: Draw) -> None:
    x = g.value((F32,), shape=(1, g.rng.randint(1, 5), *space(g, 2, 3)))
    said = {"alpha": 0.1, "beta": 0.5, "bias": 2.0} if g.chance(0.6) else {}
    g.node("LRN", [x], [Span(-2 * x.span.size, 2 * x.span.size)], size=g.rng.choice([1, 3, 5]), **said)


def lp_norm(g: Draw) -> None:
    x = g.value(WIDE, least=1, low=0.0625, empty=False)
    g.node("LpNormalization", [x], [Span(-1, 1)], axis=g.axis(x.rank), p=g.rng.choice([1, 2]))


EQUATIONS = ("ij,jk->ik", "bij,bjk->bik", "ij->ji", "ij->i", "i,j->ij", "bhid,bhjd->bhij", "ii->i", "ij,ij->", "...i,ij->...j", "ij,k->kij")


def einsum(g: Draw) -> None:
    equation = g.rng.choice(EQUATIONS)
    sizes: dict[str, int] = {}
    shapes = [[sizes.setdefault(c, g.rng.randint(1, 4)) for c in t.replace("...", "ab")] for t in equation.split("->")[0].split(",")]
    first = g.value(WIDE, shape=shapes[0], low=-100, high=100)
    xs = [first, *(g.value((first.type,), shape=s, low=-100, high=100) for s in shapes[1:])]
    size = float(np.prod([x.span.size for x in xs])) * 4**2
    g.node("Einsum", xs, [Span(-size, size)], equation=equation)


def recurrent(op: str) -> Callable[[Draw], None]:
    gates = {"RNN": 1, "GRU": 3, "LSTM": 4}[op]

    def draw(g: Draw) -> None:
        steps, batch, size, hidden = (g.rng.randint(1, 3) for _ in range(4))
        direction = g.rng.choice(["forward", "reverse", "bidirectional"])
        ways = 2 if direction == "bidirectional" else 1
        x = g.value((F32,), shape=(steps, batch, size), low=-10, high=10)
        w, r = g.new(F32, (ways, gates * hidden, size), -1, 1), g.new(F32, (ways, gates * hidden, hidden), -1, 1)
        b = g.new(F32, (ways, 2 * gates * hidden), -1, 1) if g.chance(0.5) else None
        lengths = g.ints([g.rng.randint(1, steps) for _ in range(batch)], I32) if g.chance(0.3) else None
        h = g.new(F32, (ways, batch, hidden), -1, 1) if g.chance(0.4) else None
        extra: list[Value | None] = [g.new(F32, (ways, batch, hidden), -1, 1) if g.chance(0.4) else None] if op == "LSTM" else []
        spans: list[Span | None] = [Span(-9, 9) if g.chance(0.6) else None, Span(-9, 9)] + ([Span(-9, 9)] if op == "LSTM" else [])
        said = {"linear_before_reset": g.rng.randint(0, 1)} if op == "GRU" else {}
        if op == "LSTM" and g.chance(0.3):
            extra.append(g.new(F32, (ways, 3 * hidden), -1, 1))
        g.node(op, [x, w, r, b, lengths, h, *extra], spans, hidden_size=hidden, direction=direction, **said)

    return draw


KINDS = [
    *(Kind(op, reduction(op), weight=3) for op in REDUCED),
    *(Kind(op, softmax(op), weight=3) for op in ("Softmax", "LogSoftmax", "Hardmax")),
    *(Kind(op, global_pool(op), weight=1) for op in ("GlobalMaxPool", "GlobalAveragePool", "GlobalLpPool")),
    *(Kind(op, pool(op), weight=6) for op in ("MaxPool", "AveragePool", "LpPool")),
    Kind("Conv", convolution, weight=9),
    Kind("ConvTranspose", transposed, weight=6),
    Kind("MatMul", matmul, weight=7),
    Kind("Gemm", gemm, weight=5),
    Kind("MatMulInteger", matmul_integer, 10),
    Kind("ConvInteger", conv_integer, 10),
    Kind("QuantizeLinear", quantize, 10, weight=3),
    Kind("BatchNormalization", batch_norm, weight=3),
    Kind("InstanceNormalization", instance_norm),
    Kind("GroupNormalization", group_norm, 21),
    Kind("LayerNormalization", layer_norm, 17, weight=3),
    Kind("RMSNormalization", rms_norm, 23),
    Kind("LRN", lrn),
    Kind("LpNormalization", lp_norm),
    Kind("Einsum", einsum, 12, weight=3),
    *(Kind(op, recurrent(op)) for op in ("RNN", "GRU", "LSTM")),
]
