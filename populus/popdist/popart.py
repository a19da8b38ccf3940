"""PopDist's settings of PopART's sessions, for one instance."""

from __future__ import annotations

from typing import Any

from populus.popart import DeviceInfo, DeviceManager, SessionOptions
from populus.popdist import replicas_of_one


def configureSessionOptions(options: SessionOptions) -> None:
    """Sets the number of replicas. Raises PopulusError for several instances."""
    if (count := replicas_of_one("PopART")) > 1:
        options.enableReplicatedGraphs, options.replicatedGraphCount = True, count


def getDevice(ipus_per_replica: int = 1, *_: Any, **__: Any) -> DeviceInfo:
    """Gives a virtual device. Raises PopulusError for several chips."""
    return DeviceManager().acquireAvailableDevice(ipus_per_replica)
