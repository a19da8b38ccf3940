"""`autodiff`: the graph that computes the gradients of another."""
# A connection has two forms, which this file turns into each other.
# pyright: reportPrivateUsage=false

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Literal, NamedTuple

from populus.dialects.support.diagnostics import PopulusError
from populus.lowering.popart.autodiff.call_gradients import Stated
from populus.popxl.errors import WrongType, WrongValue
from populus.popxl.graph import Graph
from populus.popxl.internals.options import IrView
from populus.popxl.internals.views import GraphView
from populus.popxl.ops.call import CallSiteInfo
from populus.popxl.tensor import Tensor
from populus.popxl.transforms.differentiate import gradients


class ExpectedConnectionType(Enum):
    """The kind of a gradient graph's input or output: a tensor of the forward graph, or its gradient."""

    Fwd = "Fwd"
    FwdGrad = "FwdGrad"


class ExpectedConnection(NamedTuple):
    """An input or output of a gradient graph: a tensor of the forward graph, or its gradient."""

    fwd_tensor: Tensor
    connection_type: ExpectedConnectionType

    @property
    def _pb_ec(self) -> NamedConnection:
        return NamedConnection(self.fwd_tensor.id, self.connection_type)

    @classmethod
    def _from_pb(cls, graph: GraphView, named: NamedConnection) -> ExpectedConnection:
        return cls(graph.graph.get_tensor(named.fwdId), named.type)


@dataclass(frozen=True)
class NamedConnection:
    """An `ExpectedConnection` by the forward tensor's name."""

    fwdId: str
    type: ExpectedConnectionType


@dataclass(frozen=True)
class NamedGradGraphInfo:
    """A `GradGraphInfo` by names."""

    bwdGraphId: str
    expectedInputs: Sequence[NamedConnection]
    expectedOutputs: Sequence[NamedConnection]


@dataclass(frozen=True)
class GradGraphInfo:
    """A gradient graph, and what its inputs and outputs are, in order."""

    graph: Graph
    forward_graph: Graph
    expected_inputs: tuple[ExpectedConnection, ...]
    expected_outputs: tuple[ExpectedConnection, ...]

    @property
    def _expected_inputs(self) -> list[ExpectedConnection]:
        return list(self.expected_inputs)

    @property
    def _expected_outputs(self) -> list[ExpectedConnection]:
        return list(self.expected_outputs)

    @property
    def _pb_bwd_info(self) -> NamedGradGraphInfo:
        every = (self.expected_inputs, self.expected_outputs)
        return NamedGradGraphInfo(self.graph.name, *([c._pb_ec for c in connections] for connections in every))

    @classmethod
    def _from_pb(cls, ir: IrView, forward: GraphView, named: NamedGradGraphInfo) -> GradGraphInfo:
        every = (named.expectedInputs, named.expectedOutputs)
        found = (tuple(ExpectedConnection._from_pb(forward, c) for c in connections) for connections in every)
        return cls(ir.getGraph(named.bwdGraphId).graph, forward.graph, *found)

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        """The forward tensors of the inputs."""
        return tuple(c.fwd_tensor for c in self.expected_inputs)

    @property
    def outputs(self) -> tuple[Tensor, ...]:
        """The forward tensors of the outputs."""
        return tuple(c.fwd_tensor for c in self.expected_outputs)

    def inputs_dict(self, fwd_call_info: CallSiteInfo) -> dict[Tensor, Tensor]:
        """Gives the inputs that are no gradients, with what they are where the forward graph is called.

        Raises TypeError for a call of another graph.
        """
        if fwd_call_info.called_graph is not self.forward_graph:
            raise WrongType(f"graph '{self.forward_graph.name}' was differentiated; '{fwd_call_info.called_graph.name}' is called here")
        pairs = zip(self.graph.inputs, self.expected_inputs)  # inputs that a program adds come after those that are expected
        kind = ExpectedConnectionType.Fwd
        return {t: fwd_call_info.graph_to_parent(c.fwd_tensor) for t, c in pairs if c.connection_type is kind}

    def fwd_graph_ins_to_grad_parent_outs(self, grad_call_info: CallSiteInfo) -> dict[Tensor, Tensor]:
        """Gives the forward graph's inputs with their gradients where the gradient graph is called."""
        return dict(zip(self.outputs, grad_call_info.outputs))

    def fwd_parent_ins_to_grad_parent_outs(self, fwd_call_info: CallSiteInfo, grad_call_info: CallSiteInfo) -> dict[Tensor, Tensor]:
        """Gives what is passed to the forward graph, with its gradients where the gradient graph is called."""
        return {fwd_call_info.graph_to_parent(t): g for t, g in zip(self.outputs, grad_call_info.outputs)}


