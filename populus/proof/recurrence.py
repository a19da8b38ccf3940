"""Loops that were met, as recurrences of what they carry."""

from __future__ import annotations

from dataclasses import dataclass, field

from populus.proof.trees import Piece, Pieces


@dataclass
class State:
    """A carried value: before the loop, its symbol in the body, after the loop, and at the end of the body."""

    first: Pieces
    shape: tuple[int, ...]
    symbol: Pieces
    final: Pieces
    next: Pieces = field(default_factory=list[Piece])


@dataclass
class Recurrence:
    """A loop that was met. `rows`: what an iteration writes to row i of a table, the row's shape, and the table after the loop."""

    trips: int | None
    conditional: bool
    index: Pieces
    states: list[State]
    rows: list[tuple[Pieces, tuple[int, ...], Pieces]]
