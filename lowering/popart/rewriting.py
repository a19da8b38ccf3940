"""Rewriting by patterns: the interface of a pattern, and the walk that applies patterns to a block until none matches.

A pattern is an xDSL `RewritePattern`. Those with roots, which the walk visits alone, are written more shortly:

    class DoubleNegation(Pattern[popart.NegOp]):
        \"\"\"`-(-x)` is `x`.\"\"\"

        ROOTS = (popart.NegOp,)

        def rewrite(self, op: popart.NegOp, r: Rewriting) -> Sequence[SSAValue] | None:
            inner = made_by(op.x, popart.NegOp, op)
            return None if inner is None else [inner.x]

A pattern is named after its class; its docstring states when it is legal. A file loaded with `--load` may define some of either kind.
The walk is not xDSL's, whose listener does not learn where one rewrite ends (README.md of this level has the figures).
"""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter, deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from contextvars import ContextVar
from logging import DEBUG
from math import prod
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeVar, cast
from weakref import finalize

from xdsl.context import Context
from xdsl.dialects.builtin import UNKNOWN_LOC, LocationAttr, TensorType, UnknownLoc
from xdsl.ir import Block, Operation, SSAValue
from xdsl.pattern_rewriter import PatternRewriter, PatternRewriterListener, RewritePattern
from xdsl.rewriter import InsertPoint
from xdsl.utils.exceptions import VerifyException

from populus.dialects.data import (
    ConstantOp,
    StoredAttr,
    computed_constant,
    constant,
    constant_value,
    is_loaded,
    joined_constant,
    later_constant,
)
from populus.dialects.support.budget import check_time
from populus.dialects.support.dead_code import is_pure
from populus.dialects.support.diagnostics import PopulusError, fused, locate, where
from populus.dialects.support.element_types import shape_of
from populus.dialects.support.user_op_errors import misfit
from populus.lowering.popart import rewrite_log
from populus.lowering.popart.rewrite_log import LOGGER

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

MOST_REWRITES = 200  # rewrites for each op of a block: more means that two patterns undo each other

O = TypeVar("O", bound=Operation)
Root = TypeVar("Root", bound=Operation)


class Pattern(RewritePattern, Generic[Root]):
    """Rewrite of a root op together with the producers of its operands.

    `ROOTS`: the op classes that it visits, including subclasses. `EXACT`: results stay bit for bit the same;
    otherwise equal up to rounding. `LATE`: it runs after all other patterns, because it hides their matches.
    """

    ROOTS: ClassVar[tuple[type[Operation], ...]]
    EXACT: ClassVar[bool] = True
    LATE: ClassVar[bool] = False

    @abstractmethod
    def rewrite(self, op: Root, r: Rewriting) -> Sequence[SSAValue] | None:
        """Returns the values that replace the results of `op`, from ops inserted by `r`.

        Returns None, with nothing inserted, if the pattern does not match. Returns [] if `r.also` recorded all
        replacements.
        """

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter, /) -> None:
        """Rewrites an op as xDSL asks for it. Replaced ops stay, unread. Raises PopulusError for values of another type."""
        if not isinstance(op, self.ROOTS):
            return
        r = Rewriting(rewriter)
        values = self.rewrite(cast("Root", op), r)
        if values is None:
            assert not rewriter.has_done_action, (type(self).__name__, op)
            return
        rewriter.has_done_action = True
        if (wrong := misfit(values, SSAValue, none=False)) is not None:
            name = type(self).__name__
            raise PopulusError(f"{where(op)}: {op.name}: the pattern {name} gives {wrong}; a list of values, or None, is expected")
        for old, replacing in ((op, values), *r.replaced):
            if not replacing:
                continue
            if [v.type for v in replacing] != [result.type for result in old.results]:
                actual, expected = (", ".join(str(v.type) for v in vs) for vs in (replacing, old.results))
                raise PopulusError(f"{where(old)}: {old.name}: the pattern {type(self).__name__} gives {actual} for {expected}")
            rewriter.handle_operation_replacement(old, replacing)
            for result, value in zip(old.results, replacing):
                if value.name_hint is None:
                    value.name_hint = result.name_hint
                rewriter.replace_all_uses_with(result, value)


