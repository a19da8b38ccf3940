"""When the memory of each variable holds something that is still needed: from which step of the program to which."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

from xdsl.ir import Block, Operation, SSAValue

from populus.dialects.poplar import (
    CallOp,
    ConstOp,
    CopyOp,
    ExecuteOp,
    FamilyOp,
    Field,
    GraphOp,
    HostCallOp,
    IfOp,
    RepeatOp,
    SequenceOp,
    StorageOp,
    StreamInOp,
    StreamOutOp,
    SwitchOp,
    WhileOp,
)
from populus.dialects.poplar.memory import storage_of, view_of
from populus.dialects.poplar.overlap import disjoint
from populus.dialects.poplar.view import View


@dataclass
class Liveness:
    """The steps of a program in order, calls expanded and loops once; and for each variable the first and last step it needs.

    A variable is held through a loop that reads it before it writes it, or that may leave it as it was for a reader behind
    the loop. What the program reads before writing, and constants, are held from the first step to the last. A variable
    that no step touches has no entry.
    """

    steps: list[Operation] = field(default_factory=list[Operation])
    span: dict[StorageOp, tuple[int, int]] = field(default_factory=dict[StorageOp, tuple[int, int]])


def liveness(graph: GraphOp) -> Liveness:
    """Raises VerifyException for a call of a function that the graph does not have."""
    walk = _Walk()
    whole = walk.block(graph.body.block)
    for first, last, flow in walk.loops:  # inner ones stand before outer ones
        for variable in flow.touched:
            begin, end = walk.span[variable]
            if variable in flow.needs or (end > last and variable not in flow.written):
                walk.span[variable] = min(begin, first), max(end, last)
    held = 0, max(len(walk.steps) - 1, 0)
    for variable in walk.span:
        if variable in whole.needs or isinstance(variable, ConstOp):
            walk.span[variable] = held
    return Liveness(walk.steps, walk.span)


@dataclass
class _Flow:
    """What a part of the program does to variables: reads before it has written them; writes entirely, whichever way it goes."""

    needs: set[StorageOp] = field(default_factory=set[StorageOp])
    written: set[StorageOp] = field(default_factory=set[StorageOp])
    pieces: dict[StorageOp, list[View]] = field(default_factory=dict[StorageOp, list[View]])
    touched: dict[StorageOp, None] = field(default_factory=dict[StorageOp, None])

    def read(self, variable: StorageOp) -> None:
        self.touched[variable] = None
        if variable not in self.written:
            self.needs.add(variable)

    def write(self, variable: StorageOp, view: View, whole: bool) -> None:
        """`whole`: every element of the view is written. Pieces that share nothing add up to the variable."""
        self.touched[variable] = None
        if not whole or variable in self.written:
            return
        pieces = self.pieces.setdefault(variable, [])
        if all(disjoint(view, piece) for piece in pieces):
            pieces.append(view)
        if sum(math.prod(piece.shape) for piece in pieces) == math.prod(view.base):
            self.written.add(variable)

    def then(self, other: _Flow, surely: bool = True) -> None:
        """What follows; `surely`: it runs at least once."""
        self.needs |= other.needs - self.written
        self.touched |= other.touched
        if surely:
            self.written |= other.written
            for variable, views in other.pieces.items():
                for view in views:
                    self.write(variable, view, True)


class _Walk:
    def __init__(self) -> None:
        self.steps: list[Operation] = []
        self.span: dict[StorageOp, tuple[int, int]] = {}
        self.loops: list[tuple[int, int, _Flow]] = []

    def block(self, block: Block) -> _Flow:
        flow = _Flow()
        for op in block.ops:
            self.visit(op, flow)
        return flow

    def visit(self, op: Operation, flow: _Flow) -> None:
        match op:
            case ExecuteOp():
                self.step(op, flow, [], [])
                for stage in op.stages():
                    connections = [(family, f, v) for family in stage for f, v in family.connections()]
                    reads = [v for _, f, v in connections if f.kind != "out"]
                    self.touches(flow, reads, [(v, writes_all(family, f, v)) for family, f, v in connections if f.kind == "out"])
            case CopyOp():
                self.step(op, flow, [op.src], [(op.dst, True)])
            case StreamInOp():
                self.step(op, flow, [], [(op.dst, True)])
            case StreamOutOp():
                self.step(op, flow, [op.src], [])
            case HostCallOp():
                inputs = op.inputs.value.data
                self.step(op, flow, op.views[:inputs], [(v, True) for v in op.views[inputs:]])
            case SequenceOp():
                flow.then(self.block(op.body.block))
            case CallOp():
                flow.then(self.block(op.target().body.block))
            case RepeatOp():
                flow.then(self.loop(op), surely=op.count.value.data > 0)
            case WhileOp():
                flow.then(self.loop(op))
            case IfOp():
                self.step(op, flow, [op.predicate], [])
                self.branches(flow, [op.then.block, op.otherwise.block])
            case SwitchOp():
                self.step(op, flow, [op.control], [])
                self.branches(flow, [region.block for region in op.programs])
            case _:
                pass  # variables, views and functions are no steps

    def step(self, op: Operation, flow: _Flow, reads: Iterable[SSAValue], writes: Iterable[tuple[SSAValue, bool]]) -> None:
        self.steps.append(op)
        self.touches(flow, reads, writes)

    def touches(self, flow: _Flow, reads: Iterable[SSAValue], writes: Iterable[tuple[SSAValue, bool]]) -> None:
        """What the latest step reads, then writes."""
        now = len(self.steps) - 1
        for value in reads:
            flow.read(self.touch(value, now))
        for value, whole in writes:
            flow.write(self.touch(value, now), view_of(value), whole)

    def touch(self, value: SSAValue, now: int) -> StorageOp:
        variable = storage_of(value)
        self.span[variable] = self.span.get(variable, (now, now))[0], now
        return variable

    def loop(self, op: RepeatOp | WhileOp) -> _Flow:
        """The flow of a loop. Of a while, only what runs before the predicate surely runs."""
        first = len(self.steps)
        if isinstance(op, RepeatOp):
            flow = self.block(op.body.block)
        else:
            flow = self.block(op.before.block)
            self.step(op, flow, [op.predicate], [])
            flow.then(self.block(op.body.block), surely=False)
        if len(self.steps) > first:
            self.loops.append((first, len(self.steps) - 1, flow))
        return flow

    def branches(self, flow: _Flow, blocks: Iterable[Block]) -> None:
        flows = [self.block(block) for block in blocks]
        joined = _Flow()
        for one in flows:
            joined.needs |= one.needs
            joined.touched |= one.touched
        joined.written = set[StorageOp].intersection(*(one.written for one in flows))
        flow.then(joined)


def writes_all(family: FamilyOp, field: Field, value: SSAValue) -> bool:
    """Whether a family writes every element of the view of an output. (Its accesses never meet, so sizes tell.)"""
    space = family.space
    for access, n in zip(field.access, view_of(value).shape, strict=True):
        if access.whole:
            continue
        reached = space[access.terms[0][0]].parts if access.part else math.prod(space[a].n for a, _ in access.terms)
        if reached != n:
            return False
    return True
