"""Rewrites as patterns: what a pattern says, and one walk that applies many of them to a block until none fits.

    class DoubleNegation(Pattern[popart.NegOp]):
        \"\"\"`-(-x)` is `x`.\"\"\"

        ROOTS = (popart.NegOp,)

        def rewrite(self, op: popart.NegOp, r: Rewriting) -> Sequence[SSAValue] | None:
            inner = made_by(op.x, popart.NegOp, op)
            return None if inner is None else [inner.x]

The class's name is the pattern's, its docstring says when it is legal. A file given with `--load` may hold some.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar
from weakref import finalize

from xdsl.builder import Builder
from xdsl.context import Context
from xdsl.dialects.builtin import LocationAttr
from xdsl.ir import Block, Operation, SSAValue
from xdsl.rewriter import InsertPoint
from xdsl.traits import Pure
from xdsl.utils.exceptions import VerifyException

from populus.dialects.data import ConstantOp, StoredAttr, constant
from populus.dialects.support.diagnostics import PopulusError, between, fused, locate, where

if TYPE_CHECKING:
    from numpy.typing import NDArray

MOST_REWRITES = 200  # for each op of a block: more means that two patterns undo each other

O = TypeVar("O", bound=Operation)
Root = TypeVar("Root", bound=Operation)


class Pattern(ABC, Generic[Root]):
    """A rewrite of an op, its root, with what feeds it.

    `ROOTS`: the classes of ops that it looks at, subclasses included. `EXACT`: results stay bit for bit what they were; without it,
    to rounding. `LATE`: it is applied when no other fits any more, since it hides from them what they look for.
    """

    ROOTS: ClassVar[tuple[type[Operation], ...]]
    EXACT: ClassVar[bool] = True
    LATE: ClassVar[bool] = False

    @abstractmethod
    def rewrite(self, op: Root, r: Rewriting) -> Sequence[SSAValue] | None:
        """The values that replace the results of `op`, from ops inserted at `r.b`; None, with nothing inserted, where it does not fit.

        None of them (an empty list) where `r.also` has said what is replaced.
        """


class Rewriting:
    """Where a pattern inserts, and what it replaces beside its root."""

    def __init__(self, root: Operation):
        self.b = Builder(InsertPoint.before(root))
        self.replaced: list[tuple[Operation, Sequence[SSAValue]]] = []
        self.sources: dict[Operation, LocationAttr] = {}  # where the numbers of a new constant come from

    def also(self, op: Operation, values: Sequence[SSAValue]) -> None:
        """Replaces a further op, which stands behind the root, or the root itself."""
        self.replaced.append((op, values))

    def insert(self, op: Operation) -> SSAValue:
        """`op`, inserted; its one result."""
        return self.b.insert(op).results[0]

    def constant(self, array: NDArray[Any], like: SSAValue | None = None) -> SSAValue:
        """A constant, with the name of the value `like` that its numbers are made of; that one's place comes first of its places."""
        op = constant(array)
        if like is not None:
            op.result.name_hint = like.name_hint
            if isinstance(like.owner, Operation):
                self.sources[op] = like.owner.location
        return self.insert(op)

    def locate(self, new: Sequence[Operation], op: Operation, gone: Mapping[Operation, LocationAttr]) -> None:
        """Gives each new op the places of what the rewrite of `op` has erased, and last that of the op whose result it stands for.

        A place names one value, and what is new computes another than what it is made of: so what a pattern has set is not kept.
        """
        stands_for = {v.owner: old for old, values in self.replaced for v in values}
        for made in new:
            last = stands_for.get(made, op)
            source = [self.sources[made]] if made in self.sources else []
            inner = [] if last is not op else [place for old, place in gone.items() if not isinstance(old, ConstantOp)]
            made.location = fused(*source, *inner, gone.get(last, last.location))
            locate([made], made.location)


# -- what patterns ask -----------------------------------------------------------------------------------------------


def made_by(value: SSAValue, kind: type[O], beside: Operation) -> O | None:
    """The op of this class that makes a value, in the block where `beside` stands."""
    owner = value.owner
    return owner if isinstance(owner, kind) and owner.parent is beside.parent else None


def array_of(value: SSAValue) -> NDArray[Any] | None:
    """The elements of a constant; None for anything else, and for a constant whose content is not loaded."""
    owner = value.owner
    if not isinstance(owner, ConstantOp) or (isinstance(owner.value, StoredAttr) and owner.value.data.bytes is None):
        return None
    return owner.array()


def read_once(value: SSAValue) -> bool:
    """Whether a value has a single use, so that what makes it goes when that use does."""
    return value.has_one_use()


def scalar(value: SSAValue) -> float | None:
    """The one number that all elements of a constant are; None for anything else."""
    array = array_of(value)
    if array is None or array.size == 0 or array.dtype.kind == "b" or (array.size > 1 and any(array.strides)):
        return None
    return float(array.reshape(-1)[0])


# -- the walk --------------------------------------------------------------------------------------------------------


