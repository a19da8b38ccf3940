"""Cache of compiled objects on disk, so that a second process need not compile.

A file's name is the hash of its inputs: the kernel, the source, the CPU and LLVM's version. Its content begins with
its own hash, so a truncated or damaged file is ignored. Writers rename whole files into place.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from pathlib import Path

VARIABLE = "POPULUS_CACHE"  # names the folder; empty: no cache
LIMIT = 256 << 20  # bytes; above it, the least recently used files are removed
MAGIC = b"populus object 1\n"


def folder() -> Path | None:
    """Returns the folder of the cache; None if the cache is disabled."""
    named = os.environ.get(VARIABLE)
    if named == "":
        return None
    return Path(named or os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "populus-native"


def get(key: str) -> bytes | None:
    """Reads the object of a key. Returns None if there is none, or if it is damaged."""
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
    """Stores an object. Without room or permission it does nothing."""
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
    finally:  # also after an interruption
        with contextlib.suppress(OSError):
            os.unlink(partial)


def trim(limit: int = LIMIT) -> None:
    """Removes the least recently used files until the rest is within `limit` bytes."""
    place = folder()
    if place is None:
        return
    with contextlib.suppress(OSError):
        entries = sorted((s.st_mtime, s.st_size, e.path) for e in os.scandir(place) if e.is_file() for s in (e.stat(),))
        total = sum(size for _, size, _ in entries)
        for _, size, path in entries:
            if total <= limit:
                break
            with contextlib.suppress(OSError):
                os.unlink(path)
            total -= size
