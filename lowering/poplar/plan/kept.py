"""Plans that were made, by what they are for and by the memory that they were given."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

from populus.dialects.support.guard import Guard

Plans = TypeVar("Plans")


class KeptPlans(Generic[Plans]):
    """Plans, each with the least and the greatest limit of memory that give them. At most `most`; those of the oldest key leave first.

    `made`, `kept`: how often plans were added, and how often they were there already.
    """

    def __init__(self, most: int):
        self.most = most
        self.made = self.kept = self.number = 0
        self._by_key: dict[Hashable, list[tuple[float, float, Plans]]] = {}
        self._guard = Guard()

    def find(self, key: Hashable, limit: float) -> Plans | None:
        """Returns the plans for a limit; None if they were not made."""
        for least, most, plans in self._by_key.get(key, ()):
            if least <= limit <= most:
                self.kept += 1
                return plans
        return None

    def add(self, key: Hashable, least: float, most: float, plans: Plans) -> None:
        """Keeps plans for the limits from `least` to `most`."""
        with self._guard.lock:
            self.made += 1
            self._by_key.setdefault(key, []).append((least, most, plans))
            self.number += 1
            while self.number > self.most:
                self.number -= len(self._by_key.pop(next(iter(self._by_key))))
