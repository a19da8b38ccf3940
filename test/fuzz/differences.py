"""What onnxruntime computes otherwise than ONNX says, or what ONNX does not say: rows of op, condition, reason."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from onnx import ModelProto, NodeProto


@dataclass(frozen=True)
class Difference:
    """Nodes that are not compared: those of `op`, of these opsets, for which `when` holds."""

    op: str
    reason: str
    when: Callable[[NodeProto], bool] = lambda _: True
    since: int = 7
    until: int = 23


DIFFERENCES: list[Difference] = []


def known(model: ModelProto) -> str | None:
    """Why a model is not compared; None if it is."""
    opset = model.opset_import[0].version
    for node in _nodes(list(model.graph.node)):
        for row in DIFFERENCES:
            if row.op == node.op_type and row.since <= opset <= row.until and row.when(node):
                return f"{row.op}: {row.reason}"
    return None


def _nodes(nodes: list[NodeProto]) -> list[NodeProto]:
    found = list(nodes)
    for node in nodes:
        for a in node.attribute:
            found += _nodes(list(a.g.node)) if a.HasField("g") else []
    return found
