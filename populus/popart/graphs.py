"""Nodes that hold graphs: `Call`, `If`, `Loop` and `Scan`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from populus.dialects.support.diagnostics import PopulusError
from populus.popart.stated import StatedError
from populus.popart.translation import Known, Rule, Translation

if TYPE_CHECKING:
    from onnx import AttributeProto, GraphProto, NodeProto


def _graphs(node: NodeProto) -> dict[str, GraphProto]:
    return {a.name: a.g for a in node.attribute if a.HasField("g")}


def call(translation: Translation, node: NodeProto) -> None:
    """Writes the nodes of the called graph in place of the call. Raises PopulusError for another number of inputs or outputs."""
    from onnx import NodeProto, helper

    graph = _graphs(node)["callee"]
    for what, given, own in (("inputs", node.input, graph.input), ("outputs", node.output, graph.output)):
        if len(given) != len(own):
            fault = f"number of {what} ({len(given)}) does not match that of the callee subgraph ({len(own)})"
            raise StatedError(f"For CallOp '{node.name}', {fault}")
    mark = f"{next(translation.numbers)}/"
    names = {i.name: given for i, given in zip(graph.input, node.input)}
    own = [*(i.name for i in graph.initializer), *(o for n in graph.node for o in n.output if o)]
    names.update({name: f"call{mark}{name}" for name in own})
    for tensor in graph.initializer:
        from onnx import TensorProto

        copy = TensorProto()
        copy.CopyFrom(tensor)
        copy.name = names[tensor.name]
        translation.nodes.append(helper.make_node("Constant", [], [copy.name], value=copy))
    for inner in graph.node:
        copied = NodeProto()
        copied.CopyFrom(inner)
        renamed(copied, names)
        translation.feed(copied)
    for given, output in zip(graph.output, node.output):
        translation.nodes.append(helper.make_node("Identity", [names.get(given.name, given.name)], [output]))


def renamed(node: NodeProto, names: Mapping[str, str]) -> None:
    """Gives the tensors of a node, and those that graphs inside it read, other names."""
    node.input[:] = [names.get(i, i) for i in node.input]
    node.output[:] = [names.get(o, o) for o in node.output]
    if node.name in names:
        node.name = names[node.name]
    for a in node.attribute:
        if a.HasField("g"):
            made = {i.name for i in a.g.input} | {i.name for i in a.g.initializer} | {o for n in a.g.node for o in n.output}
            inner = {k: v for k, v in names.items() if k not in made}
            for n in a.g.node:
                renamed(n, inner)
            for o in a.g.output:
                o.name = inner.get(o.name, o.name)


def branch(translation: Translation, node: NodeProto) -> None:
    """Translates an If, whose graphs may read what is around them."""
    rebuilt(translation, node, {name: [] for name in _graphs(node)})


def loop(translation: Translation, node: NodeProto) -> None:
    """Translates a Loop: its body takes the iteration, the condition and what is carried."""
    import numpy as np

    carried = [translation.type_of(i) for i in node.input[2:]]
    body = _own_inputs(translation, _graphs(node)["body"])
    given = [Known(np.dtype(np.int64), ()), Known(np.dtype(np.bool_), ()), *carried]
    if len(body.input) != len(given):
        raise PopulusError(f"its body takes {len(body.input)} inputs; it is given {len(given)}")
    rebuilt(translation, node, {"body": given})


def scan(translation: Translation, node: NodeProto) -> None:
    """Translates a Scan: its body takes states, and one slice of each scanned input, which keeps its scanned dimension, of size 1.

    So do its outputs, which are joined along their dimension. Raises PopulusError before opset 9.
    """
    from onnx import NodeProto, helper

    if translation.opsets.get("", 10) < 9:
        raise PopulusError("the Scan of opset 8 is not there yet; take that of opset 9")
    attributes = {a.name: a for a in node.attribute}
    number = attributes["num_scan_inputs"].i
    made = NodeProto()
    made.CopyFrom(node)
    body = _own_inputs(translation, next(a.g for a in made.attribute if a.HasField("g")))
    states = len(node.input) - number
    known = [translation.type_of(i) for i in node.input]
    axes = _axes(attributes, "scan_input_axes", number)
    given: list[Known | None] = [*known[:states]]
    squeezed: list[NodeProto] = []
    for k, axis in enumerate(axes):
        shape = known[states + k].shape
        at = axis % len(shape)
        value = body.input[states + k]
        given.append(Known(known[states + k].dtype, (*shape[:at], *shape[at + 1 :])))
        squeezed.append(helper.make_node("Unsqueeze", [f"{value.name}/slice"], [value.name], axes=[at]))
        value.name = f"{value.name}/slice"
    nodes = [*squeezed, *body.node]
    del body.node[:]
    body.node.extend(nodes)
    inner = translation.inner(body, given)
    results = [inner.type_of(o.name) for o in body.output[states:]]
    outs = _axes(attributes, "scan_output_axes", len(results))
    placed = [a % max(len(r.shape), 1) for a, r in zip(outs, results)]
    kept = [a for a in made.attribute if a.name != "scan_output_axes"]
    del made.attribute[:]
    made.attribute.extend([*kept, helper.make_attribute("scan_output_axes", placed)] if placed else kept)
    made.output[:] = [*node.output[:states], *(f"{o}/stacked" for o in node.output[states:])]
    rebuilt(translation, made, {"body": given})
    steps = known[states].shape[axes[0] % len(known[states].shape)] if axes else 0
    for output, result, at in zip(node.output[states:], results, placed):
        shape = list(result.shape)
        shape[at] *= steps
        wanted = f"{output}/shape"
        translation.nodes.append(_constant(wanted, shape))
        translation.nodes.append(helper.make_node("Reshape", [f"{output}/stacked", wanted], [output]))


def _axes(attributes: Mapping[str, AttributeProto], name: str, count: int) -> list[int]:
    found = list(attributes[name].ints) if name in attributes else []
    return found or [0] * count


def _constant(name: str, values: Sequence[int]) -> NodeProto:
    import numpy as np
    from onnx import helper, numpy_helper

    return helper.make_node("Constant", [], [name], value=numpy_helper.from_array(np.array(values, np.int64)))


def _own_inputs(translation: Translation, graph: GraphProto) -> GraphProto:
    """Drops from a graph the inputs that only say that it reads a tensor around it."""
    kept = [i for i in graph.input if i.type.HasField("tensor_type") or not translation.has(i.name)]
    if len(kept) < len(graph.input):
        del graph.input[:]
        graph.input.extend(kept)
    return graph


def rebuilt(translation: Translation, node: NodeProto, given: Mapping[str, Sequence[Known | None]]) -> None:
    """Adds the node with its graphs translated. An output that the graph does not make itself goes through an Identity."""
    from onnx import NodeProto, ValueInfoProto, helper

    made = NodeProto()
    made.CopyFrom(node)
    for a in made.attribute:
        if not a.HasField("g"):
            continue
        _own_inputs(translation, a.g)
        inner = translation.inner(a.g, given.get(a.name, ()))
        own = {o for n in inner.nodes for o in n.output}
        inputs = [helper.make_tensor_value_info(i.name, inner.type_of(i.name).number, inner.type_of(i.name).shape) for i in a.g.input]
        outputs: list[str] = []
        for o in a.g.output:
            name = o.name
            if name not in own or name in outputs:
                name = f"{name}/out{next(translation.numbers)}"
                inner.nodes.append(helper.make_node("Identity", [o.name], [name]))
            outputs.append(name)
        weights = list(a.g.initializer)
        a.g.CopyFrom(helper.make_graph(inner.nodes, a.g.name or "graph", inputs, [ValueInfoProto(name=n) for n in outputs], weights))
    translation.nodes.append(made)


RULES: Mapping[tuple[str, str], Rule] = {
    ("ai.graphcore", "Call"): call,
    ("", "If"): branch,
    ("", "Loop"): loop,
    ("", "Scan"): scan,
}
