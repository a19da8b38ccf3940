"""Decoders from their configuration, as ONNX without weights: one step of decoding with a cache of keys and values.

    python -m benchmarks.decoders "Llama 3.1 8B" --batch 1 --positions 4096 --layers 1 --out layer.onnx
    populus profile layer.onnx --no-weights --target n150

Weights are named and have shapes, but no data: `--no-weights` plans by their sizes, in the memory that a plan takes.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx
from onnx import TensorProto, helper

from benchmarks.mesh_models import DECODERS, Decoder

TYPE = TensorProto.BFLOAT16


class Step:
    """Builds the graph of a step, in bf16: Touvron et al., 2023, with grouped queries. Rotations of positions come as two inputs."""

    def __init__(self, net: Decoder, batch: int, positions: int):
        self.net, self.batch, self.positions = net, batch, positions
        self.nodes: list[onnx.NodeProto] = []
        self.inputs: list[onnx.ValueInfoProto] = []
        self.outputs: list[onnx.ValueInfoProto] = []
        self.initializers: list[onnx.TensorProto] = []

    def op(self, kind: str, *inputs: str, **attributes: Any) -> str:
        name = f"n{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [name], name=name, **attributes))
        return name

    def weight(self, name: str, *shape: int) -> str:
        tensor = TensorProto(name=name, data_type=TYPE, dims=shape, data_location=TensorProto.EXTERNAL)
        entry = tensor.external_data.add()
        entry.key, entry.value = "location", "weights"
        self.initializers.append(tensor)
        return name

    def constant(self, *values: int) -> str:
        return self.op("Constant", value=helper.make_tensor("", TensorProto.INT64, [len(values)], values))

    def number(self, value: float) -> str:
        return self.op("Cast", self.op("Constant", value=helper.make_tensor("", TensorProto.FLOAT, [], [value])), to=TYPE)

    def input(self, name: str, *shape: int) -> str:
        self.inputs.append(helper.make_tensor_value_info(name, TYPE, shape))
        return name

    def norm(self, x: str, name: str) -> str:
        """Builds x / sqrt(mean x^2 + 1e-5) * w."""
        mean = self.op("ReduceMean", self.op("Mul", x, x), axes=[-1], keepdims=1)
        return self.op(
            "Mul", self.op("Div", x, self.op("Sqrt", self.op("Add", mean, self.number(1e-5)))), self.weight(name, self.net.hidden)
        )

    def linear(self, x: str, name: str, k: int, n: int) -> str:
        return self.op("MatMul", x, self.weight(name, k, n))

    def rotated(self, x: str, cos: str, sin: str) -> str:
        half = self.net.size // 2
        low, high = (self.op("Slice", x, self.constant(a), self.constant(b), self.constant(-1)) for a, b in ((0, half), (half, 2 * half)))
        turned = self.op("Concat", self.op("Neg", high), low, axis=-1)
        return self.op("Add", self.op("Mul", x, cos), self.op("Mul", turned, sin))

    def layer(self, x: str, i: int, cos: str, sin: str) -> str:
        net, batch, keys = self.net, self.batch, self.net.key_heads
        group, size = net.heads // net.key_heads, net.size
        y = self.norm(x, f"{i}.norm1")
        q, k, v = (self.linear(y, f"{i}.{n}", net.hidden, heads * size) for n, heads in (("q", net.heads), ("k", keys), ("v", keys)))
        q = self.rotated(self.op("Reshape", q, self.constant(batch, keys, group, size)), cos, sin)
        k = self.rotated(self.op("Reshape", k, self.constant(batch, keys, 1, size)), cos, sin)
        v = self.op("Reshape", v, self.constant(batch, keys, 1, size))
        cached = [self.input(f"{i}.{n}", batch, keys, self.positions - 1, size) for n in ("keys", "values")]
        all_keys, all_values = (self.op("Concat", past, new, axis=2) for past, new in zip(cached, (k, v), strict=True))
        scores = self.op("MatMul", q, self.op("Transpose", all_keys, perm=[0, 1, 3, 2]))
        mixed = self.op("MatMul", self.op("Softmax", self.op("Mul", scores, self.number(size**-0.5)), axis=-1), all_values)
        self.outputs += [helper.make_tensor_value_info(new, TYPE, [batch, keys, 1, size]) for new in (k, v)]
        merged = self.op("Reshape", mixed, self.constant(batch, net.heads * size))
        x = self.op("Add", x, self.linear(merged, f"{i}.o", net.heads * size, net.hidden))
        y = self.norm(x, f"{i}.norm2")
        gate, up = (self.linear(y, f"{i}.{n}", net.hidden, net.inner) for n in ("gate", "up"))
        inner = self.op("Mul", self.op("Mul", gate, self.op("Sigmoid", gate)), up)
        return self.op("Add", x, self.linear(inner, f"{i}.down", net.inner, net.hidden))


def decoder(net: Decoder, batch: int = 1, positions: int = 4096, layers: int | None = None) -> onnx.ModelProto:
    """Builds one step of decoding: `layers` of the net's, and its logits if all are there."""
    step = Step(net, batch, positions)
    x = step.input("x", batch, net.hidden)
    cos, sin = (step.input(name, net.size) for name in ("cos", "sin"))
    for i in range(net.layers if layers is None else layers):
        x = step.layer(x, i, cos, sin)
    if layers is None:
        x = step.linear(step.norm(x, "norm"), "logits", net.hidden, net.vocabulary)
    width = net.vocabulary if layers is None else net.hidden
    step.outputs.insert(0, helper.make_tensor_value_info(x, TYPE, [batch, width]))
    graph = helper.make_graph(step.nodes, "decoder", step.inputs, step.outputs, step.initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.decoders")
    parser.add_argument("net", choices=DECODERS, help="a decoder")
    parser.add_argument("--batch", type=int, default=1, help="sequences (1)")
    parser.add_argument("--positions", type=int, default=4096, help="of the cache, the new one among them (4096)")
    parser.add_argument("--layers", type=int, help="only so many layers, without logits")
    parser.add_argument("--head", action="store_true", help="no layer, but the logits")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="the ONNX file to write")
    args = parser.parse_args()
    net, layers = (replace(DECODERS[args.net], layers=0), None) if args.head else (DECODERS[args.net], args.layers)
    args.out.write_bytes(decoder(net, args.batch, args.positions, layers).SerializeToString())


if __name__ == "__main__":
    main()
