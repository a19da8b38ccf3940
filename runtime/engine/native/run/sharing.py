"""A program's run on any number of threads, simulated: how launches are cut, how long threads wait, and at which steps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heapreplace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from populus.runtime.built.steps import Step
from populus.runtime.engine.native.codegen.jit import library
from populus.runtime.engine.native.kernels.launch import Launch
from populus.runtime.engine.native.run.step_loop import CHUNK, COUNTED

BARRIER = 300  # ns from the end of a shared launch's last chunk to the next launch
WORST = 5  # steps that are listed


@dataclass(frozen=True)
class Starved:
    """A step at which threads wait. `lost`: ns of a run that equal shares of its work would spare; `units`: what can be shared."""

    step: str
    lost: int
    units: int
    chunks: int


@dataclass(frozen=True)
class Sharing:
    """A simulated run on `threads` equal threads, from the compiler's estimates of work: nothing is measured.

    - `launches`: kernels that a run calls. `barriers`: those that threads share, each of which ends when all have finished.
    - `chunks`: mean number of chunks of a shared launch.
    - `balance`: share of the threads' time in shared launches in which they work, barriers included.
    - `alone`: share of the work that one thread does while the others wait.
    - `speedup`: times faster than one thread. `starved`: the steps that lose most, first the worst.
    """

    threads: int
    launches: int
    barriers: int
    chunks: float
    balance: float
    alone: float
    speedup: float
    starved: tuple[Starved, ...]


def simulated(steps: NDArray[np.int64], times: Sequence[int], names: Mapping[int, str], threads: int) -> Sharing:
    """Simulates a run. `steps`: the table, [steps, 8]; `times`: runs of each step; `names`: of the steps that are launches."""
    chunks_of = np.ones(len(steps), np.int64)
    Launch(library(), COUNTED, [threads, steps, chunks_of], len(steps))()
    launches = shared = chunks = total = alone = spent = within = 0
    busy = 0.0
    lost: Counter[tuple[str, int, int]] = Counter()
    for number, ((kind, _, _, units, work, *_), parts) in enumerate(zip(steps.tolist(), chunks_of.tolist())):
        if kind != Step.LAUNCH:
            continue
        runs = times[number]
        cut = parts > 1 and threads > 1
        took = _span(units, work, parts, threads) + BARRIER if cut else work
        launches, total, spent = launches + runs, total + runs * work, spent + runs * took
        if cut:
            shared, chunks, busy, within = shared + runs, chunks + runs * parts, busy + runs * work, within + runs * took
        else:
            alone += runs * work
        lost[names[number], units, parts] += runs * max(took - work // threads, 0)
    worst = [Starved(name, ns, units, parts) for (name, units, parts), ns in lost.most_common(WORST) if ns]
    return Sharing(
        threads, launches, shared, chunks / max(shared, 1), busy / max(within * threads, 1) if shared else 1.0,
        alone / max(total, 1), total / max(spent, 1), tuple(worst),
    )  # fmt: skip


def _span(units: int, work: int, parts: int, threads: int) -> int:
    """Returns the ns until all chunks are done, if each thread takes the next one when it is free."""
    ends = [units * part // parts for part in range(parts + 1)]
    if units >= 64 * CHUNK:
        ends = [e & -CHUNK for e in ends[:-1]] + [units]
    free = [0] * threads
    heapify(free)
    for begin, end in pairwise(ends):
        heapreplace(free, free[0] + work * (end - begin) // max(units, 1))
    return max(free)
