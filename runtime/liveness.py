"""Live ranges: the steps of the program between which each variable holds a value that is still needed."""

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
    FuncOp,
    GraphOp,
    IfOp,
    OutsideOp,
    ParamOp,
    RepeatOp,
    SequenceOp,
    StorageOp,
    StreamInOp,
    StreamOutOp,
    SwitchOp,
    TaskOp,
    WhileOp,
)
from populus.dialects.poplar.memory import storage_of, view_of
from populus.dialects.poplar.overlap import Ranges, covered, covers, disjoint
from populus.dialects.poplar.view import View

Span: TypeAlias = tuple[int, int]  # first and last step


@dataclass
class Liveness:
    """The steps of a program in order, with calls expanded and loops once, and each variable's live ranges as spans.

    - A call with arguments is a step before its function's steps, which copies arguments in, and one after them, which
      copies results back.
    - A variable of a function has a span for each call, unless it carries a value from one call to the next.
    - A variable is live throughout a loop that reads it before writing it. So is one that the loop may leave unwritten
      for a reader after the loop.
    - Constants, and variables that the program reads before writing, are live from the first step to the last.
    - A variable that no step accesses has no entry.
    """

    steps: list[Operation] = field(default_factory=list[Operation])
    spans: dict[StorageOp, tuple[Span, ...]] = field(default_factory=dict[StorageOp, tuple[Span, ...]])


