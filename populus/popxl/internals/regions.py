"""`Region` and `TopoCons`: parts of a tensor, and orders of ops, as `popart._internal.ir` has them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Region:
    """A part of a tensor: all of it, or nothing. A change of any part counts as one of all."""

    full: bool

    @classmethod
    def getFull(cls, shape: Sequence[int]) -> Region:
        """Gives all of a tensor."""
        return cls(True)

    @classmethod
    def getEmpty(cls, rank: int) -> Region:
        """Gives nothing of a tensor."""
        return cls(False)

    def isEmpty(self) -> bool:
        """Tells whether it is nothing."""
        return not self.full


class TopoCons:
    """Orders of ops that a program asks for; ops happen in the order of their calls, so none is kept."""

    def transferToSubgraph(self, *args: Any) -> None:
        """Accepts the wish to move orders to another graph, whose ops are in order."""
