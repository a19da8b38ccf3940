"""The table of consumers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from triples.taking import (
    Take,
    arg,
    attention,
    binary,
    blocks,
    cast,
    concat,
    conv,
    cumsum,
    gather,
    gather_elements,
    gather_nd,
    gemm,
    grid_sample,
    layer_norm,
    matmul,
    norm,
    pad,
    pool,
    pool_of_bytes,
    quantise,
    quantised_conv,
    quantised_product,
    recurrent,
    reduce,
    reshape_product,
    resize,
    reverse,
    scalar,
    scatter,
    scatter_nd,
    split_sum,
    top,
    trilu,
    unary,
    where,
)


@dataclass(frozen=True)
class Consumer:
    """`jumps`: a small change of its input may change its result by a lot, so it reads grids, or what is exact.

    `floats`: it reads floats only, so that integers are converted first. `values`: those under which its result has a spread.
    `places`: its result is places along this axis, -1 the last; they are compared by the values that stand there.
    """

    name: str
    add: Take
    jumps: bool = False
    floats: bool = True
    gradient: bool = True
    values: tuple[str, ...] | None = None
    places: int | None = None


MODERATE = ("grid", "dev1", "mean")
NO_NAN = ("grid", "dev1", "dev10", "dev100", "mean", "same", "inf", "halves")
GENTLE = ("dev1",)
FINITE = ("grid", "dev1", "dev10", "dev100", "mean", "same", "halves")
GRID = ("grid",)
SPREAD = ("grid", "dev1", "dev10", "dev100", "nan")
NORMS = ("grid", "dev1", "dev10", "dev100", "nan")

CONSUMERS = {
    consumer.name: consumer
    for consumer in (
        Consumer("relu", unary("Relu"), values=NO_NAN),
        Consumer("sigmoid", unary("Sigmoid"), values=GENTLE),
        Consumer("tanh", unary("Tanh"), values=GENTLE),
        Consumer("gelu", unary("Gelu")),
        Consumer("leaky-relu", unary("LeakyRelu", alpha=0.25)),
        Consumer("exp", unary("Exp"), values=GENTLE),
        Consumer("abs", unary("Abs"), floats=False),
        Consumer("floor", unary("Floor"), jumps=True, gradient=False),
        Consumer("add-last", binary("Add", "last"), floats=False),
        Consumer("mul-channel", binary("Mul", "channel"), floats=False),
        Consumer("sub-all", binary("Sub", "all", first=False), floats=False),
        Consumer("div-one", binary("Div", "one")),
        Consumer("max-last", binary("Max", "last"), values=NO_NAN),
        Consumer("mul-itself", lambda c, x, s: c.op("Mul", x, x), values=("grid", "dev1", "dev10", "mean", "nan")),
        Consumer("where", where, floats=False),
        Consumer("clip", lambda c, x, s: c.op("Clip", x, scalar(c, x, -1), scalar(c, x, 2)), values=("grid", "dev1")),
        Consumer("cast-f16", cast(np.float16), values=MODERATE),
        Consumer("cast-f64", cast(np.float64)),
        Consumer("cast-i32", cast(np.int32), jumps=True, gradient=False),
        Consumer("greater", lambda c, x, s: c.op("Greater", x, scalar(c, x, 0.5), dtype=bool), jumps=True, gradient=False),
        Consumer("matmul", matmul),
        Consumer("matmul-left", lambda c, x, s: matmul(c, x, s, "left")),
        Consumer("matmul-itself", lambda c, x, s: matmul(c, x, s, "itself"), values=("grid", "dev1", "dev10", "mean", "nan")),
        Consumer("gemm", gemm),
        Consumer("gemm-transposed", lambda c, x, s: gemm(c, x, s, 1)),
        Consumer("reshape-matmul", reshape_product),
        Consumer("attention", attention, values=GENTLE),
        Consumer("conv1x1", conv),
        Consumer("conv3x3", lambda c, x, s: conv(c, x, s, (3, 3)), values=FINITE),  # Winograd's algorithm spreads what is not finite
        Consumer("conv-1d", lambda c, x, s: conv(c, x, s, (3,))),
        Consumer("conv-3d", lambda c, x, s: conv(c, x, s, (1, 3, 3))),
        Consumer("conv-grouped", lambda c, x, s: conv(c, x, s, (3, 3), group=2)),
        Consumer("conv-strided", lambda c, x, s: conv(c, x, s, (3, 3), strides=[2, 2])),
        Consumer("depthwise", lambda c, x, s: conv(c, x, s, (3, 3), depthwise=True)),
        Consumer("conv-transposed", lambda c, x, s: conv(c, x, s, (3, 3), transposed=True, strides=[2, 2])),
        Consumer("max-pool", lambda c, x, s: pool(c, x, s, "MaxPool", (2, 2), strides=[2, 2]), values=NO_NAN),
        Consumer("max-pool-3x3", lambda c, x, s: pool(c, x, s, "MaxPool", (3, 3), pads=[1] * 4), values=NO_NAN),
        Consumer("max-pool-dilated", lambda c, x, s: pool(c, x, s, "MaxPool", (2, 2), dilations=[2, 3]), values=NO_NAN),
        Consumer("max-pool-1d", lambda c, x, s: pool(c, x, s, "MaxPool", (3,), strides=[2]), values=NO_NAN),
        Consumer("max-pool-bytes", pool_of_bytes, jumps=True, gradient=False),
        Consumer("average-pool", lambda c, x, s: pool(c, x, s, "AveragePool", (3, 3), pads=[1] * 4)),
        Consumer("average-pool-dilated", lambda c, x, s: pool(c, x, s, "AveragePool", (2, 2), dilations=[3, 2])),
        Consumer("global-average-pool", lambda c, x, s: pool(c, x, s, "GlobalAveragePool")),
        Consumer("reduce-sum-last", reduce("ReduceSum", -1)),
        Consumer("reduce-mean-first", reduce("ReduceMean", 0, keepdims=1)),
        Consumer("reduce-max-middle", reduce("ReduceMax", 1), values=NO_NAN),
        Consumer("reduce-l2-ends", reduce("ReduceL2", 0, -1)),
        Consumer("reduce-log-sum-exp", reduce("ReduceLogSumExp", -1, keepdims=1), values=MODERATE),
        Consumer("arg-max-last", lambda c, x, s: arg(c, x, s, "ArgMax", -1), jumps=True, gradient=False, places=-1),
        Consumer("arg-min-first", lambda c, x, s: arg(c, x, s, "ArgMin", 0), jumps=True, gradient=False, places=0),
        Consumer("softmax", unary("Softmax", axis=-1), values=("dev1", "nan")),
        Consumer("softmax-first", unary("Softmax", axis=0), values=("dev1", "nan")),
        Consumer("log-softmax", unary("LogSoftmax", axis=-1), values=("grid", "dev1", "dev10", "nan")),
        Consumer("layernorm", layer_norm, values=NORMS),
        Consumer("layernorm-2", lambda c, x, s: layer_norm(c, x, s, -2), values=NORMS),
        Consumer("batchnorm", lambda c, x, s: norm(c, x, s, "BatchNormalization")),
        Consumer("instancenorm", lambda c, x, s: norm(c, x, s, "InstanceNormalization"), values=NORMS),
        Consumer("groupnorm", lambda c, x, s: norm(c, x, s, "GroupNormalization"), values=NORMS),
        Consumer("lrn", lambda c, x, s: norm(c, x, s, "LRN"), values=("grid", "dev1", "dev10")),
        Consumer("gather-first", lambda c, x, s: gather(c, x, s, 0), floats=False),
        Consumer("gather-last", lambda c, x, s: gather(c, x, s, -1), floats=False),
        Consumer("gather-elements", gather_elements, floats=False),
        Consumer("gather-nd", gather_nd, floats=False),
        Consumer("scatter-into", lambda c, x, s: scatter(c, x, s, "data"), floats=False),
        Consumer("scatter-from", lambda c, x, s: scatter(c, x, s, "updates"), floats=False),
        Consumer("scatter-nd", scatter_nd, floats=False),
        Consumer("scatter-nd-add", lambda c, x, s: scatter_nd(c, x, s, "add")),
        Consumer("top-k", top, values=NO_NAN),
        Consumer("top-k-first", lambda c, x, s: top(c, x, s, 0), values=NO_NAN),
        Consumer("top-k-places", lambda c, x, s: top(c, x, s, -1, 1), jumps=True, gradient=False, places=-1),
        Consumer("reverse-sequence", reverse, floats=False),
        Consumer("lstm", lambda c, x, s: recurrent(c, x, s, "LSTM"), values=("dev1", "dev10", "nan")),
        Consumer("gru", lambda c, x, s: recurrent(c, x, s, "GRU"), values=("dev1", "dev10", "nan")),
        Consumer("rnn", lambda c, x, s: recurrent(c, x, s, "RNN"), values=("dev1",)),
        Consumer("concat", lambda c, x, s: concat(c, x, s, 1), floats=False),
        Consumer("concat-relu", lambda c, x, s: concat(c, x, s, -1, "Relu"), values=NO_NAN),
        Consumer("concat-tanh-first", lambda c, x, s: concat(c, x, s, 0, "Tanh")),
        Consumer("split-sub", split_sum, floats=False),
        Consumer("pad", lambda c, x, s: pad(c, x, s, "constant"), floats=False),
        Consumer("pad-reflect", lambda c, x, s: pad(c, x, s, "reflect"), floats=False),
        Consumer("resize-nearest", lambda c, x, s: resize(c, x, s, "nearest")),
        # onnxruntime multiplies the second element by 0 for an output at the edge; test_resize.py has what is not finite.
        Consumer("resize-linear", lambda c, x, s: resize(c, x, s, "linear"), values=FINITE),
        Consumer("grid-sample", grid_sample),
        Consumer("depth-to-space", lambda c, x, s: blocks(c, x, s, "DepthToSpace"), floats=False),
        Consumer("space-to-depth", lambda c, x, s: blocks(c, x, s, "SpaceToDepth"), floats=False),
        Consumer("cumsum", lambda c, x, s: cumsum(c, x, s, -1), values=("grid", "dev1", "dev10", "nan")),
        Consumer("cumsum-back", lambda c, x, s: cumsum(c, x, s, 0, reverse=1, exclusive=1), values=("grid", "dev1", "dev10")),
        Consumer("trilu", trilu, floats=False),
        Consumer(
            "expand", lambda c, x, s: c.op("Expand", x, c.ints(2, *[1] * len(s))) if len(s) < 5 else c.op("Identity", x), floats=False
        ),
        Consumer("tile", lambda c, x, s: c.op("Tile", x, c.ints(*[1] * (len(s) - 1), 2)), floats=False),
        Consumer("transpose", lambda c, x, s: c.op("Transpose", x, perm=[*range(1, len(s)), 0]), floats=False),
        Consumer("flatten", lambda c, x, s: c.op("Flatten", x, axis=len(s) // 2), floats=False),
        Consumer("quantise", quantise, jumps=True, gradient=False),
        Consumer("quantised-matmul", quantised_product, jumps=True, gradient=False),
        Consumer("quantised-conv", quantised_conv, jumps=True, gradient=False),
        Consumer("itself", lambda c, x, s: x, floats=False),
    )
}

CORE = (
    "relu", "sub-all", "where", "matmul", "matmul-left", "gemm-transposed", "conv1x1", "conv3x3", "conv-grouped", "depthwise",
    "conv-transposed", "max-pool-dilated", "average-pool", "reduce-sum-last", "reduce-mean-first", "arg-max-last", "softmax",
    "layernorm", "instancenorm", "batchnorm", "gather-last", "gather-elements", "scatter-nd", "top-k", "reverse-sequence", "gru",
    "concat-relu", "pad", "resize-nearest", "cumsum", "quantise", "quantised-matmul", "transpose",
)  # fmt: skip
"""Rows of which each triple is tried; the others stand in each pair."""
