"""Models of a few nodes in a line of text each, and their results on every engine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper

import populus

Array = NDArray[Any]
ENGINES = ("numpy", "strict", "native")


def node(kind: str, inputs: str, outputs: str, **attributes: Any) -> onnx.NodeProto:
    """Builds a node of names with spaces between; `-` is an input that is left out."""
    return helper.make_node(kind, [n.replace("-", "") for n in inputs.split()], outputs.split(), name=outputs, **attributes)


def model_of(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, Array],
    constants: Mapping[str, Array] | None = None,
    outputs: str = "y",
    opset: int = 21,
) -> onnx.ModelProto:
    """Builds a model of these nodes; `outputs`: the names of the values that it returns."""
    info = [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape) for n, a in inputs.items()]
    returned = [helper.make_empty_tensor_value_info(n) for n in outputs.split()]
    initializers = [numpy_helper.from_array(a, n) for n, a in (constants or {}).items()]
    graph = helper.make_graph(list(nodes), "few", info, returned, initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def on_every_engine(model: onnx.ModelProto, inputs: Mapping[str, Array], **options: Any) -> dict[str, dict[str, Array]]:
    """Runs a model on each engine: the outputs by engine, by name."""
    options = {"tiles": 4, **options}
    return {engine: populus.compile(model, engine=engine, **options).run(dict(inputs)) for engine in ENGINES}
