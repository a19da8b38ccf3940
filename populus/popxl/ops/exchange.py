"""Ops that move tensors between the device and the host."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from populus.popxl import dtypes
from populus.popxl.context import get_current_graph
from populus.popxl.errors import WrongType, WrongValue
from populus.popxl.internals.recording import kept, recorded
from populus.popxl.ops.common import emit, set_in_place
from populus.popxl.ops.shape import reshape
from populus.popxl.remote_buffer import RemoteBuffer
from populus.popxl.streams import DeviceToHostStream, HostToDeviceStream, Stream
from populus.popxl.tensor import Tensor, constant


def host_load(h2d_stream: HostToDeviceStream, name: str | None = None) -> Tensor:
    """Gives the next array that the host has for a stream in this run; after the last one, the first again."""
    return _host_load(_place(name or h2d_stream.name, h2d_stream.shape, h2d_stream.dtype), h2d_stream, name)


@recorded("Init")
def _place(name: str, shape: tuple[int, ...], dtype: dtypes.dtype) -> Tensor:
    """Gives the place that a load fills, as PopART's graphs have it; it has no value."""
    return get_current_graph().handle(f"{name}_init", shape, dtype)


@recorded("HostLoad")
def _host_load(place: Tensor, h2d_stream: HostToDeviceStream, name: str | None) -> Tensor:
    graph = get_current_graph()
    if graph is graph.ir.main_graph:
        value = graph.input(graph.direct(h2d_stream, "load"), h2d_stream.shape, h2d_stream.dtype.held)
        graph.undone_by(partial(graph.drop_argument, value))
        if name and name.isidentifier():
            value.name_hint = name
        return graph.tensor(value, f"{name or h2d_stream.name}_hostload")
    rows, row = (graph.state(state) for state in graph.ir.table(h2d_stream))
    loaded = reshape(emit("gather", rows, row, axis=0), h2d_stream.shape)
    row.assign(emit("add", row, constant(np.ones(1, np.int32))).ssa)
    graph.transferred(h2d_stream, 1)
    return graph.tensor(loaded.ssa, f"{name or h2d_stream.name}_hostload")


@recorded("HostStore")
def host_store(d2h_stream: DeviceToHostStream, t: Tensor) -> None:
    """Gives the host a tensor. Raises ValueError if the stream is of another shape or type."""
    if (t.shape, t.dtype) != (d2h_stream.shape, d2h_stream.dtype):
        stated = f"{d2h_stream.dtype} {list(d2h_stream.shape)}"
        raise WrongValue(f"stream '{d2h_stream.name}' is {stated}; the tensor is {t.dtype} {list(t.shape)}")
    graph = get_current_graph()
    if t.graph is not graph:
        raise WrongValue(f"the tensor belongs to graph '{t.graph.name}', not to graph '{graph.name}'; pass it in as an input")
    if graph is graph.ir.main_graph:
        name = graph.direct(d2h_stream, "store")
        graph.output(name, t.ssa)
        graph.undone_by(partial(graph.drop_stored, name))
        return
    store_row(d2h_stream, t)


def store_row(stream: Stream, t: Tensor) -> None:
    """Makes a tensor the next row of a stream's table."""
    graph = get_current_graph()
    rows, row = (graph.state(state) for state in graph.ir.table(stream))
    rows.assign(emit("scatter", rows, row, reshape(t, (1, *t.shape)), reduction="set").ssa)
    row.assign(emit("add", row, constant(np.ones(1, np.int32))).ssa)
    graph.transferred(stream, 1)


def _row(buffer: RemoteBuffer, offset: Any) -> Tensor:
    if isinstance(offset, int):
        if not 0 <= offset < buffer.entries:
            raise WrongValue(f"the remote buffer has entries 0 to {buffer.entries - 1}, not {offset}")
        return kept(constant(np.array([offset], np.int32)))
    return reshape(emit("cast", offset, to=_index()), (1,)) if offset.dtype is not dtypes.int32 else reshape(offset, (1,))


def _index() -> Any:
    from populus.dialects.support.element_types import element_of

    return element_of(np.dtype("int32"))


def remote_load(remote_buffer: RemoteBuffer, offset: int | Tensor, name: str | None = None) -> Tensor:
    """Gives a row of a remote buffer. Raises ValueError for a number that it has no row for."""
    shape, dtype = remote_buffer.tensor_shape, remote_buffer.tensor_dtype
    return _remote_load(_place(name or "remote_load", shape, dtype), remote_buffer, offset, name)


@recorded("RemoteLoad")
def _remote_load(place: Tensor, remote_buffer: RemoteBuffer, offset: int | Tensor, name: str | None) -> Tensor:
    made = get_current_graph().tensor(_read(remote_buffer, offset).ssa, name or "remote_load_out")
    made.meta_shape = remote_buffer.meta_shape
    return made


def _read(remote_buffer: RemoteBuffer, offset: int | Tensor) -> Tensor:
    rows = get_current_graph().state(remote_buffer.state)
    return reshape(emit("gather", rows, _row(remote_buffer, offset), axis=0), remote_buffer.tensor_shape)


@recorded("RemoteLoadInplace")
def remote_load_(remote_buffer: RemoteBuffer, offset: int | Tensor, t: Tensor) -> Tensor:
    """Gives t the value of a row of a remote buffer; an alias of t. Raises ValueError for a tensor of another shape or type."""
    remote_buffer.validate_tensor_matches_buffer(t)
    return set_in_place(t, _read(remote_buffer, offset), "remote_load_out")


@recorded("RemoteStore")
def remote_store(remote_buffer: RemoteBuffer, offset: int | Tensor, t: Tensor) -> None:
    """Gives a row of a remote buffer the value of t. Raises ValueError for a tensor of another shape or type."""
    if not isinstance(remote_buffer, RemoteBuffer):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise WrongType(f"remote_store takes a remote buffer, an offset and a tensor, in this order; the first is {remote_buffer!r}")
    remote_buffer.validate_tensor_matches_buffer(t)
    rows = get_current_graph().state(remote_buffer.state)
    rows.assign(emit("scatter", rows, _row(remote_buffer, offset), reshape(t, (1, *t.shape)), reduction="set").ssa)


@recorded("RemoteCodeLoad")
def remote_code_load(graph: Any, destination: str = "executable") -> None:
    """Accepts the wish to bring a graph's code to the tiles, where it always is. Raises ValueError for the graph that is being built."""
    if graph is get_current_graph():
        raise WrongValue(f"The remote_code_load op cannot load the code of the graph that it is in, '{graph.name}'")
