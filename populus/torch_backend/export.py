"""A module of PyTorch as a model of ONNX: `exported` runs torch.export and torch.onnx, and says which tensor is which."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch.utils import _pytree as pytree

from populus.program.exporters import quiet, refused
from populus.torch_backend.rules import Loss, Rules

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto

# The wrapper's attribute that holds a user's module; names of weights begin with it.
PREFIX = "model."


@dataclass(frozen=True)
class Exported:
    """A model with the names of its tensors.

    `inputs` and `outputs`: one name for each tensor of the call and of its result. `tensors`: parameters and buffers by the names
    of their initializers. `changed`: of buffers that a call changes, the outputs with their new values. `losses`: the outputs that
    are results of loss functions, but not inputs of others. `rebuild` puts tensors into the structure of the call's result.
    `written`: of inputs that a call changes, by their numbers, the outputs with their new values.
    """

    model: ModelProto
    inputs: list[str]
    outputs: list[str]
    tensors: dict[str, Any]
    changed: dict[str, str]
    written: dict[int, str]
    losses: list[Loss]
    rebuild: Callable[[Sequence[Any]], Any]


@dataclass
class _Seen:
    """Notes of a trace: the structure of the result, and the loss functions that were called."""

    leaves: list[Any] = field(default_factory=list[Any])
    spec: Any = None
    losses: list[Loss] = field(default_factory=list[Loss])


class _Flat(torch.nn.Module):
    """Calls a module on a list of tensors; gives the tensors of its result, then losses, buffers, and what it was called on."""

    def __init__(self, model: Any, call: Callable[..., Any], seen: _Seen):
        super().__init__()
        self.model = model
        self._call, self._seen = call, seen

    def forward(self, *tensors: Any) -> tuple[Any, ...]:
        with Rules() as rules:
            result = self._call(self.model, tensors)
        seen = self._seen
        seen.leaves, seen.spec = pytree.tree_flatten(result)
        seen.losses = rules.losses
        found = [t.clone() for t in seen.leaves if isinstance(t, torch.Tensor)]
        found += [loss.tensor.clone() for loss in rules.losses]
        return (*found, *(b.clone() for _, b in self.model.named_buffers()), *(t.clone() for t in tensors))


def exported(model: Any, call: Callable[..., Any], tensors: Sequence[Any]) -> Exported:
    """Traces `call(model, tensors)` with tensors of these shapes and types.

    Raises PopulusError, naming the op or the reason, for a module that torch.export or torch.onnx cannot take.
    """
    seen = _Seen()
    flat = _Flat(model, call, seen)
    flat.train(model.training)
    with quiet():
        try:
            program = torch.export.export(flat, tuple(tensors), strict=False)
        except Exception as error:
            raise refused("torch.export cannot trace the module", error) from error
        try:
            made = torch.onnx.export(program, (), dynamo=True, optimize=False, verbose=False)
        except Exception as error:
            raise refused("torch.onnx cannot write the module", error) from error
    assert made is not None
    proto = made.model_proto
    names = [o.name for o in proto.graph.output]
    results = sum(isinstance(t, torch.Tensor) for t in seen.leaves)
    losses = [Loss(loss.function, None, name) for loss, name in zip(seen.losses, names[results:])]
    state = {**dict(flat.named_parameters(remove_duplicate=False)), **dict(flat.named_buffers(remove_duplicate=False))}
    buffers = [n for n, _ in flat.named_buffers()]
    after = names[results + len(losses) :]
    graph = proto.graph
    given = {i.name for i in graph.initializer}
    inputs = [i.name for i in graph.input if i.name not in given]
    assert len(inputs) == len(tensors), (inputs, len(tensors))
    return Exported(
        proto,
        inputs,
        names[:results],
        {i.name: state[i.name] for i in graph.initializer if i.name in state},
        {n: o for n, o in zip(buffers, after) if n in given and _copied(graph, o) != n},
        {i: o for i, (n, o) in enumerate(zip(inputs, after[len(buffers) :])) if _copied(graph, o) != n},
        _last(graph, losses),
        lambda values: _rebuilt(seen, values),
    )


def _rebuilt(seen: _Seen, values: Sequence[Any]) -> Any:
    rest = iter(values)
    return pytree.tree_unflatten([next(rest) if isinstance(x, torch.Tensor) else x for x in seen.leaves], seen.spec)


# -- the graph --------------------------------------------------------------------------------------------------------


def producers(graph: GraphProto) -> dict[str, NodeProto]:
    """Gives the node that computes each tensor."""
    return {o: n for n in graph.node for o in n.output if o}


def reads(node: NodeProto) -> Iterable[str]:
    """Gives the tensors that a node reads, also inside the graphs that it holds."""
    yield from (i for i in node.input if i)
    for a in node.attribute:
        if a.HasField("g"):
            own = {i.name for i in a.g.initializer} | {i.name for i in a.g.input} | {o for n in a.g.node for o in n.output}
            yield from (r for n in a.g.node for r in reads(n) if r not in own)
            yield from (o.name for o in a.g.output if o.name not in own)


def reached(graph: GraphProto, outputs: Iterable[str]) -> set[str]:
    """Gives the tensors on which outputs depend, with the outputs."""
    made, found, left = producers(graph), set[str](), list(outputs)
    while left:
        name = left.pop()
        if name not in found:
            found.add(name)
            left.extend(reads(made[name]) if name in made else ())
    return found


def _copied(graph: GraphProto, name: str) -> str:
    """Follows copies back to the tensor that they copy."""
    made = producers(graph)
    while name in made and made[name].op_type == "Identity":
        name = made[name].input[0]
    return name


def _last(graph: GraphProto, losses: Sequence[Loss]) -> list[Loss]:
    """Leaves out the losses of which another one is computed."""
    found: dict[str, Loss] = {_copied(graph, loss.output): loss for loss in losses}
    return [loss for name, loss in found.items() if not any(name in reached(graph, [other]) for other in found if other != name)]
