"""Which constant weights lie on every tile that reads them: memory that is free otherwise, for bytes that need not move."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from populus.lowering.poplar.plan.contraction import Option, Plan, cheapest

HALVINGS = 12  # of the range in which the price of a byte is looked for


@dataclass
class Residency:
    """Bytes of each tile that are left for weights where they are read, and the cycles that one is worth.

    A weight may be spread over the tiles, each of which then receives what it reads, in every run; or lie on each tile that
    reads it. The second costs memory for good, so contractions bid for it: the price is the lowest at which all that want
    it get it.
    """

    left: float = 0
    price: float = 0.0

    @staticmethod
    def of(bytes: float, bids: Sequence[Sequence[Option]]) -> Residency:
        """`bids`: the options of each contraction with constant weights."""
        if bytes <= 0 or not bids:
            return Residency()

        def asked(price: float) -> int:
            return sum(cheapest(options, price).resident_bytes for options in bids)

        low, high = 0.0, 0.0
        if asked(low) > bytes:
            high = 1.0
            while asked(high) > bytes:
                low, high = high, 2 * high
            for _ in range(HALVINGS):
                middle = (low + high) / 2
                low, high = (middle, high) if asked(middle) > bytes else (low, middle)
        return Residency(bytes, high)

    def choose(self, options: Sequence[Option], constant: bool) -> tuple[Plan, bool]:
        """The plan of a contraction, and whether its weights, if they are constant, are to lie where they are read."""
        best = cheapest(options, self.price, self.left if constant else 0)
        self.left -= best.resident_bytes
        return best.plan, best.resident_bytes > 0


def room(share: float, tile_bytes: int, spread: Sequence[int], tiles: int) -> float:
    """The bytes of a tile that resident weights may take: a share of it, less what constants take when they are spread."""
    return max(share * tile_bytes - math.fsum(spread) / tiles, 0)
