"""Graphs that run inside another: `call`, `repeat`, `conditional`, and what their sites tell."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from xdsl.ir import SSAValue

from populus.popxl import dtypes
from populus.popxl.context import get_current_graph
from populus.popxl.errors import WrongType, WrongValue
from populus.popxl.graph import Graph
from populus.popxl.internals.recording import recorded
from populus.popxl.ops.common import cast_to, stated, without
from populus.popxl.ops.shape import reshape
from populus.popxl.tensor import Tensor

if TYPE_CHECKING:
    from populus.popxl.internals.op import Op

Inputs = Mapping[Tensor, Any] | None


class CallSiteInfo:
    """Where a graph is called or repeated: which tensors of the parent its inputs and outputs are."""

    def __init__(self, graph: Graph, inputs: Sequence[Tensor], outputs: Sequence[Tensor], became: Mapping[Tensor, SSAValue]):
        self._graph, self._inputs, self._outputs, self._became = graph, tuple(inputs), tuple(outputs), dict(became)
        self._before = [t.ssa for t in inputs]
        self._op: Op | None = None
        self._modified: list[Tensor] = []  # inputs of the graph whose change is the parent's too

    @property
    def called_graph(self) -> Graph:
        return self._graph

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        """The parent's tensors that are passed in, in order."""
        return self._inputs

    @property
    def outputs(self) -> tuple[Tensor, ...]:
        """The parent's tensors that come out, in order."""
        return self._outputs

    def parent_input(self, idx: int) -> Tensor:
        """Gives the parent's tensor that is passed in at a position."""
        return self._inputs[idx]

    def parent_output(self, idx: int) -> Tensor:
        """Gives the parent's tensor that comes out at a position."""
        return self._outputs[idx]

    def graph_to_parent_input_index(self, idx: int) -> int:
        """Gives the position among the parent's inputs of the graph's input at a position, which is the same."""
        return idx

    def parent_to_graph_input_index(self, idx: int) -> int:
        """Gives the position among the graph's inputs of the parent's input at a position, which is the same."""
        return idx

    def graph_to_parent_output_index(self, idx: int) -> int:
        """Gives the position among the parent's outputs of the graph's output at a position, which is the same."""
        return idx

    def parent_to_graph_output_index(self, idx: int) -> int:
        """Gives the position among the graph's outputs of the parent's output at a position, which is the same."""
        return idx

    def graph_to_parent(self, graph_tensor: Tensor) -> Tensor:
        """Gives the parent's tensor for an input or output of the graph. Raises ValueError for another tensor."""
        for theirs, ours in ((self._graph.inputs, self._inputs), (self._graph.outputs, self._outputs)):
            if graph_tensor in theirs:
                return ours[theirs.index(graph_tensor)]
        raise WrongValue(f"{graph_tensor.id} is neither an input nor an output of graph '{self._graph.name}'")

    def parent_to_graph(self, parent_tensor: Tensor) -> Tensor:
        """Gives the graph's first input that is given a tensor of the parent. Raises ValueError for a tensor that is not passed in."""
        if parent_tensor not in self._inputs:
            raise WrongValue(f"{parent_tensor.id} is not passed to graph '{self._graph.name}' here")
        return self._graph.inputs[self._inputs.index(parent_tensor)]

    def set_parent_input_modified(self, parent_tensor: Tensor, infer_modified_regions: bool = False) -> None:
        """Makes what the graph makes of its input the value of the parent's tensor, from here on.

        Raises ValueError for a tensor that is not passed in, or that has another value by now.
        """
        self._modify(self.parent_to_graph(parent_tensor), parent_tensor)

    def _modify(self, slot: Tensor, parent_tensor: Tensor) -> None:
        if slot not in self._modified:
            self._modified.append(slot)
        if slot not in self._became:
            return
        if parent_tensor.ssa not in (self._before[self._inputs.index(parent_tensor)], self._became[slot]):
            raise WrongValue(f"{parent_tensor.id} was changed after the call; say right after it that the call changes it")
        with parent_tensor.graph.inside(self._op):
            parent_tensor.assign(self._became[slot])

    def modify_as(self, other: CallSiteInfo) -> None:
        """Makes the changes of inputs that another site of the graph states the parent's here too."""
        for slot in other._modified:
            self._modify(slot, self._inputs[self._graph.inputs.index(slot)])

    def has_input(self, t: Tensor) -> None:
        """Takes a further input, which `connectInTensor` passes in."""
        self._inputs = (*self._inputs, t)
        self._before.append(t.ssa)

    def outputs_are(self, outputs: Iterable[Tensor]) -> None:
        """Gives these tensors as what comes out."""
        self._outputs = tuple(outputs)

    def made_anew(self, other: CallSiteInfo, op: Op) -> None:
        """Tells of the same op what another site tells of it, now that it is made anew; its tensors stay."""
        self._before, self._became, self._outputs = other._before, other._became, tuple(op.outputs)
        self.modify_as(self)


