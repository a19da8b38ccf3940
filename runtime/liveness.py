"""When the memory of each variable holds something that is still needed: from which steps of the program to which."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from xdsl.ir import Block, Operation, SSAValue

from populus.dialects.poplar import (
    CallOp,
    ConstOp,
    CopyOp,
    ExecuteOp,
    FamilyOp,
    Field,
    FuncOp,
    GraphOp,
    HostCallOp,
    IfOp,
    ParamOp,
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

Span: TypeAlias = tuple[int, int]  # first and last step


@dataclass
class Liveness:
    """The steps of a program in order, calls expanded and loops once; and for each variable the spans of steps in which it is needed.

    A call that has arguments is a step before its function's, which brings them in, and one behind them, which brings results
    back. A function's own variable has a span for each call, unless it keeps something from one to the next.
    A variable is held through a loop that reads it before it writes it, or that may leave it as it was for a reader behind
    the loop. What the program reads before writing, and constants, are held from the first step to the last. A variable
    that no step touches has no entry.
    """

    steps: list[Operation] = field(default_factory=list[Operation])
    spans: dict[StorageOp, tuple[Span, ...]] = field(default_factory=dict[StorageOp, tuple[Span, ...]])


def liveness(graph: GraphOp, shared: bool = False) -> Liveness:
    """`shared`: functions use arguments where they are, as engines do; parameters have no entry then, and arguments are
    held while the function runs. Otherwise parameters are memory of the function's own.

    Raises VerifyException for a call of a function that the graph does not have.
    """
    walk = LivenessWalk(shared, {})
    whole = walk.block(graph.body.block)
    walk.hold(None)
    held = 0, max(len(walk.steps) - 1, 0)
    for variable in walk.spans:
        if variable in whole.needs or isinstance(variable, ConstOp):
            walk.spans[variable] = [held]
    return Liveness(walk.steps, {variable: tuple(spans) for variable, spans in walk.spans.items()})


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

    def without(self, left_out: Mapping[StorageOp, object]) -> _Flow:
        """The same of other variables."""
        return _Flow(
            {v for v in self.needs if v not in left_out},
            {v for v in self.written if v not in left_out},
            {v: pieces for v, pieces in self.pieces.items() if v not in left_out},
            {v: None for v in self.touched if v not in left_out},
        )


@dataclass
class _Function:
    """A function's steps, walked once for all calls: numbers of steps count from its first.

    `own`: what no other op than the function's touches. `flow`: of what outlives a call.
    """

    walk: LivenessWalk
    flow: _Flow
    own: dict[StorageOp, None]


class LivenessWalk:
    def __init__(self, shared: bool, functions: dict[FuncOp, _Function]):
        self.shared, self.functions = shared, functions
        self.steps: list[Operation] = []
        self.spans: dict[StorageOp, list[Span]] = {}
        self.loops: list[tuple[int, int, _Flow]] = []

    def hold(self, own: Mapping[StorageOp, object] | None) -> None:
        """Holds variables (all, or those of `own`) through the loops that need them to."""
        for first, last, flow in self.loops:  # inner ones stand before outer ones
            for variable in flow.touched:
                if own is not None and variable not in own:
                    continue
                begin, end = self.spans[variable][0][0], self.spans[variable][-1][1]
                read_behind = end > last or (own is not None and isinstance(variable, ParamOp) and variable.written)
                if variable in flow.needs or (read_behind and variable not in flow.written):
                    self.spans[variable] = [(min(begin, first), max(end, last))]

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
                self.call(op, flow)
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
            flow.read(self.touch(storage_of(value), now))
        for value, whole in writes:
            flow.write(self.touch(storage_of(value), now), view_of(value), whole)

    def touch(self, variable: StorageOp, now: int) -> StorageOp:
        spans = self.spans.get(variable, [(now, now)])
        self.spans[variable] = [(min(spans[0][0], now), max(spans[-1][1], now))]
        return variable

    def call(self, op: CallOp, flow: _Flow) -> None:
        function = self.function(op.target())
        bindings = list(op.bindings())
        before = len(self.steps)
        if bindings:
            self.step(op, flow, [v for p, v in bindings if p.read], [])
        at = len(self.steps)
        self.steps += function.walk.steps
        parameters = {parameter: None for parameter, _ in bindings}
        for variable, spans in function.walk.spans.items():
            if variable in parameters:
                continue
            moved = [(first + at, last + at) for first, last in spans]
            known = self.spans.setdefault(variable, [])
            if variable in function.own and variable not in function.flow.needs:
                known += moved
            else:
                known[:] = [(min(first for first, _ in [*known, *moved]), max(last for _, last in [*known, *moved]))]
        self.loops += [(first + at, last + at, inner.without(function.own)) for first, last, inner in function.walk.loops]
        flow.then(function.flow)
        if bindings:
            self.step(op, flow, [], [(v, True) for p, v in bindings if p.written])
        behind = len(self.steps) - 1
        for parameter, value in bindings:
            if self.shared:
                self.touch(storage_of(value), before)
                self.touch(storage_of(value), behind)
                continue
            ((first, last),) = function.walk.spans.get(parameter, [(0, 0)])
            begin, end = before if parameter.read else at + first, behind if parameter.written else at + last
            self.spans.setdefault(parameter, []).append((begin, max(begin, end)))

    def function(self, op: FuncOp) -> _Function:
        """Raises VerifyException as `CallOp.target` does."""
        if op not in self.functions:
            walk = LivenessWalk(self.shared, self.functions)
            flow = walk.block(op.body.block)
            inner = [called.target() for called in op.walk() if isinstance(called, CallOp)]
            own = {storage: None for storage in op.walk() if isinstance(storage, StorageOp)}
            own |= {storage: None for called in inner for storage in self.functions[called].own}
            walk.hold(own)
            passing = {storage: None for storage in own if isinstance(storage, ParamOp) or storage not in flow.needs}
            self.functions[op] = _Function(walk, flow.without(passing), own)
        return self.functions[op]

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
