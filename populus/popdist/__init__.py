"""PopDist for one replica: a program that asks how many instances there are is told one.

    import populus.popdist as popdist
    popdist.getNumInstances()    # 1

`poprun` starts several processes for Graphcore's machines; here a program is one process. Source: Graphcore, PopDist API.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


def init() -> None:
    """Does nothing: there are no other processes to find."""


def finalizeBackend() -> None:
    """Does nothing, as `init`."""


def isPopdistEnvSet() -> bool:
    """Tells that `poprun` did not start this process."""
    return False


def isBackendInitialized() -> bool:
    """Tells that no processes are connected."""
    return False


def getNumInstances() -> int:
    """Counts the processes: one."""
    return 1


def getInstanceIndex() -> int:
    """Gives the number of this process."""
    return 0


def getNumTotalReplicas() -> int:
    """Counts the replicas of all processes: one."""
    return 1


def getNumLocalReplicas() -> int:
    """Counts the replicas of this process: one."""
    return 1


def getReplicaIndexOffset() -> int:
    """Gives the number of this process's first replica."""
    return 0


def getNumIpusPerReplica() -> int:
    """Counts the chips of a replica: one."""
    return 1


def getDeviceId(ipus_per_replica: int | None = None) -> int:
    """Gives the number of this process's device."""
    return 0


def synchronize(name: str = "") -> None:
    """Does nothing: there is nobody to wait for."""


def execute_on_instances(instances: Collection[int], function: Callable[P, R], *args: P.args, **named: P.kwargs) -> R | None:
    """Calls a function if this process, number 0, is among those named."""
    return function(*args, **named) if 0 in instances else None
