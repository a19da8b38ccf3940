"""Python's collector of garbage, stopped while objects are made that all live; and memory that was freed."""

from __future__ import annotations

import atexit
import ctypes
import gc
import sys
from collections.abc import Generator
from contextlib import contextmanager, suppress
from functools import cache
from importlib import import_module
from itertools import compress

PACKAGES = ("__main__", "google", "llvmlite", "ml_dtypes", "nanobind", "numpy", "onnx", "populus", "xdsl")


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

    All that is defined then counts as old, which only a full collection looks at, and is not freed when the process ends.
    By itself the collector goes through classes and functions several times while modules define them, and once more afterwards.
    """
    end_quickly()
    if name in sys.modules:
        return
    from populus.dialects.support.quick_classes import quick_classes

    with no_garbage_collection(), quick_classes():
        import_module(name)
        if not gc.get_freeze_count():  # else somebody has set objects aside, which the next line would bring back
            gc.freeze()
            gc.unfreeze()


def give_back_memory() -> None:
    """Gives freed memory to the system, if the C library can: it keeps what lies between objects that live."""
    with suppress(OSError, AttributeError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)


@cache
def end_quickly() -> None:
    """Registers that the objects of this process are set aside when it ends."""
    atexit.register(leave_to_the_system)


def leave_to_the_system() -> None:
    """Sets all objects aside when a process ends, unless the end of one may do something.

    Python would look at each of them several times, and free them one by one, which takes as long as importing their modules did.
    An object with a finaliser, or of an extension that is not known, has all freed as ever: it may have something left to write.
    """
    objects = gc.get_objects()
    types = list(map(type, objects))  # once: to look at an object takes longer than all else here
    kinds = set(types)
    ending = {t for t in kinds if hasattr(t, "__del__") and _root(t) != "populus"}
    if not all(map(_is_plain, kinds)) or not set(map(id, compress(objects, map(ending.__contains__, types)))) <= _streams():
        return
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(objects))  # so that none of them loses its last reference when modules are emptied
    gc.freeze()


def _is_plain(t: type) -> bool:
    """Tells whether Python, or a package whose objects end without effect, defines a type with all its bases."""
    return all(_root(c) in sys.stdlib_module_names or _root(c) in PACKAGES or _source(c).endswith((".py", ".pyc")) for c in t.__mro__)


def _root(t: type) -> str:
    root = _module(t).partition(".")[0]
    return "numpy" if root.startswith("_cython_") else root  # what all extensions by Cython share: functions and their type


def _source(t: type) -> str:
    return getattr(sys.modules.get(_module(t)), "__file__", None) or ""


def _module(t: type) -> str:
    module = getattr(t, "__module__", "")
    return module if isinstance(module, str) else type.__repr__(t).removeprefix("<class '")  # a metaclass has a descriptor there


def _streams() -> set[int]:
    """Gives the ids of the objects of Python's three streams, which it flushes by itself."""
    streams = [sys.__stdin__, sys.__stdout__, sys.__stderr__]
    buffers = [getattr(stream, "buffer", None) for stream in streams]
    return {id(o) for o in (*streams, *buffers, *(getattr(buffer, "raw", None) for buffer in buffers))}