class Rewriting:
    """Insertion point of a pattern, and the ops that it replaces beside its root."""

    def __init__(self, rewriter: PatternRewriter):
        self.b = rewriter
        self.replaced: list[tuple[Operation, Sequence[SSAValue]]] = []

    def also(self, op: Operation, values: Sequence[SSAValue]) -> None:
        """Replaces another op, later in the block than the root, or the root itself."""
        self.replaced.append((op, values))

    def insert(self, op: Operation) -> SSAValue:
        """Inserts `op` and returns its single result. Its location is that of what it replaces, whatever a copy has."""
        op.location = UNKNOWN_LOC
        return self.b.insert(op).results[0]

    def constant(self, array: NDArray[Any], like: SSAValue | None = None) -> SSAValue:
        """Inserts a constant named after `like`, the value that it is computed from; its location starts with that
        value's.
        """
        return self._named(constant(array), like)

    def _named(self, op: ConstantOp, like: SSAValue | None) -> SSAValue:
        op.location = UNKNOWN_LOC
        if like is not None:
            op.result.name_hint = like.name_hint
            if isinstance(like.owner, Operation):
                op.location = like.owner.location
        return self.b.insert(op).results[0]

    def computed(
        self, operands: Sequence[SSAValue], computation: Hashable, compute: Callable[[], NDArray[Any]], like: SSAValue | None = None
    ) -> SSAValue:
        """Inserts a constant that is computed from constants, as `data.computed_constant` makes it, named after `like`."""
        return self._named(computed_constant(operands, computation, compute), like)

    def later(
        self, type: TensorType[Any], make: Callable[[], NDArray[np.uint8]], some: Callable[[Sequence[int]], bytes], like: SSAValue
    ) -> SSAValue:
        """Inserts a constant that is made when it is first read, as `data.later_constant` makes it, named after `like`."""
        return self._named(later_constant(type, make, some), like)

    def joined(self, operands: Sequence[SSAValue], axis: int) -> SSAValue:
        """Inserts constants that are concatenated, as `data.joined_constant` makes them."""
        return self._named(joined_constant(operands, axis), None)


class Changes(PatternRewriterListener):
    """One rewrite as xDSL's rewriter tells of it: ops that were inserted, changed, replaced and erased."""

    def __init__(self) -> None:
        super().__init__(operation_insertion_handler=[self._insert], operation_removal_handler=[self._remove],
                         operation_modification_handler=[self._modify], operation_replacement_handler=[self._replace])  # fmt: skip
        self.forget()

    def forget(self) -> None:
        """Begins anew, for the next rewrite."""
        self.new: dict[Operation, LocationAttr] = {}  # with the places that they had when they were inserted
        self.readers: list[Operation] = []
        self.replaced: dict[Operation, Sequence[SSAValue | None]] = {}
        self.erased: dict[Operation, tuple[LocationAttr, list[SSAValue]]] = {}

    def _insert(self, op: Operation) -> None:
        self.new[op] = op.location

    def _remove(self, op: Operation) -> None:
        self.erased[op] = op.location, list(op.operands)
        self.replaced.setdefault(op, [])

    def _modify(self, op: Operation) -> None:
        self.readers.append(op)

    def _replace(self, op: Operation, values: Sequence[SSAValue | None]) -> None:
        self.replaced[op] = values

    def clean(self) -> tuple[dict[Operation, LocationAttr], list[SSAValue]]:
        """Erases what was replaced, with its private producers.

        Returns the locations of the erased ops, definitions first, and the operands of these ops.
        """
        gone: dict[Operation, LocationAttr] = {}
        read: list[SSAValue] = []
        for op in self.replaced:
            location, operands = self.erased.get(op, (op.location, []))
            starts = [o.owner for o in operands if isinstance(o.owner, Operation)] if op in self.erased else [op]
            for start in starts:
                dead, values = erase_unread(start)
                gone.update((g, g.location) for g in dead)
                read += values
            if op in self.erased:
                gone[op] = location
                read += operands
        return gone, read

    def locate(self, op: Operation, own: LocationAttr, gone: dict[Operation, LocationAttr]) -> None:
        """Sets each new op's location: the locations of the erased ops, and last that of the op that it replaces.

        A location names one value, and a new op computes another value; so locations set by a pattern stay for constants alone,
        as those of the values that they are made of. `own`: the location of the root `op`.
        """
        stands_for = {v.owner: old for old, values in self.replaced.items() for v in values if v is not None}
        inner = [place for old, place in gone.items() if not isinstance(old, ConstantOp)]
        for made, stated in self.new.items():
            last = stands_for.get(made, op)
            source = [stated] if isinstance(made, ConstantOp) and not isinstance(stated, UnknownLoc) else []
            at = own if last is op else gone.get(last, last.location)
            made.location = fused(*source, *(inner if last is op else []), at)
            locate([made], made.location)