class ConditionalSiteInfo(CallSiteInfo):
    """Where one of two graphs is called. Positions among the parent's inputs begin with the condition, then those of `then`.

    Positions that there are not raise IndexError.
    """

    def __init__(self, condition: Tensor, graphs: tuple[Graph, Graph], inputs: Sequence[Sequence[Tensor]], outputs: Sequence[Tensor]):
        super().__init__(graphs[0], [condition, *inputs[0], *inputs[1]], outputs, {})
        self._graphs, self._each = graphs, [list(i) for i in inputs]

    @property
    def called_graph(self) -> tuple[Graph, Graph]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """The graphs of `then` and `else`."""
        return self._graphs

    def graph_to_parent_input_index(self, idx: int, then_branch: bool = True) -> int:
        """Gives the position among the parent's inputs of a branch's input."""
        first = 0 if then_branch else len(self._each[0])
        return 1 + first + _within(idx, self._each[0 if then_branch else 1])

    def parent_to_graph_input_index(self, idx: int) -> int:
        """Gives the position among its branch's inputs of the parent's input at a position."""
        return idx - 1 - (0 if self.is_parent_index_in_then_branch(idx) else len(self._each[0]))

    def is_parent_index_in_then_branch(self, idx: int) -> bool:
        """Tells whether the parent's input at a position is one of `then`. Raises ValueError for the condition."""
        if _within(idx, self.inputs) == 0:
            raise WrongValue("position 0 is the condition, an input of neither branch")
        return idx <= len(self._each[0])

    def graph_to_parent_output_index(self, idx: int, then_branch: bool = True) -> int:
        """Gives the position among the parent's outputs of a branch's output, which is the same."""
        return _within(idx, self.outputs)

    def parent_to_graph_output_index(self, idx: int, then_branch: bool = True) -> int:
        """Gives the position among a branch's outputs of the parent's output, which is the same."""
        return _within(idx, self.outputs)

    def graph_to_parent(self, graph_tensor: Tensor) -> Tensor:
        """Gives the parent's tensor for an input or output of a branch. Raises ValueError for another tensor."""
        for graph, ours in zip(self._graphs, self._each):
            for theirs, mine in ((graph.inputs, ours), (graph.outputs, self.outputs)):
                if graph_tensor in theirs:
                    return mine[theirs.index(graph_tensor)]
        raise WrongValue(f"{graph_tensor.id} is neither an input nor an output of a branch")

    def parent_to_graph(self, parent_tensor: Tensor) -> Tensor:
        """Gives the first input of a branch that is given a tensor of the parent. Raises ValueError for one that is not passed in."""
        for graph, ours in zip(self._graphs, self._each):
            if parent_tensor in ours:
                return graph.inputs[ours.index(parent_tensor)]
        raise WrongValue(f"{parent_tensor.id} is not passed to a branch here")

    def set_parent_input_modified(self, parent_tensor: Tensor, infer_modified_regions: bool = True) -> None:
        """Raises ValueError: state by `by_ref` of an input that a branch changes what it is given."""
        raise WrongValue("of branches, state by popxl.TensorByRef which inputs they change")


def _within(idx: int, tensors: Sequence[Tensor]) -> int:
    """Gives a position. Raises IndexError for one that tensors do not have."""
    if not 0 <= idx < len(tensors):
        raise IndexError(f"there are positions 0 to {len(tensors) - 1}, not {idx}")
    return idx


def _flat(inputs: Iterable[Any] | None) -> list[Any]:
    found = list[Any]()
    for value in inputs or ():
        found += value if isinstance(value, list | tuple) else [value]
    return found


def _bound(graph: Graph, inputs: Iterable[Any] | None, by_tensor: Inputs) -> list[Tensor]:
    """Gives the tensors of the current graph for all inputs of a graph. Raises ValueError for too many, too few, or one given twice."""
    given, wanted = _flat(inputs), graph.inputs
    if len(given) > len(wanted):
        raise WrongValue(f"Too many inputs have been provided: graph '{graph.name}' has {len(wanted)}; {len(given)} are given")
    found: dict[Tensor, Any] = dict(zip(wanted, given))
    for slot, value in (by_tensor or {}).items():
        if slot not in wanted:
            raise WrongValue(f"{slot!r} is not in the called graph '{graph.name}' as an input")
        if slot in found:
            raise WrongValue(f"Graph input tensor is specified twice: '{slot.name}' of graph '{graph.name}'")
        found[slot] = value
    if missing := [slot.name for slot in wanted if slot not in found]:
        raise WrongValue(f"Not enough inputs have been provided: graph '{graph.name}' has {', '.join(missing)} too")
    return [_operand(slot, found[slot]) for slot in wanted]


