"""Ops that move elements, and a few of matrices."""

from __future__ import annotations

from collections.abc import Mapping

from populus.dialects.support.diagnostics import PopulusError
from populus.lowering.onnx.importer.contrib.call import Body, Call, number, same


def _expand_dims(c: Call) -> str:
    """Writes ExpandDims, whose axis is a number."""
    return "a = Cast <to = 7> (x1)\none = Constant <value = int64[1] {1}> ()\naxes = Reshape (a, one)\ny0 = Unsqueeze (x0, axes)\n"


def _distances(c: Call) -> str:
    """Writes CDist: the distance of each row of A from each row of B. Raises PopulusError for an unknown metric."""
    metric = c.get("metric", "sqeuclidean")
    if metric not in ("euclidean", "sqeuclidean"):
        raise PopulusError(f"CDist with the metric {metric} is not supported; euclidean and sqeuclidean are")
    lines = """one = Constant <value = int64[1] {1}> ()
zero = Constant <value = int64[1] {0}> ()
last = Constant <value = int64[1] {2}> ()
a = Unsqueeze (x0, one)
b = Unsqueeze (x1, zero)
d = Sub (a, b)
q = Mul (d, d)
s = ReduceSum <keepdims = 0> (q, last)
"""
    return lines + ("y0 = Sqrt (s)\n" if metric == "euclidean" else "y0 = Identity (s)\n")


def _no_repeats(c: Call) -> str:
    """Writes NGramRepeatBlock: a token's score is -inf if it would complete an n-gram that its row already has.

    At a window's start, the n - 1 tokens there are compared with the last n - 1 of the row.
    Raises PopulusError for an n-gram of no tokens.
    """
    n = int(c.required("ngram_size"))
    if n < 1:
        raise PopulusError(f"NGramRepeatBlock has the ngram_size {n}; at least 1 is expected")
    lines = f"""one = Constant <value = int64[1] {{1}}> ()
zero = Constant <value = int64[1] {{0}}> ()
short = Constant <value = int64[1] {{{n - 1}}}> ()
length = Shape <start = 1> (x0)
next = Slice (x0, short, length, one)
banned_0 = Equal (next, next)
"""
    for i in range(n - 1):  # the token i of each window against token i of the row's end
        lines += f"""i{i} = Constant <value = int64[1] {{{i}}}> ()
back{i} = Constant <value = int64[1] {{{n - 1 - i}}}> ()
from{i} = Sub (length, back{i})
until{i} = Sub (length, back{i})
to{i} = Add (from{i}, one)
w{i} = Slice (x0, i{i}, until{i}, one)
t{i} = Slice (x0, from{i}, to{i}, one)
e{i} = Equal (w{i}, t{i})
banned_{i + 1} = And (banned_{i}, e{i})
"""
    return (
        lines
        + number(0.0, "none", "x1")
        + number(1.0, "hit", "x1")
        + f"""hits = Where (banned_{n - 1}, hit, none)
size = Shape (x1)
still = Expand (none, size)
counts = ScatterElements <axis = 1, reduction = "max"> (still, next, hits)
blocked = Greater (counts, none)
low_f = Constant <value_float = -inf> ()
low = CastLike (low_f, x1)
y0 = Where (blocked, low, x1)
"""
    )


FUNCTIONS: Mapping[str, Body] = {
    "CDist": _distances,
    "ExpandDims": _expand_dims,
    "NGramRepeatBlock": _no_repeats,
    "Trilu": same("Trilu", "upper"),
}
