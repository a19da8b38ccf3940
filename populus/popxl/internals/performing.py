"""Calls a function as one op of a graph, and keeps what the op takes, makes and changes."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

from populus.popxl.internals.op import Op, Program
from populus.popxl.listed import Listed
from populus.popxl.ops.utils import check_tensor_ipu_and_tile_set
from populus.popxl.tensor import Tensor

if TYPE_CHECKING:
    from populus.popxl.graph import Graph

UNPLACED = ("IpuCopy", "IoTileCopy", "Call", "Loop", "If", "AllReduce")  # kinds whose tensors lie on several chips or sets of tiles


def performed(graph: Graph, kind: type[Op], program: Program) -> tuple[Op, Any]:
    """Calls a function as one op of a graph, whose `with` is open; gives the op and what the function gives."""
    with one_op(graph, kind, program.bound.arguments) as op:
        found = program.function(*program.bound.args, **program.bound.kwargs)
        op.program = program
        op.outputs = [*tensors_of(getattr(found, "outputs", found)), *op.outputs]
        if hasattr(found, "set_parent_input_modified"):
            op.info, found._op = found, op
            op.inputs = list(found.inputs)
        op.called = {g: g.version for g in cast("list[Graph]", [a for a in program.bound.arguments.values() if isinstance(a, Listed)])}
    return op, found


@contextmanager
def one_op(graph: Graph, kind: type[Op], arguments: dict[str, Any]) -> Generator[Op]:
    """Makes what is inserted into a graph inside one op of it; its outputs are set by who calls this."""
    given = [(name, t) for name, value in arguments.items() for t in tensors_of(value)]
    if kind.kind not in UNPLACED:
        check_tensor_ipu_and_tile_set(**{f"{name}_{k}" if name == given[k - 1][0] else name: t for k, (name, t) in enumerate(given)})
    op = kind(graph, arguments, [t for _, t in given])
    last = graph.last_op
    graph.op_within = op
    try:
        yield op
        op.body = graph.ops_after(last)
        op.inputs += [t for t in op.kept if t not in op.inputs and t not in op.outputs]
        graph.recorded.append(op)
        for t in op.outputs:
            t.producer = t.producer or op
        _pass_on_meta_shapes(op)
    finally:
        graph.op_within = None
        graph.forget([t for t in op.made if t not in op.outputs and t not in op.kept])


def _pass_on_meta_shapes(op: Op) -> None:
    """Makes outputs of a shard's shape shards of the same whole, unless the op says otherwise."""
    for shard in (t for t in op.inputs if t.meta_shape):
        for t in op.outputs:
            if not t.meta_shape and t.shape == shard.shape:
                t.meta_shape = shard.meta_shape


def tensors_of(value: Any) -> Iterable[Tensor]:
    """Gives the tensors of an argument or a result: itself, or those of a list, tuple or dict."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, dict):
        yield from tensors_of(tuple(cast("dict[Any, Any]", value).values()))
    elif isinstance(value, list | tuple):
        for inner in cast("Iterable[Any]", value):
            yield from tensors_of(inner)
