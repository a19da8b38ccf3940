"""Residency of constant weights: weights replicated on the tiles that read them, if memory is free."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from populus.dialects.poplar.target import Target
from populus.lowering.poplar.plan.contraction import Option, Plan, cheapest

HALVINGS = 12  # bisections of the price of a byte


@dataclass(frozen=True)
class Room:
    """Bytes of a tile: for resident weights, and for these and a contraction that runs together."""

    resident: float
    tile: float

    @staticmethod
    def of(share: float, target: Target, spread: Sequence[int]) -> Room:
        """Computes the room if resident weights may take `share` of a tile. `spread`: the bytes of each constant of the program."""
        own = math.fsum(spread) / target.tiles
        return Room(max(share * target.tile_bytes - own, 0), max(target.room - own, 0))

    def share(self, share: float) -> Room:
        """Returns a share of the room for resident weights, beside which the others are."""
        return Room(share * self.resident, self.tile - (1 - share) * self.resident)

    def holds(self, resident: Any, working: Any) -> Any:
        """Tells whether resident weights fit, and what runs fits beside them; without resident weights, they do. Of arrays, each."""
        return (resident == 0) | ((resident <= self.resident) & (resident + working <= self.tile))


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
    def of(room: Room, bids: Sequence[Sequence[Option]]) -> Residency:
        """Finds the price of the bytes of `room`. `bids`: the options of each contraction with constant weights."""
        if room.resident <= 0 or not bids:
            return Residency()

        def fit(price: float) -> bool:
            """Tells whether the cheapest options at a price fit."""
            chosen = [cheapest(options, price) for options in bids]
            return bool(room.holds(sum(o.resident_bytes for o in chosen), max(o.working_bytes for o in chosen)))

        low, high = 0.0, 0.0
        if not fit(low):
            high = 1.0
            while not fit(high):
                low, high = high, 2 * high
            for _ in range(HALVINGS):
                middle = (low + high) / 2
                low, high = (low, middle) if fit(middle) else (middle, high)
        return Residency(room.resident, high)

    def choose(self, options: Sequence[Option], constant: bool) -> tuple[Plan, bool]:
        """Chooses a contraction's plan. Also tells whether its weights, if `constant`, are resident."""
        best = cheapest(options, self.price, self.left if constant else 0)
        self.left -= best.resident_bytes
        return best.plan, best.resident_bytes > 0
