"""Random valid ONNX graphs: `graph(seed)`, and `inputs(model, seed)` for them.

The same seed gives the same graph and the same inputs on every machine.
"""

from __future__ import annotations

import json
from random import Random

import onnx
from onnx import ModelProto, helper

from fuzz import combining, controlling, elementwise, indexing, sampling, shaping
from fuzz.drawing import BF16, F16, F32, F64, Array, Draw, Span, Unfit, drawn

KINDS = [*elementwise.KINDS, *shaping.KINDS, *indexing.KINDS, *sampling.KINDS, *combining.KINDS, *controlling.KINDS]
OPSETS = range(7, 24)
NODES = 12


def graph(seed: int, wide: bool = False) -> ModelProto:
    """A valid model of 1 to about 12 nodes, of an opset from 7 to 23.

    `wide`: of values up to 500,000 elements, and so much work that the native engine is the default.
    Its inputs say in their `doc_string` what they may hold, its property `rounded` has the values that rounding may have moved.
    """
    rng = Random(seed)
    g = Draw(rng, rng.choice(OPSETS), draw_node=draw_node, wide=wide)
    if wide:
        combining.large_product(g)
    for _ in range(rng.choice([1, 1, 2, 3, 4, 5, 6, 8, 10, NODES])):
        draw_node(g)
    return closed(g, f"seed {seed}")


def inputs(model: ModelProto, seed: int) -> dict[str, Array]:
    """Arrays for a model's inputs, within what it says that they may hold."""
    rng = Random(f"inputs {seed}")
    arrays: dict[str, Array] = {}
    for i in model.graph.input:
        tensor = i.type.tensor_type
        arrays[i.name] = drawn(rng, tensor.elem_type, [d.dim_value for d in tensor.shape.dim], Span(*json.loads(i.doc_string)))
    return arrays


def draw_node(g: Draw) -> None:
    """One more node, of a kind that fits. A kind that does not leaves nothing behind."""
    kinds = [k for k in KINDS if k.since <= g.opset <= k.until and (g.depth < 2 or k not in controlling.KINDS)]
    for _ in range(50):
        kind = g.rng.choices(kinds, [k.weight for k in kinds])[0]
        before = [len(part) for part in (g.nodes, g.initializers, g.inputs, g.pool)]
        try:
            kind.draw(g)
            return
        except Unfit:
            for part, length in zip((g.nodes, g.initializers, g.inputs, g.pool), before):
                del part[length:]
    raise AssertionError(f"no kind of node fits at opset {g.opset}")


def closed(g: Draw, name: str) -> ModelProto:
    """The model: results are all values that nothing reads, some that something reads, and at times an input."""
    read = set(used(g.nodes))
    made = {o for n in g.nodes if n.op_type != "Constant" for o in n.output}
    results = [v for v in g.pool if v.name in made and (v.name not in read or g.chance(0.15))]
    passed = [v for v in g.pool if v.name in {i.name for i in g.inputs} and g.chance(0.05)]
    results = [g.node("Cast", [v], [v.span], to=F32)[0] if v.type == BF16 else v for v in results]  # which onnxruntime can give back
    outputs = [helper.make_tensor_value_info(v.name, v.type, v.shape) for v in [*results, *passed]]
    proto = helper.make_graph(g.nodes, name, g.inputs, outputs, g.initializers)
    imports = [helper.make_opsetid("", g.opset)]
    model = helper.make_model(proto, opset_imports=imports, ir_version=max(4, helper.find_min_ir_version_for(imports)))
    rounded = {v.name: v.shape for v in g.pool if v.name in made and v.span.step is None and v.type in (F32, F64, F16)}
    helper.set_model_props(model, {"rounded": json.dumps(rounded)})
    onnx.checker.check_model(model)
    return model


def used(nodes: list[onnx.NodeProto]) -> list[str]:
    """The names that nodes read, those in their graphs included."""
    names: list[str] = []
    for node in nodes:
        names += node.input
        for a in node.attribute:
            for inner in (a.g, *a.graphs):
                names += used(list(inner.node))
                names += [o.name for o in inner.output]
    return names
