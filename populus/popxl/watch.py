"""Values that functions of the host look at after each run: tensors that are printed, numbers that are checked.

They come like a stream's: in rows of a table that the program fills. A clock that all of a program's watches share has their order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from populus.popxl import dtypes
from populus.popxl.context import get_current_graph
from populus.popxl.ops.exchange import store_row
from populus.popxl.streams import Watch
from populus.popxl.tensor import State, Tensor, constant

if TYPE_CHECKING:
    from numpy.typing import NDArray


def watch(t: Tensor, look: Callable[[NDArray[Any]], None], name: str) -> None:
    """Calls a function with the tensor's value, after a run, once for each time that the current graph came here."""
    graph = get_current_graph()
    clock = graph.state(graph.ir.clock)
    times = Watch((1,), dtypes.int32, f"time of {name}", None, None)
    store_row(times, clock)
    clock.assign(graph.op("add", clock.ssa, constant(np.ones(1, np.int32)).ssa)[0])
    store_row(Watch(t.shape, t.dtype, name, look, times), t)


def new_clock() -> State:
    """Gives what counts the watches of a program from its first run on."""
    return State("clock of watches", (1,), np.dtype("int32"), np.zeros(1, np.int32))
