"""PopDist: the processes that `populus poprun` started, and the replicas of each.

    import populus.popdist as popdist
    popdist.getNumInstances()    # 1, without poprun

An instance is a rank of `mpiexec` with an equal part of the replicas, in the order of ranks. It gives the inputs of its own replicas, and
gets their results. Source: Graphcore, PopDist API.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from typing import ParamSpec, TypeVar

from populus.dialects.support.diagnostics import PopulusError
from populus.runtime.ranks import launched, world

P = ParamSpec("P")
R = TypeVar("R")
TOTAL = "POPDIST_NUM_TOTAL_REPLICAS"  # variables of the environment, by which poprun tells its instances
ONLY = "POPDIST_ONLY_OUTPUT_FROM"


def init() -> None:
    """Joins the other instances. Raises PopulusError if MPI cannot be loaded."""
    if isPopdistEnvSet():
        world()


def finalizeBackend() -> None:
    """Does nothing: instances part when they end."""


def isPopdistEnvSet() -> bool:
    """Tells whether `populus poprun` started this process."""
    return TOTAL in os.environ


def isBackendInitialized() -> bool:
    """Tells whether instances are connected: `init` or a program of several replicas has joined them."""
    return isPopdistEnvSet() and world.cache_info().currsize > 0


def getNumInstances() -> int:
    """Counts the processes: one without poprun, under `mpiexec` too, where all ranks take the same inputs."""
    return launched()[1] if isPopdistEnvSet() else 1


def getInstanceIndex() -> int:
    """Gives the number of this process."""
    return launched()[0] if isPopdistEnvSet() else 0


def getNumTotalReplicas() -> int:
    """Counts the replicas of all processes."""
    return int(os.environ.get(TOTAL, "1"))


def getNumLocalReplicas() -> int:
    """Counts the replicas of this process."""
    return getNumTotalReplicas() // getNumInstances()


def getReplicaIndexOffset() -> int:
    """Gives the number of this process's first replica."""
    return getInstanceIndex() * getNumLocalReplicas()


def getNumIpusPerReplica() -> int:
    """Counts the chips of a replica: one."""
    return 1


def getDeviceId(ipus_per_replica: int | None = None) -> int:
    """Gives the number of this process's device."""
    return getInstanceIndex()


def synchronize(name: str = "") -> None:
    """Waits until all instances come here. Raises PopulusError where one comes with another name."""
    if getNumInstances() > 1 and (other := world().same(name)):
        raise PopulusError(f"popdist.synchronize: instance {other[0]} waits at another name than '{name}'")


def execute_on_instances(instances: Collection[int], function: Callable[P, R], *args: P.args, **named: P.kwargs) -> R | None:
    """Calls a function if this process is among those named."""
    return function(*args, **named) if getInstanceIndex() in instances else None


def replicas_of_one(front: str) -> int:
    """Counts the replicas of a front whose programs have one instance. Raises PopulusError for several."""
    if (instances := getNumInstances()) > 1:
        raise PopulusError(
            f"{instances} instances; a {front} program states replicas, and runs by `mpiexec -n {instances} populus run-program`, "
            "where all ranks take the same inputs"
        )
    return getNumTotalReplicas()
