"""The effort of a call as a count of Python's lines, calls and returns: the same on every machine, unlike seconds."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType

from populus.dialects.support.garbage import no_garbage_collection


def effort(call: Callable[[], object]) -> int:
    """Counts the trace events of a call. Work inside compiled functions counts as one line."""
    count = 0

    def trace(frame: FrameType, event: str, argument: object) -> Callable[..., object]:
        nonlocal count
        count += 1
        return trace

    before = sys.gettrace()
    with no_garbage_collection():  # what it frees may be others' objects, whose ends are calls
        sys.settrace(trace)
        try:
            call()
        finally:
            sys.settrace(before)
    return count