def rewrite(block: Block, patterns: Sequence[Pattern[Any]]) -> Counter[str]:
    """Applies patterns to the ops of a block, in order and again to what they touch, until none fits; how often each did.

    Of several that fit an op, the first in the list is applied. Ops that nothing reads any more are erased. What is new has the
    places of all that it stands for.
    Raises PopulusError, naming pattern and op, where the replacement has another type.
    """
    applied = BlockRewriter(block, [p for p in patterns if not p.LATE]).run()
    return applied + BlockRewriter(block, patterns).run() if any(p.LATE for p in patterns) else applied


class BlockRewriter:
    def __init__(self, block: Block, patterns: Sequence[Pattern[Any]]):
        self.block = block
        self.patterns = patterns
        self.by_class: dict[type[Operation], list[Pattern[Any]]] = {}
        self.waiting: deque[Operation] = deque()
        self.queued: set[Operation] = set()
        self.applied: Counter[str] = Counter()

    def run(self) -> Counter[str]:
        self.queue(self.block.ops)
        most = MOST_REWRITES * len(self.waiting)
        while self.waiting:
            op = self.waiting.popleft()
            self.queued.discard(op)
            if op.parent is self.block:
                for pattern in self.fitting(type(op)):
                    if self.try_on(op, pattern):
                        self.applied[type(pattern).__name__] += 1
                        break
            assert self.applied.total() <= most, self.applied
        return self.applied

    def fitting(self, kind: type[Operation]) -> list[Pattern[Any]]:
        if kind not in self.by_class:
            self.by_class[kind] = [p for p in self.patterns if issubclass(kind, p.ROOTS)]
        return self.by_class[kind]

    def queue(self, ops: Iterable[Operation]) -> None:
        for op in ops:
            if op not in self.queued and op.parent is self.block:
                self.queued.add(op)
                self.waiting.append(op)

    def try_on(self, op: Operation, pattern: Pattern[Any]) -> bool:
        before = op.prev_op
        r = Rewriting(op)
        try:
            values = pattern.rewrite(op, r)
        except VerifyException as error:
            reason = " ".join(str(error).split())
            raise PopulusError(f"{where(op)}: {op.name}: the pattern {type(pattern).__name__} does not fit: {reason}") from error
        new = between(self.block, before, op)
        if values is None:
            assert not new, (type(pattern).__name__, op)
            return False
        gone = [g for old, replacing in ((op, values), *r.replaced) if replacing for g in self.replace(old, replacing, pattern)]
        r.locate(new, op, {g: g.location for g in gone})
        for made in reversed(new):  # a pattern may build on what another part of it has made
            erase_unread(made)
        self.queue(new)
        return True

    def replace(self, op: Operation, values: Sequence[SSAValue], pattern: Pattern[Any]) -> list[Operation]:
        """Puts values in place of an op's results, and erases it with what it alone read; the erased ops, definitions first."""
        if [v.type for v in values] != [r.type for r in op.results]:
            found, expected = (", ".join(str(v.type) for v in vs) for vs in (values, op.results))
            raise PopulusError(f"{where(op)}: {op.name}: the pattern {type(pattern).__name__} gives {found} for {expected}")
        for old, value in zip(op.results, values):
            readers = [use.operation for use in old.uses]
            if value.name_hint is None:
                value.name_hint = old.name_hint
            old.replace_all_uses_with(value)
            self.queue(readers)
        gone, operands = erase_unread(op)
        self.queue(o.owner for o in operands if isinstance(o.owner, Operation))
        self.queue(use.operation for o in operands for use in o.uses)
        return gone


def erase_unread(op: Operation) -> tuple[list[Operation], list[SSAValue]]:
    """Erases an op and what only it read, and so on: the erased ops, definitions first, and the values that they read.

    Only ops without effects go.
    """
    gone: list[Operation] = []
    read: list[SSAValue] = []
    waiting = [op]
    while waiting:
        dead = waiting.pop()
        if dead.parent is None or any(r.uses for r in dead.results) or not dead.has_trait(Pure):
            continue
        gone.append(dead)
        read.extend(dead.operands)
        waiting.extend(o.owner for o in dead.operands if isinstance(o.owner, Operation))
        dead.detach()
        dead.erase()
    return gone[::-1], read


def prune(block: Block) -> None:
    """Erases what nothing reads. PopART's `Prune`."""
    for op in reversed(list(block.ops)):
        if op.results and op.has_trait(Pure) and not any(r.uses for r in op.results):
            op.detach()
            op.erase()


# -- patterns of loaded files ----------------------------------------------------------------------------------------

_LOADED: dict[int, dict[str, type[Pattern[Any]]]] = {}


def register(ctx: Context, patterns: Iterable[type[Pattern[Any]]]) -> None:
    """Makes a context know patterns by the names of their classes. Raises PopulusError for a name that is taken by another class."""
    for pattern in patterns:
        if id(ctx) not in _LOADED:
            _LOADED[id(ctx)] = {}
            finalize(ctx, _LOADED.pop, id(ctx), None)
        if _LOADED[id(ctx)].setdefault(pattern.__name__, pattern) is not pattern:
            raise PopulusError(f"two patterns are called {pattern.__name__}; give one of them another name")


def loaded(ctx: Context) -> dict[str, type[Pattern[Any]]]:
    """The patterns that a context was made to know."""
    return _LOADED.get(id(ctx), {})