def autodiff(
    graph: Graph,
    grads_provided: Iterable[Tensor] | None = None,
    grads_required: Iterable[Tensor] | None = None,
    called_graphs_grad_info: Mapping[Graph, GradGraphInfo] | None = None,
    return_all_grad_graphs: bool = False,
) -> GradGraphInfo | dict[Graph, GradGraphInfo]:
    """Gives the graph of the gradients of `grads_required`, by default all inputs, from those of `grads_provided`, by default all outputs.

    Its inputs are the gradients provided, then the inputs of the forward graph that it needs. It computes the forward graph
    once more, so the forward graph stays as it is, called or not. Graphs that are called are differentiated inside, but for those
    whose gradient graphs `called_graphs_grad_info` has: these are called, and inputs that they give no gradient of have none.
    Raises ValueError for tensors that are no outputs or inputs, and PopulusError for an op on the way that has no gradient, and for
    a gradient graph with inputs that its information does not name.
    """
    provided = list(graph.outputs if grads_provided is None else grads_provided)
    required = list(graph.inputs if grads_required is None else grads_required)
    for tensors, known, kind in ((provided, graph.outputs, "output"), (required, graph.inputs, "input")):
        if wrong := next((t for t in tensors if t not in known), None):
            raise WrongValue(f"{wrong.id} is no {kind} of graph '{graph.name}'")
    stated = {g: (info.graph, _stated(g, info)) for g, info in (called_graphs_grad_info or {}).items()}
    made = graph.ir.create_empty_graph(f"{graph.name}_grad")
    with made:
        seeds = [made.input_tensor(t.shape, t.dtype, f"Gradient___{t.name}", False) for t in provided]
        given = {t: made.input_tensor(t.shape, t.dtype, t.name, False) for t in graph.inputs}
        for t, gradient in zip(required, gradients(made, graph, dict(zip(provided, seeds)), given, required, stated)):
            made.output_tensor(made.tensor(gradient, f"Gradient___{t.name}"))
        made.drop(given.values())
    fwd, grad = ExpectedConnectionType.Fwd, ExpectedConnectionType.FwdGrad
    inputs = [
        *(ExpectedConnection(t, grad) for t in provided),
        *(ExpectedConnection(t, fwd) for t in graph.inputs if given[t] in made.inputs),
    ]
    info = GradGraphInfo(made, graph, tuple(inputs), tuple(ExpectedConnection(t, grad) for t in required))
    return {graph: info} if return_all_grad_graphs else info


def _stated(called: Graph, info: GradGraphInfo) -> Stated:
    """Gives how a gradient graph takes the tensors of a call. Raises PopulusError for information of other tensors or another graph."""
    back = info.graph
    if info.forward_graph is not called:
        raise PopulusError(f"called_graphs_grad_info of graph '{called.name}' is that of graph '{info.forward_graph.name}'")
    if back.states or back.streams:
        said = back.states[0].name if back.states else back.streams[0].name
        raise PopulusError(f"gradient graph '{back.name}' reads '{said}'; pass it as an input of graph '{called.name}'")
    if len(back.inputs) != len(info.expected_inputs):
        raise PopulusError(f"gradient graph '{back.name}' has {len(back.inputs)} inputs; its information names {len(info.expected_inputs)}")
    taken = [_place(called, c) for c in info.expected_inputs]
    return Stated(back.name, taken, [called.slots.index(c.fwd_tensor) for c in info.expected_outputs])


def _place(called: Graph, connection: ExpectedConnection) -> tuple[Literal["gradient", "argument", "result"], int]:
    """Gives where a call of the forward graph has what its gradient graph takes. Raises PopulusError for an inner tensor."""
    t = connection.fwd_tensor
    if connection.connection_type is ExpectedConnectionType.FwdGrad and t in called.outputs:
        return "gradient", called.outputs.index(t)
    if t in called.slots:
        return "argument", called.slots.index(t)
    if t in called.outputs:
        return "result", called.outputs.index(t)
    raise PopulusError(f"{t.id} is neither an input nor an output of graph '{called.name}', so a call does not give it to a gradient graph")
