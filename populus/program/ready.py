"""Programs that are ready: built by an earlier `compile` of an ONNX file, found and loaded without importing what compiles.

    key of the model's path, the options, this package's files and the CPU -> <key>.ready, <key>.code, <key>.bin

`<key>.ready` has the hash of the code, and lists the files of the model with their sizes and times, as the program was compiled from
them; another time or size is a miss. It says the sizes of dimensions that have bounds. The folder is a `DiskCache`, which only the user
can write, as code runs. Where code needs a linker, as on 64-bit ARM, a library of the C compiler, `<key>.so`, is in its place.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from threading import Thread
from typing import TYPE_CHECKING, Any, NamedTuple, cast
from weakref import WeakSet

from populus.dialects.support.digest import sha256
from populus.dialects.support.disk_cache import DiskCache, default_place
from populus.dialects.support.errors import ProgramError
from populus.dialects.support.guard import Guard
from populus.dialects.support.package_hash import COMPILER
from populus.runtime.built.code import Flat, processor

if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec
    from pathlib import Path  # a hit imports neither it nor `tempfile`: with what these import they are a third of its time

    from numpy.typing import NDArray

    from populus.program.program import Program
    from populus.program.signature import Signature
    from populus.runtime.built.given import Inputs
    from populus.runtime.built.library import Runner
    from populus.runtime.built.open_sizes import Padded

MAGIC = b"populus ready 3\n"
LIMIT = 4 << 30  # bytes, as of the cache of programs, whose folder it shares
MOST = 256 << 20  # bytes of the constants of a program that is kept without being asked for: to write more takes longer than to compile
GROUP = 20  # hexadecimal digits that the keys of a model's programs have in common
SETTLED = 1.0  # seconds since the last change of a file, from which a later change surely has another time


class Place(NamedTuple):
    """Place of a model's program among those that are ready. `asked`: the user asks to keep it, whatever that takes.

    `group`: the beginning of the keys of all programs of one model with open dimensions.
    """

    disk: DiskCache
    key: str
    model: str
    options: Mapping[str, Any]
    asked: bool
    group: str = ""

    @staticmethod
    def of(model: object, options: Mapping[str, Any]) -> Place | None:
        """Finds the place for a model and the keywords of `compile`. Returns None for what is never kept.

        Those are models that are not files, values that have no short text, and processes in which ops were loaded or programs are
        watched. Without a `cache` in the options, so are processes that check what programs do.
        """
        cache: Any = options.get("cache")
        if cache is False or not isinstance(model, str | os.PathLike) or not is_plain():
            return None
        if cache is None and is_checked():
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
        digest = sha256(repr((path, text, environment, _package(), processor())).encode())
        return Place(DiskCache(folder, MAGIC, LIMIT), digest.hex()[:40], path, dict(options), cache is not None)

    def at(self, sizes: object) -> Place:
        """Gives the place of the program for some sizes of a model with open dimensions."""
        group = self.key[:GROUP]
        return self._replace(group=group, key=group + sha256(repr((self.key, sizes)).encode()).hex()[GROUP : len(self.key)])

    @property
    def open_name(self) -> str:
        """The file that says how to find the programs of a model with open dimensions (`ready_open.py`)."""
        return f"{self.key}.open"

    def taken(self) -> int:
        """Counts the bytes of the group's files."""
        return sum(size for name, size in self.disk.sizes().items() if name.startswith(self.group)) if self.group else 0

    def find(self, full: Callable[[], Program]) -> ReadyProgram | None:
        """Loads the program, if there is one for the model as it is. `full`: compiles it, for all that only compiling gives."""
        content = self.disk.read(f"{self.key}.ready")
        if content is None:
            return None
        first, note, *lines = content.decode().splitlines()
        kind, digest, identity = first.split()
        names = f"{self.key}.{kind}", f"{self.key}.bin"
        code, data = map(self.disk.path, names)
        try:
            if not unchanged(lines) or not all(map(self.disk.owned, names)):
                return None
            content = _content(code)
            if sha256(content).hex() != digest:
                return None
            from populus.runtime.built.library import BuiltProgram, threads_of

            threads = threads_of(self.options.get("threads"))
            if kind == "code":
                from populus.runtime.built.kept import load_kept

                if (flat := Flat.from_bytes(content)) is None:
                    return None
                built = load_kept(data, flat, threads, identity)
            else:
                built = BuiltProgram(code, threads)
        except (OSError, ProgramError):
            return None
        for name in names:
            self.disk.used(name)
        return ReadyProgram(padded(built, note), full, lines=lines)

    def settled(self, files: Sequence[str], begun: int) -> bool:
        """Tells whether a later change of any of these files surely gives it another time than it has. `begun` as for `keep`."""
        try:
            return all(begun - max(_times(path)) >= SETTLED * 1e9 and "\n" not in path for path in files)
        except OSError:
            return False

    def lines(self, files: Sequence[str], begun: int) -> list[str] | None:
        """Describes the files of a model as they are; None if one is so new that it may have changed since. `begun` as for `settled`."""
        try:
            lines = [line(path) for path in files]
        except OSError:
            return None
        return lines if self.settled(files, begun) else None

    def keep(self, lines: Sequence[str], write: Callable[[Path, str], tuple[str, str]], note: str = "") -> bool:
        """Keeps a program. `lines`: of the model's files, before it was compiled. `note`: of its open dimensions, as `Padded` reads it.

        `write(folder, name)`: writes the code and the weights, and gives the ending of the code's file and the identity of both. Without
        space or permission nothing is kept, and this returns False.
        """
        from pathlib import Path
        from tempfile import TemporaryDirectory

        try:
            self.disk.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not self.disk.trusted():
                return False
            with TemporaryDirectory(dir=self.disk.folder, prefix=".partial-") as made:
                kind, identity = write(Path(made), self.key)
                digest = sha256(_content(os.path.join(made, f"{self.key}.{kind}"))).hex()
                for name in (f"{self.key}.bin", f"{self.key}.{kind}"):
                    Path(made, name).chmod(0o700 if kind == "so" else 0o600)  # nobody else's to write, whatever the user's umask
                    Path(made, name).replace(self.disk.folder / name)
        except OSError as error:
            if self.asked:
                self.disk.warn_unwritable(error)
            return False
        self.disk.write(f"{self.key}.ready", "\n".join([f"{kind} {digest} {identity}", note, *lines]).encode())
        self.disk.trim()
        return True


