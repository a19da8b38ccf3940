"""Models with open sizes, as exporters write them: an encoder, a convolutional net, and two decoders with a cache. Random weights.

Sizes inside come from `Shape`, as torch's exporter spells them: `Shape -> Gather -> Unsqueeze -> Concat -> Reshape`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from benchmarks.models import Graph

Shape = list[int | str]


@dataclass(frozen=True)
class Decoder:
    """Sizes of a decoder. `groups`: query heads that share one head of keys and values."""

    layers: int = 12
    heads: int = 12
    size: int = 64
    groups: int = 1
    inner: int = 3072
    words: int = 50257
    longest: int = 1024

    @property
    def hidden(self) -> int:
        """Elements of a row."""
        return self.heads * self.size

    @property
    def kept_heads(self) -> int:
        """Heads of keys and values."""
        return self.heads // self.groups


GPT2 = Decoder()
LLAMA = Decoder(layers=12, heads=12, size=64, groups=4, inner=2048, words=32000)


class OpenGraph(Graph):
    """A graph whose sizes are tensors."""

    def size(self, x: str, axis: int) -> str:
        """Gives a size of `x` as a scalar."""
        return self.op("Gather", self.op("Shape", x), self.constant(axis, np.int64), axis=0)

    def sizes(self, *parts: str | int) -> str:
        """Joins scalars and numbers to a shape."""
        first = self.constant([0], np.int64)
        lists = [self.constant([p], np.int64) if isinstance(p, int) else self.op("Unsqueeze", p, first) for p in parts]
        return self.op("Concat", *lists, axis=0)

    def reshape(self, x: str, *parts: str | int) -> str:
        """Reshapes to these sizes."""
        return self.op("Reshape", x, self.sizes(*parts))

    def part(self, x: str, begin: str | int, end: str | int, axis: int) -> str:
        """Slices one axis."""
        low, high = (self.constant([p], np.int64) if isinstance(p, int) else self.sizes(p) for p in (begin, end))
        return self.op("Slice", x, low, high, self.constant([axis], np.int64))

    def norm(self, x: str, hidden: int) -> str:
        """Normalises rows, with scale and shift."""
        return self.op("LayerNormalization", x, self.constant(np.ones(hidden)), self.constant(np.zeros(hidden)), axis=-1, epsilon=1e-5)

    def finish(self, name: str, inputs: dict[str, tuple[int, Shape]], outputs: dict[str, tuple[str, int, Shape]]) -> onnx.ModelProto:
        """Builds and checks the model. `outputs`: by name, the value, its element type and shape."""
        self.nodes += [helper.make_node("Identity", [value], [result], name=result) for result, (value, _, _) in outputs.items()]
        info = helper.make_tensor_value_info
        graph = helper.make_graph(
            self.nodes,
            name,
            [info(n, element, shape) for n, (element, shape) in inputs.items()],
            [info(n, element, shape) for n, (_, element, shape) in outputs.items()],
            self.initializers,
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        onnx.checker.check_model(model)  # pyright: ignore[reportUnknownMemberType]
        return model


def encoder(
    layers: int = 12, hidden: int = 768, heads: int = 12, inner: int = 3072, words: int = 30522, longest: int = 512, seed: int = 0
) -> onnx.ModelProto:
    """Builds a BERT with open `batch` and `seq`: ids and mask in, the last hidden states and the pooled first row out."""
    g = OpenGraph(seed)
    size = hidden // heads
    batch, seq = g.size("input_ids", 0), g.size("input_ids", 1)
    places = g.part(g.constant(np.arange(longest)[None], np.int64), 0, seq, 1)
    x = g.op("Add", g.op("Gather", g.weight(words, hidden), "input_ids"), g.op("Gather", g.weight(longest, hidden), places))
    x = g.norm(x, hidden)
    axes = g.constant([1, 2], np.int64)
    mask = g.op("Cast", g.op("Unsqueeze", "attention_mask", axes), to=TensorProto.FLOAT)
    mask = g.op("Mul", g.op("Sub", g.constant(1.0), mask), g.constant(np.finfo(np.float32).min))
    for _ in range(layers):
        q, k, v = (g.op("Transpose", g.reshape(g.linear(x, hidden, hidden), batch, seq, heads, size), perm=[0, 2, 1, 3]) for _ in range(3))
        scores = g.op("Div", g.op("MatMul", q, g.op("Transpose", k, perm=[0, 1, 3, 2])), g.constant(np.sqrt(size)))
        weights = g.op("Softmax", g.op("Add", scores, mask), axis=-1)
        mixed = g.op("Transpose", g.op("MatMul", weights, v), perm=[0, 2, 1, 3])
        x = g.norm(g.op("Add", x, g.linear(g.reshape(mixed, batch, seq, hidden), hidden, hidden)), hidden)
        wide = g.linear(x, hidden, inner)
        wide = g.op("Mul", wide, g.op("Add", g.op("Erf", g.op("Div", wide, g.constant(np.sqrt(2)))), g.constant(1.0)))
        x = g.norm(g.op("Add", x, g.linear(g.op("Mul", wide, g.constant(0.5)), inner, hidden)), hidden)
    first = g.op("Gather", x, g.constant(0, np.int64), axis=1)
    pooled = g.op("Tanh", g.op("Gemm", first, g.weight(hidden, hidden), g.weight(hidden)))
    ids: tuple[int, Shape] = (TensorProto.INT64, ["batch", "seq"])
    f = TensorProto.FLOAT
    return g.finish(
        "encoder",
        {"input_ids": ids, "attention_mask": ids},
        {"last_hidden_state": (x, f, ["batch", "seq", hidden]), "pooler_output": (pooled, f, ["batch", hidden])},
    )


def images(channels: int = 32, blocks: int = 4, classes: int = 100, seed: int = 0) -> onnx.ModelProto:
    """Builds a convolutional net with open `batch`, `h` and `w`: residual blocks, a skip over a pool and an upsampling, a classifier."""
    g = OpenGraph(seed)

    def conv(x: str, c: int, to: int, kernel: int = 3, stride: int = 1) -> str:
        weight = g.weight(to, c, kernel, kernel, scale=(2 / (c * kernel * kernel)) ** 0.5)
        return g.op("Conv", x, weight, g.weight(to), kernel_shape=[kernel] * 2, strides=[stride] * 2, pads=[kernel // 2] * 4)

    x = g.op("Relu", conv("x", 3, channels, 5, 2))
    x = g.op("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    c = channels
    for i in range(blocks):
        stride, to = (1 if i == 0 else 2), c * (1 if i == 0 else 2)
        short = x if i == 0 else conv(x, c, to, 1, stride)
        inner = g.op("Relu", conv(x, c, to, 3, stride))
        x = g.op("Relu", g.op("Add", short, conv(inner, to, to)))
        c = to
    pooled = g.op("Flatten", g.op("GlobalAveragePool", x), axis=1)
    y = g.op("Softmax", g.op("Gemm", pooled, g.weight(c, classes), g.weight(classes)), axis=-1)
    f = TensorProto.FLOAT
    return g.finish("images", {"x": (f, ["batch", 3, "h", "w"])}, {"y": (y, f, ["batch", classes])})


def gpt2(d: Decoder = GPT2, seed: int = 0) -> onnx.ModelProto:
    """Builds a GPT-2 with a cache: `input_ids` [1, cur] and past keys and values in, logits and present keys and values out."""
    g = OpenGraph(seed)
    cur, past = g.size("input_ids", 1), g.size("past_key_0", 2)
    total = g.op("Add", past, cur)
    table = g.weight(d.words, d.hidden)
    places = g.op("Unsqueeze", g.op("Range", past, total, g.constant(1, np.int64)), g.constant([0], np.int64))
    x = g.op("Add", g.op("Gather", table, "input_ids"), g.op("Gather", g.weight(d.longest, d.hidden), places))
    allowed = g.constant(np.tril(np.ones((d.longest, d.longest), bool))[None, None], bool)
    allowed = g.part(g.part(allowed, past, total, 2), 0, total, 3)
    kept: dict[str, str] = {}
    for i in range(d.layers):
        joined = g.linear(g.norm(x, d.hidden), d.hidden, 3 * d.hidden)
        q, k, v = (g.part(joined, j * d.hidden, (j + 1) * d.hidden, 2) for j in range(3))
        q, k, v = (g.op("Transpose", g.reshape(t, 1, cur, d.heads, d.size), perm=[0, 2, 1, 3]) for t in (q, k, v))
        kept[f"key_{i}"] = k = g.op("Concat", f"past_key_{i}", k, axis=2)
        kept[f"value_{i}"] = v = g.op("Concat", f"past_value_{i}", v, axis=2)
        scores = g.op("Div", g.op("MatMul", q, g.op("Transpose", k, perm=[0, 1, 3, 2])), g.constant(np.sqrt(d.size)))
        scores = g.op("Where", allowed, scores, g.constant(np.finfo(np.float32).min))
        mixed = g.op("Transpose", g.op("MatMul", g.op("Softmax", scores, axis=-1), v), perm=[0, 2, 1, 3])
        x = g.op("Add", x, g.linear(g.reshape(mixed, 1, cur, d.hidden), d.hidden, d.hidden))
        wide = g.linear(g.norm(x, d.hidden), d.hidden, d.inner)
        cube = g.op("Mul", g.op("Pow", wide, g.constant(3.0)), g.constant(0.044715))
        tanh = g.op("Tanh", g.op("Mul", g.op("Add", wide, cube), g.constant(np.sqrt(2 / np.pi))))
        wide = g.op("Mul", g.op("Mul", wide, g.constant(0.5)), g.op("Add", tanh, g.constant(1.0)))
        x = g.op("Add", x, g.linear(wide, d.inner, d.hidden))
    logits = g.op("MatMul", g.norm(x, d.hidden), g.op("Transpose", table, perm=[1, 0]))
    return _decoder(g, "gpt2", d, logits, kept)


def llama(d: Decoder = LLAMA, seed: int = 0) -> onnx.ModelProto:
    """Builds a Llama with grouped queries, rotary embedding and a cache; inputs and outputs as `gpt2`."""
    g = OpenGraph(seed)
    cur, past = g.size("input_ids", 1), g.size("past_key_0", 2)
    total = g.op("Add", past, cur)
    x = g.op("Gather", g.weight(d.words, d.hidden), "input_ids")
    one = g.constant(1, np.int64)
    rows, columns = g.op("Range", past, total, one), g.op("Range", g.constant(0, np.int64), total, one)
    angles = np.arange(d.longest)[:, None] / 10000 ** (np.arange(0, d.size, 2) / d.size)
    angles = np.concatenate([angles, angles], axis=1)
    cos, sin = (g.op("Gather", g.constant(t), rows) for t in (np.cos(angles), np.sin(angles)))
    allowed = g.op("LessOrEqual", columns, g.op("Unsqueeze", rows, g.constant([1], np.int64)))
    mask = g.op("Where", allowed, g.constant(0.0), g.constant(np.finfo(np.float32).min))

    def rms(t: str) -> str:
        mean = g.op("ReduceMean", g.op("Pow", t, g.constant(2.0)), axes=[-1], keepdims=1)
        return g.op("Mul", g.op("Div", t, g.op("Sqrt", g.op("Add", mean, g.constant(1e-6)))), g.constant(np.ones(d.hidden)))

    def rotated(t: str) -> str:
        half = d.size // 2
        turned = g.op("Concat", g.op("Neg", g.part(t, half, d.size, 3)), g.part(t, 0, half, 3), axis=-1)
        return g.op("Add", g.op("Mul", t, cos), g.op("Mul", turned, sin))

    def repeated(t: str) -> str:
        wide = g.op("Expand", g.op("Unsqueeze", t, g.constant([2], np.int64)), g.sizes(1, d.kept_heads, d.groups, total, d.size))
        return g.reshape(wide, 1, d.heads, total, d.size)

    def heads(t: str, n: int) -> str:
        made = g.reshape(g.op("MatMul", t, g.weight(d.hidden, n * d.size)), 1, cur, n, d.size)
        return g.op("Transpose", made, perm=[0, 2, 1, 3])

    kept: dict[str, str] = {}
    for i in range(d.layers):
        source = rms(x)
        q, k, v = rotated(heads(source, d.heads)), rotated(heads(source, d.kept_heads)), heads(source, d.kept_heads)
        kept[f"key_{i}"] = k = g.op("Concat", f"past_key_{i}", k, axis=2)
        kept[f"value_{i}"] = v = g.op("Concat", f"past_value_{i}", v, axis=2)
        scores = g.op("MatMul", q, g.op("Transpose", repeated(k), perm=[0, 1, 3, 2]))
        scores = g.op("Add", g.op("Mul", scores, g.constant(d.size**-0.5)), mask)
        mixed = g.op("Transpose", g.op("MatMul", g.op("Softmax", scores, axis=-1), repeated(v)), perm=[0, 2, 1, 3])
        x = g.op("Add", x, g.op("MatMul", g.reshape(mixed, 1, cur, d.hidden), g.weight(d.hidden, d.hidden)))
        source = rms(x)
        gate, up = (g.op("MatMul", source, g.weight(d.hidden, d.inner)) for _ in range(2))
        wide = g.op("Mul", g.op("Mul", gate, g.op("Sigmoid", gate)), up)
        x = g.op("Add", x, g.op("MatMul", wide, g.weight(d.inner, d.hidden)))
    logits = g.op("MatMul", rms(x), g.weight(d.hidden, d.words))
    return _decoder(g, "llama", d, logits, kept)


def _decoder(g: OpenGraph, name: str, d: Decoder, logits: str, kept: dict[str, str]) -> onnx.ModelProto:
    f = TensorProto.FLOAT
    past: Shape = [1, d.kept_heads, "past", d.size]
    present: Shape = [1, d.kept_heads, "past + cur", d.size]
    inputs: dict[str, tuple[int, Shape]] = {"input_ids": (TensorProto.INT64, [1, "cur"])}
    outputs: dict[str, Any] = {"logits": (logits, f, [1, "cur", d.words])}
    for key, value in kept.items():
        inputs[f"past_{key}"] = f, past
        outputs[f"present_{key}"] = value, f, present
    return g.finish(name, inputs, outputs)
