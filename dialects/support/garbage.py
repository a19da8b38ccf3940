"""Python's collector of garbage, stopped while objects are made that all live."""

from __future__ import annotations

import gc
import sys
from collections.abc import Generator
from contextlib import contextmanager
from importlib import import_module


@contextmanager
def no_garbage_collection() -> Generator[None, None, None]:
    """Disables the garbage collector inside. IR has many cycles, all live until the end, so collecting costs a
    fifth of the time in vain.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def import_for_good(name: str) -> None:
    """Imports a module without collecting garbage, and with quick dataclasses.

    All that is defined then counts as old, which only a full collection looks at.
    By itself the collector goes through classes and functions several times while modules define them, and once more afterwards.
    """
    if name in sys.modules:
        return
    from populus.dialects.support.quick_classes import quick_classes

    with no_garbage_collection(), quick_classes():
        import_module(name)
        count_as_old()


def count_as_old() -> None:
    """Makes all objects old, which only a full collection looks at."""
    if not gc.get_freeze_count():  # else somebody has set objects aside, which the next line would bring back
        gc.freeze()
        gc.unfreeze()
