"""`InTurn`: the replicas of this process. Each runs to its next collective, then the next of those that can go on.

Arrays between replicas are mail, from one number to another; a `Wire` carries the mail of those that other processes run.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from contextvars import copy_context
from dataclasses import dataclass
from threading import Condition, Thread
from typing import TypeVar

from populus.dialects.support.diagnostics import PopulusError
from populus.runtime.gcl import Array, Communicator, Group, speaking

Result = TypeVar("Result")


class Abandoned(Exception):
    """Another replica failed."""


@dataclass(frozen=True)
class Expected:
    """An array that a replica waits for: from whom, at which step, and one of its shape and type."""

    source: int
    target: int
    label: str
    like: Array
    tag: int = 0  # of a message; 0 of a collective

    @property
    def key(self) -> tuple[int, int, int]:
        """The mail that it is."""
        return self.source, self.target, self.tag


class Wire(ABC):
    """A way to the replicas of other processes."""

    @abstractmethod
    def send(self, source: int, target: int, label: str, array: Array, tag: int) -> None:
        """Sends an array to a replica elsewhere, and does not wait until it is there."""

    @abstractmethod
    def receive(self, expected: Sequence[Expected]) -> tuple[Expected, Array]:
        """Waits for one of these arrays. Raises PopulusError for one that was sent at another step."""


class InTurn:
    """Replicas `first` .. `first + mine - 1` of `count`; by default all of them are here."""

    def __init__(self, count: int, first: int = 0, mine: int | None = None, wire: Wire | None = None):
        self.count, self.here = count, range(first, first + (count if mine is None else mine))
        self._wire = wire
        self._changed = Condition()
        self._turn = first
        self._ready = dict.fromkeys(self.here, True)  # those that can go on: neither waiting for others nor at their end
        self._waiting: dict[int, list[Expected]] = {}
        self._mail: dict[tuple[int, int, int], deque[tuple[str, Array]]] = {}
        self._errors: dict[int, BaseException] = {}

    def run(self, function: Callable[[int], Result]) -> list[Result]:
        """Gives what a function gives for each number of a replica here. Raises the error of the first replica that has one.

        Raises PopulusError if replicas do not meet: some wait for others that are at their end, or at another step.
        """
        if len(self.here) == 1:
            with speaking(_Member(self, self.here[0])):
                return [function(self.here[0])]
        results: dict[int, Result] = {}
        contexts = {rank: copy_context() for rank in self.here}

        def one(rank: int) -> None:
            try:
                self._wait(rank)
                with speaking(_Member(self, rank)):
                    results[rank] = function(rank)
            except BaseException as error:
                self._fail(rank, error)
            finally:
                self._leave(rank)

        threads = [Thread(target=contexts[rank].run, args=(one, rank), name=f"replica {rank}") for rank in self.here]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for rank in sorted(self._errors):
            if not isinstance(self._errors[rank], Abandoned):
                raise self._errors[rank]
        return [results[rank] for rank in self.here]

    def post(self, source: int, target: int, label: str, array: Array, tag: int = 0) -> None:
        """Passes an array to another replica, and does not wait."""
        if target not in self.here:
            assert self._wire is not None, target
            self._wire.send(source, target, label, array, tag)
            return
        with self._changed:
            self._mail.setdefault((source, target, tag), deque()).append((label, array))
            self._settle(target)

    def take(self, rank: int, expected: Sequence[Expected]) -> list[Array]:
        """Waits for arrays from other replicas, which have their turns meanwhile. Raises PopulusError for another step's."""
        with self._changed:
            self._waiting[rank], self._ready[rank] = list(expected), False
            self._settle(rank)
            if not self._ready[rank]:
                self._pass_on(rank)
        self._wait(rank)
        with self._changed:
            arrays: list[Array] = []
            for e in expected:
                label, array = self._mail[e.key].popleft()
                if label != e.label:
                    raise PopulusError(f"replicas of one group are at different steps: {e.label}; and {label}")
                arrays.append(array)
            return arrays

    def _missing(self, rank: int) -> list[Expected]:
        return [e for e in self._waiting[rank] if not self._mail.get(e.key)]

    def _settle(self, rank: int) -> None:
        """Lets a replica go on if all that it waits for is there."""
        if rank in self._waiting and not self._missing(rank):
            del self._waiting[rank]
            self._ready[rank] = True

    def _wait(self, rank: int) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._errors or (self._turn == rank and self._ready[rank]))
            if self._errors:
                raise self._errors.get(rank) or Abandoned

    def _pass_on(self, rank: int) -> None:
        """Gives the turn to the next replica that can go on, once there is one."""
        try:
            while (found := self._next(rank)) is None and self._waiting and not self._errors:
                missing = [e for waiting in sorted(self._waiting) for e in self._missing(waiting)]
                afar = [e for e in missing if e.source not in self.here]
                if not afar or self._wire is None:
                    e = missing[0]
                    raise PopulusError(f"replica {e.target} waits for others that do not come: {e.label}")
                came, array = self._wire.receive(afar)
                self._mail.setdefault(came.key, deque()).append((came.label, array))
                self._settle(came.target)
        except BaseException as error:
            self._errors.setdefault(rank, error)
            found = None
        if found is not None:
            self._turn = found
        self._changed.notify_all()

    def _next(self, rank: int) -> int | None:
        following = [self.here[(rank - self.here.start + k) % len(self.here)] for k in range(1, len(self.here) + 1)]
        return next((r for r in following if self._ready[r]), None)

    def _fail(self, rank: int, error: BaseException) -> None:
        with self._changed:
            self._errors.setdefault(rank, error)
            self._changed.notify_all()

    def _leave(self, rank: int) -> None:
        with self._changed:
            self._ready[rank] = False
            self._waiting.pop(rank, None)
            if self._turn == rank:
                self._pass_on(rank)


class _Member(Communicator):
    """One of the replicas of a process."""

    def __init__(self, all: InTurn, rank: int):
        self._all, self.rank, self.count = all, rank, all.count

    def exchange(self, group: Group, arrays: Sequence[Array], label: str) -> Sequence[Array]:
        members, own = group.members(self.rank), group.position(self.rank)
        others = [(member, array) for member, array in zip(members, arrays) if member != self.rank]
        for member, array in others:
            self._all.post(self.rank, member, label, array)
        taken = self._all.take(self.rank, [Expected(member, self.rank, label, arrays[own]) for member, _ in others])
        return [*taken[:own], arrays[own], *taken[own:]]

    def send(self, target: int, array: Array, label: str, tag: int) -> None:
        self._all.post(self.rank, target, label, array, tag)

    def receive(self, source: int, like: Array, label: str, tag: int) -> Array:
        return self._all.take(self.rank, [Expected(source, self.rank, label, like, tag)])[0]
