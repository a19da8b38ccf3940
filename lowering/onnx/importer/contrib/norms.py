"""Normalisations of sums, and embeddings."""

from __future__ import annotations

from collections.abc import Mapping

from populus.lowering.onnx.importer.contrib.call import Body, Call, integers, text


def _skip_norm(c: Call) -> str:
    """Writes SkipLayerNormalization: of input + skip + bias; y1 and y2 are mean and 1 / deviation, y3 the sum."""
    lines = _sum(c, 4)
    ends = "y0, y1, y2" if c.wants(2) else "y0, y1" if c.wants(1) else "y0"
    epsilon = text(float(c.get("epsilon", 1e-12)))
    lines += f"{ends} = LayerNormalization <axis = -1, epsilon = {epsilon}> (total, x2{c.optional(3)})\n"
    return lines + ("y3 = Identity (total)\n" if c.wants(3) else "")


def _sum(c: Call, bias: int) -> str:
    """Writes `total`: input + skip, and a bias if present."""
    return "sum0 = Add (x0, x1)\n" + (f"total = Add (sum0, x{bias})\n" if c.has(bias) else "total = Identity (sum0)\n")


def _skip_simplified_norm(c: Call) -> str:
    """Writes SkipSimplifiedLayerNormalization: of input + skip + bias; y2 is 1 / root of mean squares, y3 the sum.

    The mean y1 and y2 are f32, as in onnxruntime.
    """
    epsilon = text(float(c.get("epsilon", 1e-5)))
    lines = f"{_sum(c, 3)}y0 = RMSNormalization <axis = -1, epsilon = {epsilon}> (total, x2)\n"
    if c.wants(1) or c.wants(2):
        lines += f"{integers('ax', -1)}f = Cast <to = 1> (total)\n"
    lines += "y1 = ReduceMean (f, ax)\n" if c.wants(1) else ""
    if c.wants(2):
        lines += f"""q = Mul (f, f)
mean = ReduceMean (q, ax)
e = Constant <value = float {{{epsilon}}}> ()
me = Add (mean, e)
root = Sqrt (me)
y2 = Reciprocal (root)
"""
    return lines + ("y3 = Identity (total)\n" if c.wants(3) else "")


def _simplified_norm(c: Call) -> str:
    """Writes RMSNormalization; y1 is the reciprocal of the root in f32, as in onnxruntime."""
    axis, epsilon = int(c.get("axis", -1)), text(float(c.get("epsilon", 1e-5)))
    root = ""
    if c.outputs > 1:
        root = f"""f = Cast <to = 1> (x0)
q = Mul (f, f)
sh = Shape (x0)
rank = Shape (sh)
ax = Constant <value = int64[1] {{{axis}}}> ()
zero = Constant <value = int64[1] {{0}}> ()
first = {"Add (ax, rank)" if axis < 0 else "Identity (ax)"}
s = Squeeze (first, zero)
end = Squeeze (rank, zero)
step = Constant <value = int64 {{1}}> ()
axes = Range (s, end, step)
mean = ReduceMean (q, axes)
e = Constant <value = float {{{epsilon}}}> ()
me = Add (mean, e)
sq = Sqrt (me)
y1 = Reciprocal (sq)
"""
    return f"{root}y0 = RMSNormalization <axis = {axis}, epsilon = {epsilon}> (x0, x1)\n"


def _embedding(c: Call) -> str:
    """Writes EmbedLayerNormalization: of the sum of a word's, a position's and a segment's rows.

    y1 counts the ones of each row of the mask, 0 without a mask; y2 is the sum. Without position ids, they are 0, 1, ..
    """
    lines = "w = Gather (x2, x0)\n"
    if c.has(8):
        lines += "p = Gather (x3, x8)\n"
    else:
        lines += f"{integers('zero', 0)}length = Shape <start = 1, end = 2> (x0)\np = Slice (x3, zero, length, zero)\n"
    lines += "wp = Add (w, p)\n"
    lines += "g = Gather (x4, x1)\ntotal = Add (wp, g)\n" if c.has(1) and c.has(4) else "total = Identity (wp)\n"
    lines += f"y0 = LayerNormalization <axis = -1, epsilon = {text(float(c.get('epsilon', 1e-12)))}> (total, x5, x6)\n"
    if c.wants(1):
        one = "ones = Constant <value = int32 {1}> ()\n"
        mask = f"{one}eq = Equal (x7, ones)\nm = Cast <to = 6> (eq)\n" if c.has(7) else f"i = Cast <to = 6> (x0)\n{one}m = Sub (i, i)\n"
        lines += f"{mask}{integers('last', 1)}y1 = ReduceSum <keepdims = 0> (m, last)\n"
    return lines + ("y2 = Identity (total)\n" if c.wants(2) else "")


FUNCTIONS: Mapping[str, Body] = {
    "EmbedLayerNormalization": _embedding,
    "SimplifiedLayerNormalization": _simplified_norm,
    "SkipLayerNormalization": _skip_norm,
    "SkipSimplifiedLayerNormalization": _skip_simplified_norm,
}
