"""Addresses in one memory: what is live at the same time, on the same tiles, gets bytes of its own."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

CHUNK = 1024  # things: one comparison stands for all of a chunk where they are all met

_BEGIN, _END, _FIRST, _LAST, _SEVERAL, _START, _CELLS, _NUMBER, _COLUMNS = range(9)

FAR = np.iinfo(np.int64).max

Spans = Sequence[tuple[int, int]]


class Fitting:
    """Gives things addresses one after another, beside those placed before.

    `tiles`: of the machine; a thing takes the same bytes on `cells` tiles from tile `start` on, around the ring.
    `best`: takes the smallest gap that is large enough, the lowest of equals; otherwise the lowest such gap.

    Things lie in chunks, by address. Where all of a chunk are met and no gap between them is large enough, it is one thing.
    So constants, which are live throughout and begin on one tile, cost a comparison for each chunk, and not for each of them.
    """

    def __init__(self, tiles: int = 1, best: bool = False):
        self.tiles = tiles
        self.best = best
        self.chunks = [_Chunk(np.empty((_COLUMNS, 0), np.int64), tiles)]
        self.spans = list[Spans]()

    def place(self, size: int, spans: Spans, start: int = 0, cells: int = 1) -> int:
        """Places a thing of `size` bytes, live in `spans`, pairs of the first and last step in order. Returns its address."""
        if size == 0:
            return 0
        address = self._address(size, spans, start, cells)
        row = (address, address + size, spans[0][0], spans[-1][1], len(spans) > 1, start, cells, len(self.spans))
        self.spans.append(spans)
        at = max(bisect_right(self.chunks, address, key=lambda chunk: chunk.begin) - 1, 0)
        chunk = self.chunks[at]
        chunk.insert(row)
        if chunk.count == 2 * CHUNK:
            self.chunks[at : at + 1] = (_Chunk(chunk.rows[:, half], self.tiles) for half in (slice(CHUNK), slice(CHUNK, None)))
        return address

    def _address(self, size: int, spans: Spans, start: int, cells: int) -> int:
        top, smallest, chosen = 0, None, 0  # the end of what is met so far, the smallest gap that suffices, its address
        for chunk in self.chunks:
            if chunk.last < spans[0][0] or spans[-1][1] < chunk.first:
                continue
            if chunk.gap < size and chunk.all_met(spans, start, cells):
                room, at, end = chunk.begin - top, top, chunk.end
            else:
                begins, ends = self.met(chunk, spans, start, cells)
                tops = np.maximum.accumulate(np.concatenate(([top], ends)))
                gaps = begins - tops[:-1]
                enough = np.flatnonzero(gaps >= size)
                if enough.size:
                    i = enough[gaps[enough].argmin()] if self.best else enough[0]
                    room, at = int(gaps[i]), int(tops[i])
                else:
                    room, at = 0, top
                end = int(tops[-1])
            if room >= size and (smallest is None or room < smallest):
                smallest, chosen = room, at
                if not self.best:
                    return at
            top = max(top, end)
        return top if smallest is None else chosen

    def met(self, chunk: _Chunk, spans: Spans, start: int, cells: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Compares each thing of a chunk. Gives the begins and ends of those that live at the same time on the same tiles."""
        rows = chunk.rows[:, : chunk.count]
        together = (rows[_FIRST] <= spans[-1][1]) & (rows[_LAST] >= spans[0][0])
        if cells < self.tiles and not chunk.everywhere:  # intervals on a ring meet if one begins inside the other
            ahead, behind = (start - rows[_START]) % self.tiles, (rows[_START] - start) % self.tiles
            together &= (ahead < rows[_CELLS]) | (behind < cells)
        (found,) = np.nonzero(together)
        if len(spans) > 1 or not chunk.single:
            found = found[[_meet(spans, self.spans[n]) for n in rows[_NUMBER, found]]] if found.size else found
        return rows[_BEGIN, found], rows[_END, found]


class _Chunk:
    """Things next to each other in the order of addresses, and what holds for all of them."""

    def __init__(self, rows: NDArray[np.int64], tiles: int):
        n = rows.shape[1]
        self.rows = np.empty((_COLUMNS, 2 * CHUNK), np.int64)
        self.rows[:, :n] = rows
        self.count, self.tiles = n, tiles
        self.begin, self.end = int(rows[_BEGIN].min(initial=FAR)), int(rows[_END].max(initial=0))
        self.first, self.latest_first = int(rows[_FIRST].min(initial=FAR)), int(rows[_FIRST].max(initial=0))
        self.last, self.earliest_last = int(rows[_LAST].max(initial=0)), int(rows[_LAST].min(initial=FAR))
        self.single, self.everywhere = not rows[_SEVERAL].any(), bool((rows[_CELLS] >= tiles).all())
        self.shared = (0, tiles)  # the first and the number of some tiles that each thing has; there may be more
        for start, cells in dict.fromkeys(zip(rows[_START].tolist(), rows[_CELLS].tolist())):
            self.shared = _both(self.shared, (start, cells), tiles)
        self.gap = _largest_gap(self.rows[:, :n])  # between them

    def insert(self, row: tuple[int, ...]) -> None:
        """Inserts a thing after those that begin at its address or before."""
        n, rows = self.count, self.rows
        at = n if n == 0 or rows[_BEGIN, n - 1] <= row[_BEGIN] else int(np.searchsorted(rows[_BEGIN, :n], row[_BEGIN], "right"))
        rows[:, at + 1 : n + 1] = rows[:, at:n]
        rows[:, at] = row
        self.count = n + 1
        self.first, self.latest_first = min(self.first, row[_FIRST]), max(self.latest_first, row[_FIRST])
        self.last, self.earliest_last = max(self.last, row[_LAST]), min(self.earliest_last, row[_LAST])
        self.single &= not row[_SEVERAL]
        self.everywhere &= row[_CELLS] >= self.tiles
        self.shared = _both(self.shared, (row[_START], row[_CELLS]), self.tiles)
        if at == n:
            self.gap = max(self.gap, row[_BEGIN] - self.end) if n else 0
        else:
            self.gap = _largest_gap(rows[:, : n + 1])
        self.begin, self.end = int(rows[_BEGIN, 0]), max(self.end, row[_END])

    def all_met(self, spans: Spans, start: int, cells: int) -> bool:
        """Tells if a thing is known to live at the same time as all of them, on a tile that each of them has."""
        if len(spans) > 1 or not self.single or not _both(self.shared, (start, cells), self.tiles)[1]:
            return False
        return self.latest_first <= spans[0][1] and spans[0][0] <= self.earliest_last


def _both(a: tuple[int, int], b: tuple[int, int], tiles: int) -> tuple[int, int]:
    """Gives the first and the number of tiles that two intervals of a ring have in common: of two pieces one, of no tile 0 of them."""
    (first, n), (second, m) = a, b
    ahead, behind = (second - first) % tiles, (first - second) % tiles
    if ahead < n:
        return second, min(m, n - ahead)
    return first, max(min(n, m - behind), 0)


def _largest_gap(rows: NDArray[np.int64]) -> int:
    return int((rows[_BEGIN, 1:] - np.maximum.accumulate(rows[_END])[:-1]).max(initial=0))


def _meet(a: Spans, b: Spans) -> bool:
    return any(first <= until and since <= last for first, last in a for since, until in b)
