"""A superstep of the `strict` engine: all vertices run on the memory as it was, then their results are committed."""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from populus.dialects.poplar.memory import StorageOp
from populus.runtime.engine.checked_vertices import (
    Result,
    Slices,
    Vertices,
    check_defined,
    count_elements,
    execute_vertex,
    family_place,
    immutable,
)
from populus.runtime.views import PlacedError, view_array

Array: TypeAlias = NDArray[Any]


class Superstep:
    """One run of families whose memory does not overlap: runs all vertices on the earlier memory, then commits their
    results.

    `rng` shuffles the vertices. `earlier`: by variable, the tile that wrote each element earlier in the same execute,
    else -1.
    """

    def __init__(self, rng: random.Random, families: Sequence[Vertices], earlier: dict[StorageOp, NDArray[np.int32]]):
        self.families, self.rng, self.earlier = families, rng, earlier
        self.first: list[int] = []  # the number of each family's first vertex, counted over all families
        total = 0
        for family in families:
            self.first.append(total)
            total += family.count
        self.total = total
        self._writers: dict[StorageOp, NDArray[np.int32]] = {}
        self._copies: dict[tuple[int, int, tuple[int, ...]], Array] = {}

    def run(self) -> None:
        """Runs all vertices in random order and commits their results. Raises PlacedError for a broken rule."""
        results: list[Result] = []
        for family in self.families:
            for c in family.connections:
                if c.field.kind != "in":
                    self._writers.setdefault(c.store.op, np.full(c.store.memory.size, -1, np.int32))
        for number in self.rng.sample(range(self.total), self.total):
            f, vertex = self._of(number)
            results += self._vertex(f, vertex)
        self._check_reads()
        for r in results:
            r.connection.array[(*r.part, ...)] = r.array
            r.connection.store.define(r.connection.view, r.part)
            owner = self.earlier.setdefault(r.connection.store.op, np.full(r.connection.store.memory.size, -1, np.int32))
            view_array(owner, r.connection.view)[(*r.part, ...)] = r.vertices.tile(r.vertex)
        for op in self._writers:
            next(c.store for f in self.families for c in f.connections if c.store.op is op).settle()

    def _on_own_tile(self, family: Vertices, number: int, slices: Slices, vertex: int) -> None:
        """Raises PlacedError if a vertex touches elements that another tile wrote earlier in the execute."""
        c = family.connections[number]
        owner = self.earlier.get(c.store.op)
        if owner is None:
            return
        part, tile = view_array(owner, c.view)[(*slices, ...)], family.tile(vertex)
        others = part[(part >= 0) & (part != tile)]
        if others.size:
            raise PlacedError(
                f"{family.place(vertex)} touches {count_elements(int(others.size))} of {c.name} "
                f"that tile {int(others[0])} wrote earlier in the execute"
            )

    def _of(self, number: int) -> tuple[int, int]:
        f = bisect_right(self.first, number) - 1
        return f, number - self.first[f]

    def _vertex(self, f: int, vertex: int) -> Iterator[Result]:
        family = self.families[f]
        results = execute_vertex(family, vertex, lambda i, key, slices: self._input(f, i, key, slices, vertex))
        for result in results:
            self._claim(f, vertex, result)
            yield result

    def _input(self, f: int, number: int, key: tuple[int, ...], slices: Slices, vertex: int) -> Array:
        self._on_own_tile(self.families[f], number, slices, vertex)
        copy = self._copies.get((f, number, key))
        if copy is None:
            family = self.families[f]
            check_defined(family, number, slices, vertex)
            c = family.connections[number]
            copy = immutable(c.array[(*slices, ...)])
            # Vertices that share a piece share its copy. A piece that belongs to one vertex is not needed again.
            if len(key) < sum(n > 1 for n in family.shape):
                self._copies[f, number, key] = copy
        return copy

    def _claim(self, f: int, vertex: int, result: Result) -> None:
        c, me = result.connection, self.first[f] + vertex
        self._on_own_tile(self.families[f], self.families[f].connections.index(c), result.part, vertex)
        writers = view_array(self._writers[c.store.op], c.view)[(*result.part, ...)]
        if writers.size and writers.max() >= 0:
            other = int(writers.max())
            g, theirs = self._of(other)
            count = int((writers == other).sum())
            family = self.families[f]
            raise PlacedError(
                f"{family_place(family.family)}: {self._both(f, vertex, g, theirs)} both write {count_elements(count)} of {c.name}"
            )
        writers[...] = me

    def _both(self, f: int, vertex: int, g: int, other: int) -> str:
        mine, theirs = self.families[f].name(vertex), self.families[g].name(other)
        if f == g:
            return f"{theirs} and {mine}" if other < vertex else f"{mine} and {theirs}"
        return f"{mine} and {theirs} of family {g}, @{self.families[g].family.codelet.data},"

    def _check_reads(self) -> None:
        """Raises PlacedError if a vertex reads elements that a vertex writes in the same superstep.

        A vertex may read its own outputs only through a field that is `inout`.
        """
        for f, family in enumerate(self.families):
            for number, c in enumerate(family.connections):
                writers = self._writers.get(c.store.op)
                if writers is None or c.field.kind == "out":
                    continue
                seen = view_array(writers, c.view)
                same = any(o.field.kind == "inout" and o.view == c.view and o.field.access == c.field.access for o in family.connections)
                for vertex in range(family.count):
                    _, slices, _ = family.part(number, family.index(vertex))
                    part = seen[(*slices, ...)]
                    if part.size == 0 or part.max() < 0:
                        continue
                    me = self.first[f] + vertex
                    others = part[(part >= 0) & (part != me)]
                    reader = family.place(vertex)
                    if others.size:
                        g, theirs = self._of(int(others[0]))
                        writer = self.families[g]
                        of = "" if f == g else f" of family {g}, @{writer.family.codelet.data},"
                        raise PlacedError(
                            f"{reader} reads {count_elements(int(others.size))} of {c.name} "
                            f"that {writer.name(theirs)}{of} writes in the same execute"
                        )
                    if not same and (part == me).any():
                        raise PlacedError(
                            f"{reader} reads {count_elements(int((part == me).sum()))} of {c.name} that it writes itself; "
                            f"a field that is both is inout"
                        )
