"""Recomputation (`popart-recompute`): where memory is short, cheap values are computed again before the backward pass reads them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import ReturnOp
from xdsl.ir import Block, BlockArgument, Operation, OpResult, SSAValue
from xdsl.passes import ModulePass
from xdsl.rewriter import InsertPoint, Rewriter

from populus.dialects import popart
from populus.dialects.base.tensor_op import TensorOp
from populus.dialects.data import ConstantOp
from populus.dialects.poplar.target import Spec
from populus.dialects.popops import MapOp
from populus.dialects.signature import main_of
from populus.dialects.support.diagnostics import PopulusError, did_you_mean, names_of
from populus.dialects.support.element_types import value_bytes

CHEAP = popart.ElementwiseOp | popart.BatchNormOp | MapOp  # a few cycles for an element; memory outside the tiles takes hundreds
CHAIN = 6  # ops that are computed again for one value
SMALL = 32  # a value this many times smaller may live longer for it
ROUNDS = 200  # values that are computed again


@dataclass(frozen=True)
class PopartRecomputePass(ModulePass):
    """Computes element-wise values and norms again before later readers, until the live values fit a share of the tiles' memory.

    A value is a candidate where it is live at the fullest op, but not read there, and its operands are live at the later reader anyhow:
    a relu of a norm, whose operand the norm's gradient reads. The largest is taken first. A residual sum follows from the
    sum before it. The values are those of this level; a program that fits stays unchanged.

    `keep`: names of nodes whose results stay, as checkpoints that others are computed from.
    `share`: of the memory of all tiles, for live values; the rest is for partial results and elements of other tiles. 0: no limit, so
    that nothing is computed again. Raises PopulusError for a negative share, and for a name that no node has.
    Source: PopART's `RecomputationType::NormOnly`, which fixes the ops instead. Bit for bit.
    """

    name = "popart-recompute"

    target: str | None = None
    tiles: int | None = None
    share: float = 0.6
    keep: tuple[str, ...] = ()

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        if self.share < 0:
            raise PopulusError(f"share = {self.share:g}; a part of memory is at least 0")
        machine = Spec.of(self.target or "host", self.tiles).target()
        room = self.share * machine.room * machine.tiles
        kept = _made_by(main_of(op).body.block, self.keep)
        if room > 0:
            shrink(main_of(op).body.block, room, kept)


def _made_by(block: Block, names: Sequence[str]) -> set[SSAValue]:
    """Collects the results of the ops of these nodes. Raises PopulusError for a name of none."""
    found: dict[str, set[SSAValue]] = {}
    for op in block.ops:
        for name in names_of(op.location):
            found.setdefault(name, set()).update(op.results)
    if strange := [name for name in names if name not in found]:
        raise PopulusError(f"no node '{strange[0]}' whose result could be kept{did_you_mean(strange[0], found)}")
    return set[SSAValue]().union(*(found[name] for name in names))


def shrink(block: Block, room: float, kept: Collection[SSAValue] = ()) -> None:
    """Recomputes values of a block, other than `kept`, until its live bytes are at most `room`, or no candidate is left."""
    copies: set[SSAValue] = set(kept)
    for _ in range(ROUNDS):
        lives = Lives(block)
        fullest = max(range(len(lives.bytes)), key=lives.bytes.__getitem__, default=0)
        if not lives.bytes or lives.bytes[fullest] <= room:
            return
        there = [v for v, (begin, end) in lives.spans.items() if begin < fullest < end and v not in copies]
        for value in sorted(there, key=value_bytes, reverse=True):
            if (reader := lives.later(value, fullest)) is not None and (chain := _chain(value, reader, lives)):
                copies |= _again(value, chain, reader, lives)
                break
        else:
            return


class Lives:
    """The values of a block by the ops between which they are live; a view is part of the value that it shows.

    `spans`: first and last op of each value, by position. `bytes`: of the values that are live at each op.
    """

    def __init__(self, block: Block):
        self.block = block
        self.ops = list(block.ops)
        self.position = {op: i for i, op in enumerate(self.ops)}
        self.roots: dict[SSAValue, SSAValue] = {}
        self.readers: dict[SSAValue, list[int]] = {}
        self.spans: dict[SSAValue, tuple[int, int]] = {}
        for argument in block.args:
            self._add(argument, argument, 0)
        for i, op in enumerate(self.ops):
            shown = op.operands[0] if isinstance(op, TensorOp) and op.is_view and op.operands else None
            for result in op.results:
                root = self.roots.get(shown) if shown is not None else None
                self._add(result, result if root is None else root, i)
        for root, readers in self.readers.items():
            begin = 0 if isinstance(root, BlockArgument) else self.position[root.owner]  # pyright: ignore[reportArgumentType], of the block
            self.spans[root] = begin, max(readers, default=begin)
        change = [0] * (len(self.ops) + 1)
        for root, (begin, end) in self.spans.items():
            if not isinstance(root.owner, ConstantOp):
                change[begin] += value_bytes(root)
                change[end + 1] -= value_bytes(root)
        self.bytes = list(accumulate(change))[:-1]

    def _add(self, value: SSAValue, root: SSAValue, at: int) -> None:
        """Records a value, and the positions of its readers as those of its root."""
        self.roots[value] = root
        self.readers.setdefault(root, []).extend(self.place(use.operation) for use in value.uses)

    def place(self, op: Operation) -> int:
        """Gives the position of an op, or of the op of the block that contains it."""
        while op not in self.position:
            parent = op.parent_op()
            assert parent is not None, op
            op = parent
        return self.position[op]

    def later(self, value: SSAValue, after: int) -> int | None:
        """Gives the first reader after an op; None if the op or the function's end reads the value."""
        places = self.readers[value]
        if after in places or any(isinstance(self.ops[p], ReturnOp) for p in places):
            return None
        return min((p for p in places if p > after and not _is_view(self.ops[p])), default=None)

    def lives_at(self, value: SSAValue, at: int) -> bool:
        """Tells whether a value is live at an op, or costs no memory."""
        root = self.roots[value]
        return isinstance(root.owner, ConstantOp) or self.spans[root][1] >= at