def _operand(slot: Tensor, value: Any) -> Tensor:
    if isinstance(value, str | dict) or value is None:
        raise WrongType(f"input '{slot.name}' takes a tensor or data, not {value!r}")
    return slot.operand(value)


@recorded("Call")
def call_with_info(graph: Graph, *inputs: Any, inputs_dict: Inputs = None, check_inputs: bool = True) -> CallSiteInfo:
    """Calls a graph of `ir.create_graph` on these inputs, by position and by the graph's own tensors, and tells which tensors are which.

    Inputs are copied in, but for those by reference. Raises ValueError for other inputs than the graph has.
    """
    return _site(graph, None, _bound(graph, inputs, inputs_dict))


@recorded("Loop")
def repeat_with_info(graph: Graph, repeat_count: int, *inputs: Any, inputs_dict: Inputs = None, check_inputs: bool = True) -> CallSiteInfo:
    """Calls a graph so often in a row, and tells which tensors are which: a time's outputs are the first inputs of the next.

    The other inputs stay. Raises ValueError for a negative number, and PopulusError where the outputs are not of the first inputs' types.
    """
    if repeat_count < 0:
        raise WrongValue(f"Repeat count must be >= 0; graph '{graph.name}' cannot be repeated {repeat_count} times")
    if len(graph.outputs) > len(graph.inputs):
        counts = f"{len(graph.inputs)} < {len(graph.outputs)}"
        raise WrongValue(f"To repeat the subgraph '{graph.name}', it needs an input for each output: {counts}")
    return _site(graph, repeat_count, _bound(graph, inputs, inputs_dict))


def _site(graph: Graph, times: int | None, inputs: list[Tensor]) -> CallSiteInfo:
    parent = get_current_graph()
    values, became = parent.run(graph, inputs, times)
    outputs = [parent.tensor(value, like.name) for value, like in zip(values, graph.outputs)]
    for t, like in zip(outputs, graph.outputs):
        t.meta_shape = like.meta_shape
        t.lie_as(like)
    info = CallSiteInfo(graph, inputs, outputs, became)
    for slot in graph.inputs:
        if slot in graph.by_ref and slot in became:
            inputs[graph.inputs.index(slot)].assign(became[slot])
    return info


@recorded("If")
def conditional_with_info(
    cond: Tensor,
    then_branch: Graph,
    else_branch: Graph,
    then_inputs: Iterable[Any] | None = None,
    else_inputs: Iterable[Any] | None = None,
    then_inputs_dict: Inputs = None,
    else_inputs_dict: Inputs = None,
    check_inputs: bool = True,
) -> ConditionalSiteInfo:
    """Calls one graph if `cond`, a boolean, holds, and another if not, and tells which tensors are which; that one alone is computed.

    Raises ValueError for other inputs than they have, and PopulusError where their outputs are not of the same types.
    """
    parent = get_current_graph()
    inputs = _bound(then_branch, then_inputs, then_inputs_dict), _bound(else_branch, else_inputs, else_inputs_dict)
    if cond.nelms != 1:
        raise WrongValue(f"a condition is of one element; {cond.id} is {list(cond.shape)}")
    chosen = reshape(cast_to(cond, dtypes.bool), ())
    values = parent.choose(chosen, (then_branch, else_branch), inputs)
    outputs = [parent.tensor(value, like.name) for value, like in zip(values, then_branch.outputs)]
    return ConditionalSiteInfo(cond, (then_branch, else_branch), inputs, outputs)


def _outputs_of(function: Callable[..., CallSiteInfo], name: str) -> Callable[..., tuple[Tensor, ...]]:
    """Gives the op that gives the outputs alone of one that tells which tensors are which."""

    def outputs(*args: Any, **keywords: Any) -> tuple[Tensor, ...]:
        return function(*args, **keywords).outputs

    signature = without(function, "check_inputs")
    return stated(outputs, name, f"Gives the outputs of `{name}_with_info`, which says what is called and what is refused.", signature)


call = _outputs_of(call_with_info, "call")
repeat = _outputs_of(repeat_with_info, "repeat")
conditional = _outputs_of(conditional_with_info, "conditional")
