"""The outcome of a proof: claims that hold, claims that are refuted with an example, and what could not be decided."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

PROVED, REFUTED, UNDECIDED = "proved", "refuted", "not decided"


class Undecided(Exception):
    """Raised where the prover has no form for what an op does. Its text names the op."""


@dataclass
class Report:
    """The outcome of a proof: the number of claims by kind, the refuted ones as lines, and the reasons why others are not decided."""

    claims: Counter[str] = field(default_factory=Counter[str])
    refuted: list[str] = field(default_factory=list[str])
    undecided: list[str] = field(default_factory=list[str])

    @property
    def verdict(self) -> str:
        """`proved`, `refuted` or `not decided`: one refuted claim refutes, else one undecided leaves it open."""
        return REFUTED if self.refuted else UNDECIDED if self.undecided else PROVED

    def __str__(self) -> str:
        why = next(iter(self.refuted or self.undecided), f"{sum(self.claims.values())} claims")
        return f"{self.verdict}: {why}"
