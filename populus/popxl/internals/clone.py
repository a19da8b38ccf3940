"""Ops that move to another graph, as transforms of popxl_addons ask for: a clone is given its tensors one by one, and then performed."""

# The inside of graphs and tensors is changed here.
# pyright: reportPrivateUsage=false

from __future__ import annotations

from inspect import BoundArguments
from typing import TYPE_CHECKING, Any, cast

from populus.dialects.support.diagnostics import PopulusError
from populus.popxl.internals.op import Op, Program
from populus.popxl.internals.performing import performed
from populus.popxl.internals.replay import placed, refresh
from populus.popxl.tensor import Handle, Tensor

if TYPE_CHECKING:
    from populus.popxl.graph import Graph
    from populus.popxl.internals.views import GraphView, TensorView


class Clone:
    """An op of another graph that does not have its tensors yet. `setup` performs it. Raises PopulusError for an op of several calls."""

    def __init__(self, source: Op, graph: Graph):
        if source.program is None:
            raise PopulusError(f"{source.kind} of graph '{source.graph.name}' is several ops, which do not move to another graph")
        self._source, self._graph, self._program = source, graph, source.program
        self._inputs: dict[Tensor, Tensor] = {}  # what a tensor of the source is here
        self._outputs: dict[int, Tensor] = {}
        self._arguments = dict(source.program.bound.arguments)

    def connectInTensor(self, index: int, name: str, source_ipu: int | None = None) -> None:
        """Takes a tensor of the new graph by its name as an input. Raises PopulusError where two stand for one of the source."""
        if source_ipu is not None:
            self._arguments["source"] = source_ipu
        old, new = self._source.inputs[index - self._source.first], self._graph.get_tensor(name)
        if self._inputs.setdefault(old, new) is not new:
            raise PopulusError(f"{old.id} would be {self._inputs[old].id} and {new.id} of graph '{self._graph.name}'")

    def createAndConnectOutTensor(self, index: int, name: str) -> None:
        """Makes an output of a name, which has a type, and a value after `setup`."""
        like, graph = self._source.outputs[index], self._graph
        if isinstance(like, Handle):
            made: Tensor = Handle(graph, name, like.shape, like.dtype, like.pb_type)
        else:
            made = Tensor(None, graph, name)
            made.type_without_value = like.type
        made.meta_shape, made.producer = like.meta_shape, self._source
        made.lie_as(like)
        self._outputs[index] = graph.named(made)

    def outTensor(self, index: int) -> TensorView:
        """Gives an output by its index."""
        return self._outputs[index]._pb_tensor

    def setup(self) -> None:
        """Inserts the op in its graph with the tensors that it was given."""
        arguments = {name: self._given(value) for name, value in self._arguments.items()}
        refresh(self._graph)
        with self._graph, placed(self._source):
            op, info = performed(
                self._graph, type(self._source), Program(self._program.function, BoundArguments(self._program.bound.signature, arguments))
            )
        for index, t in self._outputs.items():
            t.become(op.outputs[index], op.outputs[index] in op.made)
            op.outputs[index], t.producer = t, op
        if self._source.info is not None:
            info.outputs_are(op.outputs)
            info.modify_as(self._source.info)

    def _given(self, value: Any) -> Any:
        if isinstance(value, Tensor):
            if value not in self._inputs:
                raise PopulusError(f"{self._source.kind} has no tensor in graph '{self._graph.name}' for {value.id}")
            return self._inputs[value]
        if isinstance(value, dict):
            return {name: self._given(inner) for name, inner in cast("dict[Any, Any]", value).items()}
        if isinstance(value, list | tuple):
            return type(cast("Any", value))(self._given(inner) for inner in cast("Any", value))
        return value


class Movable:
    """Ops that go from one graph to another."""

    def cloneIntoGraph(self, view: GraphView) -> Clone:
        """Gives the op for another graph, where it is yet to be given its tensors. Raises PopulusError for several ops that became one."""
        return Clone(cast("Op", self), view.graph)
