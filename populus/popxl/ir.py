"""`Ir`: a program, with its main graph and the graphs that it calls."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterable, Sequence
from itertools import count
from typing import Any, Literal, cast
from weakref import WeakValueDictionary

import numpy as np
from xdsl.dialects.builtin import ModuleOp

from populus import popdist
from populus.dialects.support.names import Names
from populus.popart.settings import SessionOptions
from populus.popxl import dot
from populus.popxl.errors import WrongType, WrongValue
from populus.popxl.graph import Graph
from populus.popxl.internals.options import IrView
from populus.popxl.module import Module
from populus.popxl.remote_buffer import RemoteBuffer
from populus.popxl.replica_grouping import ReplicaGrouping
from populus.popxl.rows import row_mark
from populus.popxl.streams import DeviceToHostStream, HostToDeviceStream, Stream
from populus.popxl.tensor import State, Tensor, TensorByRef, TensorSpec, graph_input, graph_output
from populus.popxl.watch import new_clock


class Ir:
    """A program: `main_graph` is what a session runs. Graphs of two Irs have different names.

    `num_host_transfers`: how many arrays a run takes for each stream from the host, and gives for each to it.
    `replication`: how many replicas run the program, each on data and variables of its own; `popdist`: as many as `populus poprun` says.
    Raises ValueError for less than one replica.
    """

    _count = 0
    _ir_cache: WeakValueDictionary[int, Ir] = WeakValueDictionary()

    def __init__(self, replication: int | Literal["popdist"] = 1) -> None:
        Ir._count += 1
        self.id = Ir._count
        self._graphs: dict[str, int] = {}  # how many of each name
        self.names_from_host, self.names_to_host = Names(), Names()
        self.names_of_inputs, self.names_of_outputs = Names(), Names()
        self.buffers: list[RemoteBuffer] = []
        self._tables: dict[Stream, tuple[State, State]] = {}
        self._transfers = 1
        self.op_numbers = count(100)  # as PopART's
        self.late = 0  # how often a graph was changed after a call of it, or an op was taken out
        self.clock = new_clock()
        self._pb_ir = IrView(self)
        self.replication_factor = popdist.getNumTotalReplicas() if replication == "popdist" else replication
        if replication == "popdist" and popdist.getNumInstances() > 1:
            options = self.session_options
            options.enableDistributedReplicatedGraphs, options.globalReplicationFactor = True, self.replication_factor
            options.replicatedGraphCount, options.globalReplicaOffset = popdist.getNumLocalReplicas(), popdist.getReplicaIndexOffset()
        self.graphs: list[Graph] = []
        self.main_graph = Graph(f"main of Ir {Ir._count}", self)
        self.graphs.append(self.main_graph)
        Ir._ir_cache[self.id] = self

    @property
    def replication_factor(self) -> int:
        """The number of replicas, as the session's options have it."""
        return self.session_options.getGlobalReplicationFactor()

    @replication_factor.setter
    def replication_factor(self, value: int) -> None:
        if value < 1:
            raise WrongValue(f"a program has at least 1 replica, not {value}")
        self.session_options.enableReplicatedGraphs = value > 1
        self.session_options.replicatedGraphCount = value

    @property
    def instance_replication_factor(self) -> int:
        """The number of replicas whose inputs and results are this process's: all, but of an Ir of `popdist` under `populus poprun`."""
        return len(self.own_replicas)

    @property
    def own_replicas(self) -> range:
        """The numbers of these replicas."""
        options = self.session_options
        if not options.enableDistributedReplicatedGraphs:
            return range(self.replication_factor)
        return range(options.globalReplicaOffset, options.globalReplicaOffset + options.replicatedGraphCount)

    @property
    def session_options(self) -> SessionOptions:
        """The options that programs set on `_pb_ir`."""
        return self._pb_ir.getSessionOptions()

    @property
    def num_host_transfers(self) -> int:
        return self._transfers

    @num_host_transfers.setter
    def num_host_transfers(self, value: int) -> None:
        if value < 1:
            raise WrongValue(f"num_host_transfers is at least 1, not {value}")
        self._transfers = value

    @classmethod
    def _from_pb(cls, view: IrView) -> Ir:
        return view.ir

    def __repr__(self) -> str:
        return f"Ir[id={self.id}]"

    def create_empty_graph(self, name: str | None = None) -> Graph:
        """Gives a graph without inputs and outputs, to be filled in a `with` of it."""
        return self._graph(name or "graph")

    def create_graph(self, fn: Callable[..., Any] | Module, *args: Any, **kwargs: Any) -> Graph:
        """Gives the graph of what a function or a `Module` does: `ops.call` and `ops.repeat` run it.

        Arguments that are tensors or `TensorSpec`s, and lists of them, become inputs of the graph, named as the parameters; the others
        are passed on. A parameter annotated `TensorByRef` is changed where a call is given it. The function gives the outputs:
        nothing, a tensor or several. Raises ValueError for arguments that are not the function's, and TypeError for a list of
        tensors and others.
        """
        if not callable(fn):
            raise WrongType(f"{fn!r} makes no graph; give a function or a popxl.Module")
        build = fn.build if isinstance(fn, Module) else fn
        signature = inspect.signature(build)
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError as error:
            raise WrongValue(f"The arguments do not match the signature of the graph's function: {error}") from None
        bound.apply_defaults()
        made = self._graph(_name_of(fn))
        with made:
            for name, value in bound.arguments.items():
                by_ref = _by_ref(signature.parameters[name].annotation)
                bound.arguments[name] = _input_for(name, value, by_ref, signature.parameters[name].kind)
            for t in _outputs(fn(*bound.args, **bound.kwargs)):
                graph_output(t)
        return made

    def dot_checkpoint(self, check: str, save_dir: str | os.PathLike[str] | None = None) -> None:
        """Draws the graphs as they are now, as `check.dot`, if the session options' `dotChecks` or `POPART_DOT_CHECKS` name the check.

        If neither names any, all are drawn from now on. `save_dir` becomes the options' `logDir`. A session draws the check `FINAL`.
        """
        if save_dir is not None:
            self.session_options.logDir = os.fspath(save_dir)
        if "POPART_DOT_CHECKS" not in os.environ and not self.session_options.dotChecks:
            self.session_options.dotChecks = {dot.ALL}
        dot.checkpoint(self, check)

    def get_all_h2d_streams(self) -> set[HostToDeviceStream]:
        """Gives the streams that a run wants arrays for."""
        return set(self.main_graph.loads)

    def get_all_d2h_streams(self) -> set[DeviceToHostStream]:
        """Gives the streams that a run gives arrays of."""
        return set(self.main_graph.stores)

    def replica_grouping(self, stride: int = 1, group_size: int | None = None) -> ReplicaGrouping:
        """Gives groups of so many replicas, `stride` apart; by default all. Raises ValueError unless they are all of the replicas."""
        return ReplicaGrouping.of_stride(self, stride, group_size)

    def replica_grouping_from_assignments(self, assignment: Sequence[int]) -> ReplicaGrouping:
        """Gives the groups of a list with the group of each replica. Raises ValueError for groups of several sizes."""
        return ReplicaGrouping.of_assignment(self, assignment)

    def table(self, stream: Stream) -> tuple[State, State]:
        """Gives the rows that graphs load from or store to a stream, and the number of the next one."""
        if stream not in self._tables:
            mark, dtype = row_mark(len(self._tables)), stream.dtype.held
            number = len(self._tables)
            rows = State(f"rows {number} of {stream.name}", (mark, *stream.shape), dtype)
            self._tables[stream] = rows, State(f"row {number} of {stream.name}", (1,), np.dtype("int32"))
        return self._tables[stream]

    def tables(self) -> dict[Stream, tuple[State, State]]:
        """Gives the tables of the streams that have any."""
        return self._tables

    def rows(self) -> list[int]:
        """Counts the rows of each table."""
        events = {**self.main_graph.loads, **self.main_graph.stores, **self.main_graph.watches}
        return [sum(e for e in events.get(cast("Any", stream), []) if isinstance(e, int)) for stream in self._tables]

    def module(self) -> ModuleOp:
        """Gives what was built, at the popart level. Raises PopulusError if nothing is stored to the host and there is no variable."""
        return self.main_graph.module()

    def _graph(self, name: str) -> Graph:
        self.graphs.append(Graph(self.free(name), self))
        return self.graphs[-1]

    def free(self, name: str) -> str:
        """Gives the name of a new graph: this one with a number."""
        number = self._graphs.get(name, 0)
        self._graphs[name] = number + 1
        return f"{name}_subgraph({number})"


