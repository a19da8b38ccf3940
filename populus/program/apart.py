"""`compile(apart=True)`: a child process compiles, and this one runs the built form, without the compiler in its memory.

The child writes the program's weights into a file without a name, which is gone with the last process that has it open.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, BinaryIO
from weakref import finalize

from populus.dialects.support.child import ChildEndedError, NoChildError, Tell, in_child, why_not
from populus.dialects.support.errors import PopulusWarning
from populus.program import ready
from populus.program.ready import Place, ReadyProgram
from populus.runtime.built.code import Flat

if TYPE_CHECKING:
    from pathlib import Path

    from populus.program.program import Program
    from populus.program.source import Model


@dataclass(frozen=True)
class Handed:
    """A built program, but for its file of weights: its code, the identity of both, and its note of dimensions of several sizes.

    `lines`: the files of the model. `keeps`: it is to be kept among the programs that are ready.
    """

    code: bytes
    identity: str
    note: str
    lines: Sequence[str]
    keeps: bool


def compiled_apart(
    model: Model, options: Mapping[str, Any], place: Place | None, full: Callable[[], Program], work: Callable[[int, Tell], Handed | str]
) -> ReadyProgram | None:
    """Compiles a model in a child process, and loads what it hands over. Returns None, with a warning, for what only this process can do.

    `place`: where it is kept. `full`: compiles it here, for all that only compiling gives. `work`: what the child does. It writes the
    weights into an open file, tells of passes, and returns the rest, or the reason if there is no built form.
    Raises what compiling raises, and PopulusError if the child is ended.
    """
    why = _refused(options)
    if why is None:
        with open(os.memfd_create("populus"), "r+b") as file:
            try:
                found = in_child(partial(work, file.fileno()), options.get("progress") or (lambda *_: None))
            except NoChildError as error:
                found = f"the system starts no other: {error}"
            except ChildEndedError as error:
                from populus.dialects.support.diagnostics import PopulusError

                raise PopulusError(f"{_named(model)}the process that compiled it ended {error}") from error
            if isinstance(found, Handed):
                try:
                    return _loaded(found, file.fileno(), options, place, full)
                except OSError as error:
                    found = f"what another handed over cannot be loaded: {error.strerror or error}"
            why = found
    from populus.dialects.support.users_line import users_level

    warnings.warn(f"{_named(model)}compiled in this process, not apart: {why}", PopulusWarning, stacklevel=users_level())
    return None


def _refused(options: Mapping[str, Any]) -> str | None:
    """Tells why a child cannot compile a program for this process; None if it can."""
    if ready.is_checked():
        return "POPULUS_CHECK and POPULUS_GUARD check launches, which those of a built program are not"
    if ready.is_watched():
        return "a watch counts the runs of programs"
    if options.get("engine", "auto") not in ("auto", "native") or options.get("sample"):
        return "built programs run on the native engine"
    if options.get("level", "poplar") != "poplar":
        return f"built programs run on the level poplar, not on {options['level']}"
    ready.finish()  # a thread that keeps a program imports modules, whose locks a child would wait for
    return why_not() if hasattr(os, "memfd_create") else "this system has no files without names"


def _loaded(found: Handed, file: int, options: Mapping[str, Any], place: Place | None, full: Callable[[], Program]) -> ReadyProgram:
    """Loads a program that a child handed over, and keeps it as `kept_as` of `building.py` does."""
    from populus.runtime.built.kept import load_kept
    from populus.runtime.built.library import threads_of

    flat = Flat.from_bytes(found.code)
    assert flat is not None, "the code is whole, as the pipe is"
    built = load_kept(f"/proc/self/fd/{file}", flat, threads_of(options.get("threads")), found.identity)
    if place is None or not found.keeps:
        return ReadyProgram(ready.padded(built, found.note), full, None, found.lines, _is_plain)
    copy = open(os.dup(file), "rb")  # noqa: SIM115, of a program that may never run, and is kept after its first run
    keep = partial(_keep, place, found, copy)
    if place.asked:
        keep()
    program = ReadyProgram(ready.padded(built, found.note), full, None if place.asked else keep, found.lines, _is_plain)
    finalize(program, copy.close)
    return program


def _is_plain() -> bool:
    return not ready.is_watched()  # it was compiled with the ops that were loaded


def _keep(place: Place, found: Handed, file: BinaryIO) -> None:
    """Copies what a child handed over to the programs that are kept."""

    def write(folder: Path, name: str) -> tuple[str, str]:
        at, size = 0, os.fstat(file.fileno()).st_size
        with open(folder / f"{name}.bin", "wb") as copy:
            while at < size:
                at += os.sendfile(copy.fileno(), file.fileno(), at, size - at)
        (folder / f"{name}.code").write_bytes(found.code)
        return "code", found.identity

    with file:
        place.keep(found.lines, write, found.note)


def _named(model: Model) -> str:
    return f"{os.fspath(model)}: " if isinstance(model, str | os.PathLike) else ""
