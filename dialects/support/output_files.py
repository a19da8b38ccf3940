"""Files that commands write: whole or not at all, where the path that the user gave leads.

A new file, or one that replaces a regular file, is written beside its place and renamed. It has the mode and the owner of the file before,
and a link stays a link. A device, a pipe and an open descriptor are written to, and so is a file whose folder is closed to us.
"""

from __future__ import annotations

import errno
import itertools
import os
import re
import shutil
import stat
import sys
import tempfile
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from populus.dialects.support.diagnostics import PopulusError

_WRITERS = itertools.count()  # several threads may write one file; the last one to finish wins
_DESCRIPTOR = re.compile(r"/(?:dev|proc/(?:self|thread-self|[0-9]+))/fd/([0-9]+)")
_LINKS = 40  # as many as Linux follows
_STEM = 80  # bytes of a name that the name of its partial file begins with: it may be as long as names can be


@dataclass(frozen=True)
class Place:
    """Where the content of a path goes. `path`: the file at the end of links; `before`: what is there; `descriptor`: an open file."""

    path: Path
    before: os.stat_result | None
    descriptor: int | None = None

    @staticmethod
    def of(path: str | os.PathLike[str]) -> Place:
        """Finds the place. Raises OSError if nothing can be written there."""
        name = os.fspath(path)
        if name == "-":
            raise OSError(errno.EINVAL, "it stands for standard output, which this is not written to; ./- is a file")
        if "\0" in name:
            raise OSError(errno.EINVAL, "a path has no null character")
        if name.endswith(os.sep):  # of a folder, also where there is none
            raise OSError(errno.EISDIR, os.strerror(errno.EISDIR))
        if (found := _descriptor(name)) is not None:
            return Place(Path(name), os.fstat(found), found)
        real = os.path.realpath(name)
        try:
            before = os.stat(name)
        except FileNotFoundError:
            if not os.path.isdir(folder := os.path.dirname(real)):
                raise OSError(errno.ENOENT, f"there is no folder {folder}") from None
            return Place(Path(real), None)
        if stat.S_ISDIR(before.st_mode):
            raise OSError(errno.EISDIR, os.strerror(errno.EISDIR))
        if not os.access(name, os.W_OK):
            raise OSError(errno.EACCES, os.strerror(errno.EACCES))
        return Place(Path(real), before)

    @property
    def is_file(self) -> bool:
        """Tells whether a regular file is, or comes to be, at the path; else it is a device, a pipe, or an open descriptor."""
        return self.before is None or (self.descriptor is None and stat.S_ISREG(self.before.st_mode))

    @property
    def is_replaced(self) -> bool:
        """Tells whether a new file takes the place; else the content is written to what is there."""
        if self.before is None:
            return True
        if not self.is_file:
            return False
        own = not hasattr(os, "geteuid") or os.geteuid() in (0, self.before.st_uid)
        return own and os.access(self.path.parent, os.W_OK | os.X_OK)

    def partial(self) -> Path:
        """Makes the path of a file whose content comes here. It is there with the mode of the file before, if there was one."""
        if not self.is_replaced:
            handle, name = tempfile.mkstemp(prefix="populus-", suffix=".partial")
            os.close(handle)
            return Path(name)
        stem = os.fsencode(self.path.name)[:_STEM].decode(errors="ignore")
        found = self.path.with_name(f"{stem}.{os.getpid()}.{next(_WRITERS)}.partial")
        if self.before is not None:
            os.close(os.open(found, os.O_WRONLY | os.O_CREAT | os.O_EXCL, stat.S_IMODE(self.before.st_mode) & 0o777))
        return found

    def alike(self, partial: Path) -> None:
        """Gives a file the mode and the owner of the one before."""
        if self.before is None:
            return
        now = partial.stat()
        if (now.st_uid, now.st_gid) != (self.before.st_uid, self.before.st_gid):
            try:
                os.chown(partial, self.before.st_uid, self.before.st_gid)
            except PermissionError:  # of a group that we do not belong to: its rights are not for our group
                partial.chmod(stat.S_IMODE(self.before.st_mode) & ~0o070)
                return
        if stat.S_IMODE(partial.stat().st_mode) != stat.S_IMODE(self.before.st_mode):
            partial.chmod(stat.S_IMODE(self.before.st_mode))

    def fill(self, partial: Path) -> None:
        """Writes the content of a file to what is here."""
        flags = os.O_WRONLY | os.O_TRUNC | getattr(os, "O_NOCTTY", 0)
        if self.descriptor is not None:
            sys.stdout.flush()  # whose text comes first, if it is that file
        with partial.open("rb") as source:
            handle = os.open(self.path, flags) if self.descriptor is None else os.dup(self.descriptor)
            with os.fdopen(handle, "wb") as target:
                shutil.copyfileobj(source, target)


