"""Buffers of the host's memory, in rows that the device loads and stores."""

from __future__ import annotations

from typing import Any

import numpy as np

from populus.popxl import dtypes
from populus.popxl.context import get_ir
from populus.popxl.errors import WrongValue
from populus.popxl.replica_grouping import ReplicaGrouping
from populus.popxl.tensor import State, Tensor, Variable
from populus.popxl.tensorlocation import TensorLocation, TensorStorage
from populus.popxl.utils import held, to_numpy


class RemoteBuffer:
    """`entries` rows of one shape and type, zeros at first. The device's memory holds them for the time of a run.

    Raises ValueError for less than one row.
    """

    def __init__(self, tensor_shape: tuple[int, ...], tensor_dtype: dtypes.dtype, entries: int):
        ir = get_ir()
        self._ir = ir
        self.state = State("", (), np.dtype("float32"))
        self.set_remote_buffer_info(tensor_dtype, tensor_shape, entries)
        ir.buffers.append(self)
        self.remote_buffer_id = len(ir.buffers)
        self.state.name = f"remote buffer {self.remote_buffer_id}"

    def set_remote_buffer_info(self, tensor_dtype: dtypes.dtype, tensor_shape: tuple[int, ...], entries: int) -> None:
        """Gives the buffer another shape, type and number of rows, all of zeros. Raises ValueError for no row, and once an op uses it."""
        if entries < 1:
            raise WrongValue(f"Entries must be a non-zero, positive integer, not {entries}")
        if self.state in self._ir.main_graph.states:
            raise WrongValue(f"{self.state.name} is loaded or stored already; set its shape before")
        self._shape, self._dtype, self._entries = tuple(tensor_shape), tensor_dtype, entries
        data = np.zeros((entries, *self._shape), tensor_dtype.held)
        self.state.shape, self.state.dtype, self.state.data = data.shape, data.dtype, data

    @property
    def _current_ir(self) -> Any:
        return self._ir._pb_ir  # pyright: ignore[reportPrivateUsage]

    @property
    def tensor_shape(self) -> tuple[int, ...]:
        """The shape of a row."""
        return self._shape

    @property
    def tensor_dtype(self) -> dtypes.dtype:
        """The element type."""
        return self._dtype

    @property
    def entries(self) -> int:
        """The number of rows; setting it makes all of them zeros."""
        return self._entries

    @entries.setter
    def entries(self, entries: int) -> None:
        self.set_remote_buffer_info(self._dtype, self._shape, entries)

    @property
    def meta_shape(self) -> tuple[int, ...]:
        """The shape of the whole, for shards, which there are none of."""
        return ()

    def validate_tensor_matches_buffer(self, t: Tensor, num_shards: int = 1) -> None:
        """Raises ValueError for a tensor of another shape or type."""
        if (t.shape, t.dtype) != (self.tensor_shape, self.tensor_dtype):
            stated = f"{self.tensor_dtype} {list(self.tensor_shape)}"
            raise WrongValue(f"Tensor {t.id} does not match buffer. The buffer is of {stated}; {t.id} is {t.dtype} {list(t.shape)}")


def remote_buffer(tensor_shape: tuple[int, ...], tensor_dtype: dtypes.dtype, entries: int = 1) -> RemoteBuffer:
    """Gives a buffer of rows of this shape and type in the host's memory."""
    return RemoteBuffer(tensor_shape, tensor_dtype, entries)


class RemoteVariable(Variable):
    """A row of a remote buffer, which a session reads and writes as a variable; ops load and store it."""

    buffer: RemoteBuffer
    row: int

    @property
    def location_info(self) -> TensorLocation:
        """Where the variable lies: outside of the chip."""
        return TensorLocation(TensorStorage.__members__["OffChip"])

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
    made.mapped = data if isinstance(data, np.memmap) else None
    assert remote_buffer.state.data is not None
    remote_buffer.state.data[offset] = held(array)
    return made
