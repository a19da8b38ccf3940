"""Libraries of custom ops that a program loads: compiled C++ for another machine, whose ops are files of Python here.

A program loads them by ctypes. While the names of `populus.aliases` are there, a library that cannot be loaded is looked for in C++ beside
it. If each op that this registers has a file of Python, the program goes on; otherwise it is refused in one line, which names the op.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from populus.dialects.support.diagnostics import PopulusError

if TYPE_CHECKING:
    from populus.write.registrations import Registered

FILES = 200  # of C++ beside a library that are read
_MODULE = cast("Any", ctypes)  # whose loader is private
_DLOPEN: Callable[..., int] = _MODULE._dlopen


def install() -> None:
    """Makes libraries of custom ops be what Python files have loaded."""
    _MODULE._dlopen = _opened


def uninstall() -> None:
    """Makes ctypes load libraries as it did."""
    _MODULE._dlopen = _DLOPEN


def _opened(name: object, mode: int = ctypes.DEFAULT_MODE) -> int:
    """Loads a library; gives the handle of the process for one whose ops are all there. Raises OSError and PopulusError."""
    try:
        return _DLOPEN(name, mode)
    except OSError:
        library = Path(os.fsdecode(cast("str | bytes", name)))
        found = list(_ops_beside(library))
        if not found:
            raise
        missing = [(op, source) for op, source in found if not _is_there(op)]
    from populus.write.drafts import stem_of  # this and other imports here load the compiler

    for op, source in missing:
        stem = stem_of(op.name)
        raise PopulusError(
            f"{library.name}: {op.domain} {op.name}-{op.version} is compiled C++, which does not run here; "
            f"`populus new-op {op.name} --from {source}` drafts {stem}.py, and `--load {stem}.py` has the program take it"
        )
    return _DLOPEN(None, mode)


def _is_there(op: Registered) -> bool:
    """Tells whether a built-in op, or one of a file that is loaded, has this identity."""
    from populus.dialects.table import context
    from populus.lowering.driver import extensions
    from populus.lowering.onnx.custom_ops import custom_ops

    ctx = context()
    for extension in extensions.known():
        extension.register(ctx)
    return (op.domain, op.name) in custom_ops(ctx)


def _ops_beside(library: Path) -> Iterator[tuple[Registered, Path]]:
    """Finds the ops that C++ registers in a library's folder, the one above it, and the folders in these."""
    if not library.parent.name and not library.is_absolute():
        return  # a library of the system
    from populus.write.registrations import registered

    home, found = library.parent, list[Path]()
    for folder in dict.fromkeys((home, home.parent if home.name in ("build", "lib") else home)):
        found += sorted(folder.glob("*.cpp")) + sorted(folder.glob("*/*.cpp")) + sorted(folder.glob("*/*/*.cpp"))
    for path in list(dict.fromkeys(found))[:FILES]:
        with suppress(PopulusError):
            yield from ((op, path) for op in registered(path))
