"""The table of producers: a row for each kind of kernel."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from onnx import helper

from triples.making import (
    HALF,
    Add,
    attention,
    binary,
    blocked,
    blocks,
    concat,
    concat_convs,
    conv,
    conv_integer,
    cropped,
    double,
    einsum,
    gather,
    gemm,
    grid_sample,
    half,
    image,
    layer_norm,
    matmul,
    matmul_integer,
    nbits,
    norm,
    of,
    pad,
    pool,
    qdq,
    qlinear_conv,
    qlinear_matmul,
    recurrent,
    reduce,
    resize,
    rows,
    scatter,
    split,
    then,
    top,
    unary,
    where,
)


@dataclass(frozen=True)
class Producer:
    """`exact`: on the grid no rounding happens. `long`: it takes rows of 100,000. `half`: computed in f16.

    `terms`: it rounds terms to its type before it adds them, as ONNX defines the scale and the bias of a norm. onnxruntime rounds once.

    `values`: the names of values that it takes; None: all but those near the limits of f16.
    """

    name: str
    add: Add
    exact: bool = True
    long: bool = False
    half: bool = False
    gradient: bool = True
    values: tuple[str, ...] | None = None
    terms: bool = False

    @property
    def integers(self) -> bool:
        """Tells if all sums are of integers, whatever the values."""
        return not self.half and not self.gradient and self.exact and not self.name.startswith(("top-k", "to-"))


MODERATE = ("grid", "dev1", "mean", "same", "inf", "nan")
GENTLE = ("dev1",)
INTEGERS = ("dev1",)
HALVES = ("grid", "dev1", "dev10", "dev100", "mean", "same", "halves")
NO_NAN = ("grid", "dev1", "dev10", "dev100", "mean", "same", "inf")
FINITE = ("grid", "dev1", "dev10", "dev100", "mean", "same")

PRODUCERS = {
    p.name: p
    for p in (
        Producer("matmul", of(matmul)),
        Producer("matmul-3d", of(matmul, ("b",))),
        Producer("matmul-batched", of(matmul, ("b", "h"), given=True)),
        Producer("matmul-weight-left", of(matmul, ("b",), left=True)),
        Producer("matmul-vector", of(matmul, ("b",), vector=True)),
        Producer("matmul-swapped", of(matmul, ("b",), swap=True)),
        Producer("matmul-relu", then(of(matmul, ("b",)), "Relu"), values=NO_NAN),
        Producer("matmul-add-tanh", then(of(matmul, ("b",)), "Add", "Tanh"), exact=False, values=("dev1",)),
        Producer("gemm", of(gemm)),
        Producer("gemm-transposed", of(gemm, (1, 1), alpha=0.5, beta=2.0)),
        Producer("gemm-b-transposed", of(gemm, (0, 1))),
        Producer("einsum", of(einsum)),
        Producer("attention", attention, exact=False, values=GENTLE),
        Producer("conv1x1", of(conv, (1, 1))),
        Producer("conv1x1-strided", of(conv, (1, 1), strides=2)),
        Producer("conv1x1-bias-relu", then(of(conv, (1, 1), bias=True), "Relu"), values=NO_NAN),
        Producer("conv3x3", of(conv), values=FINITE),  # Winograd's algorithm spreads what is not finite
        Producer("conv3x3-bias-relu", then(of(conv, bias=True), "Relu"), values=FINITE),  # Winograd's algorithm spreads what is not finite
        Producer("conv3x3-strided", of(conv, strides=2)),
        Producer("conv3x3-dilated", of(conv, dilation=2)),
        Producer("conv3x3-grouped", of(conv, group=2)),
        Producer("conv3x3-uneven-pads", of(conv, pads=(0, 2, 1, 0)), values=FINITE),  # Winograd's algorithm spreads what is not finite
        Producer("conv1x1-grouped", of(conv, (1, 1), group=2)),
        Producer("conv5x5", of(conv, (5, 5))),
        Producer("conv5x1", of(conv, (5, 1))),
        Producer("conv-1d", of(conv, (3,))),
        Producer("conv-1d-grouped", of(conv, (5,), group=2)),
        Producer("conv-1d-dilated", of(conv, (3,), dilation=3)),
        Producer("conv-3d", of(conv, (3, 3, 3))),
        Producer("conv-3d-grouped", of(conv, (3, 1, 3), group=2)),
        Producer("depthwise", of(conv, multiplier=1)),
        Producer("depthwise-2", of(conv, multiplier=2)),
        Producer("depthwise-5x5-strided", of(conv, (5, 5), strides=2, multiplier=1)),
        Producer("depthwise-dilated", of(conv, dilation=2, multiplier=1)),
        Producer("depthwise-1d", of(conv, (3,), multiplier=1)),
        Producer("depthwise-1d-2", of(conv, (5,), multiplier=2)),
        Producer("depthwise-3d", of(conv, (3, 3, 3), multiplier=1)),
        Producer("depthwise-relu", then(of(conv, multiplier=1, bias=True), "Relu"), values=NO_NAN),
        Producer("transposed", of(conv, transposed=True)),
        Producer("transposed-strided", of(conv, strides=2, transposed=True, output_padding=[1, 1])),
        Producer("transposed-2x2", of(conv, (2, 2), strides=2, transposed=True, pads=(0, 0, 0, 0))),
        Producer("transposed-grouped", of(conv, group=2, transposed=True)),
        Producer("transposed-depthwise", of(conv, multiplier=1, strides=2, transposed=True)),
        Producer("transposed-dilated", of(conv, dilation=2, transposed=True)),
        Producer("transposed-1d", of(conv, (3,), strides=2, transposed=True)),
        Producer("transposed-3d", of(conv, (2, 2, 2), strides=2, transposed=True, pads=(0,) * 6)),
        Producer("two-convs", concat_convs, values=FINITE),  # Winograd's algorithm spreads what is not finite
        Producer("qlinear-conv1x1", of(qlinear_conv, (1, 1)), gradient=False, values=INTEGERS),
        Producer("qlinear-conv3x3", of(qlinear_conv), gradient=False, values=INTEGERS),
        Producer("qlinear-conv3x3-signed", of(qlinear_conv, signed=True, per_channel=True), gradient=False, values=INTEGERS),
        Producer("qlinear-conv-grouped", of(qlinear_conv, group=2), gradient=False, values=INTEGERS),
        Producer("qlinear-depthwise", of(qlinear_conv, depthwise=True), gradient=False, values=INTEGERS),
        Producer("qlinear-conv-strided", of(qlinear_conv, strides=2, per_channel=True), gradient=False, values=INTEGERS),
        Producer("qlinear-conv-1d", of(qlinear_conv, (3,)), gradient=False, values=INTEGERS),
        Producer("conv-integer", of(conv_integer), gradient=False, values=INTEGERS),
        Producer("conv-integer-grouped", of(conv_integer, group=2), gradient=False, values=INTEGERS),
        Producer("matmul-integer", of(matmul_integer, ("b",)), gradient=False, values=INTEGERS),
        Producer("matmul-integer-given", of(matmul_integer, ("b", "h"), given=True), gradient=False, values=INTEGERS),
        Producer("qlinear-matmul", of(qlinear_matmul, ("b",)), gradient=False, values=INTEGERS),
        Producer("qdq-conv", of(qdq, "Conv"), gradient=False, values=("dev1",)),
        Producer("qdq-depthwise", of(qdq, "Depthwise"), gradient=False, values=("dev1",)),
        Producer("qdq-matmul", of(qdq, "MatMul"), gradient=False, values=("dev1",)),
        Producer("f16-matmul", half(of(matmul, ("b",))), half=True, values=HALVES),
        Producer("f16-matmul-batched", half(of(matmul, ("b", "h"), given=True)), half=True, values=HALVES[:-1]),
        Producer("f16-gemm", half(of(gemm)), half=True, values=HALVES),
        Producer("f16-conv1x1", half(of(conv, (1, 1))), half=True, values=HALVES),
        Producer("f16-conv3x3", half(of(conv)), half=True, values=HALVES),
        Producer("f16-conv-grouped", half(of(conv, group=2)), half=True, values=HALVES),
        Producer("f16-conv-1d", half(of(conv, (3,))), half=True, values=HALVES),
        Producer("f16-depthwise", half(of(conv, multiplier=1)), half=True, values=HALVES),
        Producer("f16-transposed", half(of(conv, strides=2, transposed=True)), half=True, values=HALVES),
        Producer("f16-softmax", half(unary("Softmax", axis=-1)), exact=False, half=True, long=True, values=("dev1", "mean")),
        Producer(
            "f16-layernorm", half(layer_norm), exact=False, half=True, long=True, values=("dev1", "dev10", "dev100", "mean"), terms=True
        ),
        Producer(
            "f16-instancenorm",
            half(of(norm, "InstanceNormalization")),
            exact=False,
            half=True,
            long=True,
            values=("dev1", "dev10", "dev100"),
            terms=True,
        ),
        Producer(
            "f16-reduce-mean", half(of(reduce, "ReduceMean", (-1,))), exact=False, half=True, long=True, values=("dev1", "dev100", "mean")
        ),
        Producer("f16-average-pool", half(of(pool, "AveragePool", (3, 3))), exact=False, half=True, values=HALVES),
        Producer("nbits", nbits, values=FINITE),
        Producer("f16-nbits", half(nbits), half=True, values=FINITE[:2]),
        Producer("blocked-weights", blocked, values=FINITE),
        Producer("max-pool", of(pool, "MaxPool", (2, 2), strides=[2, 2]), values=NO_NAN),
        Producer("max-pool-3x3", of(pool, "MaxPool", (3, 3), pads=[1] * 4), values=NO_NAN),
        Producer("max-pool-dilated", of(pool, "MaxPool", (3, 3), dilations=[2, 3]), values=NO_NAN),
        Producer("max-pool-1d", of(pool, "MaxPool", (3,), strides=[2], pads=[1, 1]), values=NO_NAN),
        Producer("max-pool-3d", of(pool, "MaxPool", (2, 3, 2)), values=NO_NAN),
        Producer("average-pool", of(pool, "AveragePool", (2, 2), strides=[2, 2])),
        Producer("average-pool-3x3", of(pool, "AveragePool", (3, 3), pads=[1, 0, 1, 1], ceil_mode=1, strides=[2, 2]), exact=False),
        Producer("average-pool-3d", of(pool, "AveragePool", (2, 2, 2), pads=[1] * 6, count_include_pad=1)),
        Producer("lp-pool", of(pool, "LpPool", (2, 2), p=2), exact=False),
        Producer("global-average-pool", of(pool, "GlobalAveragePool"), exact=False),
        Producer("global-max-pool", of(pool, "GlobalMaxPool"), values=NO_NAN),
        Producer("reduce-sum-last", of(reduce, "ReduceSum", (-1,), 0), long=True),
        Producer("reduce-sum-channels", of(reduce, "ReduceSum", (1,)), long=True),
        Producer("reduce-mean-image", of(reduce, "ReduceMean", (1, 2), 0), exact=False, long=True),
        Producer("reduce-max", of(reduce, "ReduceMax", (2,), 0), long=True, values=NO_NAN),
        Producer("reduce-log-sum-exp", of(reduce, "ReduceLogSumExp", (-1,), 0), exact=False, long=True, values=("dev1", "mean", "nan")),
        Producer("reduce-l2", of(reduce, "ReduceL2", (1,), 0), exact=False, long=True),
        Producer("softmax", unary("Softmax", axis=-1), exact=False, long=True, values=("dev1", "mean", "same", "nan")),
        Producer("softmax-channels", unary("Softmax", axis=1), exact=False, long=True, values=("dev1", "mean", "same", "nan")),
        Producer("log-softmax", unary("LogSoftmax", axis=-1), exact=False, long=True, values=("dev1", "dev10", "mean", "nan")),
        Producer("batchnorm", of(norm, "BatchNormalization"), exact=False),
        Producer("instancenorm", of(norm, "InstanceNormalization"), exact=False, long=True, values=("dev1", "dev10", "dev100", "nan")),
        Producer("groupnorm", of(norm, "GroupNormalization"), exact=False, values=("dev1", "dev10", "dev100", "nan")),
        Producer("layernorm", of(layer_norm), exact=False, long=True, values=("dev1", "dev10", "dev100", "nan")),
        Producer("layernorm-all", of(layer_norm, 1), exact=False, long=True, values=("dev1", "dev10", "dev100")),
        Producer("lrn", of(norm, "LRN"), exact=False, values=("dev1", "dev10")),
        Producer("resize-nearest", of(resize, "nearest", (2.0, 2.0), "asymmetric")),
        # onnxruntime multiplies the second element by 0 for an output at the edge; test_resize.py has what is not finite.
        Producer("resize-linear", of(resize, "linear", (2.0, 2.0)), exact=False, values=FINITE),
        Producer("resize-smaller", of(resize, "linear", (0.6, 0.7)), exact=False, gradient=False, values=("dev1",)),
        # Its negative weights make NaN of an infinity beside it, whose place among the largest ONNX does not define.
        Producer("resize-cubic", of(resize, "cubic", (1.5, 2.0)), exact=False, values=(*FINITE, "nan")),
        Producer("grid-sample", grid_sample, exact=False, values=("dev1", "dev10", "dev100", "mean")),
        Producer("scatter-elements", of(scatter, "ScatterElements")),
        Producer("scatter-nd-add", of(scatter, "ScatterND", reduction="add")),
        Producer("gather", of(gather, "Gather", 1)),
        Producer("gather-rows", of(gather, "Gather", 0)),
        Producer("gather-elements", of(gather, "GatherElements", 2)),
        Producer("gather-nd", of(gather, "GatherND")),
        Producer("concat", concat, long=True),
        Producer("concat-last", of(concat, -1, 3), long=True),
        Producer("split", split, long=True),
        Producer("split-last", of(split, 2), long=True),
        Producer("pad", pad, long=True),
        Producer("pad-reflect", of(pad, "reflect")),
        Producer("slice-back", of(cropped, (-1, -2))),
        Producer("expand", lambda c: c.op("Expand", c.input(c.size.b, 1, c.size.s, c.size.o), c.ints(1, c.size.c, 1, 1))),
        Producer("tile", lambda c: c.op("Tile", image(c), c.ints(1, 2, 1, 3))),
        Producer("space-to-depth", of(blocks, "SpaceToDepth")),
        Producer("depth-to-space", of(blocks, "DepthToSpace")),
        Producer("cumsum", lambda c: c.op("CumSum", rows(c), c.constant(2, np.int64)), values=("grid", "dev1", "dev10", "nan")),
        Producer("lstm", of(recurrent, "LSTM"), exact=False, values=("dev1", "dev10")),
        Producer("lstm-both", of(recurrent, "LSTM", direction="bidirectional"), exact=False, values=("dev1",)),
        Producer("lstm-last", of(recurrent, "LSTM", at=1), exact=False, values=("dev1",)),
        Producer("gru", of(recurrent, "GRU", linear_before_reset=1), exact=False, values=("dev1", "dev10")),
        Producer("rnn", of(recurrent, "RNN", direction="reverse"), exact=False, values=("dev1",)),
        Producer("relu", unary("Relu"), long=True, values=NO_NAN),
        Producer("gelu", unary("Gelu"), exact=False, long=True),
        Producer("sigmoid", unary("Sigmoid"), exact=False, long=True, values=("dev1",)),
        Producer("add", of(binary, "Add"), long=True),
        Producer("mul-channel", of(binary, "Mul", "channel"), long=True),
        Producer("sub-last", of(binary, "Sub", "last"), long=True),
        Producer("where", where, long=True, values=NO_NAN),
        Producer("top-k", top, long=True, values=("grid", "dev1", "dev100")),
        Producer("top-k-places", of(top, 1), gradient=False, values=("dev1",)),
        Producer(
            "to-half",
            lambda c: c.op("Cast", rows(c), to=helper.np_dtype_to_tensor_dtype(HALF), dtype=HALF),
            half=True,
            gradient=False,
            values=("grid", "dev1"),
        ),
        Producer("f64-matmul", lambda c: double(c, of(matmul, ("b",)))),
        Producer("f64-relu", lambda c: double(c, unary("Relu"))),
    )
}


CORE = (
    "matmul-3d", "matmul-batched", "matmul-weight-left", "gemm-transposed", "attention", "conv1x1", "conv3x3", "conv3x3-strided",
    "conv3x3-dilated", "conv3x3-grouped", "conv5x5", "conv-1d", "conv-3d", "depthwise", "depthwise-2", "transposed-strided",
    "transposed-grouped", "two-convs", "qlinear-conv3x3", "qlinear-depthwise", "conv-integer", "qlinear-matmul", "qdq-conv",
    "f16-matmul", "f16-conv3x3", "f16-conv-grouped", "nbits", "max-pool-3x3", "average-pool", "reduce-sum-channels", "softmax",
    "layernorm", "instancenorm", "resize-linear", "scatter-elements", "gather", "concat", "pad", "lstm", "mul-channel",
)  # fmt: skip
"""Rows of which each triple is tried; the others stand in each pair."""
