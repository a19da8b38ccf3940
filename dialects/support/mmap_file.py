"""Memory that is a file's, mapped: it counts as this process's only while it is read, and is checked to be the file that it was."""

from __future__ import annotations

import mmap
import os
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from populus.dialects.support.diagnostics import PopulusError
from populus.dialects.support.guard import Guard

if TYPE_CHECKING:
    from numpy.typing import NDArray

FETCHED = 1 << 30  # bytes of the largest file that is read ahead
RESIDENT = 8 << 20  # bytes read from mapped files after which their pages are given back


class Mapped:
    """The file that arrays of `np.memmap` map."""

    __slots__ = ("__weakref__", "_begin", "_map", "_path", "_stamp")

    def __init__(self, path: str, map: mmap.mmap):
        import numpy as np

        self._path, self._map = path, map
        self._begin = np.frombuffer(map, np.uint8).ctypes.data
        self._stamp = _stamp(path)

    def touch(self, bytes: int) -> None:
        """Prepares a read of so many bytes. Raises PopulusError if the file has changed."""
        if self.changed:
            raise PopulusError(f"{self._path}: the file has changed since it was read; compile the model again")
        _read[0] += bytes
        if _read[0] > RESIDENT:
            release()
            _read[0] = bytes

    @property
    def changed(self) -> bool:
        """True if the file was replaced or written."""
        return _stamp(self._path) != self._stamp

    def fetch(self, array: NDArray[Any]) -> None:
        """Asks the system to read an array ahead, for reads out of order: single pages from a disk are a thousand times slower."""
        if hasattr(mmap, "MADV_WILLNEED") and self._map.size() <= FETCHED:
            self._advise(mmap.MADV_WILLNEED, array.ctypes.data, array.nbytes)

    def release_part(self, address: int, bytes: int) -> None:
        """Gives back the pages of a part of the map, from an address on; its neighbours' bytes on them come again too."""
        if hasattr(mmap, "MADV_DONTNEED"):
            self._advise(mmap.MADV_DONTNEED, address, bytes)

    def _advise(self, advice: int, address: int, bytes: int) -> None:
        first = address - self._begin
        begin = first // mmap.PAGESIZE * mmap.PAGESIZE
        self._map.madvise(advice, begin, first + bytes - begin)

    def release(self) -> None:
        """Gives the pages back; they come again when they are read."""
        if hasattr(mmap, "MADV_DONTNEED"):
            self._map.madvise(mmap.MADV_DONTNEED)


_MAPPED: WeakValueDictionary[int, Mapped] = WeakValueDictionary()  # by the id of the map, which each keeps alive
_LISTING = Guard()
_read = [0]


def release() -> None:
    """Gives back the pages of all mapped files."""
    with _LISTING.lock:
        for mapped in _MAPPED.values():
            mapped.release()


def mapped(array: NDArray[Any]) -> Mapped | None:
    """Returns the file that an array maps; None if it maps none."""
    import numpy as np

    path: str | None = None
    base: Any = array
    while base is not None and not isinstance(base, mmap.mmap):
        file: Any = base
        path = str(file.filename) if isinstance(base, np.memmap) and file.filename is not None else path
        base = getattr(file, "base", None)
    if base is None or path is None:
        return None
    with _LISTING.lock:
        if (found := _MAPPED.get(id(base))) is None:
            found = _MAPPED[id(base)] = Mapped(path, base)
        return found


def _stamp(path: str) -> tuple[int, int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns
