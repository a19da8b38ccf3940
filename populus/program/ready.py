"""Programs that are ready: built by an earlier `compile` of an ONNX file, found and loaded without importing what compiles.

    key of the model's path, the options, this package's files and the CPU -> <key>.ready, <key>.so, <key>.bin

`<key>.ready` lists the files of the model with their sizes and times, as the program was compiled from them; another time or size is
a miss. The folder is a `DiskCache`, which only the user can write, as the library is code.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, cast

from populus.dialects.support.disk_cache import DiskCache, default_place
from populus.dialects.support.errors import ProgramError
from populus.dialects.support.guard import Guard
from populus.dialects.support.package_hash import FOLDERS
from populus.runtime.built.code import processor

if TYPE_CHECKING:
    from pathlib import Path  # a hit imports neither it nor `tempfile`: with what these import they are a third of its time

    from numpy.typing import NDArray

    from populus.program.program import Program
    from populus.program.signature import Signature
    from populus.runtime.built.given import Inputs
    from populus.runtime.built.library import BuiltProgram

MAGIC = b"populus ready 1\n"
LIMIT = 4 << 30  # bytes, as of the cache of programs, whose folder it shares
MOST = 256 << 20  # bytes of the constants of a program that is kept without being asked for: to write more takes longer than to compile
SETTLED = 1.0  # seconds since the last change of a file, from which a later change surely has another time


@dataclass(frozen=True)
class Place:
    """Place of a model's program among those that are ready. `asked`: the user asks to keep it, whatever that takes."""

    disk: DiskCache
    key: str
    model: str
    options: Mapping[str, Any]
    asked: bool

    @staticmethod
    def of(model: object, options: Mapping[str, Any]) -> Place | None:
        """Finds the place for a model and the keywords of `compile`. Returns None for what is never kept.

        Those are models that are not files, values that have no short text, and processes in which ops were loaded or programs are
        watched. Without a `cache` in the options, so are processes that check what programs do.
        """
        cache: Any = options.get("cache")
        if cache is False or not isinstance(model, str | os.PathLike) or not _is_plain():
            return None
        if cache is None and any(os.environ.get(name, "") not in ("", "0") for name in _CHECKS):
            return None
        folder = default_place("populus-programs") if cache in (None, True) else cast("str", os.fspath(cache))
        others = {name: value for name, value in options.items() if name not in ("cache", "progress")}
        path = absolute(cast("str | os.PathLike[str]", model))
        text = _text(others)
        pipeline = str(options.get("pipeline", ""))
        if folder is None or text is None or not _is_model(path) or "." in pipeline or os.sep in pipeline:
            return None  # a pipeline's file may change
        if options.get("load") or options.get("plan"):
            return None  # as may these
        environment = sorted((n, v) for n, v in os.environ.items() if n.startswith("POPULUS_") and n not in _HARMLESS)
        digest = hashlib.sha256(repr((path, text, environment, _package(), processor())).encode())
        return Place(DiskCache(folder, MAGIC, LIMIT), digest.hexdigest()[:40], path, dict(options), cache is not None)

    def find(self, full: Callable[[], Program]) -> ReadyProgram | None:
        """Loads the program, if there is one for the model as it is. `full`: compiles it, for all that only compiling gives."""
        content = self.disk.read(f"{self.key}.ready")
        if content is None:
            return None
        digest, *lines = content.decode().splitlines()
        names = f"{self.key}.so", f"{self.key}.bin"
        library = self.disk.path(names[0])
        try:
            if any(_line(line.partition(" : ")[2]) != line for line in lines):
                return None
            if not all(map(self.disk.owned, names)) or _digest(library) != digest:
                return None
            from populus.runtime.built.library import BuiltProgram, threads_of

            built = BuiltProgram(library, threads_of(self.options.get("threads")))
        except (OSError, ProgramError):
            return None
        for name in names:
            self.disk.used(name)
        return ReadyProgram(built, full)

    def settled(self, files: Sequence[str], begun: int) -> bool:
        """Tells whether a later change of any of these files surely gives it another time than it has. `begun` as for `keep`."""
        try:
            return all(begun - max(_times(path)) >= SETTLED * 1e9 and "\n" not in path for path in files)
        except OSError:
            return False

    def keep(self, files: Sequence[str], begun: int, write: Callable[[Path, str], None]) -> bool:
        """Keeps a program. `files`: of the model; `begun`: the time in ns before they were read.

        `write(folder, name)`: writes the library and the weights. Without space or permission, nothing is kept. Returns False then,
        and if a file is so new that it may have changed since.
        """
        from pathlib import Path
        from tempfile import TemporaryDirectory

        try:
            lines = [_line(path) for path in files]
            if not self.settled(files, begun):
                return False
            self.disk.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not self.disk.trusted():
                return False
            with TemporaryDirectory(dir=self.disk.folder, prefix=".partial-") as made:
                write(Path(made), self.key)
                library = Path(made, f"lib{self.key}.so")
                digest = _digest(str(library))
                library.chmod(0o700)  # nobody else's to write, whatever the user's umask
                Path(made, f"{self.key}.bin").chmod(0o600)
                Path(made, f"{self.key}.bin").replace(self.disk.folder / f"{self.key}.bin")
                library.replace(self.disk.folder / f"{self.key}.so")
        except OSError as error:
            if self.asked:
                self.disk.warn_unwritable(error)
            return False
        self.disk.write(f"{self.key}.ready", "\n".join([digest, *lines]).encode())
        self.disk.trim()
        return True


