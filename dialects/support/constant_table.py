"""The table of stored constants: the IR has their names, and everything that changes is here.

A `Handle` is a name, equal to itself alone. The content belongs to the table and is dropped with the last handle. Engines release and
map contents here, and no attribute notices. There is one table in a process, because xDSL's attributes know no context, and
programs outlive theirs.
"""

from __future__ import annotations

import hashlib
import itertools
import mmap
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakKeyDictionary, WeakValueDictionary

from populus.dialects.support.guard import Guard
from populus.dialects.support.mmap_file import Mapped, mapped

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

PIECE = 4 << 20  # bytes of a file that are hashed at a time
SAMPLES, RUN = 8, 8  # places of a content whose bytes are compared first, and how many there: of a file, each place is a page


@dataclass(frozen=True, eq=False, slots=True, weakref_slot=True)
class Handle:
    """The name of a stored constant."""

    number: int


class Content(NamedTuple):
    """The bytes of a constant, the file that they are mapped from, and what makes them where they were let go or are not made yet.

    `some`: gives those at some places, as long as none are made.
    """

    bytes: NDArray[np.uint8] | None
    file: Mapped | None
    restore: Callable[[], NDArray[np.uint8]] | None
    some: Callable[[Sequence[int]], bytes] | None = None


@dataclass
class _Entry:
    """The content of a handle. One thread may release the content while another reads, so it changes as one value."""

    content: Content
    sample: tuple[int, bytes] | None
    key: str | None
    origin: Hashable
    remake: Callable[[], NDArray[np.uint8]] | None = None
    forms: WeakValueDictionary[Hashable, NDArray[Any]] | None = None


class ConstantTable:
    """Contents of stored constants, by handle. `bytes` is None while only the hash was read from a text."""

    def __init__(self) -> None:
        self._entries: WeakKeyDictionary[Handle, _Entry] = WeakKeyDictionary()
        self._named: WeakValueDictionary[str, Handle] = WeakValueDictionary()  # those whose hash is known
        self._numbers = itertools.count()
        self._naming = Guard()

    def add(self, bytes: NDArray[np.uint8]) -> Handle:
        """Makes a handle for a content, whose memory it shares."""
        return self._new(bytes, None)

    def add_later(self, make: Callable[[], NDArray[np.uint8]], size: int, some: Callable[[Sequence[int]], bytes]) -> Handle:
        """Makes a handle for a content of `size` bytes that `make` gives when it is first read. `some` gives those at some places."""
        handle = self._new(None, None)
        entry = self._entries[handle]
        places = [p for place in _places(size) for p in range(place, min(place + RUN, size))]
        entry.content, entry.sample = Content(None, None, make, some), (size, some(places))
        return handle

    def named(self, key: str, bytes: NDArray[np.uint8] | None = None) -> Handle:
        """Gives the handle of this hash; takes the content if it was missing, or from a file that has changed."""
        with self._naming.lock:
            handle = self._named.get(key)
            if handle is None:
                handle = self._named[key] = self._new(bytes, key)
            elif bytes is not None and self.is_gone(handle):
                self.keep(handle, bytes)
            return handle

    def key(self, handle: Handle) -> str:
        """Gives the hash of a content, made when it is first asked for: that takes as long as reading all weights."""
        entry = self._entries[handle]
        if entry.key is None:
            content = self.bytes(handle)
            assert content is not None
            entry.key = key_of(content, entry.content.file)
            with self._naming.lock:
                self._named.setdefault(entry.key, handle)
        return entry.key

    def bytes(self, handle: Handle) -> NDArray[np.uint8] | None:
        """Gives a content. Raises PopulusError if it was a file's that has changed."""
        entry = self._entries[handle]
        found = entry.content
        if found.restore is not None and (found.file is None or found.file.changed):
            bytes = found.restore()
            assert _sample(bytes) == entry.sample, handle
            self.keep(handle, bytes)
            return bytes
        if found.file is not None and found.bytes is not None:
            found.file.touch(found.bytes.size)
            found.file.fetch(found.bytes)
        return found.bytes

    def bytes_at(self, handle: Handle, places: Sequence[int]) -> bytes:
        """Gives the bytes at some places of a content, which is not made for it."""
        import numpy as np

        found = self._entries[handle].content
        if found.some is not None:
            return found.some(places)
        content = self.bytes(handle) if found.restore is not None or found.file is None else found.bytes
        assert content is not None, handle
        if found.file is not None:
            found.file.touch(min(len(places) * mmap.PAGESIZE, content.size))
        return content[np.asarray(places)].tobytes()

    def equal(self, a: Handle, b: Handle) -> bool:
        """Tells whether two contents are equal, bit for bit. Without one of them, their hashes tell it."""
        if a is b:
            return True
        mine, theirs = self._entries[a], self._entries[b]
        if mine.sample is not None and theirs.sample is not None and mine.sample != theirs.sample:
            return False
        if self.is_gone(a) or self.is_gone(b):
            return self.key(a) == self.key(b)
        one, other = self.bytes(a), self.bytes(b)
        assert one is not None, a
        assert other is not None, b
        return one.data == other.data

    def sample(self, handle: Handle) -> tuple[int, bytes] | None:
        """Gives the size and some bytes of a content; None if only its hash was ever known."""
        return self._entries[handle].sample

    def is_gone(self, handle: Handle) -> bool:
        """Tells if only the hash is known."""
        found = self._entries[handle].content
        return found.restore is None and (found.bytes is None or (found.file is not None and found.file.changed))

    def is_released(self, handle: Handle) -> bool:
        """Tells if somebody has the content in another form."""
        content = self._entries[handle].content
        return content.restore is not None and content.some is None

    def is_here(self, handle: Handle) -> bool:
        """Tells if the content is in memory or mapped, and need not be made again."""
        return self._entries[handle].content.bytes is not None

    def is_mapped(self, handle: Handle) -> bool:
        """Tells if the content is a file's, which takes no memory."""
        return self._entries[handle].content.file is not None

    def check_file(self, handle: Handle) -> None:
        """Raises PopulusError if the content is a file's that has changed."""
        if (file := self._entries[handle].content.file) is not None:
            file.touch(0)

    def take_in(self, handle: Handle) -> None:
        """Copies the content of a file into memory: later changes of the file do not reach it.

        The file's own pages are given back piece by piece. Raises PopulusError if the file has changed.
        """
        import numpy as np

        file = self._entries[handle].content.file
        if file is None or (bytes := self.bytes(handle)) is None:
            return
        copied = np.empty_like(bytes, subok=False)
        for first in range(0, bytes.size, PIECE):
            piece = bytes[first : first + PIECE]
            file.touch(piece.size)
            copied[first : first + PIECE] = piece
        self.keep(handle, copied)

    def release(self, handle: Handle, restore: Callable[[], NDArray[np.uint8]]) -> None:
        """Lets go of a content, which somebody has in another form; `restore` makes it again.

        A file's content takes no memory and stays, until the file changes.
        """
        entry = self._entries[handle]
        file = entry.content.file
        entry.content = Content(None if file is None else entry.content.bytes, file, restore)

    def keep(self, handle: Handle, bytes: NDArray[np.uint8]) -> None:
        """Takes a content that was let go or missing, or lies elsewhere now."""
        entry = self._entries[handle]
        entry.sample, entry.content = _sample(bytes), Content(bytes, mapped(bytes), None)

    def forms(self, handle: Handle) -> WeakValueDictionary[Hashable, NDArray[Any]]:
        """Gives the other forms of a content that engines made, as long as these use them."""
        entry = self._entries[handle]
        with self._naming.lock:
            if entry.forms is None:
                entry.forms = WeakValueDictionary()
            return entry.forms

    def remake(self, handle: Handle) -> Callable[[], NDArray[np.uint8]] | None:
        """Gives the function that computes a content again from a file's; None if there is none."""
        return self._entries[handle].remake

    def remake_by(self, handle: Handle, remake: Callable[[], NDArray[np.uint8]]) -> None:
        """Records the function that computes a content again."""
        self._entries[handle].remake = remake

    def origin(self, handle: Handle) -> Hashable:
        """Gives what a content was computed from; else a number that no other has had."""
        return self._entries[handle].origin

    def computed_from(self, handle: Handle, origin: Hashable) -> None:
        """Records what a content was computed from."""
        self._entries[handle].origin = origin

    def _new(self, bytes: NDArray[np.uint8] | None, key: str | None) -> Handle:
        number = next(self._numbers)
        handle = Handle(number)
        content = Content(bytes, None if bytes is None else mapped(bytes), None)
        self._entries[handle] = _Entry(content, None if bytes is None else _sample(bytes), key, number)
        return handle


