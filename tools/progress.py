"""Progress of a long command on a terminal's standard error; nothing if that is a pipe or a file."""

from __future__ import annotations

import logging
import sys
import warnings
from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar

from populus.dialects.support.errors import PopulusWarning
from populus.tools.command import typed
from populus.tools.output import Terminal

QUIET: ContextVar[bool] = ContextVar("no progress", default=False)


@contextmanager
def telling(verbose: bool, quiet: bool) -> Generator[None, None, None]:
    """Prints what the package logs as information, inside the block, to standard error; or, if it is `quiet`, no progress and no warning.

    It is Python's logging: a program of a user sets the level of the logger `populus`.
    """
    logger, handler, before = logging.getLogger("populus"), logging.StreamHandler(sys.stderr), QUIET.set(quiet)
    level = logger.level
    try:
        with warnings.catch_warnings():
            if quiet:
                warnings.simplefilter("ignore", PopulusWarning)
            if verbose:
                logger.addHandler(handler)
                logger.setLevel(logging.INFO)
            yield
    finally:
        logger.setLevel(level)
        logger.removeHandler(handler)
        QUIET.reset(before)


@contextmanager
def stages(what: str) -> Generator[Callable[[int, str], None], None, None]:
    """Shows a spinner; gives a function to call with the number and name of each stage as it begins."""
    what, console = typed(what), Terminal(stderr=True)
    if QUIET.get() or not console.is_terminal:
        yield lambda number, name: None
        return
    with console.status(what, spinner="dots") as status:
        yield lambda number, name: status.update(f"{what}: {name}")


@contextmanager
def working(what: str) -> Generator[None, None, None]:
    """Shows a spinner with a text while the block runs."""
    with stages(what):
        yield
