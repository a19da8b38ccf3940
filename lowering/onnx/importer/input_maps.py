"""Maps that a model reads: the graph gets the row that CastMap or DictVectorizer makes of one, and the host makes it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from populus.dialects.onnx.types import element_numbered
from populus.dialects.signature.map_inputs import MapInput
from populus.dialects.support.diagnostics import PopulusError

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto, ValueInfoProto

ML = "ai.onnx.ml"
CASTS = {"TO_FLOAT": 1, "TO_INT64": 7, "TO_STRING": 8}
"""Element types, as numbers of TensorProto.DataType, by CastMap's `cast_to`."""
ELEMENTS = (1, 7, 8, 11)


def without_maps(model: ModelProto) -> tuple[ModelProto, tuple[MapInput, ...]]:
    """Gives a model whose inputs are tensors, and how a map becomes one; the same model if it reads no map.

    The ops that read a map become Identity. Raises PopulusError if others do, or two that make different rows of it.
    """
    maps = [i for i in model.graph.input if i.type.HasField("map_type")]
    if not maps:
        return model, ()
    from onnx import ModelProto

    changed = ModelProto()
    changed.CopyFrom(model)
    if not any(o.domain in ("", "ai.onnx") for o in changed.opset_import):
        changed.opset_import.add(domain="", version=13)
    inputs = {i.name: i for i in changed.graph.input}
    return changed, tuple(_row(changed.graph, inputs[i.name]) for i in maps)


def _row(graph: GraphProto, value: ValueInfoProto) -> MapInput:
    """Makes a graph input a tensor, and the nodes that read it Identity."""
    readers = [n for n in graph.node if value.name in n.input]
    found = {_entry(node, value) for node in readers}
    if len(found) != 1 or value.name in [o.name for o in graph.output]:
        names = ", ".join(f"'{n.name or n.op_type}'" for n in readers) or "no node"
        raise PopulusError(f"input '{value.name}' is a map, which {names} read; one CastMap or DictVectorizer is expected")
    number, entry = found.pop()
    value.type.Clear()
    value.type.tensor_type.elem_type = number
    dimensions = value.type.tensor_type.shape.dim
    dimensions.add().dim_value = 1
    last = dimensions.add()
    if (columns := len(entry.keys) if entry.keys is not None else entry.size) is not None:
        last.dim_value = columns
    for node in readers:
        node.op_type, node.domain = "Identity", ""
        del node.attribute[:]
    return entry


def _entry(node: NodeProto, value: ValueInfoProto) -> tuple[int, MapInput]:
    """Gives the number of the element type, and the row that a node makes of a map."""
    held = value.type.map_type
    keys, values = held.key_type, held.value_type.tensor_type.elem_type
    attributes = {a.name: a for a in node.attribute}
    if (node.domain, node.op_type) == (ML, "CastMap"):
        cast = attributes["cast_to"].s.decode() if "cast_to" in attributes else "TO_FLOAT"
        form = attributes["map_form"].s.decode() if "map_form" in attributes else "DENSE"
        if cast not in CASTS or form not in ("DENSE", "SPARSE"):
            raise PopulusError(f"'{node.name}': CastMap: cast_to is '{cast}' and map_form '{form}'; {', '.join(CASTS)}; DENSE, SPARSE")
        if keys != 7:
            raise PopulusError(f"'{node.name}': CastMap: keys of input '{value.name}' are no int64")
        size = attributes["max_map"].i if "max_map" in attributes else 1
        if form == "SPARSE" and size < 1:
            raise PopulusError(f"'{node.name}': CastMap: max_map = {size}; the length of the row is expected")
        number, columns, size = CASTS[cast], None, size if form == "SPARSE" else None
    elif (node.domain, node.op_type) == (ML, "DictVectorizer"):
        words = [s.decode() for s in attributes["string_vocabulary"].strings] if "string_vocabulary" in attributes else []
        numbers = list(attributes["int64_vocabulary"].ints) if "int64_vocabulary" in attributes else []
        if bool(words) == bool(numbers) or (keys == 8) != bool(words):
            raise PopulusError(f"'{node.name}': DictVectorizer: one vocabulary, of the type of the keys of '{value.name}', is expected")
        if len({*words, *numbers}) < len(words) + len(numbers):
            raise PopulusError(f"'{node.name}': DictVectorizer: its vocabulary has a key twice")
        number, columns, size = values, tuple(words or numbers), None
    else:
        raise PopulusError(f"'{node.name}': {node.op_type} reads the map '{value.name}'; CastMap or DictVectorizer is expected")
    element = element_numbered(number)
    if number not in ELEMENTS or element is None:
        raise PopulusError(f"input '{value.name}': maps to {element} are not known; float, double, int64 and string are")
    return number, MapInput(value.name, element, columns, size)
