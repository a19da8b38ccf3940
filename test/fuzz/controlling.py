"""Kinds of nodes with graphs inside: If, Loop, Scan."""

from __future__ import annotations

import numpy as np
from onnx import GraphProto, ValueInfoProto, helper

from fuzz.drawing import BOOL, F32, I32, I64, Draw, Kind, Span, Unfit, Value

CARRIED = (F32, F32, I32, I64)


def info(v: Value, name: str = "") -> ValueInfoProto:
    return helper.make_tensor_value_info(name or v.name, v.type, v.shape)


def body(g: Draw, inputs: list[Value], nodes: int) -> Draw:
    """A graph within another, which sees all that is outside."""
    inner = Draw(g.rng, g.opset, f"{g.prefix}b{g.made}_", g.seen(), g.depth + 1, draw_node=g.draw_node, wide=g.wide)
    g.made += 1
    inner.pool.extend(inputs)
    assert g.draw_node is not None
    for _ in range(nodes):
        g.draw_node(inner)
    return inner


def closed(inner: Draw, inputs: list[ValueInfoProto], outputs: list[Value]) -> GraphProto:
    """The graph, whose results are made inside it: each gets a name of its own."""
    names = [inner.name() for _ in outputs]
    nodes = [*inner.nodes, *(helper.make_node("Identity", [v.name], [n]) for v, n in zip(outputs, names))]
    infos = [info(v, n) for v, n in zip(outputs, names)]
    return helper.make_graph(nodes, inner.prefix, inputs, infos, inner.initializers)


def back_to(v: Value, like: Value) -> Value:
    """A value with the type, shape and span of another, made of `v` where it can be."""
    alike = (v.type, v.shape) == (like.type, like.shape) and (v.span.exact or not like.span.exact)
    return v if alike and like.span.low <= v.span.low and v.span.high <= like.span.high else like


def either(g: Draw) -> None:
    c = g.value((BOOL,), shape=()) if g.chance(0.7) else g.constant(np.array(g.chance(0.5)))
    branches = [body(g, [], g.rng.randint(1, 3)) for _ in range(2)]
    first = g.rng.choice(branches[0].pool or [g.value(CARRIED)])
    matching = [v for v in branches[1].seen() if (v.type, v.shape) == (first.type, first.shape)]
    if matching:
        second = matching[-1]
    else:
        second = branches[1].new(first.type, first.shape)
    graphs = [closed(b, [], [v]) for b, v in zip(branches, (first, second))]
    place(g, "If", [c], [(first.type, first.shape, first.span.over(second.span))], then_branch=graphs[0], else_branch=graphs[1])


def place(g: Draw, op: str, inputs: list[Value | None], results: list[tuple[int, tuple[int, ...], Span]], **said: object) -> list[Value]:
    """A node, results of which are known from its graphs."""
    values = [Value(g.name(), type, shape, span) for type, shape, span in results]
    if any(v.size > 320 for v in values):
        raise Unfit
    g.nodes.append(helper.make_node(op, [v.name if v is not None else "" for v in inputs], [v.name for v in values], **said))
    g.pool.extend(values)
    return values


def loop(g: Draw) -> None:
    """Iterations that carry one or two values, and may collect one from each."""
    trips = g.rng.choice([0, 1, 2, 3, 3])
    carried = [g.value(CARRIED, most=3, empty=False) for _ in range(g.rng.randint(1, 2))]
    count, condition = Value(f"{g.prefix}i{g.made}", I64, (), Span(0, 3, 1)), Value(f"{g.prefix}c{g.made}", BOOL, (), Span(0, 1, 1))
    inner_inputs = [Value(f"{g.prefix}x{g.made}_{k}", v.type, v.shape, v.span) for k, v in enumerate(carried)]
    inner = body(g, [count, *inner_inputs], g.rng.randint(1, 4))
    nexts = []
    for own in inner_inputs:
        made = [v for v in inner.pool if v not in inner_inputs and back_to(v, own) is v]
        nexts.append(inner.rng.choice(made or [back_to(v, own) for v in inner_inputs]))
    going = condition
    if g.chance(0.4):
        limit = inner.ints(np.array(g.rng.randint(0, 2)))
        (going,) = inner.node("Less", [count, limit], [Span(0, 1, 1)])
    scanned = [inner.rng.choice(inner.pool)] if g.chance(0.5) else []
    scanned = [v for v in scanned if v.rank < 4]
    graph = closed(inner, [info(count), info(condition), *map(info, inner_inputs)], [going, *nexts, *scanned])
    ends = [(v.type, v.shape, v.span) for v in inner_inputs]
    if going is not condition and scanned:
        raise Unfit  # the number of rows depends on the data
    rows = [(v.type, (trips, *v.shape), v.span) for v in scanned]
    place(g, "Loop", [g.ints(np.array(trips)), g.constant(np.array(True)) if g.chance(0.6) else None, *carried], [*ends, *rows], body=graph)


def scan(g: Draw) -> None:
    """Steps along an axis of a value, in either direction, with a state."""
    x = g.value(CARRIED, least=1, most=3, empty=False)
    axis = g.rng.randrange(x.rank)
    rows = (*x.shape[:axis], *x.shape[axis + 1 :])
    state = g.value(CARRIED, most=2, empty=False)
    inputs = [Value(f"{g.prefix}s{g.made}", state.type, state.shape, state.span), Value(f"{g.prefix}r{g.made}", x.type, rows, x.span)]
    inner = body(g, inputs, g.rng.randint(1, 4))
    made = [v for v in inner.pool if v is not inputs[0] and back_to(v, inputs[0]) is v]
    following = inner.rng.choice(made or inputs[:1])
    out = inner.rng.choice(inner.pool)
    if out.rank > 3:
        raise Unfit
    graph = closed(inner, list(map(info, inputs)), [following, out])
    at = g.rng.randint(0, out.rank)
    said: dict[str, object] = {"num_scan_inputs": 1}
    if axis or g.chance(0.3):
        said["scan_input_axes"] = [axis - x.rank if g.opset >= 11 and g.chance(0.3) else axis]
    if at or g.chance(0.3):
        said["scan_output_axes"] = [at]
    if g.chance(0.4):
        said["scan_input_directions"] = [g.rng.randint(0, 1)]
    if g.chance(0.4):
        said["scan_output_directions"] = [g.rng.randint(0, 1)]
    stacked = (*out.shape[:at], x.shape[axis], *out.shape[at:])
    place(g, "Scan", [state, x], [(state.type, state.shape, state.span), (out.type, stacked, out.span)], body=graph, **said)


KINDS = [Kind("If", either, weight=5), Kind("Loop", loop, weight=5), Kind("Scan", scan, 9, weight=4)]