class ReadyProgram:
    """A program that an earlier process compiled. `run` and `signature` answer at once; all else of `Program` compiles first."""

    def __init__(self, built: BuiltProgram, full: Callable[[], Program]):
        self._built = built
        self._compile = full
        self._full: Program | None = None
        self._making = Guard()

    def run(self, inputs: Inputs) -> dict[str, NDArray[Any]]:
        """Runs the program, as `Program.run` does. A mistake is left to the compiled model, which words it."""
        if self._full is None and _is_plain():
            try:
                return self._built.run(inputs)
            except ProgramError:
                pass
        return self._program().run(inputs)

    __call__ = run

    @cached_property
    def signature(self) -> Signature:
        """The names and types of inputs and outputs: only programs of plain arrays are kept, so these say it all."""
        from populus.dialects.support.element_types import element_of, tensor
        from populus.program.signature import Signature

        inputs, outputs = (
            {name: tensor(shape, element_of(dtype)) for name, (shape, dtype) in side.items()}
            for side in (self._built.inputs, self._built.outputs)
        )
        return Signature(inputs, outputs)

    def _program(self) -> Program:
        with self._making.lock:
            if self._full is None:
                self._full = self._compile()
            return self._full

    def __getattr__(self, name: str) -> Any:
        return getattr(self._program(), name)

    @property
    def __class__(self) -> type[Program]:  # pyright: ignore[reportIncompatibleMethodOverride], as isinstance asks for it
        from populus.program.program import Program

        return Program

    def __repr__(self) -> str:
        return f"<ReadyProgram of {', '.join(self._built.inputs)}>"


def is_ready(program: object) -> bool:
    """Tells whether a program was loaded, not compiled; `isinstance` says that it is a Program."""
    return type(program) is ReadyProgram


_HARMLESS = ("POPULUS_CACHE", "POPULUS_THREADS")
_CHECKS = ("POPULUS_CHECK", "POPULUS_GUARD")  # of launches and of memory, which a library does not have


def absolute(path: str | os.PathLike[str]) -> str:
    """Gives the absolute path of a file, with its `..` and links as they are: these may go elsewhere than to the folder above."""
    whole = os.path.join(os.getcwd(), os.fspath(path))
    return "/" + "/".join(part for part in whole.split("/") if part not in ("", ".")) if os.sep == "/" else os.path.abspath(whole)


def _is_model(path: str) -> bool:
    return os.path.splitext(path)[1] == ".onnx"


def _digest(path: str) -> str:
    with open(path, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()


def _times(path: str) -> tuple[int, int]:
    found = os.stat(path)
    return found.st_mtime_ns, found.st_ctime_ns


def _line(path: str) -> str:
    """Writes a file's path after numbers that change with its content: device, inode, size, times. Raises OSError without the file."""
    found = os.stat(path)
    return f"{found.st_dev} {found.st_ino} {found.st_size} {found.st_mtime_ns} {found.st_ctime_ns} : {path}"


def _is_plain() -> bool:
    """Tells whether no ops were loaded in this process, and nobody watches its programs."""
    extensions, watch = (sys.modules.get(f"populus.{name}") for name in ("lowering.driver.extensions", "program.watch"))
    if extensions is not None and extensions.known():
        return False
    return watch is None or watch.watch() is None


def _text(value: object) -> str | None:
    """Writes options of plain types as text; None for others."""
    if value is None or isinstance(value, bool | int | float | str):
        return repr(value)
    if isinstance(value, os.PathLike):
        return None
    if isinstance(value, Mapping):
        parts = [_text(part) for pair in cast("Mapping[object, object]", value).items() for part in pair]
    elif isinstance(value, list | tuple):
        parts = [_text(part) for part in cast("Sequence[object]", value)]
    else:
        return None
    known = [part for part in parts if part is not None]
    return f"[{','.join(known)}]" if len(known) == len(parts) else None


def _package() -> list[tuple[str, int, int]]:
    """Lists the files of this package with sizes and times, and what it depends on."""
    found: list[tuple[str, int, int]] = []
    folders = list(FOLDERS)
    while folders:
        with os.scandir(folders.pop()) as entries:
            for entry in entries:
                if entry.name.endswith((".py", ".c", ".h", ".txt")):
                    at = entry.stat()
                    found.append((entry.path, at.st_size, at.st_mtime_ns))
                elif entry.name != "__pycache__" and entry.is_dir():
                    folders.append(entry.path)
    for name in ("numpy", "onnx", "xdsl", "llvmlite", "ml_dtypes"):
        spec = find_spec(name)
        if spec is not None and spec.origin is not None:
            at, above = os.stat(spec.origin), os.path.dirname(os.path.dirname(spec.origin))
            found.append((spec.origin, at.st_size, at.st_mtime_ns))
            found.append((above, 0, os.stat(above).st_mtime_ns))  # the folder of all packages: its time changes when one is installed
    return sorted(found)
