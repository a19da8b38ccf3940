"""Names that no two things of a kind share."""

from __future__ import annotations

from collections.abc import Iterable


class Names:
    """Names that are taken."""

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self._taken = set(taken)

    def free(self, name: str) -> str:
        """Gives the name, or with the first number that makes it a new one; it is taken then."""
        found, number = name, 0
        while found in self._taken:
            number += 1
            found = f"{name}_{number}"
        self._taken.add(found)
        return found