def _name_of(fn: Any) -> str:
    name = type(fn).__qualname__ if isinstance(fn, Module) else getattr(fn, "__qualname__", type(fn).__qualname__)
    return name.replace(".<locals>", "")


def _by_ref(annotation: Any) -> bool:
    """Tells whether a parameter's annotation is TensorByRef, or a list or tuple of it; an annotation may be text."""
    if isinstance(annotation, str):
        return "TensorByRef" in annotation
    return annotation is TensorByRef or TensorByRef in getattr(annotation, "__args__", ())


def _input_for(name: str, value: Any, by_ref: bool, kind: Any) -> Any:
    """Gives an input like each tensor or spec of an argument; what is neither stays as it is."""
    if isinstance(value, Tensor | TensorSpec):
        return graph_input(value.shape, value.dtype, name, by_ref, value.meta_shape)
    if isinstance(value, dict) and kind is inspect.Parameter.VAR_KEYWORD:
        return {key: _input_for(key, inner, by_ref, None) for key, inner in cast("dict[str, Any]", value).items()}
    if not isinstance(value, list | tuple):
        return cast("object", value)
    items = list(cast("Iterable[Any]", value))
    tensors = [isinstance(inner, Tensor | TensorSpec) for inner in items]
    if not any(tensors):
        return cast("object", value)
    if not all(tensors):
        raise WrongType(f"'{name}' holds tensors and others; give the others apart")
    made = [graph_input(inner.shape, inner.dtype, f"{name}_{i}", by_ref, inner.meta_shape) for i, inner in enumerate(items)]
    return tuple(made) if kind is inspect.Parameter.VAR_POSITIONAL else made


def _outputs(found: Any) -> list[Tensor]:
    if found is None:
        return []
    if isinstance(found, Tensor):
        return [found]
    try:
        several = list(found)
    except TypeError:
        several = [found]
    if wrong := next((v for v in several if not isinstance(v, Tensor)), None):
        raise WrongValue(f"a graph gives tensors, not {wrong!r}")
    return several
