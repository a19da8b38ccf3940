"""Small models in which rewrite patterns fire, for proofs: each has a name that says what it is about."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import onnx

from benchmarks.models import Graph, transformer
from benchmarks.models import lstm as recurrent


def _ints(g: Graph, *values: int) -> str:
    return g.constant(values, np.int64)


def _model(g: Graph, y: str, shape: list[int], **inputs: list[int]) -> onnx.ModelProto:
    g.nodes.append(onnx.helper.make_node("Identity", [y], ["y"], name="y"))
    info = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(g.nodes, "model", [info(n, 1, s) for n, s in inputs.items()], [info("y", 1, shape)], g.initializers)
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    return model


def _slice(g: Graph, x: str, begin: int, end: int, axis: int = 0, step: int = 1) -> str:
    return g.op("Slice", x, _ints(g, begin), _ints(g, end), _ints(g, axis), _ints(g, step))


def slices() -> onnx.ModelProto:
    g = Graph()
    a = _slice(g, _slice(g, "x", 1, 8, step=3), 1, 3)
    b = _slice(g, _slice(g, "x", 9, 0, step=-2), 0, 4, step=2)
    return _model(g, g.op("Sub", a, b), [2, 5], x=[10, 5])


def views() -> onnx.ModelProto:
    g = Graph()
    a = g.op("Transpose", g.op("Transpose", "x", perm=[1, 2, 0]), perm=[0, 2, 1])
    c = g.op("Transpose", g.op("Relu", g.op("Transpose", "x", perm=[2, 0, 1])), perm=[1, 2, 0])
    s = _slice(g, _slice(g, a, 1, 6, step=2), 1, 3)
    p = _slice(g, g.op("Concat", g.op("Reshape", s, _ints(g, 2, 24)), g.op("Reshape", c, _ints(g, 6, 24)), axis=0), 3, 7)
    q = g.op("Concat", p, _slice(g, "x2", 0, 2), _slice(g, "x2", 2, 5), axis=0)
    return _model(g, g.op("Concat", q, _slice(g, "x2", 0, 2), _slice(g, "x2", 3, 5), axis=0), [13, 24], x=[4, 6, 6], x2=[5, 24])


def concats() -> onnx.ModelProto:
    g = Graph()
    a = g.op("Concat", g.op("Relu", "x"), g.op("Neg", "x"), axis=2)
    b = g.op("Transpose", g.op("Abs", "x2"), perm=[0, 2, 1])
    return _model(g, g.op("Concat", a, b, axis=1), [4, 8, 12], x=[4, 5, 6], x2=[4, 12, 3])


def pads() -> onnx.ModelProto:
    g = Graph()
    p = g.op("Pad", "x", _ints(g, 0, 0, 1, 0, 0, 0, 2, 3))
    c = g.op("Conv", p, g.weight(4, 3, 3, 3), g.weight(4), pads=[0, 1, 1, 0])
    return _model(g, g.op("MaxPool", c, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 0, 0, 1]), [2, 4, 5, 5], x=[2, 3, 8, 9])


def strided() -> onnx.ModelProto:
    g = Graph()
    c = g.op("Conv", "x", g.weight(8, 3, 5, 5), strides=[4, 4], pads=[1, 2, 2, 1])
    d = g.op("Conv", c, g.weight(6, 8, 3, 3), strides=[2, 2], pads=[1, 1, 1, 1])
    return _model(g, g.op("Relu", d), [1, 6, 4, 4], x=[1, 3, 32, 32])


def grouped() -> onnx.ModelProto:
    g = Graph()
    c = g.op("Relu", g.op("Conv", "x", g.weight(8, 3, 3, 3), group=2, pads=[1, 1, 1, 1]))
    return _model(g, g.op("Concat", c, g.op("Neg", c), axis=1), [2, 16, 8, 8], x=[2, 6, 8, 8])


def transposed_windows() -> onnx.ModelProto:
    g = Graph()
    c = g.op("ConvTranspose", "x", g.weight(3, 4, 4, 4), strides=[3, 3], pads=[1, 2, 2, 1])
    d = g.op("ConvTranspose", c, g.weight(4, 2, 3, 3), strides=[2, 2], pads=[1, 1, 0, 0], output_padding=[1, 0])
    return _model(g, d, [2, 2, 33, 38], x=[2, 3, 6, 7])


def averages() -> onnx.ModelProto:
    g = Graph()
    a = g.op("AveragePool", "x", kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    b = g.op("AveragePool", a, kernel_shape=[2, 2], pads=[0, 1, 1, 0], count_include_pad=1)
    return _model(g, g.op("GlobalAveragePool", b), [1, 4, 1, 1], x=[1, 4, 9, 9])


def sums() -> onnx.ModelProto:
    g = Graph()
    e = g.op("Relu", g.op("Mul", g.op("Add", "x", g.op("Transpose", "x", perm=[1, 0])), "x"))
    r = g.op("ReduceMax", g.op("Add", e, "x"), axes=[0], keepdims=1)
    u = g.op("Sub", g.op("Mul", r, g.op("ReduceL2", "x", axes=[1], keepdims=1)), g.op("ReduceProd", e, axes=[1], keepdims=1))
    h = g.op("Sigmoid", u)
    return _model(g, g.op("Mul", g.op("Add", h, g.op("Tanh", u)), g.op("Exp", h)), [24, 24], x=[24, 24])


def long_sums() -> onnx.ModelProto:
    g = Graph()
    found = [g.op(op, "x", axes=[0], keepdims=1) for op in ("ReduceSumSquare", "ReduceMax", "ReduceMin")]
    return _model(g, g.op("Concat", *found, axis=0), [3, 3], x=[8192, 3])


def normalised() -> onnx.ModelProto:
    """A convolution, its bias, a batch normalisation and a factor: one convolution with other weights."""
    g = Graph()
    c = g.op("Conv", "x", g.weight(5, 3, 3, 3), g.weight(5), pads=[1, 1, 1, 1])
    n = g.op("BatchNormalization", c, g.weight(5), g.weight(5), g.weight(5), g.constant([0.5, 1.0, 2.0, 1.5, 0.7]))
    return _model(g, g.op("Relu", g.op("Mul", n, g.constant(0.5))), [2, 5, 6, 7], x=[2, 3, 6, 7])


def dense() -> onnx.ModelProto:
    """Concatenated results of convolutions, each normalised by its own part of a scale that a pattern moves into weights."""
    g, x = Graph(), "x"
    for inputs in (3, 7, 11):
        n = g.op("BatchNormalization", x, *(g.weight(inputs) for _ in range(3)), g.constant(np.arange(1.0, inputs + 1)))
        c = g.op("Conv", g.op("Relu", n), g.weight(6, inputs, 1, 1))
        m = g.op("BatchNormalization", c, *(g.weight(6) for _ in range(3)), g.constant(np.arange(1.0, 7)))
        x = g.op("Concat", x, g.op("Conv", g.op("Relu", m), g.weight(4, 6, 3, 3), pads=[1, 1, 1, 1]), axis=1)
    return _model(g, x, [1, 15, 5, 6], x=[1, 3, 5, 6])


def attention() -> onnx.ModelProto:
    """Rewrites without new constants: the proof needs no numbers."""
    g = Graph()
    e = g.op("Exp", g.op("Sub", "q", g.op("ReduceMax", "q", axes=[-1], keepdims=1)))
    y = g.op("Div", e, g.op("ReduceSum", e, _ints(g, -1), keepdims=1))
    s = g.op("Softmax", g.op("Div", g.op("MatMul", y, g.op("Transpose", "k", perm=[0, 2, 1])), g.constant(2.5)), axis=-1)
    return _model(g, g.op("MatMul", s, g.op("Mul", "v", g.constant(2.5))), [2, 12, 8], q=[2, 12, 16], k=[2, 12, 16], v=[2, 12, 8])


def rows() -> onnx.ModelProto:
    g = Graph()
    q, k = (g.op("MatMul", "x", g.weight(16, 8)) for _ in range(2))
    s = g.op("LogSoftmax", g.op("MatMul", q, g.op("Transpose", k, perm=[0, 2, 1])), axis=-1)
    return _model(g, g.op("LayerNormalization", s, g.weight(12), g.weight(12)), [2, 12, 12], x=[2, 12, 16])


def looked_up() -> onnx.ModelProto:
    g = Graph()
    rows = g.op("Gather", "x", _ints(g, 3, 0, 3, 6), axis=1)
    return _model(g, g.op("Add", rows, g.op("Gather", "x", _ints(g, 1, 1, 2, 0), axis=1)), [5, 4, 3], x=[5, 7, 3])


def bert() -> onnx.ModelProto:
    return transformer(layers=1, batch=1, sequence=8, hidden=16, heads=2, feed_forward=32)


def lstm() -> onnx.ModelProto:
    return recurrent(sequence=9, inputs=4, hidden=4)


def gru() -> onnx.ModelProto:
    g = Graph()
    y = g.op("GRU", "x", g.weight(1, 15, 3), g.weight(1, 15, 5), g.weight(1, 30), outputs=2, hidden_size=5)
    return _model(g, g.op("Relu", y), [80, 1, 2, 5], x=[80, 2, 3])


def _body(g: Graph, name: str, inputs: list[str], outputs: list[str]) -> onnx.GraphProto:
    """Makes a graph of a loop or branch, whose own names begin with `name`."""
    own = {v for node in g.nodes for v in node.output} | {t.name for t in g.initializers} | {*inputs}
    new = {v: f"{name}_{v}" for v in own if v}
    for node in g.nodes:
        node.input[:], node.output[:] = ([new.get(v, v) for v in values] for values in (node.input, node.output))
    for t in g.initializers:
        t.name = new[t.name]
    values = [[onnx.ValueInfoProto(name=new[n]) for n in names] for names in (inputs, outputs)]
    return onnx.helper.make_graph(g.nodes, name, *values, g.initializers)


def scanned() -> onnx.ModelProto:
    """Two states that begin alike, and rows of both."""
    g, b = Graph(), Graph(1)
    p, q = b.op("Add", "p", b.op("Mul", "r", "q")), b.op("Tanh", b.op("Sub", "q", "p"))
    b.nodes += [onnx.helper.make_node("Identity", [v], [n]) for v, n in ((p, "p1"), (q, "q1"), (b.op("Add", p, q), "z"))]
    first = g.constant(np.full(5, 0.5))
    body = _body(b, "body", ["p", "q", "r"], ["p1", "q1", "z"])
    g.nodes.append(onnx.helper.make_node("Scan", [first, first, "x"], ["pn", "qn", "zs"], body=body, num_scan_inputs=1))
    return _model(g, g.op("Add", g.op("Add", "pn", "qn"), "zs"), [70, 5], x=[70, 5])


def counted() -> onnx.ModelProto:
    """A loop that reads its number, and a branch in it."""
    g, b, then, otherwise = Graph(), Graph(1), Graph(2), Graph(3)
    then.nodes.append(onnx.helper.make_node("Mul", ["body_s", "body_s"], ["t"]))
    otherwise.nodes.append(onnx.helper.make_node("Neg", ["body_s"], ["t"]))
    odd = b.op("Cast", b.op("Mod", "i", _ints(b, 2)), to=9)
    t = b.op("If", odd, then_branch=_body(then, "then", [], ["t"]), else_branch=_body(otherwise, "else", [], ["t"]))
    b.nodes += [
        onnx.helper.make_node("Add", [t, b.op("Cast", "i", to=1)], ["s1"]),
        onnx.helper.make_node("Identity", ["go"], ["go1"]),
    ]
    body = _body(b, "body", ["i", "go", "s"], ["go1", "s1"])
    return _model(g, g.op("Loop", g.constant(70, np.int64), "", g.op("Mul", "x", g.constant(0.1)), body=body), [3, 4], x=[3, 4])


def while_loop() -> onnx.ModelProto:
    """A loop that ends by its own condition, and the rows of the iterations that ran."""
    g, b = Graph(), Graph(1)
    s = b.op("Mul", "s", b.constant(1.5))
    more = b.op("Less", b.op("ReduceMax", s, keepdims=0), b.constant(90.0))
    b.nodes += [onnx.helper.make_node("Identity", [v], [n]) for v, n in ((more, "go1"), (s, "s1"))]
    body = _body(b, "body", ["i", "go", "s"], ["go1", "s1"])
    return _model(g, g.op("Loop", g.constant(8, np.int64), g.constant(True, bool), "x", body=body), [3, 4], x=[3, 4])


def branches() -> onnx.ModelProto:
    g, then, otherwise = Graph(), Graph(2), Graph(3)
    then.nodes.append(onnx.helper.make_node("Relu", ["x"], ["t"]))
    e = otherwise.op("MatMul", "x", otherwise.weight(6, 6))
    otherwise.nodes.append(onnx.helper.make_node("Add", [e, "x"], ["t"]))
    more = g.op("Less", g.op("ReduceSum", "x", keepdims=0), g.constant(1.0))
    t = g.op("If", more, then_branch=_body(then, "then", [], ["t"]), else_branch=_body(otherwise, "else", [], ["t"]))
    return _model(g, g.op("Add", t, "x"), [5, 6], x=[5, 6])


MODELS: Mapping[str, Callable[[], onnx.ModelProto]] = {
    f.__name__: f
    for f in (
        slices, views, concats, pads, strided, grouped, transposed_windows, averages, sums, long_sums, normalised, dense, attention,
        rows, looked_up, bert, lstm, gru, scanned, counted, while_loop, branches,
    )
}  # fmt: skip
"""Models by name."""
