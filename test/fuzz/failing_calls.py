"""Calls of the system of which the n-th fails: writes below a folder, threads that start, arrays of NumPy."""

from __future__ import annotations

import builtins
import contextlib
import errno
import io
import os
import sys
import threading
from collections.abc import Callable, Generator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

ERRORS = (errno.ENOSPC, errno.EACCES, errno.EIO)
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT


@dataclass
class Fault:
    """Counts calls, and raises an error in the `at`-th; 0: in none."""

    at: int = 0
    code: int = errno.ENOSPC
    calls: int = 0

    @property
    def came(self) -> bool:
        """True once the call has failed."""
        return 0 < self.at <= self.calls

    def next(self) -> bool:
        """Counts a call. Tells whether it fails."""
        self.calls += 1
        return self.calls == self.at

    @contextlib.contextmanager
    def armed(self, folder: Path) -> Generator[None, None, None]:
        """Counts calls in the block. `folder`: below which files count."""
        raise NotImplementedError


class Disk(Fault):
    """Counts opens for writing, writes, flushes, renames and new folders."""

    def refuse(self, path: object) -> None:
        """Counts a call, and raises its error."""
        if self.next():
            raise OSError(self.code, os.strerror(self.code), str(path))

    @contextlib.contextmanager
    def armed(self, folder: Path) -> Generator[None, None, None]:
        flush, plain = os.fsync, io.open
        inside = f"{folder}{os.sep}"

        def opened(file: Any, mode: str = "r", buffering: int = -1, *others: Any, **named: Any) -> Any:
            if isinstance(file, int) or not set(mode) & set("wax") or not os.fspath(file).startswith(inside):
                return plain(file, mode, buffering, *others, **named)
            raw = _Raw(file, mode.translate(str.maketrans("", "", "bt")))
            raw.fault = self
            made = io.BufferedRandom(raw) if "+" in mode else io.BufferedWriter(raw)
            names = ("encoding", "errors", "newline")
            return made if "b" in mode else io.TextIOWrapper(made, **dict(zip(names, others)), **named)

        def flushed(descriptor: int) -> None:
            if self.next():
                raise OSError(self.code, os.strerror(self.code))
            flush(descriptor)

        def watched(event: str, arguments: tuple[Any, ...]) -> None:
            path = arguments[0] if arguments else None
            if not isinstance(path, str | bytes | os.PathLike) or not os.fsdecode(path).startswith(inside):
                return
            if event in ("os.rename", "os.mkdir", "os.link") or (event == "open" and arguments[2] & WRITES):
                self.refuse(path)

        with contextlib.ExitStack() as stack:
            stack.enter_context(_watching(watched))
            for owner, name, instead in ((os, "fsync", flushed), (io, "open", opened), (builtins, "open", opened)):
                stack.enter_context(mock.patch.object(owner, name, instead))
            yield


class _Raw(io.FileIO):
    """A file whose writes are counted. One that fails writes half of its bytes."""

    fault: Disk

    def write(self, data: Any, /) -> int:
        if self.fault.next():
            super().write(memoryview(data)[: len(data) // 2])
            raise OSError(self.fault.code, os.strerror(self.fault.code), str(self.name))
        return super().write(data)


_WATCHERS: list[Callable[[str, tuple[Any, ...]], None]] = []


@cache
def _install() -> None:
    """Installs the hook of audits, which stays as long as the process."""

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if _WATCHERS and event in ("open", "os.rename", "os.mkdir", "os.link"):
            _WATCHERS[-1](event, arguments)

    sys.addaudithook(hook)


@contextlib.contextmanager
def _watching(watcher: Callable[[str, tuple[Any, ...]], None]) -> Generator[None, None, None]:
    _install()
    _WATCHERS.append(watcher)
    try:
        yield
    finally:
        _WATCHERS.pop()


class Threads(Fault):
    """Counts threads that start; from the failing one on, none does."""

    @contextlib.contextmanager
    def armed(self, folder: Path) -> Generator[None, None, None]:
        start = threading.Thread.start

        def started(thread: threading.Thread) -> None:
            if self.next() or self.came:
                raise RuntimeError("can't start new thread")
            start(thread)

        with mock.patch.object(threading.Thread, "start", started):
            yield


class Memory(Fault):
    """Counts arrays that NumPy makes."""

    @contextlib.contextmanager
    def armed(self, folder: Path) -> Generator[None, None, None]:
        def failing(make: Callable[..., Any]) -> Callable[..., Any]:
            def made(*arguments: Any, **named: Any) -> Any:
                if self.next():
                    raise MemoryError("Unable to allocate an array")
                return make(*arguments, **named)

            return made

        with contextlib.ExitStack() as stack:
            for name in ("empty", "empty_like", "full", "ones", "zeros", "zeros_like"):
                stack.enter_context(mock.patch.object(np, name, failing(getattr(np, name))))
            yield
