"""Rewriting by patterns: the interface of a pattern, and the walk that applies patterns to a block until none matches.

    class DoubleNegation(Pattern[popart.NegOp]):
        \"\"\"`-(-x)` is `x`.\"\"\"

        ROOTS = (popart.NegOp,)

        def rewrite(self, op: popart.NegOp, r: Rewriting) -> Sequence[SSAValue] | None:
            inner = made_by(op.x, popart.NegOp, op)
            return None if inner is None else [inner.x]

A pattern is named after its class; its docstring states when it is legal. A file loaded with `--load` may define some.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar
from weakref import finalize

from xdsl.builder import Builder
from xdsl.context import Context
from xdsl.dialects.builtin import LocationAttr
from xdsl.ir import Block, Operation, SSAValue
from xdsl.rewriter import InsertPoint
from xdsl.traits import Pure
from xdsl.utils.exceptions import VerifyException

from populus.dialects.data import ConstantOp, computed_constant, constant, constant_value, is_loaded
from populus.dialects.support.budget import check_time
from populus.dialects.support.diagnostics import PopulusError, between, fused, locate, where

if TYPE_CHECKING:
    from numpy.typing import NDArray

MOST_REWRITES = 200  # rewrites for each op of a block: more means that two patterns undo each other

O = TypeVar("O", bound=Operation)
Root = TypeVar("Root", bound=Operation)


class Pattern(ABC, Generic[Root]):
    """Rewrite of a root op together with the producers of its operands.

    `ROOTS`: the op classes that it visits, including subclasses. `EXACT`: results stay bit for bit the same;
    otherwise equal up to rounding. `LATE`: it runs after all other patterns, because it hides their matches.
    """

    ROOTS: ClassVar[tuple[type[Operation], ...]]
    EXACT: ClassVar[bool] = True
    LATE: ClassVar[bool] = False

    @abstractmethod
    def rewrite(self, op: Root, r: Rewriting) -> Sequence[SSAValue] | None:
        """Returns the values that replace the results of `op`, from ops inserted at `r.b`.

        Returns None, with nothing inserted, if the pattern does not match. Returns [] if `r.also` recorded all
        replacements.
        """


class Rewriting:
    """Insertion point of a pattern, and the ops that it replaces."""

    def __init__(self, root: Operation):
        self.b = Builder(InsertPoint.before(root))
        self.replaced: list[tuple[Operation, Sequence[SSAValue]]] = []
        self.sources: dict[Operation, LocationAttr] = {}  # locations of the values from which new constants are made

    def also(self, op: Operation, values: Sequence[SSAValue]) -> None:
        """Replaces another op, later in the block than the root, or the root itself."""
        self.replaced.append((op, values))

    def insert(self, op: Operation) -> SSAValue:
        """Inserts `op` and returns its single result."""
        return self.b.insert(op).results[0]

    def constant(self, array: NDArray[Any], like: SSAValue | None = None) -> SSAValue:
        """Inserts a constant named after `like`, the value that it is computed from; its location starts with that
        value's.
        """
        return self._named(constant(array), like)

    def _named(self, op: ConstantOp, like: SSAValue | None) -> SSAValue:
        if like is not None:
            op.result.name_hint = like.name_hint
            if isinstance(like.owner, Operation):
                self.sources[op] = like.owner.location
        return self.insert(op)

    def computed(
        self, operands: Sequence[SSAValue], computation: Hashable, compute: Callable[[], NDArray[Any]], like: SSAValue | None = None
    ) -> SSAValue:
        """Inserts a constant that is computed from constants, as `data.computed_constant` makes it, named after `like`."""
        return self._named(computed_constant(operands, computation, compute), like)

    def locate(self, new: Sequence[Operation], op: Operation, gone: Mapping[Operation, LocationAttr]) -> None:
        """Sets each new op's location: the locations of the erased ops, and last that of the op that it replaces.

        A location names one value, and a new op computes another value; so locations set by a pattern are
        overwritten.
        """
        stands_for = {v.owner: old for old, values in self.replaced for v in values}
        for made in new:
            last = stands_for.get(made, op)
            source = [self.sources[made]] if made in self.sources else []
            inner = [] if last is not op else [place for old, place in gone.items() if not isinstance(old, ConstantOp)]
            made.location = fused(*source, *inner, gone.get(last, last.location))
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
    array = array_of(value)
    if array is None or array.size == 0 or array.dtype.kind == "b" or (array.size > 1 and any(array.strides)):
        return None
    return float(array.reshape(-1)[0])


# -- the walk --------------------------------------------------------------------------------------------------------


def rewrite(block: Block, patterns: Sequence[Pattern[Any]]) -> Counter[str]:
    """Applies patterns to the ops of a block, and again to changed ops, until none matches. Counts each pattern's
    rewrites.

    The first matching pattern of the list wins. Ops that become unread are erased. A new op has the locations of
    all ops that it replaces. Raises PopulusError, naming pattern and op, if a replacement has another type.
    """
    applied = BlockRewriter(block, [p for p in patterns if not p.LATE]).run()
    return applied + BlockRewriter(block, patterns).run() if any(p.LATE for p in patterns) else applied


class BlockRewriter:
    """Rewriter of one block: a queue of ops to visit, and the patterns for each op class."""

    def __init__(self, block: Block, patterns: Sequence[Pattern[Any]]):
        self.block = block
        self.patterns = patterns
        self.by_class: dict[type[Operation], list[Pattern[Any]]] = {}
        self.waiting: deque[Operation] = deque()
        self.queued: set[Operation] = set()
        self.applied: Counter[str] = Counter()

    def run(self) -> Counter[str]:
        """Visits ops until the queue is empty, and counts the rewrites of each pattern."""
        self.queue(self.block.ops)
        most = MOST_REWRITES * len(self.waiting)
        while self.waiting:
            check_time()
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
        """Returns the patterns whose roots include an op class."""
        if kind not in self.by_class:
            self.by_class[kind] = [p for p in self.patterns if issubclass(kind, p.ROOTS)]
        return self.by_class[kind]

    def queue(self, ops: Iterable[Operation]) -> None:
        """Queues the ops that are in this block."""
        for op in ops:
            if op not in self.queued and op.parent is self.block:
                self.queued.add(op)
                self.waiting.append(op)

    def try_on(self, op: Operation, pattern: Pattern[Any]) -> bool:
        """Applies a pattern to an op; returns False if it does not match. Raises PopulusError for a faulty pattern."""
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
        for made in reversed(new):  # a pattern may use results of its other replacements
            erase_unread(made)
        self.queue(new)
        return True

    def replace(self, op: Operation, values: Sequence[SSAValue], pattern: Pattern[Any]) -> list[Operation]:
        """Replaces an op's results and erases the op with its private producers. Returns the erased ops, definitions
        first.
        """
        if [v.type for v in values] != [r.type for r in op.results]:
            actual, expected = (", ".join(str(v.type) for v in vs) for vs in (values, op.results))
            raise PopulusError(f"{where(op)}: {op.name}: the pattern {type(pattern).__name__} gives {actual} for {expected}")
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
    """Erases an unread op, and transitively its producers. Returns the erased ops, definitions first, and their
    operands.

    Only ops without effects are erased.
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


# -- patterns of loaded files ----------------------------------------------------------------------------------------

_LOADED: dict[int, dict[str, type[Pattern[Any]]]] = {}


def register(ctx: Context, patterns: Iterable[type[Pattern[Any]]]) -> None:
    """Registers patterns in a context by class name. Raises PopulusError if another class has the name."""
    for pattern in patterns:
        if id(ctx) not in _LOADED:
            _LOADED[id(ctx)] = {}
            finalize(ctx, _LOADED.pop, id(ctx), None)
        if _LOADED[id(ctx)].setdefault(pattern.__name__, pattern) is not pattern:
            raise PopulusError(f"two patterns are called {pattern.__name__}; give one of them another name")


def loaded(ctx: Context) -> dict[str, type[Pattern[Any]]]:
    """Returns the patterns registered in a context."""
    return _LOADED.get(id(ctx), {})
