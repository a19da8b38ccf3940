"""Caches on disk: files that are named by a hash of whatever made them, in a folder that only the user can write.

Cached machine code runs, so a folder that others may write is not used, with one warning. A file of another user, or one that others may
write, was put there when they could: it counts as absent, and so do links. Each file begins with the hash of its name and content, so a
damaged file, or one of another name, counts as absent. Writers rename whole files.
"""

from __future__ import annotations

import contextlib
import os
import stat
import sys
import warnings
from collections.abc import Generator
from typing import TYPE_CHECKING, NamedTuple

from populus.dialects.support.digest import sha256
from populus.dialects.support.errors import PopulusWarning

if TYPE_CHECKING:
    from pathlib import Path  # a hit needs neither it nor `tempfile`, which take longer to import than the hit takes

VARIABLE = "POPULUS_CACHE"  # environment variable: the folder of all caches; empty: no caches by default
_PLAIN = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)  # neither a link is opened, nor is a pipe waited for
_WRITERS = stat.S_IWGRP | stat.S_IWOTH


def default_place(name: str) -> str | None:
    """Returns the folder of a cache below POPULUS_CACHE or the user's own cache folder; None if POPULUS_CACHE is empty."""
    named = os.environ.get(VARIABLE)
    if named == "":
        return None
    return os.path.join(named or _users_own(), name)


def default_folder(name: str) -> Path | None:
    """Returns `default_place` as a path."""
    from pathlib import Path

    place = default_place(name)
    return None if place is None else Path(place)


def _users_own() -> str:
    """Returns the user's own cache folder as platformdirs does, whose import the usual cases need not."""
    named, home = os.environ.get("XDG_CACHE_HOME", ""), os.environ.get("HOME", "")
    if sys.platform == "linux" and "ANDROID_DATA" not in os.environ:
        if named.startswith("/"):
            return named
        if not named and home.startswith("/"):
            return os.path.join(home, ".cache")
    from platformdirs import user_cache_dir

    return user_cache_dir()


def hash_of(name: str, content: bytes) -> bytes:
    """Computes the hash of a file, with its name, so that a file is nothing under another one."""
    return sha256(name.encode() + b"\0" + content)


