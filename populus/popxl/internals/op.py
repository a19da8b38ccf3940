"""An op of a PopXL graph as its program states it: its kind, tensors, arguments and place.

Its answers are read from the call that made it: what the call was given, made and changed. Nothing is assumed of its kind.
"""

# The inside of graphs and tensors is read here.
# pyright: reportPrivateUsage=false

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from enum import Enum
from inspect import BoundArguments
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, ClassVar

from xdsl.dialects.func import CallOp as FuncCallOp

from populus.dialects.support.diagnostics import PopulusError
from populus.popart.enums import ENUMS
from populus.popxl.context import placement, sequence

if TYPE_CHECKING:
    from xdsl.ir import Operation

    from populus.popxl.graph import Graph
    from populus.popxl.internals.regions import Region
    from populus.popxl.internals.views import GraphView, TensorView
    from populus.popxl.ops.call import CallSiteInfo
    from populus.popxl.tensor import Tensor

TileSet = ENUMS["TileSet"]
MatMulPartialsType = Enum("MatMulPartialsType", ["HALF", "FLOAT"], module=__name__)


@dataclass(frozen=True)
class OptimizerNumber:
    """A factor of an optimizer: its number, or 0 where a tensor has it."""

    argument: Any

    def isConst(self) -> bool:
        """Tells whether the factor is a number."""
        return not hasattr(self.argument, "ssa")

    def val(self) -> float:
        """Gives the number, 1 where none was given."""
        return (1.0 if self.argument is None else float(self.argument)) if self.isConst() else 0.0


@dataclass
class Program:
    """The call that makes an op: a function, and its arguments by name."""

    function: Callable[..., Any]
    bound: BoundArguments


class Op:
    """One op of a PopXL graph. `body`: the ops of the popart level that it inserted; a view inserts its own when it is read."""

    kind: ClassVar[str] = ""
    first: ClassVar[int] = 0  # the index of the first of `inputs`: those before are no tensors of the graph

    def __init__(self, graph: Graph, arguments: dict[str, Any], inputs: Sequence[Tensor]):
        self.graph, self.arguments, self.inputs = graph, arguments, list(inputs)
        self.id = next(graph.ir.op_numbers)
        self.outputs: list[Tensor] = []
        self.made: list[Tensor] = []  # tensors that were made inside
        self.kept: list[Tensor] = []  # of these, those that the graph shows
        self.changed: list[Tensor] = []
        self.body: list[Operation] = []
        self.program: Program | None = None  # the call that makes it; None for several ops that became one
        self.info: CallSiteInfo | None = None  # of an op that runs a graph
        self.called: dict[Graph, int] = {}  # graphs that it runs, with their versions
        self.undo: list[Callable[[], object]] = []  # what takes back each thing that it changed
        self.erased = False
        self.depth = 0  # how many calls of recorded functions are inside
        self.sequence = sequence()  # the `in_sequence` around
        self._ipu, self._tile_set = placement()

    @contextmanager
    def deeper(self) -> Generator[None]:
        """Counts a call that is inside the op's."""
        self.depth += 1
        try:
            yield
        finally:
            self.depth -= 1

    def opType(self) -> str:
        """Gives the kind, such as `Add`."""
        return self.kind

    def inTensor(self, index: int) -> TensorView:
        """Gives an input by its index."""
        return self.inputs[index - self.first]._pb_tensor

    def outTensor(self, index: int) -> TensorView:
        """Gives an output by its index."""
        return self.outputs[index]._pb_tensor

    def getInputTensors(self) -> list[TensorView]:
        """Gives the inputs in order."""
        return [self.inTensor(self.first + k) for k in range(len(self.inputs))]

    def getOutputTensors(self) -> list[TensorView]:
        """Gives the outputs in order."""
        return [self.outTensor(k) for k in range(len(self.outputs))]

    def getInputIndexMap(self) -> dict[int, TensorView]:
        """Gives the tensors that the op was given, by index: without those made of numbers in a tensor's place."""
        return {self.first + k: t._pb_tensor for k, t in enumerate(self.inputs) if t not in self.kept}

    def getOutputIndexMap(self) -> dict[int, TensorView]:
        """Gives the outputs by index."""
        return {k: t._pb_tensor for k, t in enumerate(self.outputs)}

    def outId(self, index: int) -> str:
        """Gives the name of an output."""
        return self.outputs[index].id

    def getCalledGraphs(self) -> list[GraphView]:
        """Gives the graphs that the op runs."""
        return []

    def disconnectAllInputs(self) -> None:
        """Accepts that the op is about to be taken out, which `eraseOp` does."""

    def disconnectAllOutputs(self) -> None:
        """Accepts that the op is about to be taken out, which `eraseOp` does."""

    def hasInput(self, index: int) -> bool:
        """Tells whether there is an input of this index."""
        return 0 <= index - self.first < len(self.inputs)

    def hasOutput(self, index: int) -> bool:
        """Tells whether there is an output of this index."""
        return 0 <= index < len(self.outputs)

    def modifiesIndex(self, index: int) -> bool:
        """Tells whether the op changed the value of an input."""
        return self.hasInput(index) and self.inputs[index - self.first] in self.changed

    def modifies(self) -> bool:
        """Tells whether the op changed any input."""
        return any(t in self.changed for t in self.inputs)

    def isOptimizerOp(self) -> bool:
        """Tells whether the op is part of an optimizer's update."""
        return isinstance(self, OptimizerOp)

    def hasVirtualGraphId(self) -> bool:
        """Tells whether the op was made for a chip."""
        return self._ipu is not None

    def getVirtualGraphId(self) -> int:
        """Gives the number of the op's chip. Raises ValueError without one."""
        if self._ipu is None:
            raise ValueError(f"{self.kind} was made for no chip")
        return self._ipu

    def getSettings(self) -> SimpleNamespace:
        """Gives the set of tiles and the chip that the op was made for."""
        return SimpleNamespace(tileSet=TileSet["IO" if self._tile_set == "io" else "Compute"], vgraphId=self._ipu)

    def getAxis(self) -> int:
        """Gives the argument `axis`. Raises AttributeError for an op without one."""
        if "axis" not in self.arguments:
            raise AttributeError(f"{self.kind} has no axis")
        return self.arguments["axis"]

    def __repr__(self) -> str:
        names = ", ".join(t.id for t in self.inputs), ", ".join(t.id for t in self.outputs)
        return f"{self.kind}({names[0]}) -> ({names[1]})"


