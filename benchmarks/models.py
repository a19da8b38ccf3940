"""The benchmark models: the `light` nets of the onnx wheel with random weights, and transformer layers built here.

The light nets' weights are ConstantOfShape fills, which hide mistakes because every channel computes the same. `randomised` replaces
them with seeded random weights of the right scale (He et al., 2015), and keeps the rest of the net.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

LIGHT = Path(onnx.__file__).parent / "backend/test/data/light"
NETS = ("bvlc_alexnet", "densenet121", "inception_v1", "inception_v2", "resnet50", "shufflenet", "squeezenet", "vgg19", "zfnet512")
BRANCH = 0.25  # of a branch that is added to its input


def randomised(path: Path, seed: int = 0, logits: bool = False) -> onnx.ModelProto:
    """Loads a light net and gives it random weights as initializers.

    `logits`: the output is the input of the final softmax, because a saturated softmax hides differences.
    """
    rng = np.random.default_rng(seed)
    model = onnx.load(path)  # pyright: ignore[reportUnknownMemberType]
    graph = model.graph
    shapes = {i.name: numpy_helper.to_array(i) for i in graph.initializer}
    readers: dict[str, tuple[onnx.NodeProto, int]] = {}
    for node in graph.node:
        for position, name in enumerate(node.input):
            readers.setdefault(name, (node, position))
    rectified = {node.output[0] for node in graph.node if node.op_type == "Relu"}
    kept: list[onnx.NodeProto] = []
    weights: list[onnx.TensorProto] = []
    for node in graph.node:
        if node.op_type != "ConstantOfShape":
            kept.append(node)
            continue
        shape = tuple(int(n) for n in shapes[node.input[0]])
        value = _weight(rng, shape, *readers.get(node.output[0], (None, 0)), readers, rectified)
        weights.append(numpy_helper.from_array(value.astype(np.float32), node.output[0]))
    used = {name for node in kept for name in node.input}
    old = [i for i in graph.initializer if i.name in used]
    for tensor in old:  # some statistics are of the net that was trained
        reader, position = readers[tensor.name]
        if reader.op_type == "BatchNormalization":
            value = _weight(rng, tuple(tensor.dims), reader, position, readers, rectified)
            tensor.CopyFrom(numpy_helper.from_array(value.astype(np.float32), tensor.name))
    initial = {i.name for i in graph.initializer}
    inputs = [i for i in graph.input if i.name not in initial]
    if logits and kept[-1].op_type == "Softmax":
        graph.output[0].name = kept[-1].input[0]
        graph.output[0].type.tensor_type.ClearField("shape")
        kept.pop()
    del graph.node[:], graph.initializer[:], graph.input[:]
    graph.node.extend(kept)
    graph.initializer.extend(old + weights)
    graph.input.extend(inputs)
    model.ir_version = max(model.ir_version, 8)
    return model


def _weight(
    rng: np.random.Generator,
    shape: tuple[int, ...],
    reader: onnx.NodeProto | None,
    position: int,
    readers: dict[str, tuple[onnx.NodeProto, int]],
    rectified: set[str],
) -> NDArray[Any]:
    """Draws random values whose scale, by their reader, keeps activations near 1: a Relu before a product halves its squares, and a
    branch that is added to its input would double them, block by block.
    """
    kind = "" if reader is None else reader.op_type
    if kind == "BatchNormalization":
        assert reader is not None
        near_one = position in (1, 4)  # scale, variance
        added = position == 1 and readers.get(reader.output[0], (reader, 0))[0].op_type in ("Add", "Sum")
        return rng.uniform(0.8, 1.2, shape) * (BRANCH if added else 1) if near_one else 0.05 * rng.standard_normal(shape)
    if kind in ("Conv", "Gemm") and position == 1:
        assert reader is not None
        transposed = any(a.name == "transB" and a.i for a in reader.attribute)
        fan_in = int(np.prod(shape[1:])) if kind == "Conv" or transposed else shape[0]
        return rng.standard_normal(shape, dtype=np.float32) * np.sqrt((2 if reader.input[0] in rectified else 1) / fan_in)
    if kind == "Unsqueeze":  # a separate scale or bias, as in Caffe
        assert reader is not None
        factor = readers[reader.output[0]][0].op_type == "Mul"
        return rng.uniform(0.8, 1.2, shape) if factor else 0.05 * rng.standard_normal(shape)
    return 0.05 * rng.standard_normal(shape)


Kept: TypeAlias = "tuple[dict[str, list[int]], dict[str, tuple[str, list[int]]]]"
"""Shapes of inputs, and values and shapes of outputs, by name."""


class Graph:
    """An ONNX graph built node by node; every method returns the name of its result."""

    def __init__(self, seed: int = 0):
        self.rng = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: list[onnx.TensorProto] = []

    def constant(self, value: Any, dtype: Any = np.float32) -> str:
        name = f"k{len(self.initializers)}"
        self.initializers.append(numpy_helper.from_array(np.asarray(value, dtype), name))
        return name

    def weight(self, *shape: int, scale: float = 0.02) -> str:
        return self.constant(self.rng.standard_normal(shape) * scale)

    def op(self, kind: str, *inputs: str, outputs: int = 1, **attributes: Any) -> str:
        names = [f"t{len(self.nodes)}" + (f"_{i}" if i else "") for i in range(outputs)]
        self.nodes.append(helper.make_node(kind, list(inputs), names, name=f"{kind.lower()}_{len(self.nodes)}", **attributes))
        return names[0]

    def linear(self, x: str, inputs: int, outputs: int) -> str:
        return self.op("Add", self.op("MatMul", x, self.weight(inputs, outputs)), self.weight(outputs))

    def model(
        self, name: str, y: str, shape: list[int], opset: int = 17, inputs: list[int] | None = None, kept: Kept | None = None
    ) -> onnx.ModelProto:
        """Builds and checks the model from the float input `x` to the float output `y`. `kept`: further inputs and outputs."""
        info, float32 = helper.make_tensor_value_info, TensorProto.FLOAT
        more_inputs, more_outputs = kept or ({}, {})
        outputs = {"y": (y, shape), **more_outputs}
        self.nodes += [helper.make_node("Identity", [value], [n], name=n) for n, (value, _) in outputs.items()]
        graph = helper.make_graph(
            self.nodes,
            name,
            [info(n, float32, s) for n, s in {"x": inputs or shape, **more_inputs}.items()],
            [info(n, float32, s) for n, (_, s) in outputs.items()],
            self.initializers,
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
        onnx.checker.check_model(model)  # pyright: ignore[reportUnknownMemberType]
        return model


def transformer(
    layers: int = 1,
    sequence: int = 128,
    hidden: int = 768,
    heads: int = 12,
    feed_forward: int = 3072,
    causal: bool = False,
    batch: int = 1,
) -> onnx.ModelProto:
    """Builds layers of BERT-base (norm after, erf gelu), or with `causal` of GPT-2 small (norm before, tanh gelu, causal mask)."""
    g = Graph()
    x = "x"
    for _ in range(layers):
        x = _layer(g, x, [batch, sequence, hidden], heads, feed_forward, causal)
    return g.model("gpt" if causal else "bert", x, [batch, sequence, hidden])


def mixed(nodes: int = 500, channels: int = 64, size: int = 8, heads: int = 4) -> onnx.ModelProto:
    """Builds a chain of `nodes` nodes, alternating residual blocks of convolutions on an image and transformer layers over its pixels.

    Kernels and hidden sizes differ between blocks, so that few plans can be shared.
    """
    g = Graph()
    image, x, block = [1, channels, size, size], "x", 0
    rows = [1, size * size, channels]
    while len(g.nodes) < nodes - 50:
        kernel, hidden = (1, 3, 5)[block % 3], channels * 2 + 16 * block
        pads: dict[str, Any] = {"kernel_shape": [kernel] * 2, "pads": [kernel // 2] * 4}
        inner = g.op("Relu", g.op("Conv", x, g.weight(hidden, channels, kernel, kernel), g.weight(hidden), **pads))
        x = g.op("Relu", g.op("Add", x, g.op("Conv", inner, g.weight(channels, hidden, kernel, kernel), g.weight(channels), **pads)))
        pixels = g.op("Transpose", g.op("Reshape", x, g.constant([1, channels, size * size], np.int64)), perm=[0, 2, 1])
        pixels = _layer(g, pixels, rows, heads, 2 * hidden, causal=block % 2 == 1)
        x = g.op("Reshape", g.op("Transpose", pixels, perm=[0, 2, 1]), g.constant(image, np.int64))
        block += 1
    while len(g.nodes) < nodes - 1:
        x = g.op("Relu", g.op("Conv", x, g.weight(channels, channels, 1, 1))) if len(g.nodes) < nodes - 2 else g.op("Neg", x)
    return g.model("mixed", x, image)


def _layer(g: Graph, x: str, shape: list[int], heads: int, feed_forward: int, causal: bool) -> str:
    batch, sequence, hidden = shape
    size = hidden // heads

    def norm(t: str) -> str:
        return g.op("LayerNormalization", t, g.constant(np.ones(hidden)), g.constant(np.zeros(hidden)), axis=-1, epsilon=1e-5)

    def split(t: str, permutation: list[int]) -> str:
        return g.op("Transpose", g.op("Reshape", t, g.constant([batch, sequence, heads, size], np.int64)), perm=permutation)

    source = norm(x) if causal else x
    q, k, v = (g.linear(source, hidden, hidden) for _ in range(3))
    scores = g.op("MatMul", split(q, [0, 2, 1, 3]), split(k, [0, 2, 3, 1]))
    scores = g.op("Mul", scores, g.constant(size**-0.5))
    if causal:
        scores = g.op("Add", scores, g.constant(np.triu(np.full((sequence, sequence), -1e9), 1)[None, None]))
    mixed = g.op("MatMul", g.op("Softmax", scores, axis=-1), split(v, [0, 2, 1, 3]))
    merged = g.op("Reshape", g.op("Transpose", mixed, perm=[0, 2, 1, 3]), g.constant(shape, np.int64))
    x = g.op("Add", x, g.linear(merged, hidden, hidden))
    x = x if causal else norm(x)
    inner = g.linear(norm(x) if causal else x, hidden, feed_forward)
    x = g.op("Add", x, g.linear(_gelu(g, inner, causal), feed_forward, hidden))
    return x if causal else norm(x)


def _gelu(g: Graph, x: str, tanh: bool) -> str:
    """Builds gelu as exporters spell it before opset 20."""
    if tanh:
        cube = g.op("Mul", g.op("Mul", x, x), x)
        inner = g.op("Mul", g.op("Add", x, g.op("Mul", cube, g.constant(0.044715))), g.constant(np.sqrt(2 / np.pi)))
        return g.op("Mul", g.op("Mul", x, g.constant(0.5)), g.op("Add", g.op("Tanh", inner), g.constant(1.0)))
    erf = g.op("Erf", g.op("Div", x, g.constant(np.sqrt(2))))
    return g.op("Mul", g.op("Mul", x, g.op("Add", erf, g.constant(1.0))), g.constant(0.5))


def cached_layer(past: int = 127, hidden: int = 768, heads: int = 12) -> onnx.ModelProto:
    """Builds attention of one new token of GPT-2 small to a cache of `past` ones; the keys and values with it are outputs."""
    g, size = Graph(), hidden // heads
    shape = g.constant([1, 1, heads, size], np.int64)
    q, k, v = (g.op("Transpose", g.op("Reshape", g.linear("x", hidden, hidden), shape), perm=[0, 2, 1, 3]) for _ in range(3))
    keys, values = (g.op("Concat", f"past_{n}", new, axis=2) for n, new in (("keys", k), ("values", v)))
    scores = g.op("Mul", g.op("MatMul", q, g.op("Transpose", keys, perm=[0, 1, 3, 2])), g.constant(size**-0.5))
    mixed = g.op("Transpose", g.op("MatMul", g.op("Softmax", scores, axis=-1), values), perm=[0, 2, 1, 3])
    y = g.op("Add", "x", g.linear(g.op("Reshape", mixed, g.constant([1, 1, hidden], np.int64)), hidden, hidden))
    inputs = {f"past_{n}": [1, heads, past, size] for n in ("keys", "values")}
    outputs = {n: (v, [1, heads, past + 1, size]) for n, v in (("keys", keys), ("values", values))}
    return g.model("cached", y, [1, 1, hidden], kept=(inputs, outputs))


def half(model: onnx.ModelProto, batch: int | None = None) -> onnx.ModelProto:
    """Converts a model to 16-bit floats, in place. `batch`: another first dimension of its inputs, outputs and reshapes."""
    graph = model.graph
    shapes = {node.input[1] for node in graph.node if node.op_type == "Reshape"}
    for i, tensor in enumerate(graph.initializer):
        array = numpy_helper.to_array(tensor)
        if array.dtype == np.float32:
            graph.initializer[i].CopyFrom(numpy_helper.from_array(array.astype(np.float16), tensor.name))
        elif batch is not None and tensor.name in shapes:
            graph.initializer[i].CopyFrom(numpy_helper.from_array(np.array([batch, *array[1:]]), tensor.name))
    for value in (*graph.input, *graph.output):
        type = value.type.tensor_type
        type.elem_type = TensorProto.FLOAT16
        if batch is not None and type.HasField("shape"):
            type.shape.dim[0].dim_value = batch
    del graph.value_info[:]
    return model


def lstm(sequence: int = 64, inputs: int = 256, hidden: int = 512) -> onnx.ModelProto:
    """Builds one LSTM over a sequence, batch 1."""
    g = Graph()
    x = g.op("Reshape", "x", g.constant([sequence, 1, inputs], np.int64))
    weights = [g.weight(1, 4 * hidden, n, scale=0.05) for n in (inputs, hidden)]
    y = g.op("LSTM", x, *weights, g.weight(1, 8 * hidden), hidden_size=hidden)
    y = g.op("Reshape", y, g.constant([sequence, hidden], np.int64))
    return g.model("lstm", y, [sequence, hidden], inputs=[sequence, inputs])


def mlp() -> onnx.ModelProto:
    """Builds layers of 784-512-512-10 units, batch 64."""
    g = Graph()
    y = "x"
    for inputs, outputs in ((784, 512), (512, 512)):
        y = g.op("Relu", g.linear(y, inputs, outputs))
    return g.model("mlp", g.linear(y, 512, 10), [64, 10], inputs=[64, 784])


def conv_net() -> onnx.ModelProto:
    """Builds three convolutions and two linear layers on images of 32 by 32, batch 32."""
    g = Graph()
    y = "x"
    for inputs, outputs, pool in ((3, 32, False), (32, 32, True), (32, 64, True)):
        y = g.op("Relu", g.op("Conv", y, g.weight(outputs, inputs, 3, 3, scale=0.1), g.weight(outputs), pads=[1, 1, 1, 1]))
        y = g.op("MaxPool", y, kernel_shape=[2, 2], strides=[2, 2]) if pool else y
    y = g.op("Relu", g.linear(g.op("Flatten", y), 64 * 64, 128))
    return g.model("conv_net", g.linear(y, 128, 10), [32, 10], inputs=[32, 3, 32, 32])


def keywords(channels: int = 64) -> onnx.ModelProto:
    """Builds the net of MLPerf Tiny for 12 keywords: 49 frames of 10 coefficients. Source: DS-CNN of Zhang et al., Hello Edge, 2017."""
    g = Graph()
    y = g.op("Relu", g.op("Conv", "x", g.weight(channels, 1, 10, 4, scale=0.1), g.weight(channels), pads=[4, 1, 5, 1], strides=[2, 2]))
    for _ in range(4):
        depthwise = g.op("Conv", y, g.weight(channels, 1, 3, 3, scale=0.3), g.weight(channels), pads=[1, 1, 1, 1], group=channels)
        y = g.op("Relu", g.op("Conv", g.op("Relu", depthwise), g.weight(channels, channels, 1, 1, scale=0.1), g.weight(channels)))
    y = g.linear(g.op("Flatten", g.op("GlobalAveragePool", y)), channels, 12)
    return g.model("keywords", g.op("Softmax", y), [1, 12], inputs=[1, 1, 49, 10])


def _net(name: str) -> Callable[[], onnx.ModelProto]:
    return lambda: randomised(LIGHT / f"light_{name}.onnx")


MODELS: dict[str, Callable[[], onnx.ModelProto]] = {
    **{name: _net(name) for name in NETS},
    "bert_layer": transformer,
    "gpt_layer": lambda: transformer(causal=True),
    "bert_12": lambda: transformer(layers=12),
    "gpt_12": lambda: transformer(layers=12, causal=True),
    "lstm": lstm,
}
