"""Points weighed by processes, in any order; each is kept as soon as it is there."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from copy import copy
from threading import Thread
from time import sleep
from typing import Any, Self, TypeAlias

from populus.dialects.support.diagnostics import PopulusError
from populus.exploration.log import Log
from populus.exploration.measure import Bench
from populus.exploration.scheduler import Cluster

Point: TypeAlias = "dict[str, Any]"
"""`point`: its number; `measures`, or `why` there are none; `plans`: those found by a search; `reuse`: what it did not make again."""

GROUP = 5  # points that one process takes at once

_BENCH: list[Bench] = []  # of a worker: the one that it was forked with


def weighed(bench: Bench, number: int) -> Point:
    """Weighs a point; one that cannot be says why."""
    before = copy(bench.reuse)
    try:
        measures, plans = bench.measured(number)
        found: Point = {"point": number, "measures": measures, **({"plans": plans} if plans else {})}
    except PopulusError as error:
        found = {"point": number, "why": " ".join(str(error).split())}
    return {**found, "reuse": bench.reuse.since(before)}


def _worker(numbers: Sequence[int]) -> list[Point]:
    return [weighed(_BENCH[0], number) for number in numbers]


def _begin(parent: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes; the first one ends the others
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: int) -> None:
    """Ends a worker soon after the process that began it, if that was killed: its own ends of the pool's pipes keep them open."""
    while os.getppid() == parent:
        sleep(0.5)
    os._exit(1)


class Runner:
    """Weighs points, at most once each, in processes or by the workers of a scheduler. `known`: the points that are there already."""

    def __init__(self, bench: Bench, log: Log | None, processes: int | None, said: Callable[[Point], None], scheduler: str | None = None):
        """Begins. Raises PopulusError for a scheduler that cannot be reached."""
        self.bench, self.log, self.said = bench, log, said
        self.known: dict[int, Point] = {} if log is None else dict(log.found)
        forks = "fork" in multiprocessing.get_all_start_methods()
        cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1  # macOS has no affinity
        self.processes = max(1, cpus if processes is None else processes) if forks else 1
        self._pool: ProcessPoolExecutor | None = None
        self._cluster = None if scheduler is None else Cluster(scheduler, bench, weighed)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)
            _BENCH.clear()
        if self._cluster is not None:
            self._cluster.close()

    def points(self, numbers: Sequence[int]) -> list[Point]:
        """Gives these points, in this order."""
        missing = sorted({n for n in numbers if n not in self.known}, key=self._place)
        for point in self._weigh(missing):
            self.known[point["point"]] = point
            if self.log is not None:
                self.log.add(point)
            self.said(point)
        return [self.known[n] for n in numbers]

    def _place(self, number: int) -> tuple[object, ...]:
        """Sorts points so that those follow each other that share plans: memory changes first, and a larger one comes first."""
        space = self.bench.space
        indices = dict(zip((a.name for a in space.axes), space.indices(number)))
        memory = space.settings(number).get("tile_bytes", 0)
        return *(i for name, i in indices.items() if name != "tile_bytes"), -int(memory)

    def _weigh(self, numbers: Sequence[int]) -> Iterator[Point]:
        if self._cluster is not None:
            yield from self._cluster.points(self._groups(numbers))
            return
        if self.processes == 1:
            for number in numbers:
                yield weighed(self.bench, number)
            return
        if self._pool is None and numbers:
            yield weighed(self.bench, numbers[0])  # with the levels above, which the processes that are forked now have too
            numbers = numbers[1:]
            _BENCH[:] = [self.bench]
            context = multiprocessing.get_context("fork")
            self._pool = ProcessPoolExecutor(self.processes, mp_context=context, initializer=_begin, initargs=(os.getpid(),))
        yield from self._parallel(numbers)

    def _parallel(self, numbers: Sequence[int]) -> Iterator[Point]:
        """Yields points as they are finished. Few groups wait in the pool, so that an interruption waits for few."""
        waiting: set[Future[list[Point]]] = set()
        groups = iter(self._groups(numbers))
        try:
            while True:
                while len(waiting) < self.processes + 1 and (group := next(groups, None)) is not None:
                    assert self._pool is not None, "the pool is there before points wait for it"
                    waiting.add(self._pool.submit(_worker, group))
                if not waiting:
                    return
                done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
                for future in done:
                    yield from future.result()
        except BrokenProcessPool as error:
            raise PopulusError("a process was ended from outside, or for lack of memory; a log has what is done") from error

    def _groups(self, numbers: Sequence[int]) -> list[list[int]]:
        """Groups points that differ in the memory of a tile alone: one process takes a group, and keeps the plans."""
        found: dict[tuple[object, ...], list[list[int]]] = {}
        for number in numbers:
            groups = found.setdefault(self._place(number)[:-1], [[]])
            if len(groups[-1]) == GROUP:
                groups.append([])
            groups[-1].append(number)
        return [group for groups in found.values() for group in groups]