def _is_view(op: Operation) -> bool:
    return isinstance(op, TensorOp) and op.is_view


def _chain(value: SSAValue, reader: int, lives: Lives) -> list[Operation]:
    """Lists the ops to compute a value again, in order; empty if an operand is neither live at the reader, small, nor cheap."""
    chain: dict[Operation, None] = {}

    def needs(v: SSAValue) -> bool:
        """Adds the ops of a value. Returns False if it cannot be computed again."""
        op = v.owner
        if v is not value and (lives.lives_at(v, reader) or value_bytes(v) * SMALL <= value_bytes(value)):
            return True
        if not isinstance(v, OpResult) or not isinstance(op, TensorOp) or len(op.results) > 1 or op.regions:
            return False
        if not isinstance(op, CHEAP) and not op.is_view:
            return False
        if not all(map(needs, op.operands)):
            return False
        chain[op] = None
        return len(chain) <= CHAIN

    return list(chain) if needs(value) else []


def _again(value: SSAValue, chain: list[Operation], reader: int, lives: Lives) -> set[SSAValue]:
    """Inserts copies of the ops of a chain before a reader; it and all later readers read the copy. Returns the copies' results."""
    made: dict[SSAValue, SSAValue] = {}
    end = lives.ops[reader]
    for op in chain:
        copy = op.clone(made)
        copy.location = op.location
        Rewriter.insert_op(copy, InsertPoint.before(end))
        made.update(zip(op.results, copy.results))
    _redirect(value, made[value], InsertPoint.before(end), reader, lives)
    for op in reversed(chain):
        if not op.results[0].uses:  # nothing read it before
            Rewriter.erase_op(op)
    return set(made.values())


def _redirect(old: SSAValue, new: SSAValue, place: InsertPoint, reader: int, lives: Lives) -> None:
    """Makes the readers of a value from a position on read another, those of earlier views of it too."""
    views: list[Operation] = []
    for use in list(old.uses):
        op = use.operation
        if lives.position.get(op, -1) < 0 and op.parent is lives.block:
            continue  # a copy of this round
        if lives.place(op) >= reader:
            op.operands[use.index] = new
        elif _is_view(op):
            views.append(op)
    for view in dict.fromkeys(views):
        if _late(view.results[0], reader, lives):
            copy = view.clone({old: new})
            copy.location = view.location
            Rewriter.insert_op(copy, place)
            _redirect(view.results[0], copy.results[0], place, reader, lives)


def _late(value: SSAValue, reader: int, lives: Lives) -> bool:
    """Tells whether an op from a position on reads a value or a view of it."""
    places: Mapping[Operation, int] = {use.operation: lives.place(use.operation) for use in value.uses}
    return any(at >= reader or (_is_view(op) and _late(op.results[0], reader, lives)) for op, at in places.items())
