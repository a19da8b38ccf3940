"""Makes ops of a graph anew: where a graph that they call gives or changes more since, and where ops before them were taken out.

Ops are performed again in their order, and the tensors that a program holds get the values of the new ones.
"""

# The inside of graphs and tensors is changed here.
# pyright: reportPrivateUsage=false

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING

from xdsl.ir import Operation, SSAValue

from populus.dialects.support.diagnostics import PopulusError
from populus.popxl.context import io_tiles, ipu
from populus.popxl.internals.performing import performed

if TYPE_CHECKING:
    from populus.popxl.graph import Graph
    from populus.popxl.internals.op import Op


def refresh(graph: Graph) -> None:
    """Makes ops of a graph, and of those that it calls, anew from the first one on that is not what it would be now.

    Raises PopulusError for an op that is not made by one call, and for one that needs what is taken out.
    """
    while graph.fresh != graph.ir.late:
        graph.fresh = graph.ir.late
        for called in graph.called_graphs:
            refresh(called)
        first = next((k for k, op in enumerate(graph.recorded) if op.erased or _is_late(op)), None)
        if first is not None:
            _make_anew(graph, first)


def _is_late(op: Op) -> bool:
    return any(graph.version != version for graph, version in op.called.items())


def _make_anew(graph: Graph, first: int) -> None:
    gone = graph.recorded[first:]
    kept = [op for op in gone if not op.erased]
    if (fixed := next((op for op in kept if op.program is None), None)) is not None:
        late = next((g.name for op in gone for g in op.called), graph.name)
        after = f"{fixed.kind} of graph '{graph.name}' comes after the call"
        raise PopulusError(f"graph '{late}' is called already, and {after}; finish it before its first call")
    before = {t: t._value for op in kept for t in op.outputs}
    lost = _take_out(graph, gone)
    for op in kept:
        _perform(graph, op)
    moved = {value: t.ssa for t, value in before.items() if value is not None and t._value is not None}
    for number, t in enumerate(graph.outputs):
        if (value := graph._outputs[f"output_{number}"]) in lost:
            graph._outputs[f"output_{number}"] = moved.get(value) or t.ssa


def _take_out(graph: Graph, gone: Sequence[Op]) -> set[SSAValue]:
    """Removes ops, those at the end of the graph, and gives the values that are lost.

    Outputs of the ops have no value, and what they changed has the one from before.
    """
    graph.recorded[-len(gone) :] = []
    lost: set[SSAValue] = {r for op in gone for inner in op.body for r in inner.results}
    bodies = {inner for op in gone for inner in op.body}
    for inner in graph.block.ops:  # what reads views outside of any op
        if inner not in bodies and any(o in lost for part in inner.walk() for o in part.operands):
            bodies.add(inner)
            lost.update(inner.results)
    for inner in reversed(list(graph.block.ops)):
        if inner in bodies:
            _erase(inner)
    for op in reversed(gone):
        for undo in reversed(op.undo):
            undo()
        for t in op.outputs:
            if t not in op.inputs:
                t.lose_value()
    for t in graph.tensors:
        t.forget_view()
        if t._value in lost:
            raise PopulusError(f"{t.id} was changed outside of an op, so graph '{graph.name}' cannot be changed before it")
    return lost


def _erase(op: Operation) -> None:
    op.detach()
    op.erase(safe_erase=False)


def _perform(graph: Graph, op: Op) -> None:
    assert op.program is not None
    line = next((inner.location for inner in op.body), None)
    with graph, placed(op):
        new, found = performed(graph, type(op), op.program)
    graph.recorded[-1] = op
    for old, made in zip((*op.kept, *op.outputs), (*new.kept, *new.outputs)):
        old.become(made, made in new.made)
    op.outputs += new.outputs[len(op.outputs) :]
    op.body, op.undo, op.changed, op.called = new.body, new.undo, new.changed, new.called
    for t in op.outputs:
        t.producer = op if t.producer is new else t.producer
    if line is not None:
        for inner in op.body:
            inner.location = line
    if op.info is not None:
        op.info.made_anew(found, op)


def placed(op: Op) -> ExitStack:
    """Opens the contexts of the chip and the tiles that an op was made in."""
    stack = ExitStack()
    stack.enter_context(ipu(op._ipu))
    if op._tile_set == "io":
        stack.enter_context(io_tiles())
    return stack
