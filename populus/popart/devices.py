"""Devices: machines that programs run on. All are virtual; acquiring one gives a machine model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Self

from populus.dialects.support.diagnostics import PopulusError, did_you_mean
from populus.popart.enums import ENUMS

_OPTIONS = ("numIPUs", "tilesPerIPU", "ipuVersion", "compileIPUCode")
_TYPE = ENUMS["DeviceType"].__members__
_CONNECTION = ENUMS["DeviceConnectionType"].__members__


@dataclass
class DeviceInfo:
    """A machine: its name, and how many tiles of it."""

    target: str
    tiles: int | None = None
    kind: Enum = field(default=_TYPE["Cpu"])
    id: int = 0
    numIpus: int = 1
    connection: Enum = field(default=_CONNECTION["Always"])
    isAttached: bool = False

    @property
    def type(self) -> Enum:
        """The kind of device, of `DeviceType`."""
        return self.kind

    @property
    def connectionType(self) -> Enum:
        """When the device is attached, of `DeviceConnectionType`."""
        return self.connection

    @property
    def version(self) -> str:
        """The generation of the machine."""
        return "<unknown-cpu>" if self.target == "host" else "ipu2"

    ipuVersion = version

    @property
    def tilesPerIPU(self) -> int:
        """The number of tiles."""
        from populus.dialects.poplar.target import Spec

        return Spec.of(self.target, self.tiles).target().tiles

    tilesPerIpu = tilesPerIPU

    @property
    def driverIds(self) -> list[int]:
        """The numbers of the machines."""
        return [self.id]

    @property
    def numWorkerContexts(self) -> int:
        """Gives the number of threads of a tile."""
        return 6

    def attach(self) -> bool:
        """Takes the device."""
        self.isAttached = True
        return True

    def tryAttachUntilTimeout(self) -> bool:
        """Takes the device; a virtual one is always free."""
        return self.attach()

    def detach(self) -> None:
        """Gives the device back."""
        self.isAttached = False

    def __enter__(self) -> Self:
        self.attach()
        return self

    def __exit__(self, *_: object) -> None:
        self.detach()


class DeviceManager:
    """Makes devices."""

    def createCpuDevice(self) -> DeviceInfo:
        """Gives a machine without limits."""
        return DeviceInfo("host")

    def createIpuModelDevice(self, options: Mapping[str, Any]) -> DeviceInfo:
        """Gives a GC200, with `tilesPerIPU` tiles. Raises PopulusError for an option that there is not, and for several machines."""
        return self._model(options, _TYPE["IpuModel"])

    def createSimDevice(self, options: Mapping[str, Any]) -> DeviceInfo:
        """Gives a GC200, as `createIpuModelDevice`."""
        return self._model(options, _TYPE["Sim"])

    def createOfflineIPUDevice(self, options: Mapping[str, Any]) -> DeviceInfo:
        """Gives a GC200 to compile for, as `createIpuModelDevice`."""
        return self._model(options, _TYPE["OfflineIpu"])

    def _model(self, options: Mapping[str, Any], kind: Enum) -> DeviceInfo:
        if strange := [o for o in options if o not in _OPTIONS]:
            raise PopulusError(f"no option '{strange[0]}'{did_you_mean(strange[0], _OPTIONS)}")
        number = int(options.get("numIPUs") or 1)
        if number != 1:
            raise PopulusError(f"numIPUs = {number}; programs are for one machine")
        tiles = options.get("tilesPerIPU")
        return DeviceInfo("gc200", int(tiles) if tiles else None, kind)

    def enumerateDevices(self, pattern: object = None, numIpus: int = 1, *_: object, **__: object) -> list[DeviceInfo]:
        """Gives the devices that could be acquired: one virtual machine."""
        return [DeviceInfo("gc200", None, _TYPE["Ipu"])] if numIpus == 1 else []

    def acquireAvailableDevice(self, numIpus: int = 1, tilesPerIpu: int = 0, *_: object, **__: object) -> DeviceInfo:
        """Gives a virtual machine. Raises PopulusError for several machines."""
        if numIpus != 1:
            raise PopulusError(f"numIpus = {numIpus}; programs are for one machine")
        return DeviceInfo("gc200", tilesPerIpu or None, _TYPE["Ipu"], isAttached=True)

    def tryAcquireAvailableDevice(self, numIpus: int = 1, tilesPerIpu: int = 0, *_: object, **__: object) -> DeviceInfo | None:
        """Gives a virtual machine; None for several."""
        return self.acquireAvailableDevice(numIpus, tilesPerIpu) if numIpus == 1 else None

    def acquireDeviceById(self, id: int, *_: object, **__: object) -> DeviceInfo:
        """Gives the virtual machine 0. Raises PopulusError for another number."""
        if id != 0:
            raise PopulusError(f"there is no device {id}; 0 is the only one")
        return self.acquireAvailableDevice()

    def tryAcquireDeviceById(self, id: int, *_: object, **__: object) -> DeviceInfo | None:
        """Gives the virtual machine 0; None for another number."""
        return self.acquireAvailableDevice() if id == 0 else None

    def setOnDemandAttachTimeout(self, attachTimeout: int) -> None:
        """Accepts how long to wait for a device; a virtual one is always free."""
