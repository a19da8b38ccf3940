"""Groups of replicas: made by `ir.replica_grouping` and `ir.replica_grouping_from_assignments`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Literal

from populus.popart.enums import ENUMS
from populus.popart.variables import Grouping, VariableSettings
from populus.popxl.errors import WrongState, WrongType, WrongValue

if TYPE_CHECKING:
    from populus.popxl.ir import Ir

Retrieval = Literal["one_per_group", "all_replicas"]
MODES = {"one_per_group": "OnePerGroup", "all_replicas": "AllReplicas"}


class ReplicaGrouping:
    """Groups of the replicas of an Ir. `assignment`: the group of each replica.

    `const_rg`: the coarsest groups with one distance between neighbours of which these groups are made; `to_device_map` has the group
    here of each group there, `to_host_map` the first group there of each group here. Both are None for groups that have one distance.
    """

    _ir: Ir
    _stride: int | None
    _groups: list[list[int]]
    assignment: list[int]
    const_rg: ReplicaGrouping
    to_device_map: list[int] | None
    to_host_map: list[int] | None

    def __init__(self) -> None:
        raise WrongState("a ReplicaGrouping is made by ir.replica_grouping")

    @classmethod
    def _made(cls, ir: Ir, assignment: Sequence[int], stride: int | None) -> ReplicaGrouping:
        self = object.__new__(cls)
        self._ir, self._stride, self.assignment = ir, stride, list(assignment)
        self._groups = [[r for r, g in enumerate(assignment) if g == k] for k in range(max(assignment) + 1)]
        self.const_rg, self.to_device_map, self.to_host_map = self, None, None
        if stride is None:
            self.const_rg = self._split()
            inner = self.const_rg.assignment
            self.to_device_map = [self.assignment[inner.index(g)] for g in range(self.const_rg.num_groups)]
            self.to_host_map = [inner[members[0]] for members in self._groups]
        return self

    @classmethod
    def of_stride(cls, ir: Ir, stride: int, group_size: int | None) -> ReplicaGrouping:
        """Makes groups of a size and a distance. Raises ValueError unless they are all of the replicas."""
        count = ir.replication_factor
        if not 0 < stride <= count or count % stride:
            raise WrongValue(f"a stride is a divisor of the {count} replicas, which {stride} is not")
        size = count // stride if group_size is None else group_size
        if not 0 < size <= count or (size > 1 and count % (stride * size)) or count % size:
            raise WrongValue(f"{count} replicas cannot be dealt to groups of {size} with stride {stride}")
        step = stride if size > 1 else 1
        return cls._made(ir, _assigned(count, step, size), step)

    @classmethod
    def of_assignment(cls, ir: Ir, assignment: Sequence[int]) -> ReplicaGrouping:
        """Makes the groups of an assignment. Raises ValueError for groups of several sizes, or not numbered as they appear."""
        given, count = [int(g) for g in assignment], ir.replication_factor
        if len(given) != count:
            raise WrongValue(f"{len(given)} groups are given for {count} replicas")
        order = list(dict.fromkeys(given))
        if order != list(range(len(order))):
            raise WrongValue(f"groups are numbered from 0 in the order in which they appear, not {order}")
        sizes = {given.count(g) for g in order}
        if len(sizes) != 1:
            raise WrongValue(f"groups are of one size, not of {', '.join(map(str, sorted(sizes)))}")
        size = sizes.pop()
        stride = given.index(0, 1) if size > 1 else 1
        constant = count % (stride * size) == 0 and _assigned(count, stride, size) == given
        return cls._made(ir, given, stride if constant else None)

    def _split(self) -> ReplicaGrouping:
        """Gives the coarsest groups with one distance of which these are made."""
        gaps = {b - a for members in self._groups for a, b in pairwise(members)}
        stride, sizes = min(gaps), set[int]()
        for members in self._groups:
            size = 1
            for a, b in pairwise(members):
                if b - a > stride:
                    sizes.add(size)
                    size = 0
                size += 1
            sizes.add(size)
        size = math.gcd(*sizes)
        return ReplicaGrouping.of_stride(self._ir, stride if size > 1 else 1, size)

    @property
    def is_const(self) -> bool:
        """True if the distance between neighbours is the same in all groups, as collectives want it."""
        return self._stride is not None

    @property
    def stride(self) -> int:
        """The distance between neighbours of a group. Raises NotImplementedError for several."""
        if self._stride is None:
            raise NotImplementedError("these groups of replicas have several strides; collectives are over groups of one")
        return self._stride

    @property
    def group_size(self) -> int:
        """The number of members of a group."""
        return len(self._groups[0])

    @property
    def num_groups(self) -> int:
        """The number of groups."""
        return len(self._groups)

    @property
    def groups(self) -> list[list[int]]:
        """The members of each group."""
        return self._groups

    def transpose(self) -> ReplicaGrouping:
        """Gives the groups of the first members of each group here, of the second ones, and so on."""
        found = [0] * len(self.assignment)
        for members in self._groups:
            for k, replica in enumerate(members):
                found[replica] = k
        return ReplicaGrouping.of_assignment(self._ir, found)

    @property
    def _pb_replica_grouping(self) -> Grouping:
        return Grouping(len(self.assignment), self.stride, self.group_size)

    def _to_variable_settings(self, retrieval_mode: Retrieval | None = None) -> VariableSettings:
        mode = "one_per_group" if retrieval_mode is None else retrieval_mode
        if mode not in MODES:
            raise WrongValue(f"retrieval_mode is one of {', '.join(MODES)}, not '{mode}'")
        return VariableSettings(self.stride, self.group_size, ENUMS["VariableRetrievalMode"][MODES[mode]])

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ReplicaGrouping):
            raise WrongType(f"{other!r} is no ReplicaGrouping")
        return self._ir is other._ir and self.assignment == other.assignment

    def __hash__(self) -> int:
        return hash(tuple(self.assignment))

    def __repr__(self) -> str:
        if self._stride is None:
            return f"ReplicaGrouping(assignment={self.assignment})"
        count = len(self.assignment)
        return f"ReplicaGrouping(num_replicas={count}, stride={self._stride}, group_size={self.group_size}, num_groups={self.num_groups})"


def _assigned(count: int, stride: int, size: int) -> list[int]:
    """Gives the group of each replica, groups numbered by their first members."""
    block = stride * size
    return [replica // block * stride + replica % stride for replica in range(count)]