_WRITERS: WeakSet[Thread] = WeakSet()


def finish() -> None:
    """Waits until all programs are kept that a first run of this process keeps, as the end of the process does."""
    for writer in list(_WRITERS):
        writer.join()


class ReadyProgram:
    """A program that runs from its frozen form. `run`, `bind` and `signature` answer at once; all else of `Program` compiles first.

    `later`: called in a thread after the first run, which it does not delay. `lines`: the model's files, if `full` reads them again.
    `plain`: tells whether the built form runs; otherwise the compiled one does.
    """

    def __init__(
        self,
        built: Runner | Padded,
        full: Callable[[], Program],
        later: Callable[[], object] | None = None,
        lines: Sequence[str] = (),
        plain: Callable[[], bool] | None = None,
    ):
        self._built = built
        self._compile = full
        self._later = later
        self._lines = lines
        self._plain = plain or is_plain
        self._full: Program | None = None
        self._making = Guard()

    def run(self, inputs: Inputs) -> dict[str, NDArray[Any]]:
        """Runs the program, as `Program.run` does. A mistake is left to the compiled model, which words it."""
        if self._plain():
            try:
                found = self._built.run(inputs)
            except ProgramError:
                pass
            else:
                if self._later is not None:
                    self._keep()
                return found
        return self._program().run(inputs)

    __call__ = run

    def run_frozen(self, inputs: Inputs) -> dict[str, NDArray[Any]]:
        """Runs the frozen form. Raises ProgramError for inputs that it does not take."""
        found = self._built.run(inputs)
        if self._later is not None:
            self._keep()
        return found

    def rest(self) -> None:
        """Gives memory that only runs need back to the system, until the next run."""
        self._built.rest()

    def _keep(self) -> None:
        """Starts what is to be done after the first run. The process waits for it at its end."""
        with self._making.lock:
            later, self._later = self._later, None
        if later is not None:
            with suppress(RuntimeError):  # the system refuses more threads
                _WRITERS.add(writer := Thread(target=later, name="populus-keep"))
                writer.start()

    @cached_property
    def signature(self) -> Signature:
        """The names and types of inputs and outputs: only programs of plain arrays are kept, so these and their sizes say it all."""
        from populus.dialects.support.garbage import import_for_good

        import_for_good("populus.program.signature")
        from populus.dialects.support.element_types import element_of, tensor
        from populus.program.padding import Padding
        from populus.program.signature import Signature

        inputs, outputs = (
            {name: tensor(shape, element_of(dtype)) for name, (shape, dtype) in side.items()}
            for side in (self._built.inputs, self._built.outputs)
        )
        note: Mapping[str, Any] = getattr(self._built, "note", {})
        return Signature(inputs, outputs, padding=Padding.noted(note, inputs | outputs) if note else None)

    def _program(self) -> Program:
        """Compiles the model. Raises PopulusError if its files have changed since: that would be another program."""
        with self._making.lock:
            if self._full is None:
                full = self._compile()
                check_unchanged(self._lines)
                self._full = full
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


