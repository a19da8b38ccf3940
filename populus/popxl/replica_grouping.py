"""Groups of replicas: of the one replica of a program, which is one group."""

from __future__ import annotations

from dataclasses import dataclass

from populus.popxl.errors import WrongValue


@dataclass(frozen=True)
class ReplicaGrouping:
    """The group of the one replica. Made by `Ir.replica_grouping`; raises ValueError for a stride or a size that is not 1."""

    stride: int = 1
    group_size: int = 1

    def __post_init__(self) -> None:
        if (self.stride, self.group_size) != (1, 1):
            raise WrongValue(f"there is one replica, so no groups of {self.group_size} with stride {self.stride}")

    @property
    def num_groups(self) -> int:
        """The number of groups, which is 1."""
        return 1

    @property
    def assignment(self) -> list[int]:
        """The group of each replica."""
        return [0]

    @property
    def is_const(self) -> bool:
        """True: the distance between the members of a group is the same in each."""
        return True

    def transpose(self) -> ReplicaGrouping:
        """Gives the grouping whose groups have one member of each group of this one."""
        return self
