"""`VariableSettings`: the replicas that share a weight, and those whose weights are fetched. Source: PopART's Python API."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, ClassVar

from populus.dialects.support.diagnostics import PopulusError
from populus.popart.enums import ENUMS
from populus.popart.overloads import bound

_KINDS = ENUMS["CommGroupType"].__members__
GROUPED = "groups of replicas have values of their own"  # the remark on a weight in a model
_MODES = ENUMS["VariableRetrievalMode"].__members__


@dataclass(frozen=True)
class CommGroup:
    """Replicas in groups of `replicaGroupSize` (0: all): neighbours (Consecutive), or equally far apart (Orthogonal)."""

    type: Enum = _KINDS["All"]
    replicaGroupSize: int = 0


@dataclass(frozen=True)
class Grouping:
    """Replica r is in the group `(r // (stride size)) stride + r mod stride`."""

    replicas: int
    stride: int
    size: int

    def group_of(self, replica: int) -> int:
        """Gives the group of a replica."""
        return replica // (self.stride * self.size) * self.stride + replica % self.stride

    def groups(self) -> list[list[int]]:
        """Lists the replicas of each group."""
        count = self.replicas // self.size
        return [[r for r in range(self.replicas) if self.group_of(r) == g] for g in range(count)]


class VariableSettings:
    """A weight's groups of replicas: a `CommGroup`, or a stride and a size; and the replicas whose values are fetched.

    Raises PopulusError for groups that there cannot be.
    """

    LISTS: ClassVar[Sequence[Sequence[str]]] = (
        ("sharedVariableDomain_",),
        ("retrievalMode_",),
        ("sharedVariableDomain_", "retrievalMode_"),
        ("stride", "groupSize", "mode"),
    )

    def __init__(self, *args: Any, **named: Any):
        given = bound("VariableSettings", self.LISTS, args, named)
        values = list(given.values())
        self._mode: Enum = next((v for v in values if isinstance(v, Enum)), _MODES["OnePerGroup"])
        self._domain: CommGroup | None = next((v for v in values if isinstance(v, CommGroup)), None)
        numbers = [v for v in values if isinstance(v, int)]
        self._stride, self._size = (numbers[0], numbers[1]) if len(numbers) == 2 else (0, 0)
        if self._domain is None and not numbers:
            self._domain = CommGroup()
        self.verify()

    def verify(self) -> None:
        """Raises PopulusError for a group of no replicas."""
        domain = self._domain
        if domain is None and (self._stride < 1 or self._size < 1):
            raise PopulusError(f"stride = {self._stride}, groupSize = {self._size}; both are at least 1")
        if domain is not None and domain.type.name in ("Consecutive", "Orthogonal") and domain.replicaGroupSize < 1:
            raise PopulusError(f"a {domain.type.name} group of {domain.replicaGroupSize} replicas; at least 1 is expected")

    def getReplicaGrouping(self, numReplicas: int) -> Grouping:
        """Gives the groups of so many replicas. Raises PopulusError if they do not divide."""
        domain = self._domain
        if domain is None:
            stride, size = self._stride, self._size
        elif domain.type.name == "All":
            stride, size = 1, numReplicas
        elif domain.type.name == "Consecutive":
            stride, size = 1, domain.replicaGroupSize
        elif domain.type.name == "Orthogonal":
            stride, size = numReplicas // domain.replicaGroupSize, domain.replicaGroupSize
        else:
            stride, size = 1, 1
        if stride < 1 or numReplicas % (stride * size):
            raise PopulusError(f"{numReplicas} replicas do not make groups of {size} with stride {stride}")
        return Grouping(numReplicas, stride, size)

    def getSharedVariableDomain(self) -> CommGroup:
        """Gives the `CommGroup`. Raises PopulusError if a stride was given."""
        if self._domain is None:
            raise PopulusError("the settings were made with a stride and a size, without a CommGroup")
        return self._domain

    def isUsingCommGroup(self) -> bool:
        """Tells whether a `CommGroup` was given, or nothing."""
        return self._domain is not None

    def getCommGroupType(self) -> Enum:
        """Gives the kind of the `CommGroup`."""
        return self.getSharedVariableDomain().type

    def getStride(self) -> int:
        """Gives the stride that was stated; 0 of a `CommGroup`."""
        return self._stride

    def getGroupSize(self) -> int:
        """Gives the size that was stated; 0 is all replicas."""
        return self._size if self._domain is None else self._domain.replicaGroupSize

    def getRetrievalMode(self) -> Enum:
        """Tells which replicas' values are fetched."""
        return self._mode

    def getRealGroupSize(self, replicaCount: int) -> int:
        """Counts the replicas of a group."""
        return self.getReplicaGrouping(replicaCount).size

    def getGroupCount(self, replicaCount: int) -> int:
        """Counts the groups."""
        return replicaCount // self.getRealGroupSize(replicaCount)

    def getGroupRepresentative(self, group: int) -> int:
        """Gives the first replica of a group."""
        domain = self._domain
        if domain is None:
            return group // self._stride * self._stride * self._size + group % self._stride
        return group * domain.replicaGroupSize if domain.type.name == "Consecutive" else group

    def numReplicasReturningVariable(self, replicaCount: int) -> int:
        """Counts the replicas whose values are fetched: all, or one of each group."""
        return replicaCount if self._mode is _MODES["AllReplicas"] else self.getGroupCount(replicaCount)

    def groups(self, replicaCount: int) -> list[list[int]]:
        """Lists the replicas of each group."""
        return self.getReplicaGrouping(replicaCount).groups()

    def shapeOnReplica(self, shape: Sequence[int], replicaCount: int, name: str = "") -> list[int]:
        """Gives a weight's shape on one replica: without its first dimension where there are several groups.

        Raises PopulusError if that is not their number.
        """
        count = self.getGroupCount(replicaCount)
        if count == 1:
            return list(shape)
        if not shape or shape[0] != count:
            raise PopulusError(f"'{name}' is {list(shape)}; its first dimension is expected to be the {count} groups")
        return list(shape[1:])

    def shapeOnHost(self, shape: Sequence[int], replicaCount: int) -> list[int]:
        """Gives the shape of the host's array for a weight of this shape on one replica."""
        count = self.getGroupCount(replicaCount)
        return list(shape) if count == 1 else [count, *shape]
