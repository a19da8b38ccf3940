"""Source files of a Python module: its own file, and those of its imports that no installed version identifies."""

from __future__ import annotations

import ast
import importlib.util
import os
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from functools import lru_cache
from hashlib import sha256
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, cast

_OURS = ("populus", "xdsl")  # identified otherwise: the first by its files, the second by its version


_READ: dict[str, str] = {}  # file -> hash of the content from which its module was made


class Loader(SourceFileLoader):
    """Loader that always reads the source. Python finds stored bytecode by time and size, which an edit may
    leave unchanged.
    """

    def get_code(self, fullname: str) -> CodeType | None:
        path = self.get_filename(fullname)
        content = self.get_data(path)
        _READ[os.path.abspath(path)] = sha256(content).hexdigest()
        return self.source_to_code(content, path)


class _Finder:
    """Finder for modules that are not installed: it finds them as Python does, and reads them with `Loader`."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name.partition(".")[0] in _OURS:
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is None or type(spec.loader) is not SourceFileLoader or spec.origin is None or _is_installed(Path(spec.origin)):
            return None
        spec.loader = Loader(name, spec.origin)
        return spec


def watch() -> None:
    """Installs the finder, so that the content of every later import is recorded. A second call does nothing."""
    finder, path = cast("Any", _Finder), cast("list[object]", sys.meta_path)
    if finder not in path:
        _roots()  # sysconfig imports a module when it is asked first; from Python 3.13 on it fails when that import asks it again
        path.insert(path.index(PathFinder) if PathFinder in path else len(path), finder)


def is_current(module: ModuleType) -> bool:
    """Tells whether the files of a module are the same as when it was run."""
    return all(_READ.setdefault(str(file), digest) == digest for file, digest in ((f, hash_of(f)) for f in _files(module).values()))


def failed(path: Path) -> None:
    """Records that running this file failed, so that an earlier module of it is not current."""
    _READ[os.path.abspath(path)] = ""


def forget_imported(module: ModuleType) -> None:
    """Removes a module's imports from `sys.modules`, so that they are imported again."""
    for name in imported(module):
        sys.modules.pop(name, None)


def digest_of(module: ModuleType) -> str:
    """Hashes a module's files, as they were when it was run, and the versions of the packages that it imports."""
    parts = [f"{name} {_READ.setdefault(str(file), hash_of(file))}" for name, file in sorted(_files(module).items())]
    packages = {n.partition(".")[0] for file in _files(module).values() for n in _names(file, "")}
    versions = [f"{n} {v}" for n in sorted(packages) if isinstance(v := getattr(sys.modules.get(n), "__version__", None), str)]
    return sha256("\n".join([*parts, *versions]).encode()).hexdigest()


def imported(module: ModuleType) -> dict[str, Path]:
    """Collects the modules that a module imports, directly or not, by name, with their files.

    Imports count wherever they stand in a file. Modules of Python and of other installed packages are left
    out; those of the module's own package are not. An import by a computed name is not seen.
    """
    files: dict[str, Path] = {}
    own = module.__name__.partition(".")[0]
    todo = [(module.__package__ or "", _place(module))]
    while todo:
        package, path = todo.pop()
        for name in _names(path, package):
            other = sys.modules.get(name)
            file = _place(other)
            if other is None or other is module or name in files or file.suffix != ".py" or name.partition(".")[0] in _OURS:
                continue
            if _is_installed(file) and name.partition(".")[0] != own:
                continue
            files[name] = file
            todo.append((getattr(other, "__package__", None) or "", file))
    return files


def hash_of(path: Path) -> str:
    """Hashes a file's content; "" if the file does not exist."""
    return sha256(path.read_bytes()).hexdigest() if path.is_file() else ""


def _place(module: ModuleType | None) -> Path:
    return Path(os.path.abspath(getattr(module, "__file__", None) or ""))


def _files(module: ModuleType) -> dict[str, Path]:
    return {"": _place(module), **imported(module)}


def _names(path: Path, package: str) -> Iterator[str]:
    """Lists the full names of a file's imports, and of the packages that contain them."""
    content = path.read_bytes() if path.is_file() else b""
    for name in _imports(content, package):
        parts = name.split(".")
        yield from (".".join(parts[:n]) for n in range(1, len(parts) + 1))


@lru_cache(256)
def _imports(content: bytes, package: str) -> tuple[str, ...]:
    try:
        tree = ast.parse(content)
    except (SyntaxError, ValueError, RecursionError):  # this content was never imported
        return ()
    names: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                try:
                    base = importlib.util.resolve_name("." * node.level + base, package)
                except ImportError:
                    continue
            names += [base, *(f"{base}.{alias.name}" for alias in node.names if alias.name != "*")]
    return tuple(dict.fromkeys(names))


@lru_cache(1024)
def _is_installed(file: Path) -> bool:
    """Tells whether a file belongs to Python or to an installed package, which are identified by their versions."""
    return any(file.resolve().is_relative_to(root) for root in _roots())


@lru_cache(1)
def _roots() -> frozenset[Path]:
    paths = sysconfig.get_paths()
    return frozenset(Path(paths[kind]).resolve() for kind in ("stdlib", "platstdlib", "purelib", "platlib"))
