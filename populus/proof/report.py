"""The outcome of a proof: claims that hold, claims that are refuted with an example, and what could not be decided."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field

from xdsl.ir import Operation
from xdsl.utils.exceptions import VerifyException

from populus.dialects.support.diagnostics import where

PROVED, REFUTED, UNDECIDED = "proved", "refuted", "not decided"


DEEP = "more functions stand in each other than the prover can walk through"


class Undecided(Exception):
    """Raised where the prover has no form for what an op does. Its text names the op."""


class Invalid(Exception):
    """Raised for an op that the verifier refuses: it has no meaning. Its text names the op."""


def verified(op: Operation) -> None:
    """Verifies an op without its regions. Raises Invalid."""
    try:
        op.verify(verify_nested_ops=False)
    except VerifyException as why:
        raise Invalid(f"{where(op)}: {op.name}: {' '.join(str(why).split())}") from None


@contextmanager
def walked() -> Generator[None, None, None]:
    """Raises Undecided where trees are too deep for functions that call themselves: chains of hundreds of element-wise ops."""
    try:
        yield
    except RecursionError:
        raise Undecided(DEEP) from None


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
