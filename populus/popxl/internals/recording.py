"""Keeps a graph's list of ops: a function under `@recorded` becomes one op of the current graph when a program calls it.

Tensors that the function makes on the way are not listed in the graph. Its results are, and what it keeps by `kept`, and constants
made of numbers in a tensor's place. A recorded function that another one calls is part of that one's op.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from functools import wraps
from typing import Any, ParamSpec, TypeVar, cast

from populus.popxl.graph import Graph
from populus.popxl.internals.kinds import CLASSES
from populus.popxl.internals.op import Op
from populus.popxl.ops.utils import check_tensor_ipu_and_tile_set
from populus.popxl.tensor import Tensor
from populus.write.builder import innermost

Params = ParamSpec("Params")
Result = TypeVar("Result")
UNPLACED = ("IpuCopy", "IoTileCopy", "Call", "Loop", "If", "AllReduce")  # kinds whose tensors lie on several chips or sets of tiles


def recorded(kind: str) -> Callable[[Callable[Params, Result]], Callable[Params, Result]]:
    """Makes calls of a function ops of this kind."""
    made = CLASSES[kind]

    def wrap(function: Callable[Params, Result]) -> Callable[Params, Result]:
        signature = inspect.signature(function)

        @wraps(function)
        def insert(*args: Params.args, **kwargs: Params.kwargs) -> Result:
            graph = innermost()
            if not isinstance(graph, Graph):
                return function(*args, **kwargs)
            if graph.op_within is not None:
                with graph.op_within.deeper():
                    return function(*args, **kwargs)
            bound = signature.bind(*args, **kwargs)
            bound.apply_defaults()
            with one_op(graph, made, bound.arguments) as op:
                found = function(*args, **kwargs)
                op.outputs = [*_tensors(getattr(found, "outputs", found)), *op.outputs]
                if hasattr(found, "set_parent_input_modified"):
                    cast("Any", found)._op = op
                    op.inputs = list(cast("Any", found).inputs)
            return found

        return insert

    return wrap


@contextmanager
def one_op(graph: Graph, kind: type[Op], arguments: dict[str, Any]) -> Generator[Op]:
    """Makes what is inserted into a graph inside one op of it; its outputs are set by who calls this."""
    given = [(name, t) for name, value in arguments.items() for t in _tensors(value)]
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


def kept(t: Tensor) -> Tensor:
    """Makes a tensor that an op makes on the way one that the graph shows, and an input of the op."""
    t.graph.keep(t)
    return t


def also_given(t: Tensor) -> Tensor:
    """Makes a tensor that an op makes on the way a further output of it, which the call does not give."""
    if t.graph.op_within is not None and not t.graph.op_within.depth:
        t.graph.op_within.outputs.append(t)
    return t


def _tensors(value: Any) -> Iterable[Tensor]:
    """Gives the tensors of an argument or a result: itself, or those of a list, tuple or dict."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, dict):
        yield from _tensors(tuple(cast("dict[Any, Any]", value).values()))
    elif isinstance(value, list | tuple):
        for inner in cast("Iterable[Any]", value):
            yield from _tensors(inner)
