"""PopDist's settings of PopART's sessions, for one replica."""

from __future__ import annotations

from typing import Any

from populus.popart import DeviceInfo, DeviceManager, SessionOptions


def configureSessionOptions(options: SessionOptions) -> None:
    """Leaves the options as they are: there is one replica."""


def getDevice(ipus_per_replica: int = 1, *_: Any, **__: Any) -> DeviceInfo:
    """Gives a virtual device. Raises PopulusError for several chips."""
    return DeviceManager().acquireAvailableDevice(ipus_per_replica)
