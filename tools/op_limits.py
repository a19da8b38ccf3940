"""A time limit for what a user's file does, with the member that it was in."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import FrameType

AGAIN = 0.1  # seconds from one alarm to the next: Python drops an exception that is raised in a callback of its garbage collector


class TooLong(BaseException):
    """Something was not done in time. No `except Exception` of a user's file takes it."""


@contextmanager
def limit(seconds: float, file: str, doing: Callable[[], str]) -> Generator[None, None, None]:
    """Raises TooLong after so many seconds; it names the method of the user's file that ran, or what `doing` says.

    Outside of the main thread, and where the system has no such alarm, there is no limit.
    """
    if seconds <= 0 or not hasattr(signal, "setitimer") or threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: FrameType | None) -> None:
        found: list[FrameType] = []
        while frame is not None:
            if frame.f_code.co_filename == file:
                found.append(frame)
            frame = frame.f_back
        where = f"in its `{found[-1].f_code.co_name}` ({file}:{found[0].f_lineno})" if found else doing()
        raise TooLong(f"not done after {seconds:g} s, {where}; --seconds allows more")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds, AGAIN)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
