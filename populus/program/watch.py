"""Watching a user's Python program: the machine that it is given, and the programs that it runs."""

from __future__ import annotations

from collections.abc import Generator, Hashable
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from populus.dialects.support.guard import Guard


@dataclass
class Watch:
    """The machine and the engine in place of what programs ask for (None: what they ask for), and how often each program ran.

    `target` and `tiles` go together: with a target and no number of tiles, the machine has all its tiles.
    """

    target: str | None = None
    tiles: int | None = None
    engine: str | None = None
    runs: dict[Hashable, int] = field(default_factory=dict[Hashable, int])
    _counting: Guard = field(default_factory=Guard)

    def changes(self) -> dict[str, Any]:
        """Gives the options of a program that this watch decides, by name."""
        machine = {} if self.target is None else {"target": self.target, "tiles": self.tiles}
        others = {"tiles": self.tiles, "engine": self.engine}
        return {**machine, **{name: value for name, value in others.items() if value is not None}}

    def count(self, program: Hashable) -> None:
        """Counts a run of a program."""
        with self._counting.lock:
            self.runs[program] = self.runs.get(program, 0) + 1


_WATCHES: list[Watch] = []


@contextmanager
def watching(watch: Watch) -> Generator[Watch]:
    """Lets a watch see all programs of the process, of every thread, until the end of the `with`."""
    _WATCHES.append(watch)
    try:
        yield watch
    finally:
        _WATCHES.remove(watch)


def watch() -> Watch | None:
    """Gives the innermost watch; None if nobody watches."""
    return _WATCHES[-1] if _WATCHES else None
