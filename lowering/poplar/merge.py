"""Merging (`poplar-merge`): steps without dependences between tiles become one step."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, field

from xdsl.context import Context
from xdsl.dialects.builtin import LocationAttr, ModuleOp, StringAttr
from xdsl.ir import Block, Operation, SSAValue
from xdsl.passes import ModulePass
from xdsl.rewriter import InsertPoint, Rewriter

from populus.dialects.poplar import CallOp, ConstOp, ExecuteOp, FuncOp, GraphOp, StorageOp, TensorType, ViewOp
from populus.dialects.poplar.compute import Meetings
from populus.dialects.poplar.memory import storage_of, view_of
from populus.dialects.poplar.overlap import disjoint
from populus.dialects.poplar.target import Target
from populus.dialects.support.diagnostics import fused
from populus.dialects.support.walk import ops_of
from populus.runtime.memory import layout, temporary_bytes

SHARE = 0.1  # share of a tile for the data that a merged step receives from other tiles
SMALL = 1 / 640  # share of a tile: a step that receives no more joins a step that receives any amount
HELD = 0.5  # share of a tile for the constants that a merged step reads: those of steps apart may wait outside, one after the other
REACH = 16  # steps to look back: a merged result is live from the earlier step on


@dataclass(frozen=True)
class PoplarMergePass(ModulePass):
    """Moves the families of an execute into an earlier one if no result changes.

    `epilogues`: into the producer's execute, if each vertex reads only data of its own tile, such as an
    element-wise step after a product or a sum. `independent`: into the earliest of the preceding steps without a
    dependence. The data that both receive from other tiles must be less than a tenth of a tile, unless that of one is
    negligible, such as a bias.

    The pass runs after `poplar-map`, since it needs every layout. Bit for bit.
    """

    name = "poplar-merge"
    epilogues: bool = True
    independent: bool = True

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for graph in op.body.block.ops:
            if isinstance(graph, GraphOp):
                blocks = [block for inner in ops_of(graph) if not isinstance(inner, ExecuteOp) for r in inner.regions for block in r.blocks]
                held = _held(graph)
                for block in blocks:
                    _Merging(self, graph.machine, held).block(block)


@dataclass
class MergeCandidate:
    """A step of a block: the variables that it reads or writes, and the bytes that its fullest tile receives.

    `families`: of an execute, with those that joined it; `places`: the locations of the steps that it has become.
    `constants`: bytes of a tile that it reads.
    """

    op: Operation
    touched: list[tuple[StorageOp, SSAValue, bool]]
    bytes: int = 0
    families: Meetings = field(default_factory=Meetings)
    places: list[LocationAttr] = field(default_factory=list[LocationAttr])
    constants: int = 0

    def conflicts(self, other: MergeCandidate) -> bool:
        """Tells whether both access common elements and one of them writes these."""
        mine = {s for s, _, _ in self.touched}
        return any(
            t is s and (w or v) and not disjoint(view_of(a), view_of(b))
            for s, b, w in other.touched
            if s in mine
            for t, a, v in self.touched
        )


@dataclass
class _Merging:
    """Steps of one block, in order, after the merges so far."""

    options: PoplarMergePass
    target: Target
    held: float
    steps: list[MergeCandidate] = field(default_factory=list[MergeCandidate])
    position: dict[Operation, int] = field(default_factory=dict[Operation, int])

    def block(self, block: Block) -> None:
        """Merges the steps of a block."""
        self.position = {op: i for i, op in enumerate(block.ops)}
        for op in list(block.ops):
            if isinstance(op, StorageOp | ViewOp | FuncOp):
                continue
            step = MergeCandidate(op, _touched(op), places=[op.location])
            if isinstance(op, ExecuteOp):
                if self.joined(op, step):
                    continue
                step.families = Meetings(op.families())
            self.steps.append(step)
        for step in self.steps:
            if len(step.places) > 1:
                step.op.location = fused(*step.places)  # once, not for each step that joined it

    def joined(self, op: ExecuteOp, step: MergeCandidate) -> bool:
        """Moves an execute into an earlier one. Returns False if there is none."""
        step.bytes, step.constants = int(temporary_bytes(op, self.target.tiles).max(initial=0)), _constants(op)
        destination: MergeCandidate | None = None
        for earlier in itertools.islice(reversed(self.steps), REACH):
            if not isinstance(earlier.op, ExecuteOp):
                if not earlier.touched or step.conflicts(earlier):
                    break
                continue
            met = [m for family in op.families() for found in earlier.families.of(family).values() for m in found]
            if met:
                if self.options.epilogues and all(m.on_one_tile for m in met) and self.fits(earlier, step):
                    destination = earlier
                break
            if self.options.independent and self.fits(earlier, step):
                destination = earlier
        if destination is None:
            return False
        self.join(op, destination)
        destination.touched += step.touched
        destination.bytes += step.bytes
        destination.constants += step.constants
        return True

    def fits(self, earlier: MergeCandidate, step: MergeCandidate) -> bool:
        """Tells whether both steps' received data, and their constants, fit a tile's shares."""
        if min(earlier.constants, step.constants) and earlier.constants + step.constants > self.held:
            return False
        least, sum = min(earlier.bytes, step.bytes), earlier.bytes + step.bytes
        return least <= SMALL * self.target.tile_bytes or sum <= SHARE * self.target.tile_bytes

    def join(self, op: ExecuteOp, step: MergeCandidate) -> None:
        """Moves the families of `op` to the end of an earlier execute, and the variables and views they need before
        it.
        """
        into = step.op
        assert isinstance(into, ExecuteOp), into
        for family in op.families():
            for value in family.views:
                self.hoist(value, into)
            family.detach()
            into.body.block.add_op(family)
            step.families.add(family)
        into.label = StringAttr(_label(into.label.data, op.label.data))
        step.places.append(op.location)
        Rewriter.erase_op(op)

    def hoist(self, value: SSAValue, before: Operation) -> None:
        """Moves a view or variable, and the values that it reads, before an op."""
        owner = value.owner
        if isinstance(owner, Operation) and self.position.get(owner, -1) > self.position[before]:
            for operand in owner.operands:
                self.hoist(operand, before)
            owner.detach()
            Rewriter.insert_op(owner, InsertPoint.before(before))
            self.position[owner] = self.position[before]


def _held(graph: GraphOp) -> float:
    """Computes the most bytes of a tile of the constants that a merged step reads.

    If the constants exceed a mesh's cores, it is the most that any step reads before the merges: larger loads leave less memory for
    what stays, and for the next load under a step.
    """
    target = graph.machine
    if target.mesh is None or not target.mesh.dram_size:
        return HELD * target.tile_bytes
    read = [_constants(op) for op in ops_of(graph) if isinstance(op, ExecuteOp)]
    all_constants = sum(op.type.bytes for op in ops_of(graph) if isinstance(op, ConstOp))
    most = HELD / target.mesh.buffers * target.tile_bytes  # each is loaded under another's reader
    return most if all_constants <= HELD * target.tiles * target.room else min(most, max(read, default=0))


def _label(first: str, second: str) -> str:
    """Formats the label of a merged step: `a + b`, then `a + 2 more`."""
    head, plus, rest = first.partition(" + ")
    if not plus:
        return f"{first} + {second}"
    count = rest.removesuffix(" more")
    return f"{head} + {int(count) + 1 if count.isdigit() else 2} more"


def _constants(op: ExecuteOp) -> int:
    """Counts the bytes on a tile of the constants that a step reads."""
    read = dict.fromkeys(storage_of(value) for family in op.families() for value in family.views)
    total = 0
    for storage in read:
        if isinstance(storage, ConstOp):
            grid = layout(storage)
            total += math.ceil(-(-math.prod(storage.type.shape) * grid.copies // max(grid.cells, 1)) * storage.type.element_bytes)
    return total


def _touched(op: Operation) -> list[tuple[StorageOp, SSAValue, bool]]:
    """Lists each view of a variable that an op accesses, and whether it writes it. Unknown accesses count as writes."""
    if isinstance(op, ExecuteOp):
        return [(storage_of(v), v, f.kind != "in") for family in op.families() for f, v in family.connections()]
    if op.regions:
        return []  # a loop or a branch: no step moves past it
    if isinstance(op, CallOp) and (captured := op.target().captured()):
        return [(storage_of(v), v, True) for v in (*op.arguments, *captured)]
    return [(storage_of(v), v, True) for v in op.operands if isinstance(v.type, TensorType)]
