"""What onnxruntime computes otherwise than ONNX says, and what ONNX leaves open: rows of operator, condition, reason."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import prod
from typing import Any

from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper, shape_inference

from fuzz.drawing import Array


@dataclass(frozen=True)
class Node:
    """A node with what its conditions ask for: attributes, shapes, constants, element types."""

    node: NodeProto
    shapes: dict[str, tuple[int, ...]]
    constants: dict[str, Array]
    types: dict[str, int]

    def get(self, name: str, default: Any = None) -> Any:
        """An attribute; of bytes the text."""
        for a in self.node.attribute:
            if a.name == name:
                value = helper.get_attribute_value(a)
                return value.decode() if isinstance(value, bytes) else value
        return default

    def shape(self, i: int) -> tuple[int, ...] | None:
        return self.shapes.get(self.node.input[i])

    def constant(self, i: int) -> Array | None:
        return self.constants.get(self.node.input[i]) if i < len(self.node.input) else None


@dataclass(frozen=True)
class Difference:
    """Nodes of `op`, at these opsets, for which `when` holds. A model with one of them is not compared."""

    op: str
    reason: str
    when: Callable[[Node], bool]
    since: int = 7
    until: int = 23


def _crops(n: Node) -> bool:
    shape, kernel = n.shape(0), n.get("kernel_shape")
    strides = n.get("strides", [1] * len(kernel))
    same = n.get("auto_pad", "NOTSET").startswith("SAME")
    return same and shape is not None and any((size - 1) // s * s + k < size for size, k, s in zip(shape[2:], kernel, strides))


def _between_sizes(n: Node) -> bool:
    scales, shape = n.constant(1 if len(n.node.input) == 2 else 2), n.shape(0)
    if n.get("coordinate_transformation_mode") != "align_corners" or scales is None or not scales.size or shape is None:
        return False
    return any(float(s * size) % 1 for s, size in zip(scales, shape))


def _may_overflow(n: Node) -> bool:
    shape, result = n.shape(0), n.shapes.get(n.node.output[0])
    most = {TensorProto.INT32: 9, TensorProto.INT64: 19}.get(n.types.get(n.node.input[0], 0))  # elements of up to 9 below 2^31, 2^63
    return most is not None and shape is not None and result is not None and prod(shape) > most * prod(result)


DIFFERENCES = [
    Difference(
        "Dropout",
        "before opset 12 ONNX does not say what the mask is where nothing is dropped: onnxruntime has false, we have true",
        lambda n: len(n.node.output) == 2,
        until=11,
    ),
    Difference(
        "Gelu",
        "onnxruntime computes halves in f32; ONNX's definition rounds each op of it, which leaves little of 1 + erf(x) for x below -2",
        lambda n: n.types.get(n.node.input[0]) == TensorProto.FLOAT16,
        since=20,
    ),
    Difference(
        "GridSample",
        "onnxruntime clamps each neighbour of a cubic sample to the border, ONNX's definition the sample itself",
        lambda n: n.get("mode") in ("cubic", "bicubic") and n.get("padding_mode") == "border",
        since=16,
    ),
    Difference(
        "LpPool",
        "onnxruntime crops where auto_pad SAME needs less than no padding; ONNX's pads are at least 0",
        _crops,
    ),
    Difference(
        "MaxPool",
        "onnxruntime crops where auto_pad SAME needs less than no padding; ONNX's pads are at least 0",
        _crops,
    ),
    Difference(
        "ReduceProd",
        "a product beyond its type: onnxruntime gives the nearest integer there is, ours wraps around, as sums and products of elements do",
        _may_overflow,
    ),
    Difference(
        "Resize",
        "aligned corners of scale * size that is no integer: ONNX counts with the fraction, onnxruntime with the size itself",
        _between_sizes,
        since=11,
    ),
]


def known(model: ModelProto) -> str | None:
    """Why a model is not compared; None if it is."""
    opset = model.opset_import[0].version
    rows = [row for row in DIFFERENCES if row.since <= opset <= row.until]
    graphs = list(_graphs(shape_inference.infer_shapes(model).graph))
    infos = [v for graph in graphs for v in (*graph.input, *graph.value_info, *graph.output)]
    types = {v.name: v.type.tensor_type.elem_type for v in infos}
    shapes = {v.name: tuple(d.dim_value for d in v.type.tensor_type.shape.dim) for v in infos}
    constants = {t.name: numpy_helper.to_array(t) for graph in graphs for t in graph.initializer}
    nodes = [node for graph in graphs for node in graph.node]
    constants |= {n.output[0]: numpy_helper.to_array(n.attribute[0].t) for n in nodes if n.op_type == "Constant"}
    shapes |= {name: a.shape for name, a in constants.items()}
    for node in nodes:
        for row in rows:
            if row.op == node.op_type and row.when(Node(node, shapes, constants, types)):
                return f"{row.op}: {row.reason}"
    return None


def _graphs(graph: GraphProto) -> Iterator[GraphProto]:
    """Yields a graph and those of branches and loops inside of it."""
    yield graph
    for node in graph.node:
        for a in node.attribute:
            if a.HasField("g"):
                yield from _graphs(a.g)
