"""`Ir`, its graph, and the streams between host and device."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from xdsl.dialects.builtin import ModuleOp

from populus.builder import Builder, current
from populus.dialects.diagnostics import PopulusError


@dataclass(frozen=True)
class HostToDeviceStream:
    """What brings an array of the host to the device, at each run."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    name: str


@dataclass(frozen=True)
class DeviceToHostStream:
    """What takes an array from the device to the host, at each run."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    name: str


class Graph(Builder):
    """A graph; ops called in a `with` of it are inserted into it."""

    def __init__(self, name: str):
        super().__init__(name)
        self.loads: dict[str, HostToDeviceStream] = {}
        self.stores: dict[str, DeviceToHostStream] = {}


class Ir:
    """A program: `main_graph` is what a session runs. Graphs of two Irs have different names."""

    _count = 0

    def __init__(self) -> None:
        Ir._count += 1
        self.main_graph = Graph(f"main of Ir {Ir._count}")

    def module(self) -> ModuleOp:
        """What was built, at the popart level. Raises PopulusError if nothing is stored to the host."""
        return self.main_graph.module()


def graph() -> Graph:
    """The current graph. Raises PopulusError outside of a `with`, and in that of another front end."""
    found = current()
    if not isinstance(found, Graph):
        raise PopulusError("streams are of an Ir's graph; call this inside `with ir.main_graph:`")
    return found


def h2d_stream(shape: tuple[int, ...], dtype: np.dtype[Any], name: str = "") -> HostToDeviceStream:
    """A stream from the host. A second one of the same name gets a number behind it."""
    return HostToDeviceStream(tuple(shape), np.dtype(dtype), _unique(name or "h2d", graph().loads))


def d2h_stream(shape: tuple[int, ...], dtype: np.dtype[Any], name: str = "") -> DeviceToHostStream:
    """A stream to the host. A second one of the same name gets a number behind it."""
    return DeviceToHostStream(tuple(shape), np.dtype(dtype), _unique(name or "d2h", graph().stores))


def _unique(name: str, taken: dict[str, Any]) -> str:
    number = 0
    while (found := f"{name}_{number}" if number else name) in taken:
        number += 1
    return found
