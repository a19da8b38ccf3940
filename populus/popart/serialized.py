"""The graphs of a session as JSON: `session._serializeIr(popart.IrSerializationFormat.JSON)`.

    {"maingraph": [{"type": "MatMul", "domain": "ai.onnx", "name": "..", "inputs": [..], "outputs": [..], "attributes": {..}}, ..]}

An op is what the session compiles: the model's own where it stays, and what it was translated to where it does not. Source of the
layout: PopART, `_serializeIr`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from populus.dialects.support.diagnostics import PopulusError
from populus.popart.translation import DOMAIN, Translation

if TYPE_CHECKING:
    from onnx import NodeProto

MAIN = "maingraph"


def as_json(translation: Translation) -> str:
    """Gives the graphs of a translated model: by name, each a list of its ops."""
    graphs: dict[str, list[dict[str, Any]]] = {}
    _add(MAIN, translation, translation.nodes, graphs)
    return json.dumps(graphs)


def _add(name: str, translation: Translation, nodes: Iterable[NodeProto], graphs: dict[str, list[dict[str, Any]]]) -> None:
    found = graphs.setdefault(name, [])
    for node in nodes:
        found.append(_op(translation, node))
        for a in node.attribute:
            if a.HasField("g"):
                inside = f"{name}/{node.output[0] if node.output else node.op_type}/{a.name}"
                _add(inside, translation, a.g.node, graphs)


def _op(translation: Translation, node: NodeProto) -> dict[str, Any]:
    written = node.domain == DOMAIN  # a function, named for the op that it stands for
    return {
        "type": node.op_type.rpartition("_")[0] if written else node.op_type,
        "domain": "populus" if written else node.domain or "ai.onnx",
        "name": node.name,
        "inputs": [_tensor(translation, i, n) for i, n in enumerate(node.input) if n],
        "outputs": [_tensor(translation, i, n) for i, n in enumerate(node.output) if n],
        "attributes": {a.name: _value(a) for a in node.attribute if not a.HasField("g")},
    }


def _tensor(translation: Translation, index: int, name: str) -> dict[str, Any]:
    found: dict[str, Any] = {"index": index, "name": name}
    if translation.has(name):
        known = translation.type_of(name)
        found.update(type=known.dtype.name, shape=list(known.shape))
    return found


def _value(attribute: Any) -> str:
    from onnx.helper import get_attribute_value

    value = get_attribute_value(attribute)
    if attribute.HasField("t"):
        return f"{list(attribute.t.dims)}"
    return value.decode() if isinstance(value, bytes) else str(value)


def check_format(format: Any) -> None:
    """Raises PopulusError for another format than JSON."""
    if getattr(format, "name", None) != "JSON":
        raise PopulusError(f"format = {format}; IrSerializationFormat.JSON is the only one")
