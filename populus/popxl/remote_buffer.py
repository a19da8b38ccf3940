"""Buffers of the host's memory, in rows that the device loads and stores."""

from __future__ import annotations

import math
from operator import index
from typing import TYPE_CHECKING, Any

import numpy as np

from populus.popxl import dtypes
from populus.popxl.context import get_ir
from populus.popxl.dealing import Dealing, check_rows, shard_size
from populus.popxl.errors import WrongType, WrongValue
from populus.popxl.replica_grouping import ReplicaGrouping, Retrieval
from populus.popxl.rows import buffer_mark
from populus.popxl.tensor import State, Tensor, Variable, dealing_of, mapped_file
from populus.popxl.tensorlocation import TensorLocation, TensorStorage
from populus.popxl.utils import held, to_numpy

if TYPE_CHECKING:
    from numpy.typing import NDArray


class RemoteBuffer:
    """`entries` rows of one shape and type, zeros at first. The device's memory holds them for the time of a run.

    Raises ValueError for less than one row.
    """

    meta_shape: tuple[int, ...] = ()  # of a buffer of shards: the shape of the whole

    def __init__(self, tensor_shape: tuple[int, ...], tensor_dtype: dtypes.dtype, entries: int):
        ir = get_ir()
        self._ir = ir
        self.state = State("", (), np.dtype("float32"))
        self.set_remote_buffer_info(tensor_dtype, tensor_shape, entries)
        ir.buffers.append(self)
        self.remote_buffer_id = len(ir.buffers)
        self.state.mark = buffer_mark(self.remote_buffer_id)
        self.state.name = f"remote buffer {self.remote_buffer_id}"

    def set_remote_buffer_info(self, tensor_dtype: dtypes.dtype, tensor_shape: tuple[int, ...], entries: int) -> None:
        """Gives the buffer another shape, type and number of rows, all of zeros.

        Raises ValueError for no row, and for another shape or type once the main graph uses it.
        """
        if entries < 1:
            raise WrongValue(f"Entries must be a non-zero, positive integer, not {entries}")
        same = hasattr(self, "_shape") and (self._shape, self._dtype) == (tuple(tensor_shape), tensor_dtype)
        if not same and self.state in self._ir.main_graph.states:
            raise WrongValue(f"{self.state.name} is loaded or stored already; set its shape before")
        self._shape, self._dtype, self._entries = tuple(map(index, tensor_shape)), tensor_dtype, index(entries)
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

    def validate_tensor_matches_buffer(self, t: Tensor, num_shards: int = 1) -> None:
        """Raises ValueError for a tensor of another shape or type, TypeError for what is no tensor."""
        if not isinstance(t, Tensor):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise WrongType(f"a remote buffer holds tensors, not {t!r}; make one by popxl.constant")
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
    def dealing(self) -> Dealing:
        return self.buffer.state.rows[self.row][0]

    @property
    def shape(self) -> tuple[int, ...]:
        return self.dealing.shape

    @property
    def dtype(self) -> dtypes.dtype:
        return self.buffer.tensor_dtype


class ShardedVariable(Variable):
    """A variable of which each replica of a group has a shard; a session reads and writes the whole."""

    @property
    def shape(self) -> tuple[int, ...]:
        return self.dealing.shape

    @property
    def dtype(self) -> dtypes.dtype:
        assert self.state is not None
        return dtypes.dtype.as_dtype(self.state.dtype)


def _row(buffer: RemoteBuffer, offset: int, array: NDArray[Any], dealing: Dealing | None, name: str | None, data: Any) -> RemoteVariable:
    """Gives the variable of a row. Raises ValueError for a row that there is not, and for another shape or type."""
    if not 0 <= offset < buffer.entries:
        raise WrongValue(f"the remote buffer has entries 0 to {buffer.entries - 1}, not {offset}")
    graph = get_ir().main_graph
    dealt = dealing or Dealing(get_ir().replica_grouping(), array.shape)
    fits = math.prod(dealt.shape_on_replica) == math.prod(buffer.tensor_shape)
    if not fits or array.dtype != buffer.tensor_dtype.as_numpy():
        stated = f"{buffer.tensor_dtype} {list(buffer.tensor_shape)}"
        raise WrongValue(f"the remote buffer is of {stated}; the data is {array.dtype} {list(dealt.shape_on_replica)}")
    buffer.state.rows[offset] = dealt, held(array)
    made = graph.remote(RemoteVariable, name or "t", buffer.state)
    made.buffer, made.row = buffer, offset
    made.mapped = mapped_file(data, dealt.grouping, made)
    return made


