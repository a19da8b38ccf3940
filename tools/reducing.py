"""Smaller cases of a failure: candidates of a model and of a text, and the greedy search that keeps those that still fail."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto, ValueInfoProto

T = TypeVar("T")
ROUNDS = 20
"""The most times that all candidates are tried again."""


def smallest(case: T, candidates: Callable[[T], Iterator[T]], fails: Callable[[T], bool]) -> T:
    """Replaces a case by its first candidate that still fails, until none does. Gives the last.

    After a candidate is taken, those of the new case follow from the same number on: most of the earlier ones failed to fail.
    """
    at = 0
    for _ in range(ROUNDS):
        taken = False
        again = True
        while again:
            again = False
            for i, candidate in enumerate(candidates(case)):
                if i >= at and fails(candidate):
                    case, at, again, taken = candidate, i, True, True
                    break
        if not taken:
            return case
        at = 0
    return case


# -- models


def of_model(model: ModelProto) -> Iterator[ModelProto]:
    """Yields smaller models: one output, fewer nodes, smaller sizes, fewer attributes, and no names that nothing needs."""
    for i in range(len(model.graph.output)) if len(model.graph.output) > 1 else ():
        copy = copied(model)
        kept = copy.graph.output[i]
        del copy.graph.output[:]
        copy.graph.output.add().CopyFrom(kept)
        yield pruned(copy)
    types = types_of(model)
    for i in reversed(range(len(model.graph.node))):
        yield from _without(model, i, types)
    for n in sorted(sizes_of(model), reverse=True):
        for other in sorted({1, 2, n // 2, n - 1}):
            if 0 < other < n:
                yield resized(model, n, other)
    for i, node in enumerate(model.graph.node):
        for a in range(len(node.attribute)):
            if node.attribute[a].name not in ("value", "to", "body", "then_branch", "else_branch", "num_scan_inputs"):
                copy = copied(model)
                del copy.graph.node[i].attribute[a]
                yield copy


def copied(model: ModelProto) -> ModelProto:
    """Copies a model, without types of inner values, which a smaller one may contradict."""
    copy = type(model)()
    copy.CopyFrom(model)
    del copy.graph.value_info[:]
    del copy.metadata_props[:]
    return copy


def types_of(model: ModelProto) -> dict[str, ValueInfoProto]:
    """Infers the types of a model's values by name, as far as ONNX knows them."""
    from onnx import shape_inference

    inferred = shape_inference.infer_shapes(model)
    return {v.name: v for v in (*inferred.graph.value_info, *inferred.graph.output, *inferred.graph.input)}


def _without(model: ModelProto, i: int, types: dict[str, ValueInfoProto]) -> Iterator[ModelProto]:
    """Yields models without a node: one of its inputs takes its place, a new input does, or the model ends before it."""
    node = model.graph.node[i]
    known = {o: types[o] for o in node.output if o in types}
    outputs = {o.name for o in model.graph.output}
    for source in node.input:
        if source in types and all(types[source].type == t.type for t in known.values()) and known and not outputs & set(node.output):
            yield pruned(_dropped(model, i, dict.fromkeys(node.output, source)))
    if known and not outputs & set(node.output):
        copy = _dropped(model, i, {})
        for t in known.values():
            copy.graph.input.add().CopyFrom(t)
        yield pruned(copy)
    if any(read_by(other) & set(node.output) for other in model.graph.node):
        return
    for source in node.input:
        if source in types and outputs & set(node.output) and source not in outputs:
            copy = _dropped(model, i, {})
            kept = [o for o in copy.graph.output if o.name not in node.output]
            del copy.graph.output[:]
            copy.graph.output.extend([*kept, types[source]])
            yield pruned(copy)


def _dropped(model: ModelProto, i: int, renamed: dict[str, str]) -> ModelProto:
    copy = copied(model)
    del copy.graph.node[i]
    for node in copy.graph.node:
        for j, name in enumerate(node.input):
            node.input[j] = renamed.get(name, name)
    return copy


