"""ONNX's products, convolutions and pools: sums over points, whose accesses are affine."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from populus.dialects import expr
from populus.dialects.poplar.affine import Map, box, names, read_map, read_set, within
from populus.dialects.support.element_types import is_float
from populus.proof.codelets import averaged
from populus.proof.onnx.node import Node, Results
from populus.proof.report import Undecided
from populus.proof.terms import Terms
from populus.proof.trees import Pieces

_1, _2 = expr.Arg(1), expr.Arg(2)


def _matmul(n: Node) -> Results:
    return [multiplied(n.t, n.shape(0), n.shape(1), n.x(0), n.x(1), n.full)]


def multiplied(t: Terms, a: tuple[int, ...], b: tuple[int, ...], x: Pieces, y: Pieces, result: tuple[int, ...]) -> Pieces:
    """Makes the product of matrices x of shape `a` and y of shape `b`, as NumPy has it."""
    wide_a, wide_b = (1, *a) if len(a) == 1 else a, (*b, 1) if len(b) == 1 else b
    (*batch_a, m, k), (*batch_b, _, columns) = wide_a, wide_b
    rank = max(len(batch_a), len(batch_b))
    full = [max(x, y) for x, y in zip([1] * (rank - len(batch_a)) + batch_a, [1] * (rank - len(batch_b)) + batch_b)]
    g = names("g", rank)

    def at(batch: Sequence[int]) -> list[str]:
        lead = rank - len(batch)
        return [g[lead + d] if size != 1 else "0" for d, size in enumerate(batch)]

    points = f"[{', '.join([*g, 'm', 'n', 'k'])}]"
    where = within([*g, "m", "n", "k"], [*full, m, columns, k])
    image_a = [*at(batch_a), *(["k"] if len(a) == 1 else ["m", "k"])]
    image_b = [*at(batch_b), *(["k"] if len(b) == 1 else ["k", "n"])]
    index = [*g, *(["m"] if len(a) > 1 else []), *(["n"] if len(b) > 1 else [])]
    to_points = read_map(f"{{ [{', '.join(index)}] -> {points} : {where} }}")
    to_a, to_b = (read_map(f"{{ {points} -> [{', '.join(image)}] : {where} }}") for image in (image_a, image_b))
    return t.product(box(result), to_points, x, y, to_a, to_b)


def _gemm(n: Node) -> Results:
    if n.op.VERSION < 7:
        raise Undecided(f"opset {n.op.VERSION}")
    (m, columns), ta, tb = n.full, n.get("transA"), n.get("transB")
    k = n.shape(0)[0 if ta else 1]
    where = within("mnk", (m, columns, k))
    to_points = read_map(f"{{ [m, n] -> [m, n, k] : {where} }}")
    to_a = read_map(f"{{ [m, n, k] -> [{'k, m' if ta else 'm, k'}] : {where} }}")
    to_b = read_map(f"{{ [m, n, k] -> [{'n, k' if tb else 'k, n'}] : {where} }}")
    y = n.t.product(box(n.full), to_points, n.x(0), n.x(1), to_a, to_b)
    floats = is_float(n.element(0))
    if not floats:
        raise Undecided("integers")
    if (alpha := float(n.get("alpha"))) != 1:
        y = n.t.elementwise(_1 * alpha, box(n.full), [y], floats)
    if n.has(2):
        beta = float(n.get("beta"))
        y = n.t.elementwise(_1 + _2 * beta, box(n.full), [y, n.stretched(2, n.full)], floats)
    return [y]


def _windows(n: Node, size: Sequence[int], kernel: Sequence[int], outs: Sequence[int]) -> tuple[list[int], list[int], list[int], list[int]]:
    """Gives strides, dilations, and the pads before and after; `auto_pad` splits what the result's size leaves."""
    count = len(kernel)
    strides, dilations = (list(n.get(name) or [1] * count) for name in ("strides", "dilations"))
    pads, auto = list(n.get("pads") or [0] * 2 * count), n.get("auto_pad") or "NOTSET"
    if auto.startswith("SAME"):
        spread = [max((o - 1) * s + (k - 1) * d + 1 - i, 0) for o, s, k, d, i in zip(outs, strides, kernel, dilations, size)]
        small, large = [p // 2 for p in spread], [p - p // 2 for p in spread]
        pads = [*small, *large] if auto == "SAME_UPPER" else [*large, *small]
    return strides, dilations, pads[:count], pads[count:]


def _conv(n: Node) -> Results:
    return [_biased(n, convolved(n, n.shape(0), n.shape(1), n.x(0), n.x(1)))]


def convolved(n: Node, of_x: tuple[int, ...], of_w: tuple[int, ...], x: Pieces, w: Pieces) -> Pieces:
    """Makes the convolution of x and w by the attributes of a node. Elements outside of x are 0."""
    (batch, _, *size), (filters, channels, *kernel), outs = of_x, of_w, n.full[2:]
    groups = int(n.get("group"))
    per = filters // groups
    strides, dilations, before, _ = _windows(n, size, kernel, outs)
    o, k = names("o", len(outs)), names("k", len(outs))
    point = f"[{', '.join(['b', 'f', *o, 'c', *k])}]"
    where = within(["b", "f", *o, "c", *k], [batch, filters, *outs, channels, *kernel])
    seen = [f"{s}*{v} + {d}*{w} - {p}" for v, w, s, d, p in zip(o, k, strides, dilations, before)]
    inside = within(seen, size)
    group = f"{channels}*floor(f/{per}) + c"
    to_points = read_map(f"{{ [{', '.join(['b', 'f', *o])}] -> {point} : {where} }}")
    to_x = read_map(f"{{ {point} -> [{', '.join(['b', group, *seen])}] : {where} and {inside} }}")
    to_w = read_map(f"{{ {point} -> [{', '.join(['f', 'c', *k])}] : {where} }}")
    return n.t.product(box(n.full), to_points, x, w, to_x, to_w)


def _transposed_conv(n: Node) -> Results:
    """Gives the sum over i, k and channels where `i stride + k dilation - pad` is the result's place."""
    (batch, inputs, *size), (_, per, *kernel), outs = n.shape(0), n.shape(1), n.full[2:]
    groups, policy = int(n.get("group")), n.get("auto_pad") or "NOTSET"
    strides, dilations, before, _ = _windows(n, size, kernel, outs)
    if n.get("output_shape") or policy.startswith("SAME"):
        extra = [int(v) for v in n.get("output_padding") or [0] * len(size)]
        reach = [s * (m - 1) + e + d * (k - 1) + 1 for s, m, e, d, k in zip(strides, size, extra, dilations, kernel)]
        totals = [max(r - out, 0) for r, out in zip(reach, outs)]  # a result that is larger ends in zeros
        before = [total // 2 if policy == "SAME_UPPER" else total - total // 2 for total in totals]
    o, i, k = (names(stem, len(outs)) for stem in "oik")
    point = f"[{', '.join(['b', 'f', *o, 'c', *i, *k])}]"
    where = within(["b", "f", *o, "c", *i, *k], [batch, per * groups, *outs, inputs // groups, *size, *kernel])
    meets = [f"{v} = {s}*{x} + {d}*{w} - {p}" for v, x, w, s, d, p in zip(o, i, k, strides, dilations, before)]
    channel = f"{inputs // groups}*floor(f/{per}) + c"
    to_points = read_map(f"{{ [{', '.join(['b', 'f', *o])}] -> {point} : {' and '.join([where, *meets])} }}")
    to_x = read_map(f"{{ {point} -> [{', '.join(['b', channel, *i])}] : {where} }}")
    to_w = read_map(f"{{ {point} -> [{', '.join([channel, f'f mod {per}', *k])}] : {where} }}")
    return [_biased(n, n.t.product(box(n.full), to_points, n.x(0), n.x(1), to_x, to_w))]


def _einsum(n: Node) -> Results:
    """Gives the sum over the labels that the result lacks of the products of the operands, in one product of two at most."""
    equation = n.get("equation").replace(" ", "")
    left, arrow, right = equation.partition("->")
    operands = left.split(",")
    if "." in equation or len(operands) > 2:
        raise Undecided(equation)
    letters = "".join(operands)
    result = right if arrow else "".join(sorted(c for c in set(letters) if letters.count(c) == 1))
    sizes = {c: m for number, o in enumerate(operands) for c, m in zip(o, n.shape(number), strict=True)}
    labels = sorted(sizes)
    where = within([f"x{c}" for c in labels], [sizes[c] for c in labels])
    point = f"[{', '.join(f'x{c}' for c in labels)}]"
    to_points = read_map(f"{{ [{', '.join(f'x{c}' for c in result)}] -> {point} : {where} }}")
    to = [read_map(f"{{ {point} -> [{', '.join(f'x{c}' for c in o)}] : {where} }}") for o in operands]
    if len(operands) == 1:
        return [n.t.reduced("add", box(n.full), to_points, n.x(0), to[0])]
    return [n.t.product(box(n.full), to_points, n.x(0), n.x(1), *to)]


def _transformed(n: Node) -> Results:
    """Gives the discrete Fourier transform: the sum over j of x_j (cos - i sin)(2 pi j k / count)."""
    shape, full = n.shape(0), n.full
    rank = len(shape)
    axis = int(n.known(2).reshape(-1)[0]) if n.has(2) else -2
    axis = (axis if n.op.VERSION >= 20 else int(n.get("axis"))) % rank
    inverse = bool(n.get("inverse"))
    count = int(n.known(1).reshape(-1)[0]) if n.has(1) else shape[axis]
    if inverse and n.get("onesided"):
        raise Undecided("the inverse of one side")
    size, outs = min(shape[axis], count), full[axis]
    angle = 2 * np.pi * (np.outer(np.arange(outs), np.arange(size)) % count) / count
    cosine, sine = np.cos(angle), np.sin(angle) * (1 if inverse else -1)
    # [k, j, part of the result, part of x]
    turn = np.stack([np.stack([cosine, -sine], -1), np.stack([sine, cosine], -1)], -2)[..., : shape[-1]] / (count if inverse else 1)
    i = names("i", rank)
    where = f"{within(i, full)} and {within('jp', (size, shape[-1]))}"
    point = f"[{', '.join([*i, 'j', 'p'])}]"
    to_points = read_map(f"{{ [{', '.join(i)}] -> {point} : {where} }}")
    own = ["j" if d == axis else "p" if d == rank - 1 else v for d, v in enumerate(i)]
    to_x = read_map(f"{{ {point} -> [{', '.join(own)}] : {where} }}")
    to_w = read_map(f"{{ {point} -> [{i[axis]}, j, {i[-1]}, p] : {where} }}")
    return [n.t.product(box(full), to_points, n.x(0), n.t.array(np.ascontiguousarray(turn)), to_x, to_w)]


def _biased(n: Node, y: Pieces) -> Pieces:
    if not n.has(2):
        return y
    i = names("i", len(n.full))
    bias = n.t.seen(n.x(2), read_map(f"{{ [{', '.join(i)}] -> [i1] : {within(i, n.full)} }}"))
    return n.t.elementwise(_1 + _2, box(n.full), [y, bias], is_float(n.element(0)))


def _pool(n: Node) -> Results:
    (batch, channels, *size), outs, whole = n.shape(0), n.full[2:], n.op.OP_TYPE.startswith("Global")
    if len([r for r in n.op.results if r.uses]) > 1:
        raise Undecided("places of maxima")
    kernel = size if whole else [int(v) for v in n.get("kernel_shape")]
    ones, none = [1] * len(size), [0] * len(size)
    strides, dilations, before, after = (ones, ones, none, none) if whole else _windows(n, size, kernel, outs)
    o, k = names("o", len(outs)), names("k", len(outs))
    point = f"[{', '.join(['b', 'f', *o, *k])}]"
    where = within(["b", "f", *o, *k], [batch, channels, *outs, *kernel])
    seen = [f"{s}*{v} + {d}*{w} - {p}" for v, w, s, d, p in zip(o, k, strides, dilations, before)]
    image = f"[{', '.join(['b', 'f', *seen])}]"
    to_points = read_map(f"{{ [{', '.join(['b', 'f', *o])}] -> {point} : {where} }}")
    to_x = read_map(f"{{ {point} -> {image} : {where} and {within(seen, size)} }}")
    if n.op.OP_TYPE.endswith("MaxPool"):
        return [n.t.reduced("max", box(n.full), to_points, n.x(0), to_x), *([] for _ in n.op.results[1:])]
    if n.op.OP_TYPE.endswith("LpPool"):
        p = float(n.get("p") or 2)
        powers = n.t.elementwise(expr.call("pow", expr.absolute(_1), p), box(n.shape(0)), [n.x(0)], True)
        total = n.t.reduced("add", box(n.full), to_points, powers, to_x)
        root = expr.select(_1, expr.call("pow", expr.select(1.0, _1, expr.equal(_1, 0.0)), 1 / p), expr.equal(_1, 0.0))
        return [n.t.elementwise(root, box(n.full), [total], True)]
    counted: Map | None = None
    if not whole and n.get("count_include_pad"):
        room = [v + p for v, p in zip(size, after)]
        e = names("e", len(size))
        limits = read_set(f"{{ [b, f, {', '.join(e)}] : {' and '.join(f'{v} < {r}' for v, r in zip(e, room))} }}")
        counted = to_points.apply_range(read_map(f"{{ {point} -> {image} : {where} }}").intersect_range(limits))
    return [averaged(n.t, box(n.full), to_points, n.x(0), to_x, math.prod(kernel), counted)]


PRODUCTS: Mapping[str, Callable[[Node], Results]] = {
    **dict.fromkeys(("MaxPool", "AveragePool", "LpPool", "GlobalMaxPool", "GlobalAveragePool", "GlobalLpPool"), _pool),
    "MatMul": _matmul,
    "Gemm": _gemm,
    "Conv": _conv,
    "ConvTranspose": _transposed_conv,
    "DFT": _transformed,
    "Einsum": _einsum,
}
"""The definition of each op."""
