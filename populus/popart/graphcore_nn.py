"""Losses, normalisation, LSTM and dropout of `ai.graphcore`, written as ONNX ops."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from populus.dialects.support.diagnostics import PopulusError
from populus.popart.translation import Body

_REDUCE = {"Mean": "ReduceMean", "Sum": "ReduceSum"}


def _reduced(b: Body, x: str) -> str:
    """Computes the mean or sum of all elements, or the elements."""
    how = b.attr("reduction", "Mean")
    return b(_REDUCE[how], x, keepdims=0) if how in _REDUCE else b("Identity", x)


def identity_loss(b: Body, x: str) -> str:
    """Computes x reduced."""
    return _reduced(b, x)


def l1(b: Body, x: str) -> str:
    """Computes `lambda |x|` reduced."""
    return _reduced(b, b("Mul", b("Abs", x), b.like(b.attr("lambda"))))


def nll(b: Body, probabilities: str, labels: str) -> str:
    """Computes `popart.nll` reduced: `-log p[label]` over the last dimension of p; labels of `ignoreIndex` count for nothing.

    Raises PopulusError for labels of another shape, or not of whole numbers.
    """
    import numpy as np

    shape, wanted = b.shape(), b.shape(1)
    if b.dtype(1).kind not in "iu":
        raise PopulusError(f"its labels are {b.dtype(1)}; whole numbers are expected")
    if tuple(wanted) != tuple(shape[:-1]):
        raise PopulusError(f"its labels are {list(wanted)} for probabilities {list(shape)}; {list(shape[:-1])} is expected")
    ignored = b.attr("ignoreIndex")
    labels = b.cast(labels, np.int32)
    each = b("Nll", probabilities, labels, domain="ai.graphcore", logarithms=b.attr("inputIsLogProbability", 0))
    if ignored is None:
        return _reduced(b, each)
    counted = b("Not", b("Equal", labels, b.const(ignored, np.int32)))
    each = b("Where", counted, each, b.like(0))
    how = b.attr("reduction", "Mean")
    if how != "Mean":
        return _reduced(b, each)
    # f32: f16 counts to 2,048 alone
    number = b("ReduceSum", b.cast(counted, np.float32), keepdims=0)
    whole = b("ReduceSum", b.cast(each, np.float32), keepdims=0)
    return b.cast(b("Div", whole, b("Max", number, b.const(1, np.float32))), b.dtype())


def group_norm(b: Body, x: str, scale: str, bias: str) -> Sequence[str]:
    """Computes `scale (x - mean) / sqrt(variance + epsilon) + bias` in groups of channels; and mean and inverse deviation.

    Raises PopulusError for channels that do not make the groups.
    """
    import numpy as np

    shape, groups = b.shape(), b.attr("num_groups")
    if len(shape) < 2 or shape[1] % groups:
        raise PopulusError(f"x is {list(shape)}; its channels do not make {groups} groups")
    if b.dtype(1) != b.dtype(2):
        raise PopulusError(f"its scale is {b.dtype(1)} and its bias {b.dtype(2)}; one type is expected")
    x, scale, bias = (b.cast(v, np.float32) for v in (x, scale, bias))
    strided, rest = b.translation.strided_groups, math.prod(shape[2:])
    split = [shape[0], shape[1] // groups, groups, rest]
    if strided:  # channel c is in group c mod groups
        x = b("Transpose", b.reshape(x, split), perm=[0, 2, 1, 3])
    rows = b.reshape(x, [shape[0] * groups, math.prod(shape[1:]) // groups])
    mean = b("ReduceMean", rows, b.ints([1]), keepdims=1)
    off = b("Sub", rows, mean)
    variance = b("ReduceMean", b("Mul", off, off), b.ints([1]), keepdims=1)
    inverse = b("Reciprocal", b("Sqrt", b("Add", variance, b.const(b.attr("epsilon", 1e-5), np.float32))))
    y = b("Mul", off, inverse)
    if strided:
        y = b("Transpose", b.reshape(y, [split[0], groups, split[1], rest]), perm=[0, 2, 1, 3])
    y = b.reshape(y, shape)
    channels = [1, shape[1], *(1,) * (len(shape) - 2)]
    y = b.cast(b("Add", b("Mul", y, b.reshape(scale, channels)), b.reshape(bias, channels)), b.dtype())
    return [y, *(b.cast(b.reshape(v, [shape[0] * groups]), b.dtype(1)) for v in (mean, inverse))]


def _ratio(ratio: float) -> None:
    if not 0 <= ratio < 1:
        raise PopulusError(f"its ratio value {ratio} is not valid. Please use a value in the interval [0,1)")


def shaped_dropout(b: Body, x: str) -> str:
    """Computes dropout whose mask has `shape`, broadcast against x; without effect when inferring."""
    import numpy as np

    ratio, shape = b.attr("ratio", 0.5), b.attr("shape")
    _ratio(ratio)
    if not b.translation.training:
        return b("Identity", x)
    drawn = b("RandomUniform", shape=shape, dtype=1, low=0.0, high=1.0)
    kept = b.cast(b("GreaterOrEqual", drawn, b.const(ratio, np.float32)), b.dtype())
    return b("Mul", x, b("Mul", kept, b.like(1 / (1 - ratio))))


def lstm(b: Body, x: str, weights: str, bias: str | None = None, start: str | None = None) -> Sequence[str]:
    """Computes an LSTM; gives h of each step, or the last, and c.

    `weights`: `[4, input + hidden, hidden]` for the gates forget, input, cell, output.
    `bias`: `[4, hidden]`. `start`: h and c before the first step, `[2, batch, hidden]`.
    """
    (steps, batch, size), hidden = b.shape(), b.shape(1)[2]
    # ONNX's gates are input, output, forget, cell.
    ordered = b("Gather", weights, b.ints([1, 3, 0, 2]), axis=0)
    ordered = b("Transpose", ordered, perm=[0, 2, 1])  # 4, hidden, input + hidden
    flat = b.reshape(ordered, [1, 4 * hidden, size + hidden])
    w = b("Slice", flat, b.ints([0]), b.ints([size]), b.ints([2]))
    r = b("Slice", flat, b.ints([size]), b.ints([size + hidden]), b.ints([2]))
    given = ["", "", "", ""]
    if bias is not None:
        gates = b.reshape(b("Gather", bias, b.ints([1, 3, 0, 2]), axis=0), [1, 4 * hidden])
        given[0] = b("Concat", gates, b("Mul", gates, b.like(0)), axis=1)
    if start is not None:
        for i in range(2):
            given[2 + i] = b("Gather", start, b.ints([i]), axis=0)
    y, _, c = b("LSTM", x, w, r, *given, hidden_size=hidden, outputs=3)
    every = b.reshape(y, [steps, batch, hidden])
    last = b("Gather", every, b.const(steps - 1, "int64"), axis=0)
    return [every if b.attr("outputFullSequence", 1) else last, b.reshape(c, [batch, hidden])]


def multi_conv(b: Body, *inputs: str) -> Sequence[str]:
    """Computes several convolutions, each with attributes of its own."""
    found: list[str] = []
    at = 0
    for number, count in enumerate(b.attr("inputCounts")):
        rank = len(b.shape(at)) - 2
        given: dict[str, list[int]] = {}
        for name, width in (("dilations", rank), ("pads", 2 * rank), ("strides", rank)):
            values, counts = b.attr(name, []), b.attr(f"{name}Counts", [])
            if number < len(counts):
                begin = sum(counts[:number])
                given[name] = list(values[begin : begin + counts[number]])
                if given[name] and len(given[name]) != width:
                    raise PopulusError(f"{name} = {given[name]} of convolution {number}; {width} numbers are expected")
        for name in ("inDilations", "outPads"):
            if any(v not in (0, 1) for v in b.attr(name, [])):
                raise PopulusError(f"{name} is not there yet")
        kept: dict[str, Any] = {n: v for n, v in given.items() if v}
        group = b.shape(at)[1] // b.shape(at + 1)[1]
        found.append(b("Conv", *inputs[at : at + count], group=group, **kept))
        at += count
    return found


def batch_norm(b: Body, x: str, scale: str, bias: str, mean: str, variance: str) -> Sequence[str]:
    """Normalises by the statistics given, or with several outputs by those of the batch, and then moves the given ones by `momentum`.

    Statistics may be of another float type than x. The moved variance is that of a sample: divided by one less than the count.
    """
    import numpy as np

    shape, dtype = b.shape(), b.dtype()
    each = shape[1:] if not b.attr("spatial", 1) else (shape[1],)
    axes = [0] if not b.attr("spatial", 1) else [0, *range(2, len(shape))]
    wide = [1, *each] if not b.attr("spatial", 1) else [1, shape[1], *(1,) * (len(shape) - 2)]
    if b.shape(1) != tuple(each):
        raise PopulusError(f"its scale is {list(b.shape(1))}; {list(each)} is expected")
    x32, scale32, bias32, mean32, variance32 = (b.cast(v, np.float32) for v in (x, scale, bias, mean, variance))
    epsilon = b.const(b.attr("epsilon", 1e-5), np.float32)
    used, spread = b.reshape(mean32, wide), b.reshape(variance32, wide)
    several = len(b.node.output) > 1
    if several:
        used = b("ReduceMean", x32, b.ints(axes), keepdims=1)
        off = b("Sub", x32, used)
        spread = b("ReduceMean", b("Mul", off, off), b.ints(axes), keepdims=1)
    y = b("Div", b("Sub", x32, used), b("Sqrt", b("Add", spread, epsilon)))
    y = b("Add", b("Mul", y, b.reshape(scale32, wide)), b.reshape(bias32, wide))
    if not several:
        return [b.cast(y, dtype)]
    count = math.prod(shape[d] for d in axes)
    share = b.const(b.attr("momentum", 0.9), np.float32)
    rest = b.const(1 - b.attr("momentum", 0.9), np.float32)
    now = [b.reshape(used, each), b.reshape(spread, each)]
    sample = b("Mul", now[1], b.const(count / max(count - 1, 1), np.float32))
    moved = [b("Add", b("Mul", share, old), b("Mul", rest, new)) for old, new in ((mean32, now[0]), (variance32, sample))]
    types = [b.dtype(3), b.dtype(4)] * 2
    return [b.cast(y, dtype), *(b.cast(v, t) for v, t in zip([*moved, *now], types))]


def dropout(b: Body, x: str) -> Sequence[str]:
    """Computes elements that are 0 with probability `ratio`, the others scaled up, when training; x when inferring. And which are kept."""
    import numpy as np

    kept = b("Expand", b.const(True), b.ints(b.shape()))
    if not b.translation.training or b.attr("is_test", 0):
        return [b("Identity", x), kept]
    ratio = b.attr("ratio", 0.5)
    _ratio(ratio)
    return b("Dropout", x, b.const(ratio, np.float32), b.const(True), outputs=2)


OPS: Mapping[str, Callable[..., str | Sequence[str]]] = {
    "BatchNormalization": batch_norm,
    "GroupNormalization": group_norm,
    "IdentityLoss": identity_loss,
    "L1": l1,
    "LSTM": lstm,
    "MultiConv": multi_conv,
    "Nll": nll,
    "ShapedDropout": shaped_dropout,
}