# -- queries of patterns ----------------------------------------------------------------------------------------------


def made_by(value: SSAValue, kind: type[O], beside: Operation) -> O | None:
    """Returns the producer of a value if it has this class and is in the block of `beside`; else None."""
    owner = value.owner
    return owner if isinstance(owner, kind) and owner.parent is beside.parent else None


def array_of(value: SSAValue) -> NDArray[Any] | None:
    """Returns the elements of a constant; None for any other value, and for a constant without loaded content."""
    return constant_value(value) if is_loaded(value) else None


def read_once(value: SSAValue) -> bool:
    """Tells whether a value has a single use, so that its producer dies with that use."""
    return value.has_one_use()


def scalar(value: SSAValue) -> float | None:
    """Returns the number that all elements of a constant equal; None for any other value."""
    if isinstance(value.owner, ConstantOp) and isinstance(value.owner.value, StoredAttr) and prod(shape_of(value.type)) > 1:
        return None  # its elements differ, and are not read for it
    array = array_of(value)
    if array is None or array.size == 0 or array.dtype.kind == "b" or (array.size > 1 and any(array.strides)):
        return None
    return float(array.reshape(-1)[0])


class Judge(Protocol):
    """An observer of rewrites. An exception of it ends the walk."""

    def begin(self, block: Block) -> None:
        """Reads a block before its first rewrite."""
        ...

    def replaced(self, pattern: str, op: Operation, values: Sequence[SSAValue | None]) -> None:
        """Reads the values that a pattern is about to put for the results of an op."""
        ...

    def modified(self, pattern: str, op: Operation) -> None:
        """Reads an op whose operands or attributes a pattern has set."""
        ...


JUDGE: ContextVar[Judge | None] = ContextVar("judge of rewrites", default=None)


# -- the walk --------------------------------------------------------------------------------------------------------


def rewrite(block: Block, patterns: Sequence[RewritePattern]) -> Counter[str]:
    """Applies patterns to the ops of a block, and again to changed ops, until none matches. Counts each pattern's
    rewrites.

    The first matching pattern of the list wins. Ops that become unread are erased. A new op has the locations of
    all ops that it replaces. Raises PopulusError, naming pattern and op, if a replacement has another type.
    """
    early = [p for p in patterns if not getattr(p, "LATE", False)]
    applied = BlockRewriter(block, early).run()
    return applied if len(early) == len(patterns) else applied + BlockRewriter(block, patterns).run()


