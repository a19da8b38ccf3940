"""The ops of a gradient, taken from the pass `popart-autodiff` into a graph."""
# A graph is made here of blocks, as a builder makes it of calls.
# pyright: reportPrivateUsage=false

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from xdsl.dialects.builtin import SymbolRefAttr
from xdsl.dialects.func import CallOp, FuncOp
from xdsl.ir import Block, Operation, SSAValue

from populus.dialects.base.control_flow import read_by
from populus.dialects.signature import return_of
from populus.dialects.support.diagnostics import PopulusError
from populus.dialects.support.element_types import element_type_of, is_float
from populus.lowering.popart.autodiff import Seed, differentiate
from populus.lowering.popart.autodiff.call_gradients import CallGradients, Stated
from populus.popxl.graph import Graph
from populus.popxl.tensor import State, Tensor
from populus.write.builder import Builder

STITCH = "recompute_all_non_inputs"


def gradients(
    made: Graph,
    graph: Graph,
    seeds: Mapping[Tensor, Tensor],
    given: Mapping[Tensor, Tensor],
    wanted: Sequence[Tensor],
    stated: Mapping[Graph, tuple[Graph, Stated]],
) -> list[SSAValue]:
    """Inserts into `made` what computes the gradients of inputs of `graph` from those of outputs.

    `given`: tensors of `made` for the inputs of `graph`. `stated`: gradient graphs of graphs that it calls.
    Raises PopulusError for a graph that loads or stores streams, for inputs that are no floats, and for an op on the way that has no
    gradient.
    """
    if streams := graph.streams:
        raise PopulusError(f"graph '{graph.name}' has no gradient, as it loads or stores '{streams[0].name}'; do that outside of it")
    for t in (*wanted, *seeds):
        if not is_float(element_type_of(t.ssa.type)):
            raise PopulusError(f"{t.id} is {t.dtype}; only floats have gradients, so leave it out of autodiff's lists")
    if printing := next((g.name for g in graph.functions() if isinstance(g, Graph) and g.printed_gradients), None):
        raise PopulusError(f"graph '{printing}' prints a gradient, and '{graph.name}' calls it; print in '{graph.name}' itself")
    _check_called(graph, stated)
    module, copies = graph.standalone()
    known = {g.name: g for g in graph.functions()}
    for back, _ in stated.values():
        back.changed()  # it is finished, as it is called
        for g in (back, *back.functions()):
            if g.name not in known:
                known[g.name] = g
                module.body.block.add_op(g._function(g.name, "private"))
    function = next(op for op in module.body.block.ops if isinstance(op, FuncOp) and op.sym_name.data == "main")
    block, end = function.body.block, return_of(function)
    arguments: dict[Tensor, SSAValue] = dict(zip(graph.slots, block.args))
    results = dict(zip(graph.outputs, end.operands))
    outer = {block.insert_arg(g.ssa.type, len(block.args)): g for g in seeds.values()}
    pairs = [Seed(t.name, results[t], g) for t, g in zip(seeds, outer)]
    printed = {copies[t.ssa]: print for t, print in graph.printed_gradients.items()}
    functions_of = CallGradients(module, STITCH, stated={g.name: how for g, (_, how) in stated.items()})
    found = differentiate(block, pairs, [*(arguments[t] for t in wanted), *printed], functions_of)
    values: dict[SSAValue, SSAValue] = {a: (given[t] if t in given else made.state(_state(t))).ssa for t, a in arguments.items()}
    values |= {a: t.ssa for a, t in outer.items()}
    functions = {op.sym_name.data: op for op in module.body.block.ops if isinstance(op, FuncOp) and op is not function}
    lifted: dict[str, Builder] = {}
    lift = partial(_lifted, functions, known, lifted, made)
    wants = [found[arguments[t]] for t in wanted]
    for op in _needed(block, [*wants, *(found[v] for v in printed)]):
        copy = op.clone(values)
        copy.location = op.location
        made._block.add_op(copy)
        made._called |= dict.fromkeys(_linked(copy, lift))
    for value, print in printed.items():
        print(made.tensor(values[found[value]], "gradient"))
    return [values[v] for v in wants]


def _check_called(graph: Graph, stated: Mapping[Graph, object]) -> None:
    """Raises PopulusError for a called graph that is not to be differentiated with its callers, and has no gradient graph."""
    for called in graph.called_graphs:
        if called in stated:
            continue
        if not called.differentiated_with_callers:
            raise PopulusError(
                f"The graph contains a call to another graph {called.name} which has been marked as unsafe to autodiff; "
                "provide its gradient graph via `called_graphs_grad_info`"
            )
        _check_called(called, stated)


def _state(slot: Tensor) -> State:
    assert slot.state is not None, slot
    return slot.state


def _needed(block: Block, values: Sequence[SSAValue]) -> list[Operation]:
    """Gives the ops of a block that values follow from, in order."""
    wanted, found = set(values), list[Operation]()
    for op in reversed(list(block.ops)):
        if any(r in wanted for r in op.results):
            found.append(op)
            wanted.update(read_by(op))
    return found[::-1]


def _linked(op: Operation, lift: partial[Builder]) -> list[Builder]:
    """Gives the graphs that an op calls, its calls renamed to them."""
    found: list[Builder] = []
    for inner in op.walk():
        if isinstance(inner, CallOp):
            found.append(lift(inner.callee.root_reference.data))
            inner.callee = SymbolRefAttr(found[-1].name)
    return found


def _lifted(functions: Mapping[str, FuncOp], known: Mapping[str, Builder], lifted: dict[str, Builder], made: Graph, name: str) -> Builder:
    """Gives the graph of a function: one that there is, or a new one, of a name that no other has."""
    if name in known:
        if isinstance(found := known[name], Graph):
            found.held = True
        return found
    if name not in lifted:
        builder = Builder(made.ir.free(name))
        function = functions[name].clone()
        end = return_of(function)
        values = list(end.operands)
        end.detach()
        end.erase()
        builder._block = function.body.detach_block(function.body.block)
        builder._inputs = [f"input_{i}" for i in range(len(builder._block.args))]
        builder._outputs = {f"output_{i}": v for i, v in enumerate(values)}
        lift = partial(_lifted, functions, known, lifted, made)
        for op in builder._block.ops:
            builder._called |= dict.fromkeys(_linked(op, lift))
        lifted[name] = builder
    return lifted[name]
