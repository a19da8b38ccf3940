"""Streams between host and device."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from populus.popxl.context import get_ir
from populus.popxl.dtypes import dtype
from populus.popxl.tensor import TensorSpec

if TYPE_CHECKING:
    from numpy.typing import NDArray

StreamKind = TypeVar("StreamKind", bound="Stream")


@dataclass(frozen=True, eq=False)
class Stream:
    """A way for arrays between host and device; `tensor_id` is its name, which no other stream of its direction has."""

    shape: tuple[int, ...]
    dtype: dtype
    tensor_id: str

    @property
    def name(self) -> str:
        return self.tensor_id

    @property
    def spec(self) -> TensorSpec:
        """The shape and type of a tensor of it."""
        return TensorSpec(self.shape, self.dtype)

    def __str__(self) -> str:
        return f"{type(self).__name__}[{self.tensor_id} {self.dtype} {list(self.shape)}]"


class HostToDeviceStream(Stream):
    """Brings an array of the host to the device, at each load."""


class DeviceToHostStream(Stream):
    """Takes an array from the device to the host, at each store."""


@dataclass(frozen=True, eq=False)
class Watch(Stream):
    """Takes an array to a function of the host, after a run; `times` has the clock's reading of each."""

    look: Callable[[NDArray[Any]], None] | None
    times: Watch | None


def h2d_stream(shape: Iterable[int], dtype: dtype, name: str | None = None) -> HostToDeviceStream:
    """Gives a stream from the host. One without a name gets one; a name that is taken gets a number."""
    return _with_handle(HostToDeviceStream(tuple(shape), dtype, get_ir().names_from_host.free(name or "h2d")))


def d2h_stream(shape: Iterable[int], dtype: dtype, name: str | None = None) -> DeviceToHostStream:
    """Gives a stream to the host. One without a name gets one; a name that is taken gets a number."""
    return _with_handle(DeviceToHostStream(tuple(shape), dtype, get_ir().names_to_host.free(name or "d2h")))


def _with_handle(stream: StreamKind) -> StreamKind:
    """Gives the stream, whose handle is among the tensors of the main graph from now on."""
    get_ir().main_graph.stream_handle(stream.tensor_id, stream.shape, stream.dtype)
    return stream
