"""Variables of several replicas: the host's array is dealt to them, and read from them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from populus.popxl.errors import WrongValue
from populus.popxl.replica_grouping import MODES, ReplicaGrouping, Retrieval

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True)
class Dealing:
    """Each group of replicas has one value of `shape`. The host's array has a row for each group, if there are several.

    `shard_over`: the value is flat, with zeros after it, and cut into so many shards, one for each member of a group in turn.
    `retrieval`: the host reads the first member of each group, or all.
    Raises ValueError for another mode, and for shards that a group's members do not share evenly.
    """

    grouping: ReplicaGrouping
    shape: tuple[int, ...]
    retrieval: Retrieval = "one_per_group"
    shard_over: int | None = None

    def __post_init__(self) -> None:
        if self.retrieval not in MODES:
            raise WrongValue(f"retrieval_mode is one of {', '.join(MODES)}, not '{self.retrieval}'")
        if self.shard_over is not None and (self.shard_over < 1 or self.grouping.group_size % self.shard_over):
            raise WrongValue(f"groups of {self.grouping.group_size} replicas cannot share {self.shard_over} shards evenly")

    @property
    def shape_on_host(self) -> tuple[int, ...]:
        """The shape of the array that the host writes."""
        groups = self.grouping.num_groups
        return (groups, *self.shape) if groups > 1 else self.shape

    @property
    def shape_on_replica(self) -> tuple[int, ...]:
        """The shape of what a replica has."""
        return self.shape if self.shard_over is None else (shard_size(self.shape, self.shard_over),)

    def dealt(self, array: NDArray[Any]) -> list[NDArray[Any]]:
        """Gives each replica's array from the host's."""
        rows = array.reshape(self.grouping.num_groups, *self.shape)
        if self.shard_over is None:
            return [rows[g] for g in self.grouping.assignment]
        n, shards = self.shape_on_replica[0], self.shard_over
        flat = np.zeros((len(rows), n * shards), array.dtype)
        flat[:, : math.prod(self.shape)] = rows.reshape(len(rows), -1)
        found: list[NDArray[Any]] = [flat[0]] * len(self.grouping.assignment)
        for g, members in enumerate(self.grouping.groups):
            for k, replica in enumerate(members):
                found[replica] = flat[g].reshape(shards, n)[k % shards]
        return found

    def gathered(self, arrays: Sequence[NDArray[Any]]) -> NDArray[Any]:
        """Gives the array that the host reads from each replica's."""
        each = self.shard_over or 1
        sets = [members[:each] for members in self.grouping.groups]
        if self.retrieval == "all_replicas":
            sets = [self._set(r, each) for r in range(len(arrays))]
        whole = [self._whole([arrays[r] for r in members]) for members in sets]
        return np.stack(whole) if len(whole) > 1 else np.array(whole[0])

    def _set(self, replica: int, each: int) -> list[int]:
        """Gives the replicas that share a value in shards with one."""
        members = self.grouping.groups[self.grouping.assignment[replica]]
        first = members.index(replica) // each * each
        return members[first : first + each]

    def _whole(self, parts: Sequence[NDArray[Any]]) -> NDArray[Any]:
        if self.shard_over is None:
            return parts[0]
        return np.concatenate([p.reshape(-1) for p in parts])[: math.prod(self.shape)].reshape(self.shape)


def shard_size(shape: Sequence[int], shards: int) -> int:
    """Counts the elements of a shard, the last of which may be zeros."""
    return math.ceil(math.prod(shape) / shards)


def check_rows(array: NDArray[Any], groups: ReplicaGrouping) -> None:
    """Raises ValueError for data without a row for each of several groups of replicas."""
    if groups.num_groups > 1 and array.shape[:1] != (groups.num_groups,):
        raise WrongValue(f"the data is {list(array.shape)}; its first dimension is {groups.num_groups}, the number of groups of replicas")
