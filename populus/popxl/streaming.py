"""Streams of a graph: which of them it loads and stores, and how often, or as which inputs and outputs of the main graph."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from xdsl.ir import BlockArgument, SSAValue

from populus.popxl.listed import Listed
from populus.popxl.streams import DeviceToHostStream, HostToDeviceStream, Stream, Watch

if TYPE_CHECKING:
    from populus.popxl.ir import Ir


class Streaming(Listed):
    """A graph's streams."""

    ir: Ir

    def __init__(self, name: str):
        super().__init__(name)
        self.transfers: dict[Stream, int] = {}  # how often a call of this loads or stores each stream
        self.loads: dict[HostToDeviceStream, list[str | int]] = {}  # of the main graph: names of inputs, and numbers of rows
        self.stores: dict[DeviceToHostStream, list[str | int]] = {}
        self.watches: dict[Watch, list[str | int]] = {}

    @property
    def streams(self) -> list[Stream]:
        """The streams that a call of the graph loads or stores, without what is only watched."""
        return [s for s in self.transfers if not isinstance(s, Watch)]

    def transferred(self, stream: Stream, count: int) -> None:
        """Notes that a graph which is called here loads or stores so many rows."""
        if self is not self.ir.main_graph:
            self.transfers[stream] = self.transfers.get(stream, 0) + count
            self.undone_by(partial(self._transfers_less, stream, count))
            return
        watched = self.watches if isinstance(stream, Watch) else self.stores
        events: dict[Any, list[str | int]] = self.loads if isinstance(stream, HostToDeviceStream) else watched
        self._happens(events, stream, count)

    def _happens(self, events: dict[Any, list[str | int]], stream: Stream, event: str | int) -> None:
        events.setdefault(stream, []).append(event)
        self.undone_by(partial(_drop_last, events, stream))

    def _transfers_less(self, stream: Stream, count: int) -> None:
        self.transfers[stream] -= count
        if not self.transfers[stream]:
            del self.transfers[stream]

    def direct(self, stream: Stream, kind: Literal["load", "store"]) -> str:
        """Gives the name of one more input or output of the main graph for a stream."""
        names = self.ir.names_of_inputs if kind == "load" else self.ir.names_of_outputs
        name = names.free(stream.name)
        events: dict[Any, list[str | int]] = self.loads if kind == "load" else self.stores
        self._happens(events, stream, name)
        return name

    def drop_argument(self, value: SSAValue) -> None:
        """Takes the block's argument of a stream away, which nothing reads."""
        assert isinstance(value, BlockArgument), value
        del self._inputs[value.index]
        self._block.erase_arg(value)

    def drop_stored(self, name: str) -> None:
        """Takes an output of a stream away."""
        del self._outputs[name]


def _drop_last(events: dict[Any, list[str | int]], stream: Stream) -> None:
    events[stream].pop()
    if not events[stream]:
        del events[stream]
