"""`Ir`, its graph, and the streams between host and device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from xdsl.dialects.builtin import ModuleOp

from populus.builder import Builder, current
from populus.dialects.support.diagnostics import PopulusError
from populus.popxl.tensor import Tensor


@dataclass(frozen=True)
class TensorSpec:
    """The shape and element type of a tensor."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]


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
        self.from_host: set[str] = set()  # names of streams, loaded or not
        self.to_host: set[str] = set()
        self.loads: dict[str, HostToDeviceStream] = {}
        self.stores: dict[str, DeviceToHostStream] = {}

    def inputs_for(self, argument: Any) -> Any:
        """An input like each tensor or spec of an argument of `create_graph`; what is neither stays as it is."""
        if isinstance(argument, list | tuple):
            return [self.inputs_for(inner) for inner in cast("Sequence[Any]", argument)]
        if not isinstance(argument, Tensor | TensorSpec):
            return argument
        return Tensor(self.input(f"input_{len(self._inputs)}", argument.shape, argument.dtype), self)


class Ir:
    """A program: `main_graph` is what a session runs. Graphs of two Irs have different names."""

    _count = 0

    def __init__(self) -> None:
        Ir._count += 1
        self.main_graph = Graph(f"main of Ir {Ir._count}")
        self._graphs: dict[str, int] = {}  # how many of each name

    def create_graph(self, build: Callable[..., Any], *args: Any, **keywords: Any) -> Graph:
        """The graph of what a function does: `ops.call` and `ops.repeat` run it.

        Arguments that are tensors or `TensorSpec`s, and lists of them, become inputs of the graph; the others are passed on. What the
        function gives, a tensor or several, are its outputs.
        """
        name = getattr(build, "__name__", type(build).__name__)
        name = name if name.isidentifier() else "graph"
        self._graphs[name] = number = self._graphs.get(name, 0) + 1
        made = Graph(name if number == 1 and name != "main" else f"{name}_{number}")
        with made:
            given = [made.inputs_for(arg) for arg in args]
            named = {key: made.inputs_for(arg) for key, arg in keywords.items()}
            found = build(*given, **named)
            outputs = [] if found is None else [found] if isinstance(found, Tensor) else list(found)
            for number, output in enumerate(outputs):
                made.output(f"output_{number}", output.ssa)
        return made

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
    """A stream from the host; without a name it gets one. Raises PopulusError for a name that another stream from the host has."""
    return HostToDeviceStream(tuple(shape), np.dtype(dtype), _taken(name, "h2d", graph().from_host))


def d2h_stream(shape: tuple[int, ...], dtype: np.dtype[Any], name: str = "") -> DeviceToHostStream:
    """A stream to the host; without a name it gets one. Raises PopulusError for a name that another stream to the host has."""
    return DeviceToHostStream(tuple(shape), np.dtype(dtype), _taken(name, "d2h", graph().to_host))


def _taken(name: str, stem: str, streams: set[str]) -> str:
    """The name, which no other of the streams gets then."""
    if name in streams:
        raise PopulusError(f"there is a stream '{name}' in this direction already; give one of them another name")
    number = 0
    while not name:
        found = f"{stem}_{number}" if number else stem
        name, number = "" if found in streams else found, number + 1
    streams.add(name)
    return name
