"""Settings of PopART without a meaning on one machine: accepted, with one warning by name."""

from __future__ import annotations

import warnings

_SAID: set[str] = set()


def ignored(name: str, why: str = "it changes no result on one machine") -> None:
    """Warns that a member has no effect here, once for each name in a process."""
    if name not in _SAID:
        _SAID.add(name)
        warnings.warn(f"populus.popart takes {name} and ignores it: {why}", stacklevel=3)
