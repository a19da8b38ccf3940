"""Work in a child process: this one gets its result, warnings and error, and none of the memory that the work took."""

from __future__ import annotations

import os
import pickle  # noqa: TID251, of what a child of this process sends through a pipe, and no file
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Callable
from contextlib import suppress
from typing import Any, BinaryIO, NoReturn, TypeAlias, TypeVar

T = TypeVar("T")
Tell: TypeAlias = Callable[..., None]

_DEATH = 1  # of prctl: the signal that a process gets when its parent ends
_OURS = "populus-"  # the beginning of the names of this package's threads, which hold no lock while they wait


class NoChildError(Exception):
    """The system starts no child, for the reason that this says."""


class ChildEndedError(Exception):
    """A child ended before its work was done. This says how."""


def why_not() -> str | None:
    """Tells why this process should not fork a child that goes on with its work; None if it may."""
    if sys.platform != "linux":
        return "this system is not Linux"
    others = [t for t in threading.enumerate() if t is not threading.current_thread() and not t.name.startswith(_OURS)]
    if others or threading.current_thread() is not threading.main_thread():
        return "this process has other threads, whose locks a child would wait for"
    return None


def in_child(work: Callable[[Tell], T], heard: Callable[..., None]) -> T:
    """Does work in a forked child, and gives its result. Its error is raised here, and so are its warnings, as this process's filters say.

    `work` gets a function that calls `heard` in this process. An interruption here ends the child, and the end of this process does.
    Raises ChildEndedError if the child ends without a result, and NoChildError if there is none.
    """
    _flush()
    read, write = os.pipe()
    parent = os.getpid()
    with warnings.catch_warnings():
        for category in (DeprecationWarning, RuntimeWarning):  # Python 3.12 and JAX name threads, whose code no child calls
            warnings.filterwarnings("ignore", r".*fork\(\)", category)
        try:
            child = os.fork()
        except OSError as error:
            os.close(read)
            os.close(write)
            raise NoChildError(error.strerror or error) from error
    if child == 0:
        os.close(read)
        _work(work, write, parent)
    os.close(write)
    try:
        with os.fdopen(read, "rb") as pipe:
            while (record := _next(pipe)) is not None:
                match record:
                    case "heard", arguments:
                        heard(*arguments)
                    case "warned", *warning:
                        _warn(*warning)
                    case "failed", error:
                        raise error
                    case _:
                        return record[1]
    except BaseException:
        with suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
        raise
    finally:
        status = _waited(child)
    how = f"by {signal.Signals(os.WTERMSIG(status)).name}" if os.WIFSIGNALED(status) else f"with status {os.waitstatus_to_exitcode(status)}"
    raise ChildEndedError(how + (", as for lack of memory" if how.endswith("SIGKILL") else ""))


def _next(pipe: BinaryIO) -> tuple[Any, ...] | None:
    """Reads what a child says next; None if it ended, also within a record."""
    try:
        return pickle.load(pipe)  # noqa: S301
    except (EOFError, pickle.UnpicklingError):
        return None


def _waited(child: int) -> int:
    with suppress(ChildProcessError):  # whoever ignores SIGCHLD has no children to wait for
        return os.waitpid(child, 0)[1]
    return 0


def _work(work: Callable[[Tell], object], write: int, parent: int) -> NoReturn:
    """Does the work and says how it went. Nothing that the parent registered runs at the end of the child."""
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to both, and the parent ends the child
        _end_with(parent)
        with os.fdopen(write, "wb") as pipe:

            def say(*record: object) -> None:
                pipe.write(pickle.dumps(record))
                pipe.flush()

            with warnings.catch_warnings():
                warnings.simplefilter("always")  # the parent's filters decide
                warnings.showwarning = lambda message, category, filename, lineno, *_: say("warned", message, category, filename, lineno)
                try:
                    last = "done", work(lambda *arguments: say("heard", arguments))
                except Exception as error:
                    last = "failed", _plain(error)
                _flush()
                say(*last)
    finally:
        os._exit(1)


def _flush() -> None:
    """Writes what was printed: a child has a copy of what its parent printed and did not write, and it ends without writing its own."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError, OSError, ValueError):  # there is none, or it is closed
            stream.flush()


def _end_with(parent: int) -> None:
    """Lets the system end this process when its parent ends."""
    import ctypes

    ctypes.CDLL(None).prctl(_DEATH, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def _plain(error: Exception) -> Exception:
    """Gives an error that can be sent, with its traceback as a note unless it is a user's."""
    from populus.dialects.support.errors import ProgramError

    with suppress(Exception):
        found = pickle.loads(pickle.dumps(error))  # noqa: S301
        if type(found) is type(error) and str(found) == str(error):
            if not isinstance(error, ProgramError):
                error.add_note("".join(traceback.format_exception(error)).rstrip())
            return error
    return RuntimeError("".join(traceback.format_exception(error)).rstrip())


def _warn(message: Warning, category: type[Warning], filename: str, lineno: int) -> None:
    """Warns as the child did, of the same line: once, if the filters of its module say so."""
    frame = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
    while frame.f_code.co_filename != filename and frame.f_back is not None:
        frame = frame.f_back
    module = frame.f_globals if frame.f_code.co_filename == filename else {}
    registry = module.setdefault("__warningregistry__", {})
    warnings.warn_explicit(message, category, filename, lineno, module.get("__name__"), registry)
