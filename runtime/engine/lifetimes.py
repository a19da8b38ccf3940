"""When each variable of a program holds something, and where variables can share memory.

The program is laid out in one line, calls unfolded. A variable lives from its first to its last use in that line; one that a
loop uses lives through the loop, unless each round overwrites it whole before anything else.
"""

from __future__ import annotations

from bisect import insort
from dataclasses import dataclass

from xdsl.ir import Block, Operation, SSAValue

from populus.dialects.poplar.compute import CopyOp, ExecuteOp
from populus.dialects.poplar.memory import StorageOp, VarOp, ViewOp, root_of, view_of
from populus.dialects.poplar.program import (
    CallOp,
    FuncOp,
    GraphOp,
    HostCallOp,
    IfOp,
    RepeatOp,
    SequenceOp,
    StreamInOp,
    StreamOutOp,
    SwitchOp,
    WhileOp,
)


@dataclass(slots=True)
class Life:
    """First and last step of a variable's life, in the program's line."""

    first: int
    last: int


def uses_of(op: Operation) -> list[tuple[SSAValue, bool, bool]]:
    """(view, is read, is written) of a step, or of the predicate of a branch or loop; not of the programs inside."""
    match op:
        case ExecuteOp():
            return [(v, f.kind != "out", f.kind != "in") for family in op.families() for f, v in family.connections()]
        case CopyOp():
            return [(op.src, True, False), (op.dst, False, True)]
        case StreamInOp():
            return [(op.dst, False, True)]
        case HostCallOp():
            count = op.inputs.value.data
            return [(v, i < count, i >= count) for i, v in enumerate(op.views)]
        case StreamOutOp():
            return [(op.src, True, False)]
        case ViewOp() | StorageOp():
            return []
        case _:
            return [(v, True, False) for v in op.operands]


@dataclass(slots=True)
class _Loop:
    """Where a loop is in the line, and for each variable that it uses whether each round first overwrites it whole."""

    first: int
    last: int
    fresh: dict[VarOp, bool]


class Lifetimes:
    """`of`: the life of each variable that is used. `at`: the places of each step in the line, `steps` their number."""

    def __init__(self, graph: GraphOp):
        self.of: dict[VarOp, Life] = {}
        self.at: dict[Operation, list[int]] = {}
        self.steps = 0
        self._open: list[_Loop] = []
        self._loops: list[_Loop] = []  # inner before outer
        self._kept: set[VarOp] = set()  # read before anything wrote them: what the run before left
        self._walk(graph.body.block, False)
        for loop in self._loops:
            for var, fresh in loop.fresh.items():
                life = self.of[var]
                if not fresh or life.first < loop.first or life.last > loop.last:
                    life.first, life.last = min(life.first, loop.first), max(life.last, loop.last)
        for var in self._kept:
            self.of[var] = Life(0, self.steps)

    def _walk(self, block: Block, maybe: bool) -> None:
        """`maybe`: the block may be skipped."""
        for op in block.ops:
            match op:
                case StorageOp() | ViewOp() | FuncOp():
                    continue
                case CallOp():
                    self._walk(op.target().body.block, maybe)
                case RepeatOp():
                    self._enter()
                    self._walk(op.body.block, maybe)
                    self._leave()
                case WhileOp():
                    self._enter()
                    self._walk(op.before.block, maybe)
                    self._step(op, maybe)
                    self._walk(op.body.block, True)
                    self._leave()
                case SequenceOp():
                    self._walk(op.body.block, maybe)
                case IfOp() | SwitchOp():
                    self._step(op, maybe)
                    for region in op.regions:
                        self._walk(region.block, True)
                case _:
                    self._step(op, maybe)

    def _enter(self) -> None:
        self._open.append(_Loop(self.steps, self.steps, {}))

    def _leave(self) -> None:
        loop = self._open.pop()
        loop.last = max(loop.first, self.steps - 1)
        self._loops.append(loop)

    def _step(self, op: Operation, maybe: bool) -> None:
        uses = [(root_of(value).owner, value, read, written) for value, read, written in uses_of(op)]
        reads = {var for var, _, read, _ in uses if read}
        for var, value, _, written in uses:
            if not isinstance(var, VarOp):
                continue
            if var not in self.of:
                self.of[var] = Life(self.steps, self.steps)
                if var in reads:
                    self._kept.add(var)
            self.of[var].last = self.steps
            whole = written and var not in reads and not maybe and view_of(value).is_whole
            for loop in self._open:
                loop.fresh.setdefault(var, whole)
        self.at.setdefault(op, []).append(self.steps)
        self.steps += 1


def place(sizes: dict[VarOp, int], lives: dict[VarOp, Life], alignment: int = 64) -> tuple[dict[VarOp, int], int]:
    """Offsets such that variables alive at one time share no byte, and the bytes that this takes.

    Largest first, each at the lowest place that is free throughout its life.
    """
    offsets: dict[VarOp, int] = {}
    placed: list[tuple[int, int, Life]] = []  # (begin, end, life), by begin
    total = 0
    for var in sorted(sizes, key=lambda v: -sizes[v]):
        life, size = lives[var], -(-sizes[var] // alignment) * alignment
        at = 0
        for begin, end, other in placed:
            if other.first <= life.last and life.first <= other.last and end > at:
                if begin >= at + size:
                    break
                at = end
        offsets[var] = at
        insort(placed, (at, at + size, life), key=lambda p: p[0])
        total = max(total, at + size)
    return offsets, total
