"""Compiled objects on disk, so that the second process need not compile.

A file's name is the hash of what it was made from, of the CPU and of LLVM's version. Its content begins with its own hash: what
another writer, a full disk or an interruption left there is not taken. Writers rename whole files into place.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from pathlib import Path

VARIABLE = "POPULUS_CACHE"  # the folder; empty: no cache
LIMIT = 256 << 20  # bytes; beyond, the files that were not used for longest go
MAGIC = b"populus object 1\n"


def folder() -> Path | None:
    """Where objects are kept; None if nowhere."""
    named = os.environ.get(VARIABLE)
    if named == "":
        return None
    return Path(named or os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "populus-native"


def get(key: str) -> bytes | None:
    """The object under this key; None if there is none, or none that is whole."""
    place = folder()
    if place is None:
        return None
    try:
        data = (place / key).read_bytes()
        head = len(MAGIC) + 32
        if data[: len(MAGIC)] != MAGIC or hashlib.sha256(data[head:]).digest() != data[len(MAGIC) : head]:
            return None
        with contextlib.suppress(OSError):
            os.utime(place / key)
        return data[head:]
    except OSError:
        return None


def put(key: str, content: bytes) -> None:
    """Keeps an object. Without room or permission it is not kept, and that is all."""
    place = folder()
    if place is None:
        return
    try:
        place.mkdir(parents=True, exist_ok=True)
        handle, partial = tempfile.mkstemp(dir=place, prefix=".partial-")
    except OSError:
        return
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(MAGIC + hashlib.sha256(content).digest() + content)
        os.replace(partial, place / key)
    except OSError:
        pass
    finally:  # of an interruption too
        with contextlib.suppress(OSError):
            os.unlink(partial)


def trim(limit: int = LIMIT) -> None:
    """Removes the files that were not used for longest until the rest is within `limit` bytes."""
    place = folder()
    if place is None:
        return
    with contextlib.suppress(OSError):
        found = sorted((s.st_mtime, s.st_size, e.path) for e in os.scandir(place) if e.is_file() for s in (e.stat(),))
        total = sum(size for _, size, _ in found)
        for _, size, path in found:
            if total <= limit:
                break
            with contextlib.suppress(OSError):
                os.unlink(path)
            total -= size
