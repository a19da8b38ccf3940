"""Ops that run a graph: once, or as a loop, whose body is a graph of one op, which calls the graph that the program repeats."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING, Any

from populus.dialects.support.diagnostics import PopulusError
from populus.popxl.internals.clone import Movable
from populus.popxl.internals.op import CallingOp
from populus.popxl.internals.views import GraphView

if TYPE_CHECKING:
    from populus.popxl.internals.regions import Region
    from populus.popxl.internals.views import TensorView


class CallOp(Movable, CallingOp):
    """An op that runs another graph once."""

    kind = "Call"


class LoopOp(CallingOp):
    """An op that runs another graph several times; inputs 0 and 1 are the number of times and whether to go on."""

    first = 2

    @cached_property
    def body_call(self) -> BodyCall:
        """The call in the loop's body."""
        return BodyCall(self)

    def getCalledGraphs(self) -> list[GraphView]:
        """Gives the loop's body."""
        return [BodyView(self)]

    def addModified(self, index: int, regions: Iterable[Region]) -> None:
        """Says which parts of an input the repeated graph changes: each time begins with what the one before made of it."""
        if any(not region.isEmpty() for region in regions):
            graph = self.arguments["graph"]
            graph.takes_by_reference(graph.inputs[index - self.first])

    def addLoopOutput(self, index: int, name: str, inner: str, overwrite: bool) -> None:
        """Makes a result of the body's call, by its name, what an input becomes for the next time and gives in the end.

        Raises PopulusError for an output that the loop does not have yet.
        """
        graph = self.arguments["graph"]
        if not overwrite or index >= len(self.outputs):
            raise PopulusError(f"the loop of graph '{graph.name}' has {len(self.outputs)} outputs; only these are given others")
        graph.replace_output(index, self.body_call.named[inner])

    def getNumExplicitInputs(self) -> int:
        """Gives the number of inputs."""
        return self.first + len(self.inputs)

    def addLoopInput(self, index: int, name: str, inner: str, overwrite: bool) -> None:
        """Adds an input that stays the same each time, of this name in the repeated graph. Raises PopulusError as `connectInTensor`."""
        tensor, called = self.graph.get_tensor(name), self.arguments["graph"]
        called.input_tensor(tensor.shape, tensor.dtype, inner.removeprefix(f"{called.name}/"), False, taken=True)
        self.connectInTensor(index, name)


class BodyView(GraphView):
    """The graph that is repeated, with one op: the call of it. Its tensors are those of the repeated graph."""

    def __init__(self, loop: LoopOp):
        super().__init__(loop.arguments["graph"])
        self.call = loop.body_call

    def as_graph(self) -> Any:
        """Gives the same as PopXL's graph."""
        return Body(self)

    def getOps(self) -> list[Any]:
        """Gives the call."""
        return [self.call]


class Body:
    """The same as PopXL's graph."""

    def __init__(self, view: BodyView):
        self._pb_graph = view

    def __getattr__(self, name: str) -> Any:
        return getattr(self._pb_graph.graph, name)

    def __enter__(self) -> Any:
        return self._pb_graph.graph.__enter__()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._pb_graph.graph.__exit__(kind, error, trace)


class BodyCall(CallOp):
    """The call inside the body, whose results are named before the loop gives them out."""

    def __init__(self, loop: LoopOp):
        self.graph, self.arguments, self.inputs, self.outputs = loop.graph, loop.arguments, loop.inputs, []
        self.changed, self.id = loop.changed, loop.id
        self.named: dict[str, int] = {}  # position among the graph's outputs

    def createAndConnectOutTensor(self, index: int, name: str) -> None:
        """Names a result. Raises PopulusError for one that the graph does not give."""
        graph = self.arguments["graph"]
        if index >= len(graph.outputs):
            raise PopulusError(f"graph '{graph.name}' has {len(graph.outputs)} outputs, so its call gives no output {index}")
        self.named[name] = index

    def inTensor(self, index: int) -> TensorView:
        """Gives an input of the repeated graph."""
        return self.arguments["graph"].inputs[index]._pb_tensor

    def setup(self) -> None:
        """Accepts that the call has its tensors."""
