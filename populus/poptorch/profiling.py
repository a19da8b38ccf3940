"""Channels of the SDK's profiler: accepted. `populus run-program --profile` writes a profile of the programs themselves."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any


class Channel:
    """A name under which methods could be timed."""

    def __init__(self, name: str):
        self.name = name

    def instrument(self, obj: Any, *methods: str) -> None:
        """Does nothing: no clock runs."""

    @contextmanager
    def tracepoint(self, name: str) -> Generator[None]:
        """Does nothing around a `with`."""
        yield