def is_checked() -> bool:
    """Tells whether launches and memory of this process are checked, which those of a built program are not."""
    return any(os.environ.get(name, "") not in ("", "0") for name in ("POPULUS_CHECK", "POPULUS_GUARD"))


_HARMLESS = ("POPULUS_CACHE", "POPULUS_THREADS")


def absolute(path: str | os.PathLike[str]) -> str:
    """Gives the absolute path of a file, with its `..` and links as they are: these may go elsewhere than to the folder above."""
    whole = os.path.join(os.getcwd(), os.fspath(path))
    return "/" + "/".join(part for part in whole.split("/") if part not in ("", ".")) if os.sep == "/" else os.path.abspath(whole)


def _is_model(path: str) -> bool:
    return os.path.splitext(path)[1] == ".onnx"


def _content(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def _times(path: str) -> tuple[int, int]:
    found = os.stat(path)
    return found.st_mtime_ns, found.st_ctime_ns


def unchanged(lines: Sequence[str]) -> bool:
    """Tells whether the files of these lines are what they were. Raises OSError without one of them."""
    return all(line(said.partition(" : ")[2]) == said for said in lines)


def line(path: str) -> str:
    """Writes a file's path after numbers that change with its content: device, inode, size, times. Raises OSError without the file."""
    found = os.stat(path)
    return f"{found.st_dev} {found.st_ino} {found.st_size} {found.st_mtime_ns} {found.st_ctime_ns} : {path}"


def check_unchanged(lines: Sequence[str]) -> None:
    """Raises PopulusError for a file of a model that has changed since its line was made."""
    for said in lines:
        with suppress(OSError):
            if unchanged([said]):
                continue
        from populus.dialects.support.diagnostics import PopulusError

        raise PopulusError(f"{said.partition(' : ')[2]}: the file has changed since it was read; compile it again")


def padded(built: Runner, note: str) -> Runner | Padded:
    """Lets a program take arrays of any sizes within its bounds, if a note says them."""
    if not note:
        return built
    import json

    from populus.runtime.built.open_sizes import Padded

    return Padded(built, json.loads(note))


def is_plain() -> bool:
    """Tells whether no ops were loaded in this process, and nobody watches its programs."""
    extensions, watch = sys.modules.get("populus.lowering.driver.extensions"), sys.modules.get("populus.program.watch")
    return (extensions is None or not extensions.known()) and (watch is None or watch.watch() is None)  # each run asks it


def is_watched() -> bool:
    """Tells whether somebody watches the programs of this process."""
    watch = sys.modules.get("populus.program.watch")
    return watch is not None and watch.watch() is not None


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


def _package() -> list[str]:
    """Lists the files of what compiles with sizes and times, and what it depends on."""
    found, folders = list[str](), list(COMPILER)
    while folders:
        with os.scandir(folders.pop()) as entries:
            for entry in entries:
                if entry.name.endswith((".py", ".c", ".h", ".txt")):
                    at = entry.stat()
                    found.append(f"{entry.path} {at.st_size} {at.st_mtime_ns}")
                elif entry.name != "__pycache__" and entry.is_dir():
                    folders.append(entry.path)
    for name in ("numpy", "onnx", "xdsl", "llvmlite", "ml_dtypes"):
        spec = _spec(name)
        if spec is not None and spec.origin is not None:
            at, above = os.stat(spec.origin), os.path.dirname(os.path.dirname(spec.origin))
            found.append(f"{spec.origin} {at.st_size} {at.st_mtime_ns}")
            found.append(f"{above} {os.stat(above).st_mtime_ns}")  # the folder of all packages: its time changes when one is installed
    return sorted(found)


def _spec(name: str) -> ModuleSpec | None:
    """Finds a package as `importlib.util` does, which would be one more import."""
    module = sys.modules.get(name)
    found = (finder.find_spec(name, None) for finder in sys.meta_path)
    return next(filter(None, found), None) if module is None else module.__spec__
