"""Ops on tensors of the current graph: `host_load`, `host_store`, `call`, `repeat`, and every built-in op: `ops.softmax(x, axis=1)`."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from xdsl.ir import SSAValue

from populus.builder import built_in, current, function_of
from populus.dialects.support.diagnostics import PopulusError
from populus.popxl.ir import DeviceToHostStream, Graph, HostToDeviceStream, graph
from populus.popxl.tensor import Tensor


def host_load(stream: HostToDeviceStream, name: str = "") -> Tensor:
    """The array that the host gives at each run. Raises PopulusError if the stream is loaded already.

    `name` is what PopXL calls the tensor; the input is called as the stream is.
    """
    of = graph()
    value = of.input(stream.name, stream.shape, stream.dtype)
    of.loads[stream.name] = stream
    if name:
        value.name_hint = name if name.isidentifier() else value.name_hint
    return Tensor(value, of)


def host_store(stream: DeviceToHostStream, t: Tensor) -> None:
    """Gives the host a tensor at each run. Raises PopulusError if the stream is of another shape or type, or stored to already."""
    if (t.shape, t.dtype) != (stream.shape, stream.dtype):
        raise PopulusError(f"stream '{stream.name}' is {stream.dtype} {list(stream.shape)}; the tensor is {t.dtype} {list(t.shape)}")
    of = graph()
    if t.graph is not of:
        raise PopulusError(f"the tensor belongs to graph '{t.graph.name}', not to graph '{of.name}'; pass it in as an input")
    of.output(stream.name, t.ssa)
    of.stores[stream.name] = stream


def call(graph: Graph, *inputs: Tensor) -> Tensor | tuple[Tensor, ...]:
    """The outputs of a graph of `ir.create_graph` on these inputs, copied in. Raises PopulusError for inputs of other types."""
    return _results(current().call(graph, *(t.ssa for t in inputs)))


def repeat(graph: Graph, repeat_count: int, *inputs: Tensor) -> Tensor | tuple[Tensor, ...]:
    """The same, `repeat_count` times in a row: a time's outputs are the first inputs of the next, the other inputs stay.

    Raises PopulusError where the outputs are not of the first inputs' types.
    """
    return _results(current().call(graph, *(t.ssa for t in inputs), times=repeat_count))


def _results(values: tuple[SSAValue, ...]) -> Tensor | tuple[Tensor, ...]:
    found = tuple(Tensor(value, current()) for value in values)
    return found[0] if len(found) == 1 else found


@cache
def _built_in(name: str) -> Callable[..., Any]:
    return function_of(built_in(name))


def __getattr__(name: str) -> Callable[..., Any]:
    """A built-in op as a function."""
    try:
        return _built_in(name)
    except PopulusError as error:
        raise AttributeError(f"populus.popxl.ops: {error}") from None
