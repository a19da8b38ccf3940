"""In-place marks (`popart-inplace`): the operand that an element-wise op may overwrite with its result."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from xdsl.context import Context
from xdsl.dialects.builtin import DenseArrayBase, IntegerAttr, ModuleOp, i64
from xdsl.ir import Block, Operation, SSAValue
from xdsl.passes import ModulePass

from populus.dialects.base.tensor_op import HIGH_VALUE, INPLACE, TensorOp
from populus.dialects.data import ConstantOp
from populus.dialects.popart.base import PopartOp
from populus.dialects.support import user_op_errors
from populus.dialects.support.diagnostics import PopulusError, where
from populus.dialects.support.element_types import shape_of
from populus.dialects.support.walk import ops_of

if TYPE_CHECKING:
    from collections.abc import Iterable

PRODUCED = 10.0  # Source: PopART's UpdateInplacePrioritiesForIpu


@dataclass(frozen=True)
class PopartInplacePass(ModulePass):
    """Marks ops with the number of the operand that their result may overwrite: attribute `inplace`.

    For an op of several results it is a list with a number for each, -1 for none, if another than the first overwrites one.

    An op's `inplace_priority` lists the operands that it can overwrite. Candidates of higher priority come first,
    and of equal ones the later op. An operand produced by a product, a convolution or a norm, seen through views,
    gains 10: the result then takes the layout that its producer chose.

    An operand may be overwritten only if its memory is not read later, through any view or result that shares it.
    It is not returned, and it is no argument, constant, or value from outside its region. No operand of the same
    op shares its memory, and it has no element that several positions share.

    A mark is a property: values and results stay the same. The lowering to tiles overwrites the marked operand if
    its variable allows it; `TileBuilder.overwritable` decides. Without a mark, it may overwrite any operand that
    allows it. `never`: names of ops that must not overwrite; they are marked -1. Source: PopART's inplacing
    patterns. Bit for bit.
    """

    name = "popart-inplace"

    never: tuple[str, ...] = ()

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for inner in ops_of(op):
            for block in (block for region in inner.regions for block in region.blocks if inner is not op):
                mark(block, frozenset(self.never))


def mark(block: Block, never: frozenset[str] = frozenset()) -> None:
    """Marks the ops of a block. `never`: names of ops, with or without dialect, that get the mark -1."""
    memory = _Memory(block)
    candidates: list[tuple[float, int, int, int, PopartOp]] = []
    for place, op in enumerate(block.ops):
        if not isinstance(op, PopartOp) or not (stated := check_priorities(op)):
            continue
        op.attributes.pop(INPLACE, None)
        if op.name in never or op.name.partition(".")[2] in never:
            op.attributes[INPLACE] = IntegerAttr(-1, i64)
            continue
        for operand, priority, result in stated:
            produced = PRODUCED if _produced(op.operands[operand]) else 0.0
            if priority > 0:
                candidates.append((-priority - produced, -place, operand, result, op))
    for _, _, operand, result, op in sorted(candidates, key=lambda entry: entry[:4]):
        marks = overwritten(op)
        if marks[result] is None and operand not in marks and memory.overwritable(op, operand, result):
            marks[result] = operand
            numbers = [-1 if m is None else m for m in marks]
            several = any(n >= 0 for n in numbers[1:])
            op.attributes[INPLACE] = DenseArrayBase.from_list(i64, numbers) if several else IntegerAttr(operand, i64)
            memory.share(op.operands[operand], op.results[result])


def check_priorities(op: PopartOp) -> list[tuple[int, float, int]]:
    """Returns an op's in-place priorities as (operand, priority, result).

    Raises PopulusError if a user's `inplace_priority` fails, gives something else, or names what the op does not have.
    """

    def title() -> str:
        return f"{where(op)}: {op.name}"

    found: list[tuple[int, float, int]] = []
    with user_op_errors.asked(op, "inplace_priority", title):
        for operand, priority, *rest in op.inplace_priority():
            found.append((operand, priority, rest[0] if rest else 0))
    for operand, _, result in found:
        if operand not in range(len(op.operands)) or result not in range(len(op.results)):
            has = f"the op has {len(op.operands)} operands and {len(op.results)} results"
            said = f"its `inplace_priority` names operand {operand} and result {result}; {has}"
            raise PopulusError(f"{title()}: {said}{user_op_errors.at(op, 'inplace_priority')}")
    return found


def overwritten(op: Operation) -> list[int | None]:
    """Returns the number of the operand that each result of an op is marked to overwrite; None for a result that overwrites none."""
    found = op.attributes.get(INPLACE)
    numbers = found.get_values() if isinstance(found, DenseArrayBase) else [found.value.data] if isinstance(found, IntegerAttr) else []
    return [int(numbers[i]) if i < len(numbers) and numbers[i] >= 0 else None for i in range(len(op.results))]


def _produced(value: SSAValue) -> bool:
    """Tells whether an expensive op produces a value, looking through views."""
    owner = value.owner
    while isinstance(owner, TensorOp) and owner.is_view:
        owner = owner.operands[0].owner
    return isinstance(owner, TensorOp) and owner.OUTLINE_VALUE >= HIGH_VALUE


@dataclass
class _Shared:
    """Values that share memory, each with the places in the block where it is made and last read.

    `foreign`: one of them is an argument, a constant or a value of another block. `made`: where the last of them is made.
    `last`: where one is read last, and where that one is made.
    """

    values: list[tuple[SSAValue, int, int]]
    foreign: bool
    made: int
    last: tuple[int, int]

    def take(self, other: _Shared) -> None:
        """Takes the values of another set in."""
        self.values += other.values
        self.foreign |= other.foreign
        self.made = max(self.made, other.made)
        self.last = max(self.last, other.last)

    def read_later(self, here: int) -> bool:
        """Tells whether a value that is made before a place is read after it; two cases need no look at each value."""
        read, made = self.last
        if self.made < here or made < here < read:
            return here < read
        return any(made < here < read for _, made, read in self.values)


class _Memory:
    """Sets of values of a block that share memory: through views at first, then also through marks."""

    def __init__(self, block: Block):
        self.block = block
        self.place = {op: i for i, op in enumerate(block.ops)}
        self.sets: dict[SSAValue, _Shared] = {}
        for op in block.ops:
            if isinstance(op, TensorOp) and op.is_view:
                for operand, result in op.aliases():
                    self.share(op.operands[operand], op.results[result])

    def of(self, value: SSAValue) -> _Shared:
        """Returns the values that share memory with a value, including itself."""
        if value not in self.sets:
            owner = value.owner
            made = self.place.get(owner, -1) if isinstance(owner, Operation) else -1
            read = max(map(self._within, _users(value)), default=-1) if made >= 0 else -1
            self.sets[value] = _Shared([(value, made, read)], made < 0 or isinstance(owner, ConstantOp), made, (read, made))
        return self.sets[value]

    def share(self, a: SSAValue, b: SSAValue) -> None:
        """Joins the sets of two values: the smaller one moves, so n values move n log n times at most."""
        kept, moved = sorted((self.of(a), self.of(b)), key=lambda s: -len(s.values))
        if kept is not moved:
            kept.take(moved)
            for value, _, _ in moved.values:
                self.sets[value] = kept

    def overwritable(self, op: Operation, operand: int, result: int) -> bool:
        """Tells whether an op may write a result over an operand."""
        value, shared = op.operands[operand], self.of(op.operands[operand])
        if shared.foreign or value.type != op.results[result].type or _repeats(value):
            return False
        if any(self.of(o) is shared for i, o in enumerate(op.operands) if o is not value and i != operand):
            return False
        return not shared.read_later(self.place[op])

    def _within(self, user: Operation) -> int:
        """Returns the position in this block of the op that is, or contains, a user."""
        while user.parent is not self.block:
            parent = user.parent_op()
            assert parent is not None, user
            user = parent
        return self.place[user]


def _users(value: SSAValue) -> Iterable[Operation]:
    return (use.operation for use in value.uses)


def _repeats(value: SSAValue) -> bool:
    """Tells whether a view between a value and its memory repeats an element."""
    owner = value.owner
    while isinstance(owner, TensorOp) and owner.is_view:
        source = owner.operands[0]
        if _count(value) > _count(source):
            return True
        value, owner = source, source.owner
    return False


def _count(value: SSAValue) -> int:
    count = 1
    for n in shape_of(value.type):
        count *= n
    return count