TABLE = ConstantTable()


class EqualContents:
    """Finds the first of the handles it was asked about that has the same content.

    Two contents are compared if their sizes and samples agree, and only with the first of these, or one of the same hash. So the
    work is linear, and most contents are not read.
    """

    def __init__(self) -> None:
        self._first: dict[tuple[int, bytes] | None, Handle] = {}
        self._hashed: dict[str, Handle] = {}
        self._found: dict[Handle, Handle] = {}

    def first(self, handle: Handle) -> Handle:
        """Gives the first handle of this content; `handle` if there was none."""
        found = self._found.get(handle)
        if found is None:
            sample = TABLE.sample(handle)
            found = self._first.setdefault(sample, handle) if sample is not None else handle
            if sample is None or (found is not handle and not TABLE.equal(found, handle)):
                found = self._hashed.setdefault(TABLE.key(handle), handle)
                found = found if TABLE.equal(found, handle) else handle
            self._found[handle] = found
        return found


def key_of(bytes: NDArray[np.uint8], file: Mapped | None = None) -> str:
    """Hashes a content to its key. `file`: that it is mapped from, whose pages are given back."""
    if file is None:
        return hashlib.sha256(bytes.data).hexdigest()[:16]
    digest = hashlib.sha256()
    for first in range(0, bytes.size, PIECE):
        piece = bytes[first : first + PIECE]
        file.touch(piece.size)
        digest.update(piece.data)
    return digest.hexdigest()[:16]


def _sample(bytes: NDArray[np.uint8]) -> tuple[int, bytes]:
    """Returns the size and some of the bytes, which are compared first."""
    return bytes.size, b"".join([bytes[place : place + RUN].tobytes() for place in _places(bytes.size)])


def _places(size: int) -> range:
    return range(0, size, max(size // SAMPLES, RUN))
