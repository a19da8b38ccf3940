"""Steps that need not wait for each other become one: what goes on with a result where it lies, and what is independent."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp, StringAttr
from xdsl.ir import Block, Operation, SSAValue
from xdsl.passes import ModulePass
from xdsl.rewriter import InsertPoint, Rewriter

from populus.dialects.poplar import CallOp, ExecuteOp, FuncOp, GraphOp, StorageOp, TensorType, ViewOp
from populus.dialects.poplar.compute import meetings
from populus.dialects.poplar.memory import storage_of, view_of
from populus.dialects.poplar.overlap import disjoint
from populus.dialects.poplar.target import Target
from populus.dialects.support.diagnostics import fused
from populus.runtime.memory import temporary_bytes

SHARE = 0.1  # of a tile, for what the families of a merged step bring from other tiles
REACH = 16  # steps that are looked back over for one to join: what it makes is held in memory from there on


@dataclass(frozen=True)
class PoplarMergePass(ModulePass):
    """Moves the families of an execute into an earlier one, where that changes no result.

    `epilogues`: into the one that makes what they work on, if each vertex goes on with what its own tile wrote (an
    element-wise step behind a product or a sum). `independent`: into the earliest of the last few that they share nothing
    with which either writes. Either way what both bring from other tiles is to take less than a tenth of a tile.

    Every variable has a layout before it: the pass follows `poplar-map`.
    """

    name = "poplar-merge"
    epilogues: bool = True
    independent: bool = True

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for graph in op.body.block.ops:
            if isinstance(graph, GraphOp):
                blocks = [block for inner in graph.walk() if not isinstance(inner, ExecuteOp) for r in inner.regions for block in r.blocks]
                for block in blocks:
                    _Merging(self, graph.machine).block(block)


@dataclass
class MergeCandidate:
    """A step of a block; what it touches, and whether it writes it; what it brings to the fullest tile from others."""

    op: Operation
    touched: list[tuple[StorageOp, SSAValue, bool]]
    bytes: int = 0

    def conflicts(self, other: MergeCandidate) -> bool:
        """Whether the two share elements that one of them writes."""
        mine = {s for s, _, _ in self.touched}
        return any(
            t is s and (w or v) and not disjoint(view_of(a), view_of(b))
            for s, b, w in other.touched
            if s in mine
            for t, a, v in self.touched
        )


@dataclass
class _Merging:
    """One block's steps, in order, as they are after what has been merged so far."""

    options: PoplarMergePass
    target: Target
    steps: list[MergeCandidate] = field(default_factory=list[MergeCandidate])
    position: dict[Operation, int] = field(default_factory=dict[Operation, int])

    def block(self, block: Block) -> None:
        self.position = {op: i for i, op in enumerate(block.ops)}
        for op in list(block.ops):
            if isinstance(op, StorageOp | ViewOp | FuncOp):
                continue
            step = MergeCandidate(op, _touched(op))
            if not isinstance(op, ExecuteOp) or not self.joined(op, step):
                self.steps.append(step)

    def joined(self, op: ExecuteOp, step: MergeCandidate) -> bool:
        """Whether the execute has gone into an earlier one."""
        step.bytes = int(temporary_bytes(op, self.target.tiles).max(initial=0))
        found: MergeCandidate | None = None
        for earlier in itertools.islice(reversed(self.steps), REACH):
            if not isinstance(earlier.op, ExecuteOp):
                if not earlier.touched or step.conflicts(earlier):
                    break
                continue
            met = [m for a in earlier.op.families() for b in op.families() for m in meetings(a, b)]
            if met:
                if self.options.epilogues and all(m.on_one_tile for m in met) and self.fits(earlier, step):
                    found = earlier
                break
            if self.options.independent and self.fits(earlier, step):
                found = earlier
        if found is None:
            return False
        self.join(op, found)
        found.touched += step.touched
        found.bytes += step.bytes
        return True

    def fits(self, earlier: MergeCandidate, step: MergeCandidate) -> bool:
        return not step.bytes or not earlier.bytes or earlier.bytes + step.bytes <= SHARE * self.target.tile_bytes

    def join(self, op: ExecuteOp, step: MergeCandidate) -> None:
        """Moves the families of `op` to the end of an earlier execute, and before it the views and variables that they need."""
        into = step.op
        assert isinstance(into, ExecuteOp), into
        for family in op.families():
            for value in family.views:
                self.hoist(value, into)
            family.detach()
            into.body.block.add_op(family)
        into.label = StringAttr(_label(into.label.data, op.label.data))
        into.location = fused(into.location, op.location)
        Rewriter.erase_op(op)

    def hoist(self, value: SSAValue, before: Operation) -> None:
        owner = value.owner
        if isinstance(owner, Operation) and self.position.get(owner, -1) > self.position[before]:
            for operand in owner.operands:
                self.hoist(operand, before)
            owner.detach()
            Rewriter.insert_op(owner, InsertPoint.before(before))
            self.position[owner] = self.position[before]


def _label(first: str, second: str) -> str:
    """`a + b`, then `a + 2 more`."""
    head, plus, rest = first.partition(" + ")
    if not plus:
        return f"{first} + {second}"
    count = rest.removesuffix(" more")
    return f"{head} + {int(count) + 1 if count.isdigit() else 2} more"


def _touched(op: Operation) -> list[tuple[StorageOp, SSAValue, bool]]:
    """The variables that an op touches: each view of them, and whether it is written (if that is not known: yes)."""
    if isinstance(op, ExecuteOp):
        return [(storage_of(v), v, f.kind != "in") for family in op.families() for f, v in family.connections()]
    if op.regions:
        return []  # a loop, a branch: nothing moves past it
    if isinstance(op, CallOp) and (captured := op.target().captured()):
        return [(storage_of(v), v, True) for v in (*op.arguments, *captured)]
    return [(storage_of(v), v, True) for v in op.operands if isinstance(v.type, TensorType)]
