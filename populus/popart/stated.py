"""Errors whose text begins as PopART's does, and its spelling of shapes."""

from __future__ import annotations

from collections.abc import Iterable

from populus.dialects.support.diagnostics import PopulusError


class StatedError(PopulusError):
    """An error whose text names its op itself; no name is put before it."""


def listed(shape: Iterable[int]) -> str:
    """Gives a shape in PopART's spelling: `[2 4]`."""
    return f"[{' '.join(map(str, shape))}]"