class BlockRewriter:
    """Rewriter of one block: a queue of ops to visit, and the patterns for each op class."""

    def __init__(self, block: Block, patterns: Sequence[RewritePattern]):
        self.block = block
        self.patterns = patterns
        self.by_class: dict[type[Operation], list[RewritePattern]] = {}
        self.waiting: deque[Operation] = deque()
        self.queued: set[Operation] = set()
        self.applied: Counter[str] = Counter()
        self.changes = Changes()
        self.rewriter = PatternRewriter(InsertPoint.at_start(block))  # one for all: it has eight lists
        self.rewriter.extend_from_listener(self.changes)
        self.trying = ""  # the pattern's name
        if (judge := JUDGE.get()) is not None:
            judge.begin(block)
            self.rewriter.operation_replacement_handler.append(lambda op, values: judge.replaced(self.trying, op, values))
            self.rewriter.operation_modification_handler.append(lambda op: judge.modified(self.trying, op))

    def run(self) -> Counter[str]:
        """Visits ops until the queue is empty, and counts the rewrites of each pattern."""
        self.queue(self.block.ops)
        most = MOST_REWRITES * len(self.waiting)
        while self.waiting:
            check_time()
            op = self.waiting.popleft()
            self.queued.discard(op)
            if op.parent is self.block and (fitting := self.fitting(type(op))):
                self.rewriter.insertion_point = InsertPoint.before(op)
                for pattern in fitting:
                    if self.try_on(op, pattern):
                        self.applied[type(pattern).__name__] += 1
                        break
            assert self.applied.total() <= most, self.applied
        return self.applied

    def fitting(self, kind: type[Operation]) -> list[RewritePattern]:
        """Returns the patterns whose roots include an op class, and those without roots."""
        if kind not in self.by_class:
            self.by_class[kind] = [p for p in self.patterns if not isinstance(p, Pattern) or issubclass(kind, p.ROOTS)]
        return self.by_class[kind]

    def queue(self, ops: Iterable[Operation]) -> None:
        """Queues the ops that are in this block."""
        for op in ops:
            if op not in self.queued and op.parent is self.block:
                self.queued.add(op)
                self.waiting.append(op)

    def try_on(self, op: Operation, pattern: RewritePattern) -> bool:
        """Applies a pattern to an op; returns False if it does not match. Raises PopulusError for a faulty pattern."""
        changes, own, rewriter, self.trying = self.changes, op.location, self.rewriter, type(pattern).__name__
        try:
            if LOGGER.isEnabledFor(DEBUG):
                rewrite_log.apply(pattern, op, rewriter)
            else:
                pattern.match_and_rewrite(op, rewriter)
        except VerifyException as error:
            reason = " ".join(str(error).split())
            raise PopulusError(f"{where(op)}: {op.name}: the pattern {type(pattern).__name__} does not fit: {reason}") from error
        if not rewriter.has_done_action:
            return False
        rewriter.has_done_action = False
        gone, read = changes.clean()
        changes.locate(op, own, gone)
        for made in reversed(list(changes.new)):  # a pattern may use results of its other replacements
            erase_unread(made)
        self.queue(changes.readers)
        self.queue(o.owner for o in read if isinstance(o.owner, Operation))
        self.queue(use.operation for o in read for use in o.uses)
        self.queue(changes.new)
        changes.forget()
        return True


def erase_unread(op: Operation) -> tuple[list[Operation], list[SSAValue]]:
    """Erases an unread op, and transitively its producers. Returns the erased ops, definitions first, and their
    operands.

    Only ops without effects are erased.
    """
    gone: list[Operation] = []
    read: list[SSAValue] = []
    waiting = [op]
    while waiting:
        dead = waiting.pop()
        if dead.parent is None or any(r.first_use is not None for r in dead.results) or not is_pure(dead):
            continue
        gone.append(dead)
        read.extend(dead.operands)
        waiting.extend(o.owner for o in dead.operands if isinstance(o.owner, Operation))
        dead.detach()
        dead.erase()
    return gone[::-1], read


# -- patterns of loaded files ----------------------------------------------------------------------------------------

_LOADED: dict[int, dict[str, type[RewritePattern]]] = {}


def register(ctx: Context, patterns: Iterable[type[RewritePattern]]) -> None:
    """Registers patterns in a context by class name. Raises PopulusError if another class has the name."""
    for pattern in patterns:
        if id(ctx) not in _LOADED:
            _LOADED[id(ctx)] = {}
            finalize(ctx, _LOADED.pop, id(ctx), None)
        if _LOADED[id(ctx)].setdefault(pattern.__name__, pattern) is not pattern:
            raise PopulusError(f"two patterns are called {pattern.__name__}; give one of them another name")


def loaded(ctx: Context) -> dict[str, type[RewritePattern]]:
    """Returns the patterns registered in a context."""
    return _LOADED.get(id(ctx), {})
