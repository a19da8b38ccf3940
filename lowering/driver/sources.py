"""The Python files that a module is made of: its own, and those of what it imports that no installed version stands for."""

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

_OURS = ("populus", "xdsl")  # counted apart: the one by its files, the other by its version


_READ: dict[str, str] = {}  # file -> the hash of the content that its module was made of


class Loader(SourceFileLoader):
    """Reads the file as it is now: stored bytecode is found by time and size, which an edit may leave as they were."""

    def get_code(self, fullname: str) -> CodeType | None:
        path = self.get_filename(fullname)
        content = self.get_data(path)
        _READ[os.path.abspath(path)] = sha256(content).hexdigest()
        return self.source_to_code(content, path)


class _Finder:
    """Finds modules as Python does; those that are not installed are read by `Loader`, wherever they are imported."""

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
    """From now on, it is known of what content modules are made."""
    finder, path = cast("Any", _Finder), cast("list[object]", sys.meta_path)
    if finder not in path:
        path.insert(path.index(PathFinder) if PathFinder in path else len(path), finder)


def is_current(module: ModuleType) -> bool:
    """Whether the files that a module is made of are what they were when it was run."""
    return all(_READ.setdefault(str(file), found) == found for file, found in ((f, hash_of(f)) for f in _files(module).values()))


def failed(path: Path) -> None:
    """The module of this file could not be run: the one that there was before is not of its content."""
    _READ[os.path.abspath(path)] = ""


def forget_imported(module: ModuleType) -> None:
    """Takes what a module imports out of Python's table, so that it is imported again."""
    for name in imported(module):
        sys.modules.pop(name, None)


def digest_of(module: ModuleType) -> str:
    """A hash of the files that a module is made of, as they were when it was run, and of the packages that it imports."""
    parts = [f"{name} {_READ.setdefault(str(file), hash_of(file))}" for name, file in sorted(_files(module).items())]
    packages = {n.partition(".")[0] for file in _files(module).values() for n in _names(file, "")}
    versions = [f"{n} {v}" for n in sorted(packages) if isinstance(v := getattr(sys.modules.get(n), "__version__", None), str)]
    return sha256("\n".join([*parts, *versions]).encode()).hexdigest()


def imported(module: ModuleType) -> dict[str, Path]:
    """The modules that a module imports, and that these import, by name, with their files; wherever in a file the import stands.

    Those of Python itself and of other installed packages are left out, but not those of the module's own package. A module that is
    imported by a name that is computed is not seen.
    """
    found: dict[str, Path] = {}
    own = module.__name__.partition(".")[0]
    todo = [(module.__package__ or "", _place(module))]
    while todo:
        package, path = todo.pop()
        for name in _names(path, package):
            other = sys.modules.get(name)
            file = _place(other)
            if other is None or other is module or name in found or file.suffix != ".py" or name.partition(".")[0] in _OURS:
                continue
            if _is_installed(file) and name.partition(".")[0] != own:
                continue
            found[name] = file
            todo.append((getattr(other, "__package__", None) or "", file))
    return found


def hash_of(path: Path) -> str:
    """Of a file's content; empty for one that is gone."""
    return sha256(path.read_bytes()).hexdigest() if path.is_file() else ""


def _place(module: ModuleType | None) -> Path:
    return Path(os.path.abspath(getattr(module, "__file__", None) or ""))


def _files(module: ModuleType) -> dict[str, Path]:
    return {"": _place(module), **imported(module)}


def _names(path: Path, package: str) -> Iterator[str]:
    """The full names of what a file imports, with the packages around them."""
    content = path.read_bytes() if path.is_file() else b""
    for name in _imports(content, package):
        parts = name.split(".")
        yield from (".".join(parts[:n]) for n in range(1, len(parts) + 1))


@lru_cache(256)
def _imports(content: bytes, package: str) -> tuple[str, ...]:
    try:
        tree = ast.parse(content)
    except (SyntaxError, ValueError, RecursionError):  # it was not imported as it is now
        return ()
    found: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                try:
                    base = importlib.util.resolve_name("." * node.level + base, package)
                except ImportError:
                    continue
            found += [base, *(f"{base}.{alias.name}" for alias in node.names if alias.name != "*")]
    return tuple(dict.fromkeys(found))


@lru_cache(1024)
def _is_installed(file: Path) -> bool:
    """Whether a file is of Python or of an installed package, which are known by their versions."""
    paths = sysconfig.get_paths()
    roots = {Path(paths[kind]).resolve() for kind in ("stdlib", "platstdlib", "purelib", "platlib")}
    return any(file.resolve().is_relative_to(root) for root in roots)
