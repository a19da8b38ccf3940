"""Models after the pattern of those that people serve, small and with random weights: a voice detector, an OCR recogniser,
a detector of boxes, a decoder with a growing prefix and a layer of experts.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import GraphProto, ModelProto, TensorProto, helper, numpy_helper

Array = NDArray[Any]
F, I = TensorProto.FLOAT, TensorProto.INT64


class Graph:
    """A graph in the making: `g("Conv", x, w, strides=[2, 2])` adds a node and gives the name of its result.

    Arrays among the operands become initializers. `drawn` makes random ones.
    """

    def __init__(self, seed: int = 0, prefix: str = ""):
        self.rng, self.prefix = np.random.default_rng(seed), prefix
        self.nodes: list[Any] = []
        self.weights: list[TensorProto] = []

    def __call__(self, op: str, *operands: str | Array | None, outputs: int = 1, **attributes: Any) -> Any:
        names = ["" if o is None else o if isinstance(o, str) else self.constant(o) for o in operands]
        results = [f"{self.prefix}{op}_{len(self.nodes)}{f'_{i}' if i else ''}" for i in range(outputs)]
        self.nodes.append(helper.make_node(op, names, results, results[0], **attributes))
        return results[0] if outputs == 1 else results

    def constant(self, array: Array) -> str:
        name = f"{self.prefix}w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def drawn(self, *shape: int) -> Array:
        return (self.rng.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32)

    def conv(self, x: str, inner: int, outer: int, kernel: list[int], **attributes: Any) -> str:
        return self("Conv", x, self.drawn(outer, inner, *kernel), self.drawn(outer), **attributes)

    def linear(self, x: str, inner: int, outer: int) -> str:
        return self("Add", self("MatMul", x, self.drawn(inner, outer) * np.float32(inner**0.5 / 2)), self.drawn(outer))

    def model(self, inputs: dict[str, tuple[int, list[Any]]], outputs: dict[str, str], opset: int = 17) -> ModelProto:
        for name, value in outputs.items():
            self.nodes.append(helper.make_node("Identity", [value], [name], name))
        infos = [helper.make_tensor_value_info(n, t, s) for n, (t, s) in inputs.items()]
        graph = helper.make_graph(self.nodes, "g", infos, [helper.make_empty_tensor_value_info(o) for o in outputs], self.weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)

    def branch(self, *results: str) -> GraphProto:
        return helper.make_graph(self.nodes, self.prefix, [], [helper.make_empty_tensor_value_info(r) for r in results], self.weights)


def ints(*values: int) -> Array:
    return np.array(values, np.int64)


HIDDEN = 4


def _voice(window: int, seed: int, prefix: str) -> GraphProto:
    """A spectrum by a convolution, an encoder that leaves one frame of 4 windows, an LSTM of one step, and a probability."""
    g, bins = Graph(seed, prefix), window // 2 + 1
    padded = g("Pad", "samples", ints(0, 0, 0, window // 2), mode="reflect")
    spectrum = g("Conv", g("Unsqueeze", padded, ints(1)), g.drawn(2 * bins, 1, window), strides=[window // 2])
    real, imaginary = g("Split", spectrum, ints(bins, bins), axis=1, outputs=2)
    x = g("Sqrt", g("Add", g("Mul", real, real), g("Mul", imaginary, imaginary)))
    for inner, outer in ((bins, 8), (8, 8), (8, HIDDEN)):
        x = g("Relu", g.conv(x, inner, outer, [3], strides=[2], pads=[1, 1]))
    x = g("Unsqueeze", g("Squeeze", x, ints(2)), ints(0))  # a frame is left only if the length is that of the rate
    h, c = g("Split", "state", ints(1, 1), axis=0, outputs=2)
    weights = [g.drawn(1, 4 * HIDDEN, HIDDEN), g.drawn(1, 4 * HIDDEN, HIDDEN), g.drawn(1, 8 * HIDDEN)]
    _, h, c = g("LSTM", x, *weights, None, h, c, hidden_size=HIDDEN, outputs=3)
    rows = g("Squeeze", h, ints(0))
    probability = g("Sigmoid", g.linear(g("Relu", rows), HIDDEN, 1))
    return g.branch(probability, g("Concat", h, c, axis=0))


def voice_detector() -> ModelProto:
    """The probability of speech in `samples` [batch, samples], 64 at 16 kHz and 32 at 8 kHz; `state` goes from call to call."""
    g = Graph()
    wide, narrow = _voice(16, 1, "wide_"), _voice(8, 2, "narrow_")
    probability, state = g("If", g("Equal", "sr", np.array(16000)), then_branch=wide, else_branch=narrow, outputs=2)
    inputs = {"samples": (F, ["batch", "samples"]), "state": (F, [2, "batch", HIDDEN]), "sr": (I, [])}
    return g.model(inputs, {"probability": probability, "next_state": state})


def recogniser(classes: int = 11) -> ModelProto:
    """Characters along an image [batch, 1, 16, width]: strided convolutions, a gate by channels, attention over columns."""
    g, heads, size = Graph(3), 2, 8
    x = g("HardSwish", g.conv("image", 1, 4, [3, 3], strides=[2, 2], pads=[1, 1, 1, 1]))
    x = g("HardSwish", g.conv(x, 4, 8, [3, 3], strides=[2, 1], pads=[1, 1, 1, 1]))
    gate = g("HardSigmoid", g.conv(g("Relu", g.conv(g("GlobalAveragePool", x), 8, 2, [1, 1])), 2, 8, [1, 1]))
    x = g("MaxPool", g("Mul", x, gate), kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1)
    x = g.conv(x, 8, size, [2, 1])  # one row is left
    columns = g("Transpose", g("Squeeze", x, ints(2)), perm=[0, 2, 1])
    shape = g("Shape", columns)
    batch, length = g("Gather", shape, ints(0)), g("Gather", shape, ints(1))
    split = g("Concat", batch, length, ints(3), ints(heads), ints(-1), axis=0)
    packed = g("Transpose", g("Reshape", g.linear(columns, size, 3 * size), split), perm=[2, 0, 3, 1, 4])
    q, k, v = (g("Gather", packed, np.array(i), axis=0) for i in range(3))
    scores = g("MatMul", g("Mul", q, np.float32(0.5)), g("Transpose", k, perm=[0, 1, 3, 2]))
    mixed = g("Transpose", g("MatMul", g("Softmax", scores, axis=-1), v), perm=[0, 2, 1, 3])
    y = g("Add", columns, g.linear(g("Reshape", mixed, g("Concat", batch, length, ints(size), axis=0)), size, size))
    y = g("LayerNormalization", y, np.ones(size, np.float32), np.zeros(size, np.float32), axis=-1)
    return g.model({"image": (F, ["batch", 1, 16, "width"])}, {"characters": g("Softmax", g.linear(y, size, classes), axis=-1)})


def detector(classes: int = 3) -> ModelProto:
    """The best boxes of an image [1, 3, height, width]: a head for each cell, non-maximum suppression, and rows of the result.

    A row is (left, top, right, bottom, score, class), the best score first, at most 10.
    """
    g = Graph(4)
    x = g("Relu", g.conv("image", 3, 6, [3, 3], strides=[2, 2], pads=[1, 1, 1, 1]))
    x = g("Relu", g.conv(x, 6, 6, [3, 3], strides=[2, 2], pads=[1, 1, 1, 1]))
    flat = g("Reshape", g.conv(x, 6, 4 + classes, [1, 1]), ints(1, 4 + classes, -1))
    cells = g("Transpose", flat, perm=[0, 2, 1])
    places, raw = g("Split", cells, ints(4, classes), axis=2, outputs=2)
    centre, extent = g("Split", g("Sigmoid", places), ints(2, 2), axis=2, outputs=2)
    half = g("Mul", extent, np.float32(0.5))
    boxes = g("Concat", g("Sub", centre, half), g("Add", centre, half), axis=2)
    scores = g("Transpose", g("Sigmoid", raw), perm=[0, 2, 1])
    limits = [np.array([10], np.int64), np.array([0.5], np.float32), np.array([0.4], np.float32)]
    chosen = g("NonMaxSuppression", boxes, scores, *limits)
    kind = g("Gather", chosen, np.array(1), axis=1)
    at = g("Gather", chosen, np.array(2), axis=1)
    score = g("GatherND", scores, chosen)
    rows = g("Gather", g("Squeeze", boxes, ints(0)), at, axis=0)
    table = g("Concat", rows, g("Unsqueeze", score, ints(1)), g("Unsqueeze", g("Cast", kind, to=F), ints(1)), axis=1)
    count = g("Min", g("Shape", score), ints(10))
    _, best = g("TopK", score, count, axis=0, outputs=2)
    return g.model({"image": (F, [1, 3, "height", "width"])}, {"detections": g("Gather", table, best, axis=0)})


def decoder(words: int = 13) -> ModelProto:
    """Scores of the next word after `tokens` [batch, length], which grow by one a step: an embedding, a GRU, attention to a memory."""
    g, size = Graph(5), 6
    rows = g("Transpose", g("Gather", g.drawn(words, size) * np.float32(3), "tokens", axis=0), perm=[1, 0, 2])
    _, last = g("GRU", rows, g.drawn(1, 3 * size, size), g.drawn(1, 3 * size, size), g.drawn(1, 6 * size), hidden_size=size, outputs=2)
    query = g("Transpose", last, perm=[1, 0, 2])
    weights = g("Softmax", g("MatMul", query, g("Transpose", "memory", perm=[0, 2, 1])), axis=-1)
    context = g("Squeeze", g("Add", g("MatMul", weights, "memory"), query), ints(1))
    inputs = {"tokens": (I, ["batch", "length"]), "memory": (F, ["batch", "places", size])}
    return g.model(inputs, {"scores": g.linear(context, size, words)})


def experts(count: int = 3, size: int = 6) -> ModelProto:
    """A layer that gives each row of `x` [rows, size] to one of several experts, as torch exports `y[m] = expert(x[m]) * w[m]`."""
    g = Graph(6)
    gates = g("Softmax", g.linear("x", size, count), axis=-1)
    best, kind = g("ReduceMax", gates, axes=[-1], keepdims=0), g("ArgMax", gates, axis=-1, keepdims=0)
    shape = g("Shape", "x")
    y = g("ConstantOfShape", shape)
    for i in range(count):
        mask = g("Equal", kind, np.array(i))
        rows = g("GatherND", "x", g("Transpose", g("NonZero", mask), perm=[1, 0]))
        weight = g("GatherND", best, g("Transpose", g("NonZero", mask), perm=[1, 0]))
        given = g("Mul", g.linear(g("Tanh", g.linear(rows, size, 8)), 8, size), g("Unsqueeze", weight, ints(1)))
        places = g("Transpose", g("NonZero", g("Expand", g("Unsqueeze", mask, ints(1)), shape)), perm=[1, 0])
        chosen = g("ReduceSum", g("Cast", g("Reshape", mask, ints(-1)), to=I), keepdims=1)
        whole = g("Expand", given, g("Concat", chosen, g("Slice", shape, ints(1), ints(2)), axis=0))
        y = g("ScatterND", y, places, g("Reshape", whole, ints(-1)))
    return g.model({"x": (F, ["rows", size])}, {"y": y})
