"""Buffers of the host's memory, in rows that the device loads and stores."""

from __future__ import annotations

from typing import Any

import numpy as np

from populus.popxl import dtypes
from populus.popxl.context import get_ir
from populus.popxl.errors import WrongValue
from populus.popxl.replica_grouping import ReplicaGrouping
from populus.popxl.tensor import State, Tensor, Variable
from populus.popxl.utils import held, to_numpy


class RemoteBuffer:
    """`entries` rows of one shape and type, zeros at first. The device's memory holds them for the time of a run.

    Raises ValueError for less than one row.
    """

    def __init__(self, tensor_shape: tuple[int, ...], tensor_dtype: dtypes.dtype, entries: int):
        if entries < 1:
            raise WrongValue(f"a remote buffer has at least one entry, not {entries}")
        ir = get_ir()
        ir.buffers.append(self)
        self.remote_buffer_id = len(ir.buffers)
        self.tensor_shape, self.tensor_dtype, self.entries = tuple(tensor_shape), tensor_dtype, entries
        shape = (entries, *self.tensor_shape)
        data = np.zeros(shape, tensor_dtype.held)
        self.state = State(f"remote buffer {self.remote_buffer_id}", shape, data.dtype, data)

    @property
    def meta_shape(self) -> tuple[int, ...]:
        """The shape of the whole, for shards, which there are none of."""
        return ()

    def validate_tensor_matches_buffer(self, t: Tensor, num_shards: int = 1) -> None:
        """Raises ValueError for a tensor of another shape or type."""
        if (t.shape, t.dtype) != (self.tensor_shape, self.tensor_dtype):
            stated = f"{self.tensor_dtype} {list(self.tensor_shape)}"
            raise WrongValue(f"the remote buffer is of {stated}; {t.id} is {t.dtype} {list(t.shape)}")


def remote_buffer(tensor_shape: tuple[int, ...], tensor_dtype: dtypes.dtype, entries: int = 1) -> RemoteBuffer:
    """Gives a buffer of rows of this shape and type in the host's memory."""
    return RemoteBuffer(tensor_shape, tensor_dtype, entries)


class RemoteVariable(Variable):
    """A row of a remote buffer, which a session reads and writes as a variable; ops load and store it."""

    buffer: RemoteBuffer
    row: int

    @property
    def shape(self) -> tuple[int, ...]:
        return self.buffer.tensor_shape

    @property
    def dtype(self) -> dtypes.dtype:
        return self.buffer.tensor_dtype


def remote_variable(
    data: Any,
    remote_buffer: RemoteBuffer,
    offset: int = 0,
    dtype: dtypes.dtype | None = None,
    name: str | None = None,
    downcast: bool = True,
    replica_grouping: ReplicaGrouping | None = None,
    retrieval_mode: str | None = "one_per_group",
    log2_scale: int | None = None,
    nan_on_overflow: bool | None = None,
) -> RemoteVariable:
    """Gives a variable that is row `offset` of a buffer. Raises ValueError for another shape or type, and a row that there is not."""
    array = to_numpy(data, dtype, downcast, True, log2_scale, nan_on_overflow)
    if not 0 <= offset < remote_buffer.entries:
        raise WrongValue(f"the remote buffer has entries 0 to {remote_buffer.entries - 1}, not {offset}")
    if (array.shape, array.dtype) != (remote_buffer.tensor_shape, remote_buffer.tensor_dtype.as_numpy()):
        stated = f"{remote_buffer.tensor_dtype} {list(remote_buffer.tensor_shape)}"
        raise WrongValue(f"the remote buffer is of {stated}; the data is {array.dtype} {list(array.shape)}")
    made = get_ir().main_graph.remote(RemoteVariable, name or "t", remote_buffer.state)
    made.buffer, made.row = remote_buffer, offset
    assert remote_buffer.state.data is not None
    remote_buffer.state.data[offset] = held(array)
    return made
