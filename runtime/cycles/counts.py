"""Counts of a vertex, as numbers or arrays: arrays broadcast, so a planner weighs all its candidates at once."""

from __future__ import annotations

from typing import Any, TypeAlias

from numpy.typing import NDArray

Count: TypeAlias = "int | NDArray[Any]"
"""One number, or an array with one for each candidate or box."""


def ceil_div(a: Count, b: Count) -> Any:
    """Divides and rounds up."""
    return -(-a // b)
