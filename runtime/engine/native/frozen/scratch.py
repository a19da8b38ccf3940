"""Scratch memory of a frozen program: gaps of its arena, which hold no variable while a step runs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from xdsl.ir import Operation

from populus.runtime.built.form import ALIGNMENT
from populus.runtime.codelets.task import Workspace

Place = tuple[int, int]  # the first byte, and that after the last


class Gaps(Workspace):
    """Scratch memory in the gaps of an arena, and after its end.

    `places`: of the arena's variables, each with the spans of steps in which it is live. Offsets are those of the arena.
    """

    def __init__(self, steps: Sequence[Operation], places: Iterable[tuple[Place, Sequence[tuple[int, int]]]]):
        super().__init__()
        rows = [(*place, *span) for place, spans in places for span in spans]
        self._begins, self._ends, self._first, self._last = np.array(rows, np.int64).reshape(-1, 4).T
        self._numbers: Mapping[Operation, list[int]] = defaultdict(list)
        for number, op in enumerate(steps):  # those of a function run in each of its calls
            self._numbers[op].append(number)
        self._live = self._every = self._merged(np.ones(len(rows), bool))
        self._own: list[Place] = []

    def enter(self, op: Operation) -> None:
        """Begins the binding of a step, or of all steps inside it: what is reserved from here on is for these."""
        numbers = [n for inner in op.walk() for n in self._numbers.get(inner, ())]
        live = np.zeros(len(self._first), bool)
        for number in numbers:
            live |= (self._first <= number) & (number <= self._last)
        self._live = self._merged(live) if numbers else self._every

    def leave(self) -> None:
        """Ends the binding of a step: what else is reserved may be used at any time."""
        self._live = self._every

    def _merged(self, chosen: NDArray[np.bool_]) -> list[Place]:
        return sorted(zip(self._begins[chosen].tolist(), self._ends[chosen].tolist()))

    def reserve(self, begin: int, bytes: int) -> NDArray[np.uint8]:
        """Reserves memory in the first gap that is large enough. A task's first memory is from 0 on."""
        if begin == 0:
            self._own.clear()
        at = 0
        for first, end in sorted([*self._live, *self._own]):
            if at + bytes <= first:
                break
            at = max(at, -(-end // ALIGNMENT) * ALIGNMENT)
        self._own.append((at, at + bytes))
        return super().reserve(at, bytes)
