"""The user's line: that which called this package."""

from __future__ import annotations

import sys
from pathlib import Path
from types import FrameType

from populus.dialects.support.package_hash import FOLDERS

_FOLDERS = frozenset(map(Path, FOLDERS))



def is_ours(file: str) -> bool:
    """Tells whether a file is of this package."""
    return not _FOLDERS.isdisjoint(Path(file).parents)


def users_frame(depth: int = 1) -> FrameType:
    """Gives the frame of the nearest line outside of this package; the outermost frame if there is none. `depth`: of the caller."""
    frame = sys._getframe(depth)  # pyright: ignore[reportPrivateUsage]
    while frame.f_back is not None and is_ours(frame.f_code.co_filename):
        frame = frame.f_back
    return frame


def users_level() -> int:
    """Gives the `stacklevel` that `warnings.warn`, called by the caller, needs for the user's line."""
    level, frame = 1, sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
    end = users_frame(2)
    while frame is not end and frame.f_back is not None:
        level, frame = level + 1, frame.f_back
    return level