class OptimizerOp(Op):
    """An op of an optimizer's update."""


class AccumulateOp(OptimizerOp):
    """An op that adds to, or scales, what is accumulated."""

    def getFactor(self) -> OptimizerNumber:
        """Gives the factor `f`."""
        return OptimizerNumber(self.arguments.get("f"))


class CallingOp(Op):
    """An op that runs another graph; inputs by reference count as changed."""

    def modifiesIndex(self, index: int) -> bool:
        """Tells whether the op changed the value of an input, or the graph that it runs takes the input by reference."""
        if super().modifiesIndex(index):
            return True
        graph = self.arguments["graph"]
        at = index - self.first
        return self.hasInput(index) and at < len(graph.inputs) and graph.inputs[at] in graph.by_ref

    def getCalledGraphs(self) -> list[GraphView]:
        """Gives the graph that the op runs."""
        return [self.arguments["graph"]._pb_graph]

    def hasInputTensor(self, tensor: TensorView) -> bool:
        """Tells whether a tensor is passed in."""
        return tensor.tensor in self.inputs

    def inIndex(self, tensor: TensorView) -> int:
        """Gives the index of a tensor that is passed in."""
        return self.first + self.inputs.index(tensor.tensor)

    def opInToSubgraphInIndex(self, index: int) -> int:
        """Gives the position among the graph's inputs of an input of the op."""
        return index - self.first

    def subgraphInToOpInIndex(self, index: int) -> int:
        """Gives the index of the op's input for the position of one of the graph's."""
        return index + self.first

    def connectInTensor(self, index: int, name: str) -> None:
        """Passes a tensor of the op's graph in, by its name, as a further input that the called graph has.

        Raises PopulusError for another input than the next, and for a tensor that is made after the op.
        """
        tensor, called, count = self.graph.get_tensor(name), self.arguments["graph"], len(self.inputs)
        if index - self.first != count:
            raise PopulusError(f"the call of graph '{called.name}' has {count} inputs; input {index - self.first} is not the next")
        slot = called.inputs[index - self.first]
        if self.called[called] == called.version:
            for site in (inner for op in self.body for inner in op.walk() if isinstance(inner, FuncCallOp)):
                called.connect(slot, site, tensor.ssa)
        self.inputs.append(tensor)
        assert self.program is not None
        self.program.bound.arguments["inputs_dict"] = {**(self.program.bound.arguments["inputs_dict"] or {}), slot: tensor}
        if self.info is not None:
            self.info.has_input(tensor)

    def addModified(self, index: int, regions: Iterable[Region]) -> None:
        """Says which parts of an input the called graph changes: what it makes of it is the tensor's value after the op."""
        if self.info is not None and any(not region.isEmpty() for region in regions):
            self.info.set_parent_input_modified(self.inputs[index - self.first])

    def getCalledGraph(self) -> GraphView:
        """Gives the graph that the op runs."""
        return self.getCalledGraphs()[0]


class IfOp(Op):
    """An op that runs one of two graphs; its first input is the condition."""


class ConvOp(Op):
    """A convolution, with options of its plan that are kept and not followed."""

    def getConvOptions(self) -> SimpleNamespace:
        """Gives a copy of the options."""
        proportions, types = (self.arguments.get(name) for name in ("available_memory_proportions", "partials_types"))
        options = SimpleNamespace(availableMemoryProportions=list(proportions or ()), partialsTypes=list(types or ()))
        return deepcopy(self.__dict__.setdefault("_options", options))

    def setConvOptions(self, options: SimpleNamespace) -> None:
        """Takes other options."""
        self.__dict__["_options"] = deepcopy(options)


class MatMulOp(Op):
    """A matrix product."""

    def getPartialsType(self) -> Enum:
        """Gives the type of partial sums that was asked for: that of the call, or else of the session's options."""
        asked = self.arguments.get("partials_type")
        name = asked.name if asked is not None else self.graph.ir._pb_ir.getSessionOptions().partialsTypeMatMuls
        return MatMulPartialsType["HALF" if name in ("half", "float16") else "FLOAT"]


class IpuCopyOp(Op):
    """A copy between chips, of which there is one here."""

    def getSourceIpu(self, name: str = "") -> int | None:
        """Gives the number of the chip that is copied from: where its input lies."""
        return self.inputs[0]._ipu
