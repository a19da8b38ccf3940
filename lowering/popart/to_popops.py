"""Lowering of `popart` to library calls: `popops`, `poplin`, `popnn` and `poprand`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from xdsl.builder import Builder
from xdsl.context import Context
from xdsl.dialects.builtin import IntegerAttr, ModuleOp, i64
from xdsl.ir import Block, Operation, SSAValue
from xdsl.passes import ModulePass
from xdsl.rewriter import InsertPoint
from xdsl.utils.exceptions import VerifyException

from populus.dialects.base.tensor_op import INPLACE, TensorOp
from populus.dialects.data import ConstantOp
from populus.dialects.popart.base import PopartOp
from populus.dialects.popart.sparse import SparseType
from populus.dialects.support import user_op_errors
from populus.dialects.support.dead_code import erase_dead
from populus.dialects.support.diagnostics import PopulusError, between, locate, where
from populus.dialects.support.uses import LateUses
from populus.lowering.popart.inplace import overwritten


@dataclass(frozen=True)
class PopartToPopopsPass(ModulePass):
    """Replaces each `popart` op, and each custom op of that kind, by the ops that its `lower` inserts.

    An op may lower to other ops of this level, which are lowered in turn. Unread constants are dropped. `target`:
    the machine, for messages. Raises PopulusError for an op without a lowering, and for one whose lowering
    returns other types than its results have. To rounding.
    """

    name = "popart-to-popops"
    target: str | None = None

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for region in op.regions:
            for block in region.blocks:
                lower_block(block, self.target)


DEPTH = 100  # of lowerings in each other; an op that lowers to itself has no end


def lower_block(block: Block, target: str | None) -> None:
    """Lowers the ops of a block, as `PopartToPopopsPass` says."""
    # A plain loop: a pattern rewriter's walk costs as much as the whole lowering.
    uses = LateUses(block)
    op, within = block.first_op, list[tuple[str, Operation | None]]()  # the ops whose lowering `op` is in, and what follows each
    while op is not None:
        while within and within[-1][1] is op:
            within.pop()
        if isinstance(op, PopartOp) and _is_sparse(op):
            op = op.next_op  # its readers are lowered to what it is made of
            continue
        uses.settle(op)
        if isinstance(op, PopartOp):
            if len(within) == DEPTH:
                raise PopulusError(f"{where(op)}: {_cycle([name for name, _ in within])}; let `lower` end in library calls")
            within.append((op.name, op.next_op))
            op = _replace(op, block, target, uses)
            continue
        for region in op.regions:
            for inner in region.blocks:
                lower_block(inner, target)
        op = op.next_op
    uses.settle_all()
    erase_dead(block, lambda op: isinstance(op, ConstantOp) or _is_sparse(op))
    for op in block.ops:
        if _is_sparse(op):
            raise PopulusError(f"{where(op)}: its sparse value is read by an op that takes none, or returned; make it dense")


def _is_sparse(op: Operation) -> bool:
    return any(isinstance(r.type, SparseType) for r in op.results)


def _cycle(names: list[str]) -> str:
    """Formats a lowering without end: the shortest list of ops that repeats at its end."""
    size = next((n for n in range(1, len(names) // 2) if names[-n:] == names[-2 * n : -n]), 1)
    return f"the lowering has no end: {' -> '.join([*names[-size:], names[-size]])}"


def _replace(op: PopartOp, block: Block, target: str | None, uses: LateUses) -> Operation | None:
    """Lowers `op` and returns the next op to visit: the first one inserted, or else the next of the block."""
    if type(op).lower is PopartOp.lower:
        on = f" on target {target}" if target is not None else ""
        raise PopulusError(f"{where(op)}: no tile lowering for {op.name}{on}; give its class `lower`, or `forward` if it is element-wise")
    name = "" if target is None else target.partition(",")[0].strip()
    if name and op.TARGETS and name not in op.TARGETS:
        raise PopulusError(f"{where(op)}: {op.name} is an op of target {', '.join(op.TARGETS)}; {name} does not have it")
    before = op.prev_op
    title = partial("{}: {}".format, where(op), op.name)
    try:
        with user_op_errors.asked(op, "lower", title):
            lowered = op.lower(Builder(InsertPoint.before(op)))
    except VerifyException as error:
        said = " ".join(str(error).split())
        raise PopulusError(f"{title()}: its lowering does not fit together: {said}{user_op_errors.at(op, 'lower')}") from error
    values = user_op_errors.values(op, "lower", lowered, title)
    if [v.type for v in values] != [r.type for r in op.results]:
        names = [name for name, _ in op.get_irdl_definition().results]
        results = [f"{name}: {r.type}" for name, r in zip(names, op.results)] if len(names) == len(op.results) else op.result_types
        gives, expected = ", ".join(str(v.type) for v in values) or "nothing", ", ".join(map(str, results))
        raise PopulusError(
            f"{title()}: its lowering gives {gives}, its results are {expected}; "
            f"make `lower` and `infer` agree{user_op_errors.at(op, 'lower')}"
        )
    new = between(block, before, op)
    locate(new, op.location)
    _keep_mark(op, values)
    for old, value in zip(op.results, values):
        uses.replace(old, value)
    following = op.next_op
    uses.erase(op)
    return new[0] if new else following


def _keep_mark(op: PopartOp, values: Sequence[SSAValue]) -> None:
    """Moves the in-place marks of `op` to the library calls that produce its results."""
    mark = op.attributes.get(INPLACE)
    never = isinstance(mark, IntegerAttr) and mark.value.data < 0
    for value, number in zip(values, overwritten(op)):
        made = value.owner
        if not isinstance(made, TensorOp):
            continue
        if never:
            made.attributes[INPLACE] = IntegerAttr(-1, i64)
        elif number is not None and op.operands[number] in made.operands:
            made.attributes[INPLACE] = IntegerAttr(list(made.operands).index(op.operands[number]), i64)
