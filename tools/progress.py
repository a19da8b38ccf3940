"""What a long command shows on a terminal's standard error while it works; nothing where that is a pipe or a file."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager

from rich.console import Console


@contextmanager
def stages(what: str) -> Generator[Callable[[int, str], None], None, None]:
    """A function to call with the number and name of each stage as it begins; a spinner shows the latest."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda number, name: None
        return
    with console.status(what, spinner="dots") as status:
        yield lambda number, name: status.update(f"{what}: {name}")


@contextmanager
def working(what: str) -> Generator[None, None, None]:
    """A spinner beside `what` while the block runs."""
    with stages(what):
        yield