def _descriptor(name: str) -> int | None:
    """Gives the number of an open file that a path names, such as /dev/stdout."""
    at = os.path.abspath(name)
    for _ in range(_LINKS):
        if (found := _DESCRIPTOR.fullmatch(at)) is not None:
            owner = at.split("/")[2]
            return int(found[1]) if owner in ("fd", "self", "thread-self", str(os.getpid())) else None
        try:
            at = os.path.join(os.path.dirname(at), os.readlink(at))
        except OSError:
            return None
    return None


def check_places(paths: Sequence[str | os.PathLike[str] | None]) -> list[Place]:
    """Finds the places of paths. Raises PopulusError for one that nothing can be written to, before hours of work for it."""
    places: list[Place] = []
    for path in filter(None, paths):
        with _named(path):
            places.append(Place.of(path))
    return places


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Generator[Path, None, None]:
    """Yields a temporary path, whose content comes to `path` when the block succeeds, and which is removed when it fails.

    Raises PopulusError if nothing can be written there.
    """
    with replacing_all([path]) as [partial]:
        yield partial


@contextmanager
def replacing_all(paths: Sequence[str | os.PathLike[str]]) -> Generator[list[Path], None, None]:
    """Yields temporary paths, which replace `paths` when the block succeeds, all of them or none. Raises PopulusError."""
    moves: list[tuple[Path, Place]] = []
    try:
        for path in paths:
            with _named(path):
                place = Place.of(path)
                moves.append((place.partial(), place))
        with _named(paths[-1]):
            yield [partial for partial, _ in moves]
            put_in_place(moves)
    finally:
        for partial, _ in moves:
            with suppress(OSError):
                partial.unlink(missing_ok=True)


@contextmanager
def _named(path: str | os.PathLike[str]) -> Generator[None, None, None]:
    """Raises PopulusError with the path for an error of the system."""
    try:
        yield
    except OSError as error:
        raise PopulusError(f"{os.fspath(path)}: cannot be written: {error.strerror or error}") from error


def put_in_place(moves: Sequence[tuple[Path, Place]]) -> None:
    """Puts each file in its place, all or none: what was there comes back if a later one cannot be renamed.

    Places that are written to, such as a pipe, come first. Raises OSError.
    """
    for source, place in moves:
        if not place.is_replaced:
            place.fill(source)
        else:
            place.alike(source)
    _rename([(source, place.path) for source, place in moves if place.is_replaced])


def _rename(moves: Sequence[tuple[Path, Path]]) -> None:
    """Renames each first file to the second, all or none. Raises OSError."""
    done: list[tuple[Path, Path | None]] = []
    kept: list[Path] = []
    try:
        for source, target in moves[:-1]:
            before = source.with_name(f"{source.name}.before.partial")
            there = os.path.lexists(target)
            if there:
                kept.append(before)
                _keep(target, before)
            done.append((target, before if there else None))
            source.replace(target)
        for source, target in moves[-1:]:
            source.replace(target)
    except BaseException:  # also an interruption
        for target, before in reversed(done):
            with suppress(OSError):
                target.unlink(missing_ok=True) if before is None else before.replace(target)
        raise
    finally:
        for before in kept:
            with suppress(OSError):
                before.unlink(missing_ok=True)


def _keep(path: Path, before: Path) -> None:
    """Gives a file a second name, or copies it where the file system has no links."""
    try:
        os.link(path, before, follow_symlinks=False)
    except (OSError, NotImplementedError):
        shutil.copy2(path, before, follow_symlinks=False)