def pruned(model: ModelProto) -> ModelProto:
    """Removes nodes, initializers and inputs that no output needs."""
    needed = {o.name for o in model.graph.output}
    for i in reversed(range(len(model.graph.node))):
        node = model.graph.node[i]
        if needed & set(node.output):
            needed |= read_by(node)
        else:
            del model.graph.node[i]
    for values in (model.graph.initializer, model.graph.input):
        for i in reversed(range(len(values))):
            if values[i].name not in needed:
                del values[i]
    return model


def read_by(node: NodeProto) -> set[str]:
    """Gives the names that a node reads, those in its graphs included."""
    found = set(node.input)
    for a in node.attribute:
        graphs: list[GraphProto] = [a.g, *a.graphs]
        for g in graphs:
            found |= {o.name for o in g.output}.union(*(read_by(n) for n in g.node)) if g.node else set()
    return found


def sizes_of(model: ModelProto) -> set[int]:
    """Lists the sizes above 1 that inputs and initializers have."""
    found = {d.dim_value for i in model.graph.input for d in i.type.tensor_type.shape.dim}
    for tensor in model.graph.initializer:
        found |= set(tensor.dims)
    return {n for n in found if n > 1}


def resized(model: ModelProto, n: int, other: int) -> ModelProto:
    """Makes each dimension of n elements one of fewer: in inputs, in initializers, and in constants of sizes."""
    from onnx import TensorProto, numpy_helper

    copy = copied(model)
    for info in (*copy.graph.input, *copy.graph.output):
        for d in info.type.tensor_type.shape.dim:
            if d.dim_value == n:
                d.dim_value = other
    for tensor in copy.graph.initializer:
        array: Any = numpy_helper.to_array(tensor)
        cut = array[tuple(slice(0, other) if size == n else slice(None) for size in array.shape)]
        if tensor.data_type == TensorProto.INT64 and cut.ndim == 1:
            cut = cut.copy()
            cut[cut == n] = other
        tensor.CopyFrom(numpy_helper.from_array(cut, tensor.name))
    names = [info.name for info in copy.graph.output]
    for info in copy.graph.output:
        info.type.tensor_type.ClearField("shape")
    inferred = types_of(copy)
    del copy.graph.output[:]
    copy.graph.output.extend(inferred[name] for name in names)
    return copy


# -- texts


def of_text(text: str) -> Iterator[str]:
    """Yields smaller texts: without stretches of lines, without an op, with smaller sizes, with fewer attributes."""
    lines = text.splitlines()
    length = len(lines) // 2
    while length:
        for at in range(0, len(lines), length):
            yield "\n".join([*lines[:at], *lines[at + length :]])
        length //= 2
    for i, line in enumerate(lines):
        if (made := re.match(r"\s*(%[\w.]+) = .*?: (?:\(.*\) -> )?(tensor<[^<>]*>)\s*$", line)) is not None:
            rest = "\n".join([*lines[:i], *lines[i + 1 :]])
            for value, type in re.findall(r"(%[\w.]+) ?: (tensor<[^<>]*>)", text):
                if type == made[2]:
                    yield re.sub(rf"{re.escape(made[1])}\b", value, rest)
            argument = f"@main({made[1]}: {made[2]}"
            yield rest.replace("@main()", f"{argument})", 1) if "@main()" in rest else rest.replace("@main(", f"{argument}, ", 1)
    for n in sorted({int(n) for n in re.findall(r"(?<=[<x])\d+(?=[x>])", text) if len(n) < 12}, reverse=True):
        for other in sorted({1, 2, n // 2, n - 1}):
            if 0 < other < n:
                yield re.sub(rf"(?<=[<x(\[ ]){n}(?=[x>, \])])", str(other), text)
    for match in re.finditer(r" attributes \{[^{}]*\}|, \w+ = [^,{}<>]+(?=[,}])|\{\w+ = [^,{}<>]+\}| loc\([^()]*\)", text):
        yield text[: match.start()] + text[match.end() :]
