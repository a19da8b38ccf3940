"""Graphs and tensors as `popart._internal.ir` shows them: each view reads the graph or tensor of PopXL that it is of."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from types import SimpleNamespace
from typing import TYPE_CHECKING

from populus.popart.tensor_info import TensorInfo
from populus.popxl.errors import WrongValue
from populus.popxl.internals.regions import Region, TopoCons

if TYPE_CHECKING:
    from populus.popxl.graph import Graph
    from populus.popxl.internals.op import Op
    from populus.popxl.internals.options import IrView
    from populus.popxl.tensor import Tensor

TensorType = Enum("TensorType", ["ActGrad", "Const", "Stream", "Unknown", "Variable"], module=__name__)


class TensorView:
    """A tensor of a graph."""

    def __init__(self, tensor: Tensor):
        self.tensor = tensor

    @property
    def id(self) -> str:
        """The name, with that of its graph before it outside of the main graph."""
        return self.tensor.id

    @property
    def info(self) -> TensorInfo:
        """The element type and the shape."""
        return TensorInfo(self.tensor.dtype.held, self.tensor.shape)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TensorView) and other.tensor is self.tensor

    def __hash__(self) -> int:
        return hash(self.tensor)

    @property
    def consumers(self) -> SimpleNamespace:
        """The ops that take the tensor: `getOps()`."""
        return SimpleNamespace(getOps=lambda: [op for op in GraphView(self.tensor.graph).getOps() if self.tensor in op.inputs])

    def modifiedRegionsByOps(self, ops: Iterable[Op]) -> list[Region]:
        """Gives the parts of the tensor that ops change: all of it, or nothing."""
        return [Region(True)] if any(self.tensor in op.changed for op in ops) else []

    def tensorType(self) -> Enum:
        """Tells variables, constants, streams' handles and other tensors apart."""
        return TensorType[self.tensor.pb_type]

    def hasTensorData(self) -> bool:
        """Tells whether the tensor's first value is known."""
        return getattr(self.tensor, "data", None) is not None

    def isAliased(self) -> bool:
        """Tells whether another tensor of the graph is a view of this one."""
        return any(self.tensor in t.view_of for t in self.tensor.graph.tensors if t is not self.tensor)

    def isGraphInput(self) -> bool:
        """Tells whether a call gives the tensor's value."""
        return self.tensor in self.tensor.graph.inputs

    def isGraphOutput(self) -> bool:
        """Tells whether a call takes the tensor's value."""
        return self.tensor in self.tensor.graph.outputs

    def hasProducer(self) -> bool:
        """Tells whether an op made the tensor."""
        return self.tensor.producer is not None

    def getGraph(self) -> GraphView:
        """Gives the graph of the tensor."""
        return GraphView(self.tensor.graph)

    def getProducer(self) -> Op:
        """Gives the op that made the tensor. Raises ValueError for one that no op made."""
        if self.tensor.producer is None:
            raise WrongValue(f"no op made {self.id}")
        return self.tensor.producer


class GraphView:
    """A graph: its ops in the order in which they happen, and its tensors."""

    def __init__(self, graph: Graph):
        self.graph = graph

    @property
    def id(self) -> str:
        """The name; nothing for the main graph."""
        return "" if self.graph is self.graph.ir.main_graph else self.graph.name

    def getGraphId(self) -> str:
        """Gives the name; nothing for the main graph."""
        return self.id

    def getIr(self) -> IrView:
        """Gives the view of the graph's Ir."""
        return self.graph.ir._pb_ir  # pyright: ignore[reportPrivateUsage]

    def getOps(self) -> list[Op]:
        """Gives the ops."""
        return [op for op in self.graph.recorded if not op.erased]

    def eraseOp(self, number: int) -> None:
        """Takes an op out, by its `id`: what it changed is as before. Ops after it that need what it made are to be taken out too."""
        self.graph.erase(next(op for op in self.graph.recorded if op.id == number))

    def markAsOutput(self, name: str) -> None:
        """Makes a tensor a further output, by its name."""
        self.graph.output_tensor(self.graph.get_tensor(name))

    def topoCons(self) -> TopoCons:
        """Gives the orders of ops that programs ask for beside that of their calls: none."""
        return TopoCons()

    def as_graph(self) -> Graph:
        """Gives the graph of PopXL."""
        return self.graph

    def getOpSchedule(self, requireOptimalSchedule: bool = False) -> list[Op]:
        """Gives the ops in the order in which they happen, which is that of their calls."""
        return self.getOps()

    def getTensor(self, name: str) -> TensorView:
        """Gives a tensor by its name. Raises PopulusError if there is none."""
        return TensorView(self.graph.get_tensor(name))

    def getTensors(self) -> list[TensorView]:
        """Gives the tensors."""
        return [TensorView(t) for t in self.graph.tensors]

    def getTensorIds(self) -> list[str]:
        """Gives the names of the tensors."""
        return [t.id for t in self.graph.tensors]

    def getInputIndex(self, name: str) -> int:
        """Gives the position of an input. Raises ValueError if it is none."""
        return self.getInputIds().index(name)

    def getOutputIndex(self, name: str) -> int:
        """Gives the position of an output. Raises ValueError if it is none."""
        return self.getOutputIds().index(name)

    def getInputId(self, index: int) -> str:
        """Gives the name of the input at a position."""
        return self.graph.inputs[index].id

    def getOutputId(self, index: int) -> str:
        """Gives the name of the output at a position."""
        return self.graph.outputs[index].id

    def getInputTensor(self, index: int) -> TensorView:
        """Gives the input at a position."""
        return TensorView(self.graph.inputs[index])

    def getOutputTensor(self, index: int) -> TensorView:
        """Gives the output at a position."""
        return TensorView(self.graph.outputs[index])

    def hasInputId(self, name: str) -> bool:
        """Tells whether an input has this name."""
        return name in self.getInputIds()

    def getCalledGraphs(self) -> list[GraphView]:
        """Gives the graphs that this one calls."""
        return [GraphView(g) for g in self.graph.called_graphs]

    def removeOutput(self, index: int) -> None:
        """Takes an output away; the tensor stays."""
        self.graph.drop_output(index)

    def getInputIds(self) -> list[str]:
        """Gives the names of the inputs in order."""
        return [t.id for t in self.graph.inputs]

    def getOutputIds(self) -> list[str]:
        """Gives the names of the outputs in order."""
        return [t.id for t in self.graph.outputs]

    def canBeRecursivelyAutodiffed(self) -> bool:
        """Tells what `setCanBeRecursivelyAutodiffed` said last; True at first."""
        return self.graph.differentiated_with_callers

    def setCanBeRecursivelyAutodiffed(self, allowed: bool) -> None:
        """Says whether `autodiff` of a graph that calls this one may differentiate this one too; else it takes its information."""
        self.graph.differentiated_with_callers = allowed

    def __contains__(self, name: str) -> bool:
        return name in self.getTensorIds()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, GraphView) and other.graph is self.graph

    def __hash__(self) -> int:
        return hash(self.graph)
