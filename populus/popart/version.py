"""The version of PopART whose interface this is, and the spelling of its sync patterns."""

from __future__ import annotations

from enum import Enum

from populus.dialects.support.diagnostics import PopulusError, did_you_mean
from populus.popart.enums import ENUMS

VERSION = "3.4.0"
_SYNC = {n[0].lower() + n[1:]: member for n, member in ENUMS["SyncPattern"].__members__.items()}


def versionString() -> str:
    """Gives the version of PopART whose interface this is."""
    return VERSION


def versionNumber() -> tuple[int, int, int]:
    """Gives the numbers of the version."""
    major, minor, point = (int(n) for n in VERSION.split("."))
    return major, minor, point


def packageHash() -> str:
    """Gives the name of the package in the place of PopART's hash."""
    return "populus"


def syncPatternFromString(pattern: str) -> Enum:
    """Gives the sync pattern of this spelling. Raises PopulusError if there is none."""
    if pattern not in _SYNC:
        raise PopulusError(f"there is no sync pattern '{pattern}'{did_you_mean(pattern, _SYNC)}")
    return _SYNC[pattern]


def syncPatternToString(pattern: Enum) -> str:
    """Gives the spelling of a sync pattern."""
    return next(text for text, member in _SYNC.items() if member is pattern)
