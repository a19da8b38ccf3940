"""Graphs of an Ir: their tensors, inputs and outputs, and how one runs inside another."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Self, TypeVar

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import CallOp
from xdsl.ir import Block, BlockArgument, Operation, Region, SSAValue

from populus.dialects.base.control_flow import INDEX
from populus.dialects.base.tensor_op import Plain
from populus.dialects.popart import IfOp, LoopOp, YieldOp
from populus.dialects.popart.base import PopartOp
from populus.dialects.signature import return_of
from populus.dialects.support.diagnostics import PopulusError
from populus.popxl.context import scoped
from populus.popxl.dealing import Dealing
from populus.popxl.dtypes import dtype
from populus.popxl.errors import WrongState, WrongValue
from populus.popxl.inline import check_calls, inlined
from populus.popxl.internals.replay import refresh
from populus.popxl.internals.views import GraphView
from populus.popxl.listed import Kind
from populus.popxl.rows import row_mark, with_rows
from populus.popxl.streaming import Streaming
from populus.popxl.tensor import Constant, State, Tensor, Variable, View
from populus.popxl.utils import held
from populus.write.builder import call_site, innermost

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from populus.popxl.internals.op import Op
    from populus.popxl.ir import Ir

RemoteKind = TypeVar("RemoteKind", bound=Variable)


class Graph(Streaming):
    """A graph; ops called in a `with` of it are inserted into it.

    Once it is called by another graph, what a call gives and changes is fixed: a further state, a change of a state or an input, and
    another output raise PopulusError. A further input is one of the calls too, which `connect` gives a tensor of the caller.
    """

    def __init__(self, name: str, ir: Ir):
        super().__init__(name)
        self.ir = ir
        self.slots: list[Tensor] = []  # one for each argument of the block
        self.by_ref: set[Tensor] = set()
        self.printed_gradients: dict[Tensor, Callable[[Tensor], None]] = {}  # what is done with the gradients of tensors
        self._states: dict[State, Tensor] = {}
        self._results: list[Tensor] = []
        self._slot_values: dict[Tensor, SSAValue] = {}  # what each slot is at first
        self._finals: list[SSAValue] = []  # what they are
        self._changed: list[Tensor] | None = None  # slots whose last values a call gives too
        self._is_called = False  # by an op of another graph
        self.version = 0  # one more each time that calls before are not what they would be now
        self.fresh = 0  # the number of `ir.late` that its ops are made for
        self.held = False  # by a gradient graph, which calls it as it was
        self._repeated: list[Graph] = []  # graphs that give and change nothing when they are repeated here
        self.differentiated_with_callers = True

    def __enter__(self) -> Self:
        outer = innermost()
        if isinstance(outer, Graph) and outer.ir is not self.ir:
            raise WrongState(f"graph '{self.name}' is of another Ir than graph '{outer.name}', inside which it is opened")
        return super().__enter__()

    @property
    def id(self) -> str:
        return self.name

    @property
    def main_graph(self) -> Graph:
        return self.ir.main_graph

    @property
    def _ir(self) -> Ir:
        return self.ir

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        """The inputs in the order in which a call takes them."""
        return tuple(t for t in self.slots if t.state is None)

    @property
    def inputs_by_name(self) -> dict[str, Tensor]:
        return {t.name: t for t in self.inputs}

    @property
    def outputs(self) -> tuple[Tensor, ...]:
        return tuple(self._results)

    @property
    def states(self) -> tuple[State, ...]:
        """The states that the graph reads or changes."""
        return tuple(self._states)

    @property
    def names_of_states(self) -> dict[State, str]:
        """The inputs of the main graph that hold its states, by name."""
        by_value: dict[SSAValue, str] = dict(zip(self._block.args, self._inputs, strict=True))
        return {state: by_value[self._slot_values[t]] for state, t in self._states.items()}

    @property
    def called_graphs(self) -> tuple[Graph, ...]:
        """The graphs that this one calls itself."""
        return tuple(dict.fromkeys([*(g for g in self._called if isinstance(g, Graph)), *self._repeated]))

    @property
    def _pb_graph(self) -> GraphView:
        return GraphView(self)

    @classmethod
    def _from_pb(cls, view: GraphView) -> Graph:
        return view.as_graph()

    @property
    def _by_ref_inputs(self) -> set[Tensor]:
        return set(self.by_ref)

    def __contains__(self, value: object) -> bool:
        return isinstance(value, Tensor) and value.graph is self

    def __repr__(self) -> str:
        return f"Graph[id={self.name}]"

    # -- tensors

    def op(self, op: type[PopartOp] | str, *operands: SSAValue | None, name: str = "", **properties: Plain | None) -> tuple[SSAValue, ...]:
        """Inserts an op as a builder does."""
        return super().op(op, *operands, name=name, **properties)

    def tensor(self, value: SSAValue, name: str = "t") -> Tensor:
        """Gives a value of the graph as a tensor of it."""
        return self._kept(Tensor(value, self, self._names.free(scoped(name))))

    def _create_tensor_id(self, name: str) -> str:
        """Gives a name that no tensor of the graph has."""
        return self._names.free(scoped(name))

    def view(self, view: View, name: str = "t") -> Tensor:
        """Gives a view of tensors of the graph."""
        return self._kept(Tensor(None, self, self._names.free(scoped(name)), view))

    def constant_tensor(self, data: NDArray[Any], name: str) -> Constant:
        """Gives an array as a tensor of the graph."""
        made = Constant(self.constant(held(data)), self, self._names.free(scoped(name)), data)
        return self._kept(made)

    def variable(self, data: NDArray[Any], name: str, dealing: Dealing | None = None) -> Variable:
        """Gives a variable of the graph, which is the main one."""
        return self._variable(Variable, held(data), name, dealing)

    def shard(self, data: NDArray[Any], name: str, dealing: Dealing) -> Tensor:
        """Gives each replica's shard of a variable, which is none by itself."""
        return self._variable(Tensor, held(data), name, dealing)

    def _variable(self, kind: type[Kind], data: NDArray[Any], name: str, dealing: Dealing | None) -> Kind:
        name = self._names.free(scoped(name))
        shape = data.shape if dealing is None else dealing.shape_on_replica
        state = State(name, shape, data.dtype, data, dealing)
        made = kind(self._argument(name, shape, data.dtype), self, name, state=state)
        self._states[state] = self._tensors[name] = made
        self._add_slot(made)
        return made

    def remote(self, kind: type[RemoteKind], name: str, state: State) -> RemoteKind:
        """Gives a variable that is part of a state, and no value of the graph."""
        name = self._names.free(scoped(name))
        made = kind(None, self, name, state=state)
        self._tensors[name] = made
        return made

    def input_tensor(self, shape: tuple[int, ...], dtype: dtype, name: str, by_ref: bool, taken: bool = False) -> Tensor:
        """Gives a further input. `taken`: the name is one that `_create_tensor_id` gave."""
        name = name if taken else self._names.free(scoped(name))
        made = self._kept(Tensor(self._argument(name, shape, dtype.held), self, name))
        self._add_slot(made)
        if by_ref:
            self.by_ref.add(made)
        return made

    def state(self, state: State) -> Tensor:
        """Gives a state as a tensor of this graph, which calls pass in and out."""
        if state not in self._states:
            self.check_open()
            name = self._names.free(state.name)
            made = Tensor(self._argument(name, state.shape_in_graphs, state.dtype), self, name, state=state)
            self._states[state] = made
            self._add_slot(made)
        return self._states[state]

    def output_tensor(self, t: Tensor) -> None:
        """Gives a further output: the tensor as it is now. Raises PopulusError for a graph that is called already."""
        if self._is_called:
            self.check_open()
        self.output(f"output_{len(self._results)}", t.ssa)
        self._results.append(t)

    def drop_output(self, index: int) -> None:
        """Takes an output away, the last one for a position past the end: programs remove several by the positions that they had.

        Raises PopulusError for a graph that is called already.
        """
        if self._is_called:
            self.check_open()
        index = min(index, len(self._results) - 1)
        self._results.pop(index)
        kept = [v for k, v in enumerate(self._outputs.values()) if k != index]
        self._outputs.clear()
        for number, value in enumerate(kept):
            self.output(f"output_{number}", value)

    def drop(self, tensors: Iterable[Tensor]) -> None:
        """Takes inputs away that nothing reads. The others stay as they are."""
        for t in tensors:
            value = self._slot_values[t]
            assert isinstance(value, BlockArgument), t
            if value.uses or value in self._outputs.values():
                continue
            del self._inputs[value.index]
            self.slots.remove(t)
            del self._slot_values[t], self._tensors[t.name]
            self._block.erase_arg(value)

    def _argument(self, name: str, shape: Sequence[int], dtype: Any) -> SSAValue:
        free = name if self is not self.ir.main_graph else self.ir.names_of_inputs.free(name)
        return self.input(free, shape, dtype)

    def _add_slot(self, tensor: Tensor) -> None:
        self.slots.append(tensor)
        self._slot_values[tensor] = tensor.ssa

    def check_open(self, changing: Tensor | None = None) -> None:
        """Makes calls before be made anew, or only if a slot is to change. Raises PopulusError for a graph that a gradient graph calls."""
        if self._changed is None or (changing is not None and changing not in self._slot_values):
            return
        if self.held:
            raise PopulusError(f"graph '{self.name}' is called already by the gradient of its caller; finish it before that is made")
        if self._is_called:
            for number in range(len(self._finals)):
                del self._outputs[f"changed_{number}"]
        self._changed, self._finals, self._is_called = None, [], False
        self.version += 1
        self.ir.late += 1

    def takes_by_reference(self, slot: Tensor) -> None:
        """Makes calls change what they are given for an input."""
        self.by_ref.add(slot)
        self.check_open()

    def erase(self, op: Op) -> None:
        """Takes an op out before the graph is read, or gets another op."""
        op.erased = True
        self.ir.late += 1

    def replace_output(self, index: int, by: int) -> None:
        """Makes an output, the one at `by`, the one at `index`."""
        self.check_open()
        values = list(self._outputs.values())
        self._results[index], values[index] = self._results[by], values[by]
        del self._results[by], values[by]
        self._outputs.clear()
        self._outputs.update((f"output_{number}", value) for number, value in enumerate(values))

    # -- calls

    def changed(self) -> list[Tensor]:
        """Gives the slots that the graph changes, whose last values a call gives after the outputs; from now on these stay the same."""
        if self._changed is None:
            self._changed = [t for t, argument in zip(self.slots, self._slot_arguments()) if t.ssa is not argument]
            self._finals = [t.ssa for t in self._changed]
        return self._changed

    def _call(self, graph: Graph, given: Sequence[SSAValue]) -> CallOp:
        """Gives a call of a graph, whose results are its outputs and what its changed slots become."""
        for number, value in enumerate(() if graph._is_called else graph._finals):
            graph.output(f"changed_{number}", value)
        made = CallOp(graph.name, list(given), [v.type for v in graph._outputs.values()])
        made.location = call_site()
        graph._is_called = True
        return made

    def connect(self, slot: Tensor, site: CallOp, value: SSAValue) -> None:
        """Gives the next further input of a graph that is called already a value of the caller.

        Raises PopulusError for another input than the next, and for a value that the caller makes after the call.
        """
        number, own, at = len(site.operands), self.slots.index(slot), f"the call of graph '{self.name}'"
        if own != number:
            raise PopulusError(f"{slot.id} is input {own}, and {at} has {number}; connect inputs in their order")
        outer: Operation = site
        while isinstance(value.owner, Operation) and outer.parent_block() is not value.owner.parent_block():
            above = outer.parent_op()
            assert above is not None, slot
            outer = above
        if isinstance(value.owner, Operation) and not value.owner.is_before_in_block(outer):
            raise PopulusError(f"what {slot.id} is to be is made after {at}; pass it in where the graph is called")
        site.operands = [*site.operands, value]

    def run(self, graph: Graph, inputs: Sequence[Tensor], times: int | None = None) -> tuple[list[SSAValue], dict[Tensor, SSAValue]]:
        """Gives the outputs of a graph on these inputs, and by input of the graph what it became; states are changed.

        `times`: so often in a row; outputs are the first inputs of the next time, and what is passed by reference goes on too.
        Raises PopulusError for inputs of other types, and for a graph that calls this one.
        """
        changed = graph.changed()
        self._check_call(graph, inputs)
        given = self._given(graph, inputs)
        outputs = len(graph.outputs)
        if times is None:
            values = self.insert(self._call(graph, list(given.values())), graph)
            became = dict(zip(changed, values[outputs:]))
        elif times == 0 or not (graph._outputs or changed):
            self._repeated.append(graph)
            return [inputs[k].ssa for k in range(outputs)], {}
        else:
            values, became = self._loop(graph, given, times, changed)
        self._settle(graph, became, times or 1)
        return list(values[:outputs]), became

    def _check_call(self, graph: Graph, inputs: Sequence[Tensor]) -> None:
        if graph is self or self in graph.functions():
            raise PopulusError(f"graph '{graph.name}' calls itself")
        wanted, found = [t.ssa.type for t in graph.inputs], [t.ssa.type for t in inputs]
        if wanted != found:
            expected, given = (", ".join(map(str, types)) or "nothing" for types in (wanted, found))
            raise PopulusError(f"graph '{graph.name}' takes {expected}; it got {given}")
        for i, t in enumerate(inputs):
            self._own(i, t.ssa, f"call of graph '{graph.name}'")

    def _given(self, graph: Graph, inputs: Sequence[Tensor]) -> dict[Tensor, SSAValue]:
        rest = iter(inputs)
        return {t: (next(rest) if t.state is None else self.state(t.state)).ssa for t in graph.slots}

    def insert(self, op: Operation, *graphs: Graph) -> tuple[SSAValue, ...]:
        """Adds an op, which calls these graphs, at the user's line; gives its results."""
        op.location = call_site()
        self._block.add_op(op)
        self._called |= dict.fromkeys(graphs)
        return tuple(op.results)

    def _loop(
        self, graph: Graph, given: dict[Tensor, SSAValue], times: int, changed: list[Tensor]
    ) -> tuple[tuple[SSAValue, ...], dict[Tensor, SSAValue]]:
        """Gives a loop that carries outputs on as the first inputs, and changes of states and of what is passed by reference."""
        outputs = len(graph.outputs)
        first = list(graph.inputs[:outputs])
        if [v.type for v in list(graph._outputs.values())[:outputs]] != [t.ssa.type for t in first]:
            raise PopulusError(f"graph '{graph.name}' cannot be repeated: its outputs do not have the types of its first inputs")
        kept = [t for t in changed if t not in first and (t.state is not None or t in graph.by_ref)]
        carried = [*first, *kept]
        block = Block(arg_types=[INDEX, *(given[t].type for t in carried)])
        within = {**given, **dict(zip(carried, block.args[1:]))}
        inner = self._call(graph, list(within.values()))
        after = dict(zip(changed, inner.results[outputs:]))
        block.add_ops([inner, YieldOp(*inner.results[:outputs], *(after[t] for t in kept))])
        values = self.insert(LoopOp([given[t] for t in carried], Region(block), trips=times), graph)
        return values, dict(zip(kept, values[outputs:]))

    def choose(self, condition: Tensor, graphs: tuple[Graph, Graph], inputs: tuple[Sequence[Tensor], Sequence[Tensor]]) -> list[SSAValue]:
        """Gives the outputs of one of two graphs; states and tensors given by reference become what that one makes of them.

        Raises PopulusError where outputs are not of the same types, and for branches that load or store streams.
        """
        for graph, tensors in zip(graphs, inputs):
            graph.changed()
            self._check_call(graph, tensors)
            if streams := graph.streams:
                name = streams[0].name
                raise PopulusError(f"graph '{graph.name}' is a branch, which cannot load or store; move '{name}' out of it")
        outputs = [[t.ssa.type for t in g.outputs] for g in graphs]
        if outputs[0] != outputs[1]:
            raise WrongValue(f"branches '{graphs[0].name}' and '{graphs[1].name}' give outputs of other types")
        places = [{t: self._place(t, g, ts) for t in g.slots} for g, ts in zip(graphs, inputs)]
        written = list(dict.fromkeys(places[k][t] for k in (0, 1) for t in graphs[k].changed() if t.state or t in graphs[k].by_ref))
        regions: list[Region] = []
        for graph, place in zip(graphs, places):
            block = Block()
            inner = self._call(graph, [place[t].ssa for t in graph.slots])
            after = {place[t]: v for t, v in zip(graph.changed(), inner.results[len(graph.outputs) :])}
            block.add_ops([inner, YieldOp(*inner.results[: len(graph.outputs)], *(after.get(t, t.ssa) for t in written))])
            regions.append(Region(block))
        values = self.insert(IfOp(condition.ssa, *regions), *graphs)
        for tensor, value in zip(written, values[len(outputs[0]) :]):
            tensor.assign(value)
        for graph in graphs:
            for stream, count in graph.transfers.items():
                self.transferred(stream, count)
        return list(values[: len(outputs[0])])

    def _place(self, slot: Tensor, graph: Graph, inputs: Sequence[Tensor]) -> Tensor:
        """Gives what a slot of a graph is given here."""
        return inputs[graph.inputs.index(slot)] if slot.state is None else self.state(slot.state)

    def _settle(self, graph: Graph, became: dict[Tensor, SSAValue], times: int) -> None:
        for slot, value in became.items():
            if slot.state is not None:
                self.state(slot.state).assign(value)
        for stream, count in graph.transfers.items():
            self.transferred(stream, count * times)

    def module(self) -> ModuleOp:
        """Gives the module of the graph and what it calls, with what changed states become among its outputs.

        Raises PopulusError if nothing is stored and there is no variable, and for a call that lacks an input.
        """
        refresh(self)
        check_calls([g for g in (self, *self.functions()) if isinstance(g, Graph)])
        before = dict(self._outputs)
        try:
            for state, value in self.finals().items():
                self._outputs[f"after {state.name}"] = value
            if not self._outputs and self.slots:  # a program for the sake of its variables, which it leaves as they are
                self._outputs[f"after {self.slots[0].name}"] = self.slots[0].ssa
            module = super().module()
        finally:
            self._outputs = before
        tables = {row_mark(n): max(1, rows) for n, rows in enumerate(self.ir.rows())}
        return with_rows(inlined(module), {**tables, **{b.state.mark: b.entries for b in self.ir.buffers if b.state.mark is not None}})

    def standalone(self) -> tuple[ModuleOp, dict[SSAValue, SSAValue]]:
        """Gives the graph and what it calls as a program by itself, and its values by the graph's.

        Its slots are the inputs, and its outputs alone come out.
        """
        refresh(self)
        function = self._function("main")
        pairs = zip(self._block.ops, function.body.block.ops)
        copies: dict[SSAValue, SSAValue] = {mine: theirs for op, copy in pairs for mine, theirs in zip(op.results, copy.results)}
        end = return_of(function)
        for _ in range(len(self._outputs) - len(self._results)):
            end.operands = end.operands[:-1]
        return ModuleOp([function, *(g._function(g.name, "private") for g in self.functions())]), copies

    def finals(self) -> dict[State, SSAValue]:
        """Gives what the states that the graph changes become."""
        refresh(self)
        pairs = zip(self.slots, self._slot_arguments(), strict=True)
        return {t.state: t.ssa for t, argument in pairs if t.state is not None and t.ssa is not argument}

    def _slot_arguments(self) -> list[SSAValue]:
        """Gives the block's arguments without those of streams, which have no slots."""
        return [self._slot_values[t] for t in self.slots]