def remote_variable(
    data: Any,
    remote_buffer: RemoteBuffer,
    offset: int = 0,
    dtype: dtypes.dtype | None = None,
    name: str | None = None,
    downcast: bool = True,
    replica_grouping: ReplicaGrouping | None = None,
    retrieval_mode: Retrieval | None = "one_per_group",
    log2_scale: int | None = None,
    nan_on_overflow: bool | None = None,
) -> RemoteVariable:
    """Gives a variable that is row `offset` of a buffer. Raises ValueError for another shape or type, and a row that there is not."""
    array = to_numpy(data, dtype, downcast, True, log2_scale, nan_on_overflow)
    return _row(remote_buffer, offset, array, dealing_of(array, replica_grouping, retrieval_mode), name, data)


def replica_sharded_buffer(
    shape: tuple[int, ...],
    dtype: dtypes.dtype,
    replica_grouping: ReplicaGrouping | None = None,
    shard_over: int | None = None,
    entries: int = 1,
) -> RemoteBuffer:
    """Gives a buffer of shards of tensors of a shape: flat, one for each of `shard_over` members of a group, by default all.

    The shape is that of the data, whose first dimension is the groups where there are several.
    Raises ValueError for members that cannot share the shards evenly.
    """
    several = replica_grouping is not None and replica_grouping.num_groups > 1
    dealing = _sharded(tuple(shape)[1:] if several else tuple(shape), replica_grouping, shard_over)
    made = RemoteBuffer(dealing.shape_on_replica, dtype, entries)
    made.meta_shape = dealing.shape
    return made


def _sharded(
    shape: tuple[int, ...], grouping: ReplicaGrouping | None, shard_over: int | None, retrieval: Retrieval | None = None
) -> Dealing:
    """Gives how a tensor of a shape is cut over `shard_over` members of a group, by default all."""
    groups = get_ir().replica_grouping() if grouping is None else grouping
    return Dealing(groups, shape, retrieval or "one_per_group", groups.group_size if shard_over is None else shard_over)


def remote_replica_sharded_variable(
    data: Any,
    remote_buffer: RemoteBuffer,
    offset: int = 0,
    dtype: dtypes.dtype | None = None,
    name: str | None = None,
    downcast: bool = True,
    replica_grouping: ReplicaGrouping | None = None,
    retrieval_mode: Retrieval | None = "one_per_group",
    log2_scale: int | None = None,
    nan_on_overflow: bool | None = None,
) -> RemoteVariable:
    """Gives a variable whose shards are row `offset` of each replica's buffer. A session reads and writes the whole.

    The sizes of the whole and of the buffer's row say over how many members of a group it is cut. Raises ValueError as `remote_variable`.
    """
    array = to_numpy(data, dtype, downcast, True, log2_scale, nan_on_overflow)
    groups = get_ir().replica_grouping() if replica_grouping is None else replica_grouping
    whole = array.shape[1:] if groups.num_groups > 1 else array.shape
    rows = max(1, math.prod(remote_buffer.tensor_shape))
    shards = next((k for k in range(1, groups.group_size + 1) if groups.group_size % k == 0 and shard_size(whole, k) == rows), 1)
    made = _row(remote_buffer, offset, array, dealing_of(array, groups, retrieval_mode, shards), name, data)
    remote_buffer.meta_shape = made.shape
    return made


def replica_sharded_variable(
    data: Any,
    dtype: dtypes.dtype | None = None,
    name: str | None = None,
    downcast: bool = True,
    replica_grouping: ReplicaGrouping | None = None,
    shard_over: int | None = None,
    retrieval_mode: Retrieval | None = "one_per_group",
    log2_scale: int | None = None,
    nan_on_overflow: bool | None = None,
) -> tuple[Variable, Tensor]:
    """Gives a variable that a session reads and writes, and the shard of it that each replica has: flat, with zeros after the last.

    Each group of replicas has one value, cut over `shard_over` of its members, by default all. Raises ValueError for members that
    cannot share the shards evenly.
    """
    array = to_numpy(data, dtype, downcast, True, log2_scale, nan_on_overflow)
    several = replica_grouping is not None and replica_grouping.num_groups > 1
    dealing = _sharded(array.shape[1:] if several else array.shape, replica_grouping, shard_over, retrieval_mode)
    check_rows(array, dealing.grouping)
    graph = get_ir().main_graph
    shard = graph.shard(array, name or "t", dealing)
    shard.meta_shape = dealing.shape
    assert shard.state is not None
    whole = graph.remote(ShardedVariable, f"{shard.name}_whole", shard.state)
    whole.mapped = mapped_file(data, replica_grouping, whole)
    return whole, shard