class DiskCache(NamedTuple):
    """The files of one cache. `magic`: the first line of each, with the version of its form. `limit`: the most bytes they take."""

    place: str | os.PathLike[str]
    magic: bytes
    limit: int

    @property
    def folder(self) -> Path:
        """The folder of the files."""
        from pathlib import Path

        return Path(self.place)

    def path(self, name: str) -> str:
        """Gives the path of a file."""
        return os.path.join(self.place, name)

    def read(self, name: str) -> bytes | None:
        """Reads a file's content. Returns None if it is absent or damaged, or if the folder is not to be trusted."""
        if not self.trusted():
            return None
        try:
            with open(os.open(self.path(name), os.O_RDONLY | _PLAIN), "rb") as file:
                if not self._is_ours(name, os.fstat(file.fileno())):
                    return None
                data = file.read()
        except OSError:
            return None
        head = len(self.magic) + 32
        if data[: len(self.magic)] != self.magic or hash_of(name, data[head:]) != data[len(self.magic) : head]:
            return None
        self.used(name)
        return data[head:]

    def owned(self, name: str) -> bool:
        """Tells whether a file is there, no link, and nobody else can have written it."""
        try:
            return self._is_ours(name, os.lstat(self.path(name)))
        except OSError:
            return False

    def _is_ours(self, name: str, found: os.stat_result) -> bool:
        """Tells whether a file is a regular one that nobody else can have written; warns once for one that somebody can."""
        if not stat.S_ISREG(found.st_mode):
            return False
        why = _others(found)
        if why is not None:
            self._warn(f"has the file {name}, which {why}", "remove the folder")
        return why is None

    def write(self, name: str, content: bytes) -> None:
        """Stores a file. Without space or permission, nothing is stored and nothing is raised."""
        with contextlib.suppress(OSError), self.written(name) as partial:
            partial.write_bytes(self.framed(name, content))

    def framed(self, name: str, content: bytes) -> bytes:
        """Gives a file's bytes: its content after the hash that says it is whole."""
        return self.magic + hash_of(name, content) + content

    def warn_unwritable(self, error: Exception) -> None:
        """Warns once that a program which should be kept cannot be."""
        why = (error.strerror or str(error)) if isinstance(error, OSError) else str(error)
        self._warn(f"keeps no program: {why}", "make it a folder that you can write,")

    @contextlib.contextmanager
    def written(self, name: str) -> Generator[Path, None, None]:
        """Yields a temporary file, which takes its place when the block succeeds. Raises OSError if the folder cannot be used."""
        from pathlib import Path
        from tempfile import mkstemp

        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not self.trusted():
            raise PermissionError(f"{self.folder} is not used")
        handle, partial = mkstemp(dir=self.folder, prefix=".partial-", suffix=Path(name).suffix)
        os.close(handle)
        try:
            yield Path(partial)
            os.replace(partial, self.path(name))
        finally:  # also after an interruption
            with contextlib.suppress(OSError):
                os.unlink(partial)

    def used(self, name: str) -> None:
        """Notes that a file was used now: the least recently used files go first."""
        with contextlib.suppress(OSError):
            os.utime(self.path(name))

    def trim(self, limit: int | None = None) -> None:
        """Removes the least recently used files until the rest is within the limit. Files with one stem go together."""
        most = self.limit if limit is None else limit
        groups: dict[str, tuple[float, int, list[str]]] = {}
        with contextlib.suppress(OSError):
            for entry in os.scandir(self.place):
                stem = entry.name.partition(".")[0]
                if stem and entry.is_file(follow_symlinks=False):
                    found, (used, size, names) = entry.stat(follow_symlinks=False), groups.get(stem, (0.0, 0, []))
                    groups[stem] = max(used, found.st_mtime), size + found.st_size, [*names, entry.name]
        total = sum(size for _, size, _ in groups.values())
        for _, size, names in sorted(groups.values()):
            if total <= most:
                return
            for name in names:
                with contextlib.suppress(OSError):
                    os.unlink(self.path(name))
            total -= size

    def sizes(self) -> dict[str, int]:
        """Lists the bytes of the files by name; none in a folder that is not to be trusted."""
        found: dict[str, int] = {}
        if self.trusted():
            with contextlib.suppress(OSError):
                for entry in os.scandir(self.place):
                    if entry.is_file(follow_symlinks=False):
                        found[entry.name] = entry.stat(follow_symlinks=False).st_size
        return found

    def clear(self) -> None:
        """Removes the files. A process keeps what it has loaded, and a folder that is not to be trusted stays as it is."""
        for name in self.sizes():
            with contextlib.suppress(OSError):
                os.unlink(self.path(name))

    def trusted(self) -> bool:
        """Tells whether the folder is there and nobody else can have written it; warns once for a folder of which this is not so."""
        try:
            found = os.lstat(self.place)
        except OSError:
            return False
        why = _fault(found, os.stat(os.path.dirname(os.path.abspath(self.place))))
        if why is None:
            return stat.S_ISDIR(found.st_mode)
        self._warn(f"{why}; it is not used", "remove it, as others may have put files there,")
        return False

    def _warn(self, why: str, advice: str) -> None:
        """Warns once of a folder."""
        if (place := os.fspath(self.place)) not in _WARNED:
            _WARNED.add(place)
            warnings.warn(f"cache folder {place} {why}: {advice} or name another in {VARIABLE}", PopulusWarning, stacklevel=4)


_WARNED: set[str] = set()


def _fault(folder: os.stat_result, parent: os.stat_result) -> str | None:
    """Returns the reason why others may have written a folder; None if they cannot have. Windows has other rights, so no check."""
    if stat.S_ISLNK(folder.st_mode):
        return "is a link"
    if not hasattr(os, "geteuid"):
        return None
    if (why := _others(folder)) is not None:
        return why
    if parent.st_mode & stat.S_IWOTH and not parent.st_mode & stat.S_ISVTX:
        return f"lies in a folder that anybody may write (mode {stat.S_IMODE(parent.st_mode):o})"
    return None


def _others(found: os.stat_result) -> str | None:
    """Returns the reason why others may have written a file or folder; None if they cannot have."""
    if not hasattr(os, "geteuid"):
        return None
    if found.st_uid != os.geteuid():
        return f"belongs to user {found.st_uid}, not to {os.geteuid()}"
    if found.st_mode & _WRITERS:
        return f"may be written by others (mode {stat.S_IMODE(found.st_mode):o})"
    return None
