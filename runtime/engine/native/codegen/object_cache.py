"""Cache of compiled objects on disk, so that a second process need not compile.

An object's name is the hash of its LLVM text, the CPU and LLVM's version. A second file, named by the kernel's key and the whole package's
hash, has that name, so that a hit emits no text. The folder is a `DiskCache`.
"""

from __future__ import annotations

from populus.dialects.support.disk_cache import DiskCache, default_folder

LIMIT = 256 << 20  # bytes; above it, the least recently used files are removed
MAGIC = b"populus object 1\n"


def cache() -> DiskCache | None:
    """Returns the cache; None if caches are disabled."""
    folder = default_folder("populus-native")
    return None if folder is None else DiskCache(folder, MAGIC, LIMIT)


def get(key: str) -> bytes | None:
    """Reads the object of a key. Returns None if there is none, if it is damaged, or if others may have written it."""
    disk = cache()
    return None if disk is None else disk.read(key)


def put(key: str, content: bytes) -> None:
    """Stores an object. Without room or permission it does nothing."""
    if (disk := cache()) is not None:
        disk.write(key, content)


def trim(limit: int = LIMIT) -> None:
    """Removes the least recently used files until the rest is within `limit` bytes."""
    if (disk := cache()) is not None:
        disk.trim(limit)
