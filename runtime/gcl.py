"""Collectives of replicas: who is in a group, what each member gets, and the replicas of one process, run in turn.

Whoever runs replicas gives each a `Communicator`, whose one duty is `gather`. Everything else is arithmetic on the members' arrays in
the order of their numbers, so that replicas in one process and replicas in several get the same bits.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar, copy_context
from dataclasses import dataclass
from functools import reduce
from threading import Condition, Thread
from typing import Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from populus.dialects.poplar.outside import CollectiveOp
from populus.dialects.support.diagnostics import PopulusError, where
from populus.runtime.views import params_of

Array: TypeAlias = NDArray[Any]
Result = TypeVar("Result")


@dataclass(frozen=True)
class Group:
    """Replicas that meet: `size` of them, `stride` apart."""

    stride: int
    size: int

    def members(self, replica: int) -> range:
        """Gives the numbers of the replicas of a replica's group."""
        block = self.stride * self.size
        first = replica // block * block + replica % self.stride
        return range(first, first + block, self.stride)

    def position(self, replica: int) -> int:
        """Gives a replica's place in its group."""
        return self.members(replica).index(replica)

    def check(self, count: int) -> None:
        """Raises PopulusError unless the groups are all of `count` replicas."""
        if count % (self.stride * self.size):
            said = f"groups of {self.size} replicas with stride {self.stride} take a multiple of {self.stride * self.size} replicas"
            raise PopulusError(f"{said}; there {'is one' if count == 1 else f'are {count}'}")


class Communicator(ABC):
    """A replica's way to the others. `rank`: its number. `count`: how many there are."""

    rank: int
    count: int

    @abstractmethod
    def gather(self, group: Group, array: Array, label: str) -> Sequence[Array]:
        """Gives the arrays of the group's members in order, once all have called this. `label`: the step, the same for all.

        The arrays may be another replica's own, so nobody writes to them.
        """


class Alone(Communicator):
    """A program without other replicas."""

    rank, count = 0, 1

    def gather(self, group: Group, array: Array, label: str) -> Sequence[Array]:
        return [array]


_ALONE = Alone()
_CURRENT: ContextVar[Communicator] = ContextVar("the replica that runs", default=_ALONE)


def communicator() -> Communicator:
    """Gives the way to the others of the replica that runs."""
    return _CURRENT.get()