def liveness(graph: GraphOp, shared: bool = False) -> Liveness:
    """Computes the live ranges of all variables of a graph.

    `shared`: functions access arguments in place, as engines do. Then parameters have no entry, and arguments are
    live while the function runs. Otherwise parameters have memory of their own. Raises VerifyException for a call of
    a function that the graph does not have.
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
    """The dataflow of a part of the program.

    `needs`: variables that it reads before it has written them. `written`: those that it writes entirely on every path.
    `pieces`: disjoint views written so far, by variable. `filled`: their elements. `touched`: all variables that it accesses.
    """

    needs: set[StorageOp] = field(default_factory=set[StorageOp])
    written: set[StorageOp] = field(default_factory=set[StorageOp])
    pieces: dict[StorageOp, Ranges[View]] = field(default_factory=dict[StorageOp, Ranges[View]])
    filled: dict[StorageOp, int] = field(default_factory=dict[StorageOp, int])
    touched: dict[StorageOp, None] = field(default_factory=dict[StorageOp, None])

    def read(self, variable: StorageOp, view: View) -> None:
        """Records a read. The part that it reads may be written while the rest of the variable is not."""
        self.touched[variable] = None
        if variable in self.written or variable in self.needs:
            return
        pieces = self.pieces.get(variable)
        if pieces is None or not covered(view, pieces.near(view)):
            self.needs.add(variable)

    def write(self, variable: StorageOp, view: View, whole: bool) -> None:
        """Records a write. `whole`: every element of the view is written. Disjoint pieces add up to the variable."""
        self.touched[variable] = None
        if not whole or variable in self.written:
            return
        pieces = self.pieces.setdefault(variable, Ranges())
        if all(disjoint(view, piece) for piece in pieces.near(view)):
            pieces.add(view, view)
            self.filled[variable] = self.filled.get(variable, 0) + math.prod(view.shape)
        if self.filled.get(variable, 0) == math.prod(view.base):
            self.written.add(variable)

    def then(self, other: _Flow, surely: bool = True) -> None:
        """Appends the flow of the part that follows. `surely`: that part runs at least once."""
        self.needs |= other.needs - self.written
        self.touched |= other.touched
        if surely:
            self.written |= other.written
            for variable, pieces in other.pieces.items():
                for view in pieces.tags:
                    self.write(variable, view, True)

    def without(self, left_out: Mapping[StorageOp, object]) -> _Flow:
        """Gives the same flow without these variables."""
        return _Flow(
            {v for v in self.needs if v not in left_out},
            {v for v in self.written if v not in left_out},
            {v: pieces for v, pieces in self.pieces.items() if v not in left_out},
            {v: n for v, n in self.filled.items() if v not in left_out},
            {v: None for v in self.touched if v not in left_out},
        )


@dataclass
class _Function:
    """The steps of a function, walked once for all calls; they are numbered from its first step.

    `own`: variables that only the function's ops access. `flow`: the dataflow of variables that outlive a call.
    """

    walk: LivenessWalk
    flow: _Flow
    own: dict[StorageOp, None]


class LivenessWalk:
    """The walk over a graph or function. `loops`: (first step, last step, flow) of each loop, inner loops first."""

    def __init__(self, shared: bool, functions: dict[FuncOp, _Function]):
        self.shared, self.functions = shared, functions
        self.steps: list[Operation] = []
        self.spans: dict[StorageOp, list[Span]] = {}
        self.loops: list[tuple[int, int, _Flow]] = []

    def hold(self, own: Mapping[StorageOp, object] | None) -> None:
        """Extends the spans of variables (all, or those of `own`) over the loops that carry their values."""
        for first, last, flow in self.loops:
            for variable in flow.touched:
                if own is not None and variable not in own:
                    continue
                begin, end = self.spans[variable][0][0], self.spans[variable][-1][1]
                read_after = end > last or (own is not None and isinstance(variable, ParamOp) and variable.written)
                if variable in flow.needs or (read_after and variable not in flow.written):
                    self.spans[variable] = [(min(begin, first), max(end, last))]

    def block(self, block: Block) -> _Flow:
        """Walks a block and returns its dataflow."""
        flow = _Flow()
        for op in block.ops:
            self.visit(op, flow)
        return flow

    def visit(self, op: Operation, flow: _Flow) -> None:
        """Adds the steps of an op, and its dataflow to `flow`."""
        match op:
            case ExecuteOp():
                self.step(op, flow, [], [])
                for stage in op.stages():
                    connections = [(family, f, v) for family in stage for f, v in family.connections()]
                    reads = [v for _, f, v in connections if f.kind != "out"]
                    writes = [(v, covers(x.space, f.access, view_of(v).shape)) for x, f, v in connections if f.kind == "out"]
                    self.touches(flow, reads, writes)
            case CopyOp():
                self.step(op, flow, [op.src], [(op.dst, True)])
                for view in op.operands:  # until the last of the steps under which it moves, each of which is one step here
                    self.touch(storage_of(view), len(self.steps) - 1 + len(op.steps_under()))
            case StreamInOp():
                self.step(op, flow, [], [(op.dst, True)])
            case StreamOutOp():
                self.step(op, flow, [op.src], [])
            case OutsideOp():
                inputs = op.inputs.value.data
                self.step(op, flow, op.views[:inputs], [(v, True) for v in op.views[inputs:]])
            case SequenceOp():
                flow.then(self.block(op.body.block))
            case TaskOp():
                self.task(op, flow)
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
                pass  # variables, views and functions are not steps

    def step(self, op: Operation, flow: _Flow, reads: Iterable[SSAValue], writes: Iterable[tuple[SSAValue, bool]]) -> None:
        """Adds a step, and records its reads and writes as `touches` does."""
        self.steps.append(op)
        self.touches(flow, reads, writes)

    def touches(self, flow: _Flow, reads: Iterable[SSAValue], writes: Iterable[tuple[SSAValue, bool]]) -> None:
        """Records the reads of the latest step, then its writes as (view, is the view written entirely)."""
        now = len(self.steps) - 1
        for value in reads:
            flow.read(self.touch(storage_of(value), now), view_of(value))
        for value, whole in writes:
            flow.write(self.touch(storage_of(value), now), view_of(value), whole)

    def touch(self, variable: StorageOp, now: int) -> StorageOp:
        """Extends the live range of a variable to a step."""
        spans = self.spans.get(variable, [(now, now)])
        self.spans[variable] = [(min(spans[0][0], now), max(spans[-1][1], now))]
        return variable

    def task(self, op: TaskOp, flow: _Flow) -> None:
        """Adds the steps of a task. Variables that it touches are live during all of them, as they may run at once."""
        first = len(self.steps)
        inner = self.block(op.body.block)
        for variable in inner.touched:
            self.touch(variable, first)
            self.touch(variable, len(self.steps) - 1)
        flow.then(inner)

    def call(self, op: CallOp, flow: _Flow) -> None:
        """Adds the steps of a call, shifted from the function's own, with copies of arguments and results around them."""
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
            known += moved
            if variable not in function.own or variable in function.flow.needs:
                known[:] = [(min(first for first, _ in known), max(last for _, last in known))]
        self.loops += [(first + at, last + at, inner.without(function.own)) for first, last, inner in function.walk.loops]
        flow.then(function.flow)
        if bindings:
            self.step(op, flow, [], [(v, True) for p, v in bindings if p.written])
        after = len(self.steps) - 1
        for parameter, value in bindings:
            if self.shared:
                self.touch(storage_of(value), before)
                self.touch(storage_of(value), after)
                continue
            ((first, last),) = function.walk.spans.get(parameter, [(0, 0)])
            begin, end = before if parameter.read else at + first, after if parameter.written else at + last
            self.spans.setdefault(parameter, []).append((begin, max(begin, end)))

    def function(self, op: FuncOp) -> _Function:
        """Walks a function once. Raises VerifyException as `CallOp.target` does."""
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
        """Gives the flow of a loop. Only the part of a while before its predicate is sure to run."""
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
        """Joins the flows of alternative blocks: it needs what any needs, and writes what all write."""
        flows = [self.block(block) for block in blocks]
        joined = _Flow()
        for one in flows:
            joined.needs |= one.needs
            joined.touched |= one.touched
        joined.written = set[StorageOp].intersection(*(one.written for one in flows))
        flow.then(joined)
