"""Residency of constant weights: weights replicated on the tiles that read them, if memory is free."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from populus.lowering.poplar.plan.contraction import Option, Plan, cheapest

HALVINGS = 12  # bisections of the price of a byte


@dataclass
class Residency:
    """Bytes of each tile left for resident weights, and the price of a byte in cycles.

    A weight is either spread over the tiles, and each run sends it to its readers, or it is resident: replicated
    on each reader. Residency takes memory throughout the program, so contractions bid for it. The price is the
    lowest at which the bids fit.
    """

    left: float = 0
    price: float = 0.0

    @staticmethod
    def of(bytes: float, bids: Sequence[Sequence[Option]]) -> Residency:
        """Finds the price of `bytes` of each tile. `bids`: the options of each contraction with constant weights."""
        if bytes <= 0 or not bids:
            return Residency()

        def asked(price: float) -> int:
            """Sums the resident bytes of the cheapest options at a price."""
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
        """Chooses a contraction's plan. Also tells whether its weights, if `constant`, are resident."""
        best = cheapest(options, self.price, self.left if constant else 0)
        self.left -= best.resident_bytes
        return best.plan, best.resident_bytes > 0


def room(share: float, tile_bytes: int, spread: Sequence[int], tiles: int) -> float:
    """Computes the bytes of a tile for resident weights: a share of it, less its part of all constants when spread."""
    return max(share * tile_bytes - math.fsum(spread) / tiles, 0)
