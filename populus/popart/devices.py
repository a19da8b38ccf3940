"""Devices: machines that programs run on. All are virtual; acquiring one gives a machine model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Self

from populus.dialects.support.diagnostics import PopulusError, did_you_mean
from populus.popart.enums import ENUMS
from populus.popart.quiet import ignored

_OPTIONS = ("numIPUs", "tilesPerIPU", "ipuVersion", "compileIPUCode")
_TYPE = ENUMS["DeviceType"].__members__
_SYNC = ENUMS["SyncPattern"].__members__
_FIRST = ENUMS["DeviceSelectionCriterion"].__members__
_SYSTEMS = ("ipu2",)
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
        """Gives a GC200, with `tilesPerIPU` tiles. Raises PopulusError for an option that there is not."""
        return self._model(options, _TYPE["IpuModel"])

    def createSimDevice(self, options: Mapping[str, Any]) -> DeviceInfo:
        """Gives a GC200, as `createIpuModelDevice`."""
        return self._model(options, _TYPE["Sim"])

    def createOfflineIPUDevice(self, opts: Mapping[str, Any]) -> DeviceInfo:
        """Gives a GC200 to compile for, as `createIpuModelDevice`."""
        return self._model(opts, _TYPE["OfflineIpu"])

    def _model(self, options: Mapping[str, Any], kind: Enum) -> DeviceInfo:
        if strange := [o for o in options if o not in _OPTIONS]:
            raise PopulusError(f"no option '{strange[0]}'{did_you_mean(strange[0], _OPTIONS)}")
        tiles = options.get("tilesPerIPU")
        return self._machines(DeviceInfo("gc200", int(tiles) if tiles else None, kind, numIpus=int(options.get("numIPUs") or 1)))

    def createOfflineIpuFromDeviceInfo(self, deviceInfo: DeviceInfo) -> DeviceInfo:
        """Gives a machine to compile for, like another."""
        return DeviceInfo(deviceInfo.target, deviceInfo.tiles, _TYPE["OfflineIpu"], numIpus=deviceInfo.numIpus)

    def createOfflineIpuFromSystemString(self, system: str, numIpus: int) -> DeviceInfo:
        """Gives a machine to compile for. Raises PopulusError for a system that there is not."""
        if system not in _SYSTEMS:
            raise PopulusError(f"there is no system '{system}'{did_you_mean(system, _SYSTEMS)}")
        return self._machines(DeviceInfo("gc200", None, _TYPE["OfflineIpu"], numIpus=numIpus))

    def enumerateDevices(
        self,
        pattern: Enum = _SYNC["Full"],
        numIpus: int = 1,
        deviceType: Enum = _TYPE["Ipu"],
        connectionType: Enum = _CONNECTION["Always"],
        tilesPerIPU: int = 0,
    ) -> list[DeviceInfo]:
        """Gives the devices that could be acquired: one virtual machine."""
        return [self._acquired(numIpus, tilesPerIPU, connectionType)]

    def acquireAvailableDevice(
        self,
        numIpus: int = 1,
        tilesPerIpu: int = 0,
        pattern: Enum = _SYNC["Full"],
        connectionType: Enum = _CONNECTION["Always"],
        selectionCriterion: Enum = _FIRST["First"],
    ) -> DeviceInfo:
        """Gives a virtual machine; a program for several runs on one, to the same results."""
        return self._acquired(numIpus, tilesPerIpu, connectionType)

    def tryAcquireAvailableDevice(
        self,
        numIpus: int = 1,
        tilesPerIpu: int = 0,
        pattern: Enum = _SYNC["Full"],
        connectionType: Enum = _CONNECTION["Always"],
        selectionCriterion: Enum = _FIRST["First"],
    ) -> DeviceInfo | None:
        """Gives a virtual machine; a virtual one is always free."""
        return self._acquired(numIpus, tilesPerIpu, connectionType)

    def acquireDeviceById(self, id: int, pattern: Enum = _SYNC["Full"], connectionType: Enum = _CONNECTION["Always"]) -> DeviceInfo:
        """Gives the virtual machine 0. Raises PopulusError for another number."""
        if id != 0:
            raise PopulusError(f"there is no device {id}; 0 is the only one")
        return self._acquired(1, 0, connectionType)

    def tryAcquireDeviceById(
        self, id: int, pattern: Enum = _SYNC["Full"], connectionType: Enum = _CONNECTION["Always"]
    ) -> DeviceInfo | None:
        """Gives the virtual machine 0; None for another number."""
        return self._acquired(1, 0, connectionType) if id == 0 else None

    def _acquired(self, machines: int, tiles: int, connection: Enum) -> DeviceInfo:
        """Gives a virtual machine; no public member calls another, as programs replace one by a call of the other."""
        return self._machines(DeviceInfo("gc200", tiles or None, _TYPE["Ipu"], numIpus=machines, connection=connection, isAttached=True))

    def _machines(self, info: DeviceInfo) -> DeviceInfo:
        """Gives a device of several machines as one of one, with a warning. Raises PopulusError for none."""
        if info.numIpus < 1:
            raise PopulusError(f"numIpus = {info.numIpus}; a program runs on one machine at least")
        if info.numIpus > 1:
            ignored("a device of several machines")
        return info

    def setOnDemandAttachTimeout(self, attachTimeout: int) -> None:
        """Accepts how long to wait for a device; a virtual one is always free."""
