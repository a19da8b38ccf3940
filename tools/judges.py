"""`--verify-each`: what judges each pass of a compilation."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Protocol


class Judge(Protocol):
    """A judge of passes."""

    def lines(self) -> list[str]:
        """Says for each pass what was found, one line each."""
        ...


class _Nobody:
    def lines(self) -> list[str]:
        return []


@contextmanager
def judging(kind: str | None) -> Generator[Judge, None, None]:
    """Yields a judge of each pass that runs inside: `run` compares results before and after it, `prove` proves it, `rewrites` each rewrite
    of a pattern; None does nothing."""
    if kind == "run":
        from populus.compare.validation import validating

        with validating() as judge:
            yield judge
    elif kind == "prove":
        from populus.proof.passes import proving

        with proving() as judge:
            yield judge
    elif kind == "rewrites":
        from populus.proof.rewrites import proving_rewrites

        with proving_rewrites() as judge:
            yield judge
    else:
        yield _Nobody()
