"""Progress of a long command on a terminal's standard error; nothing if that is a pipe or a file."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager

from populus.tools.command import typed
from populus.tools.output import Terminal


@contextmanager
def stages(what: str) -> Generator[Callable[[int, str], None], None, None]:
    """Shows a spinner; gives a function to call with the number and name of each stage as it begins."""
    what, console = typed(what), Terminal(stderr=True)
    if not console.is_terminal:
        yield lambda number, name: None
        return
    with console.status(what, spinner="dots") as status:
        yield lambda number, name: status.update(f"{what}: {name}")


@contextmanager
def working(what: str) -> Generator[None, None, None]:
    """Shows a spinner with a text while the block runs."""
    with stages(what):
        yield
