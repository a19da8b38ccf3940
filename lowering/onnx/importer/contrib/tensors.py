"""Ops that move elements, and a few of matrices."""

from __future__ import annotations

from collections.abc import Mapping

from populus.dialects.support.diagnostics import PopulusError
from populus.lowering.onnx.importer.contrib.call import Body, Call, integers, number, same


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


def _inverse(c: Call) -> str:
    """Writes Inverse of square matrices: Gauss-Jordan elimination of [x, 1], a column at a time.

    The pivot is the largest element of the column on or below the diagonal. A singular matrix gives no finite result.
    """
    step = """pivots = Gather <axis = 2> (a, k)
sizes = Abs (pivots)
above = Less (rows, k)
candidates = Where (above, minus, sizes)
p = ArgMax <axis = 1, keepdims = 1> (candidates)
at_k = Equal (rows, k)
at_p = Equal (rows, p)
to_k = Where (at_p, k, rows)
order_2 = Where (at_k, p, to_k)
order_3 = Unsqueeze (order_2, last)
order = Expand (order_3, whole)
swapped = GatherElements <axis = 1> (a, order)
row = Gather <axis = 1> (swapped, k)
pivot_1 = Gather <axis = 1> (row, k)
pivot = Unsqueeze (pivot_1, one)
unit = Div (row, pivot)
unit_3 = Unsqueeze (unit, one)
column = Gather <axis = 2> (swapped, k)
factors = Unsqueeze (column, last)
parts = Mul (factors, unit_3)
less = Sub (swapped, parts)
at_row = Unsqueeze (at_k, last)
next = Where (at_row, unit_3, less)
on = Identity (go)
"""
    return f"""shape = Shape (x0)
n_1 = Shape <start = -1> (x0)
{integers("any", -1)}{integers("one", 1)}{integers("last", 2)}{integers("from", 0)}square = Concat <axis = 0> (any, n_1, n_1)
{number(-1.0, "minus")}stack = Reshape (x0, square)
flat = Concat <axis = 0> (n_1, n_1)
empty = ConstantOfShape (flat)
eye_2 = EyeLike (empty)
b = Shape <end = 1> (stack)
eyes_to = Concat <axis = 0> (b, n_1, n_1)
eye = CastLike (eye_2, x0)
eyes = Expand (eye, eyes_to)
joined = Concat <axis = 2> (stack, eyes)
whole = Shape (joined)
rank0 = Constant <value = int64[0] {{}}> ()
n = Reshape (n_1, rank0)
z64 = Constant <value = int64 {{0}}> ()
o64 = Constant <value = int64 {{1}}> ()
rows_1 = Range (z64, n, o64)
{integers("front", 0)}rows = Unsqueeze (rows_1, front)
done = Loop <body = step (k, go, a) => (on, next) {{ {step} }}> (n, , joined)
end = Shape <start = 2> (joined)
right = Slice (done, n_1, end, last)
y0 = Reshape (right, shape)
"""


FILLED = {1: "float", 6: "int32", 7: "int64", 11: "double"}
"""The element types of ConstantFill, by number in TensorProto.DataType."""


def _filled(c: Call) -> str:
    """Writes ConstantFill, an experimental op that ONNX removed and PyTorch's exporter writes for opsets below 9.

    Source: ONNX 1.1, experimental ops. Raises PopulusError for an unknown element type, and for a shape of more than the input.
    """
    dtype = c.get("dtype", 1)
    if dtype not in FILLED:
        raise PopulusError(f"ConstantFill with the dtype {dtype} is not supported; {', '.join(map(str, FILLED))} are")
    c.refuse("shape", "extra_shape")
    value = c.get("value", 0.0)
    written = repr(float(value)) if FILLED[dtype] in ("float", "double") else str(int(value))
    shape = "x0" if c.get("input_as_shape", 0) else "shape"
    lines = "" if shape == "x0" else "shape = Shape (x0)\n"
    return f"{lines}long = Cast <to = 7> ({shape})\ny0 = ConstantOfShape <value = {FILLED[dtype]}[1] {{{written}}}> (long)\n"


FUNCTIONS: Mapping[str, Body] = {
    "CDist": _distances,
    "ConstantFill": _filled,
    "ExpandDims": _expand_dims,
    "Inverse": _inverse,
    "NGramRepeatBlock": _no_repeats,
    "Trilu": same("Trilu", "upper"),
}