def _wide(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return np.dtype(np.float32) if dtype.kind not in "biu" and dtype.itemsize < 4 else dtype


def _add(a: Array, b: Array) -> Array:
    return a + b


_PAIRS: dict[str, Callable[[Array, Array], Array]] = {
    "add": _add,
    "mean": _add,
    "square_add": _add,
    "mul": lambda a, b: a * b,
    "min": np.minimum,
    "max": np.maximum,
    "and": np.logical_and,
    "or": np.logical_or,
}


def reduced(reduction: str, arrays: Sequence[Array]) -> Array:
    """Reduces arrays of one shape from the first to the last, numbers of 16 bits and fewer in float32."""
    dtype = arrays[0].dtype
    with np.errstate(all="ignore"):
        values = [a.astype(_wide(dtype)) for a in arrays]
        if reduction == "square_add":
            values = [v * v for v in values]
        found = reduce(_PAIRS[reduction], values)
        if reduction == "mean":
            found = found // len(arrays) if dtype.kind in "iu" else found / np.asarray(len(arrays), found.dtype)
        return np.asarray(found).astype(dtype)


@dataclass(frozen=True)
class Collective:
    """A collective of a program: its kind, the properties of its op, and its place for messages."""

    kind: str
    params: Mapping[str, Any]
    place: str

    @staticmethod
    def of(op: CollectiveOp) -> Collective:
        """Gives the collective of a step of a tile program."""
        return Collective(op.function.data, {} if op.params is None else params_of(op.params), where(op))

    @property
    def group(self) -> Group:
        """The replicas that meet."""
        return Group(int(self.params["stride"]), int(self.params["size"]))

    def result(self, arrays: Sequence[Array]) -> Array:
        """Gives this replica's result from its own operand, if any. Raises PopulusError for groups that replicas do not fill."""
        way, group = communicator(), self.group
        group.check(way.count)
        position = group.position(way.rank)
        if self.kind == "replica_index":
            return np.asarray(position, np.int32)
        (x,) = arrays
        if self.params.get("reduction") == "local":
            return self._part(x, position)
        given = way.gather(group, x, f"{self.place}: {self.kind} {dict(self.params)} of {x.dtype} {list(x.shape)}")
        match self.kind:
            case "all_reduce":
                return reduced(self.params["reduction"], given)
            case "all_gather":
                return np.stack(given)
            case "reduce_scatter":
                return reduced(self.params["reduction"], [self._part(a, position) for a in given])
            case "broadcast":
                return given[int(self.params["root"])].copy()
            case "all_to_all":
                return np.concatenate([self._part(a, position) for a in given])
            case "barrier":
                return x
            case _:
                raise AssertionError(self.kind)

    def _part(self, x: Array, position: int) -> Array:
        rows = x.shape[0] // self.group.size
        return x[position * rows : (position + 1) * rows].copy()


def cost(kind: str, bytes: int, size: int, link_bytes: int, link_cycles: int) -> int:
    """Predicts the cycles of a collective on a ring: `bytes` of a member's operand, over links of `link_bytes` a cycle.

    An all-reduce is a reduce-scatter and an all-gather. Source: the usual model of ring collectives.
    """
    if kind == "replica_index" or size == 1:
        return 0
    if kind == "barrier":
        return (size - 1) * link_cycles
    share = bytes if kind == "all_gather" else math.ceil(bytes / size)
    steps = (size - 1) * (2 if kind == "all_reduce" else 1)
    return steps * (link_cycles + math.ceil(share / link_bytes))


class Abandoned(Exception):
    """Another replica failed."""


class InTurn:
    """Replicas of one process. Each runs to its next collective, then the next one of those that can go on."""

    def __init__(self, count: int):
        self.count = count
        self._changed = Condition()
        self._turn = 0
        self._ready = [True] * count  # those that can go on: neither waiting for their group nor at their end
        self._waiting: dict[int, str] = {}  # the step that a replica waits at
        self._posted: dict[range, dict[int, tuple[str, Array]]] = {}
        self._given: dict[int, list[Array]] = {}
        self._errors: dict[int, BaseException] = {}

    def run(self, function: Callable[[int], Result]) -> list[Result]:
        """Gives what a function gives for each replica's number. Raises the error of the first replica that has one.

        Raises PopulusError if replicas do not meet: some wait for others that are at their end, or at another step.
        """
        results: dict[int, Result] = {}
        contexts = [copy_context() for _ in range(self.count)]

        def one(rank: int) -> None:
            try:
                self._wait(rank)
                _CURRENT.set(_Member(self, rank))
                results[rank] = function(rank)
            except BaseException as error:
                self._fail(rank, error)
            finally:
                self._leave(rank)

        threads = [Thread(target=contexts[rank].run, args=(one, rank), name=f"replica {rank}") for rank in range(self.count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for rank in sorted(self._errors):
            if not isinstance(self._errors[rank], Abandoned):
                raise self._errors[rank]
        return [results[rank] for rank in range(self.count)]

    def meet(self, rank: int, group: Group, array: Array, label: str) -> list[Array]:
        """Gives the arrays of a replica's group, after the others had their turns."""
        members = group.members(rank)
        with self._changed:
            posted = self._posted.setdefault(members, {})
            posted[rank] = label, array
            if other := next((said for said, _ in posted.values() if said != label), None):
                raise PopulusError(f"replicas of one group are at different steps: {label}; and {other}")
            if len(posted) < len(members):
                self._ready[rank], self._waiting[rank] = False, label
                self._pass_on(rank)
            else:
                arrays = [posted[m][1] for m in members]
                del self._posted[members]
                for m in members:
                    self._given[m], self._ready[m] = arrays, True
                    self._waiting.pop(m, None)
        self._wait(rank)
        return self._given.pop(rank)

    def _wait(self, rank: int) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._errors or (self._turn == rank and self._ready[rank]))
            if self._errors:
                raise Abandoned

    def _pass_on(self, rank: int) -> None:
        following = [(rank + k) % self.count for k in range(1, self.count + 1)]
        found = next((r for r in following if self._ready[r]), None)
        if found is None:
            if self._waiting and not self._errors:
                waiting, label = next(iter(self._waiting.items()))
                self._errors[waiting] = PopulusError(f"replica {waiting} waits for others that do not come: {label}")
        else:
            self._turn = found
        self._changed.notify_all()

    def _fail(self, rank: int, error: BaseException) -> None:
        with self._changed:
            self._errors.setdefault(rank, error)
            self._changed.notify_all()

    def _leave(self, rank: int) -> None:
        with self._changed:
            self._ready[rank] = False
            if self._turn == rank:
                self._pass_on(rank)


class _Member(Communicator):
    """One of the replicas of a process."""

    def __init__(self, all: InTurn, rank: int):
        self._all, self.rank, self.count = all, rank, all.count

    def gather(self, group: Group, array: Array, label: str) -> Sequence[Array]:
        return [array] if group.size == 1 else self._all.meet(self.rank, group, array, label)
