"""PopART's, PopXL's and PopTorch's names for the modules of populus, and the line of a program that is refused."""

from __future__ import annotations

import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec
from pathlib import Path
from sysconfig import get_path
from traceback import walk_tb
from types import ModuleType, TracebackType

import xdsl

import populus
from populus import compiled_ops, older_python
from populus.dialects.support.diagnostics import PopulusError, did_you_mean
from populus.dialects.support.errors import printable
from populus.dialects.support.package_hash import FOLDERS as OURS

NAMES = ("popart", "popxl", "poptorch", "popdist")
PAGES = {name: f"docs/{name}-compatibility.md" for name in NAMES[:3]}
XDSL_INSTALLS = ("benchmarks", "docs", "scripts", "tests", "typings")  # packages beside its own, with names of usual folders
LIBRARIES = tuple(Path(get_path(name)).resolve() for name in ("stdlib", "platstdlib", "purelib", "platlib"))
INSTALLED = (*LIBRARIES, *(Path(str(package.__file__)).resolve().parents[1] for package in (xdsl, populus)))  # not a program's
FOLDERS = (*(Path(folder).resolve() for folder in OURS), *LIBRARIES)


class _Finder(MetaPathFinder, Loader):
    """Finds `popxl.ops` as `populus.popxl.ops`: one object under both names, so classes compare equal."""

    def find_spec(self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        if fullname.partition(".")[0] not in NAMES or find_spec(f"populus.{fullname}") is None:
            return None
        return ModuleSpec(fullname, self)

    def create_module(self, spec: ModuleSpec) -> None:
        """Leaves it to Python to make the module that `exec_module` replaces."""

    def exec_module(self, module: ModuleType) -> None:
        name = module.__name__
        sys.modules[name] = import_module(f"populus.{name}")
        # Python makes a module that it imports a member of the one above: `popxl.ops.call` would take the place of the function.
        for known, found in list(sys.modules.items()):
            inner = known.removeprefix("populus.")
            if inner != known and inner.startswith(f"{name}."):
                sys.modules.setdefault(inner, found)


class _Folders(MetaPathFinder):
    """Finds a program's own folder `benchmarks` before the package of this name that xDSL installs, also one that it puts last."""

    def find_spec(self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        if fullname not in XDSL_INSTALLS or path is not None:
            return None
        for place in sys.path:
            if Path(place or ".").resolve() not in INSTALLED:
                found = PathFinder.find_spec(fullname, [place or "."])
                if found is not None:
                    return found
        return None


class _Bindings(MetaPathFinder, Loader):
    """Finds the ops that popxl_addons would compile from C++: they are ours.

    The module that compiles, of cppimport, is empty, and so is cppimport itself if it is not installed.
    """

    def find_spec(self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        absent = fullname == "cppimport" and not PathFinder.find_spec("cppimport")
        if absent or fullname == "cppimport.import_hook" or self._is_binding(fullname):
            return ModuleSpec(fullname, self, is_package=fullname == "cppimport")
        if path is None or not fullname.endswith(("_binding", "_impl")) or "cppimport.import_hook" not in sys.modules:
            return None
        from populus.popxl.addons.bindings import binding_of_text

        made = next((m for m in (binding_of_text(fullname, Path(folder)) for folder in path) if m is not None), None)
        return None if made is None else ModuleSpec(fullname, self, loader_state=made)

    @staticmethod
    def _is_binding(name: str) -> bool:
        if not name.startswith(ADDONS):
            return False
        from populus.popxl.addons.bindings import BINDINGS

        return name.removeprefix(ADDONS) in BINDINGS

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """Gives the module of a binding; Python makes the empty one."""
        if not spec.name.startswith(ADDONS):
            return spec.loader_state
        from populus.popxl.addons.bindings import binding

        return binding(spec.name.removeprefix(ADDONS))

    def exec_module(self, module: ModuleType) -> None:
        """Does nothing: a binding is whole when it is made."""


ADDONS = "popxl_addons.ops."
FINDERS = (_Finder(), _Folders(), _Bindings())
FINDER = FINDERS[0]


def install() -> None:
    """Makes the names importable, before any other package of these names. Raises PopulusError if one of those is imported already."""
    for name in NAMES:
        found = sys.modules.get(name)
        if found is not None and found.__name__ != f"populus.{name}":
            raise PopulusError(
                f"another '{name}' is imported already, from {found.__file__}; begin the program with `import populus.compat`"
            )
    if FINDER not in sys.meta_path:
        sys.meta_path[:0] = FINDERS
    compiled_ops.install()
    older_python.install()


def uninstall() -> None:
    """Takes the names away again. Modules that were imported by them stay what they are."""
    compiled_ops.uninstall()
    older_python.uninstall()
    if FINDER in sys.meta_path:
        sys.meta_path[:] = [f for f in sys.meta_path if f not in FINDERS]
    for name in [n for n in sys.modules if n.partition(".")[0] in NAMES]:
        if sys.modules[name].__name__.startswith("populus."):
            del sys.modules[name]


@contextmanager
def installed() -> Generator[None]:
    """Makes the names importable inside a `with`. Raises PopulusError as `install` does."""
    before = FINDER in sys.meta_path
    install()
    try:
        yield
    finally:
        if not before:
            uninstall()


def is_users(path: str) -> bool:
    """Tells whether a file is neither of populus, nor of Python's library, nor of an installed package."""
    if path.startswith("<"):
        return False
    real = Path(path).resolve()
    return not any(real.is_relative_to(f) for f in FOLDERS)


def line_of_program(trace: TracebackType | None) -> str:
    """Finds the last line of the user's files that a traceback goes through, as `train.py:12: `; empty if there is none."""
    places = [(f.f_code.co_filename, line) for f, line in walk_tb(trace)]
    found = [(name, line) for name, line in places if is_users(name)]
    return f"{found[-1][0]}:{found[-1][1]}: " if found else ""


def refusal(error: BaseException) -> str | None:
    """Gives the line to print for what populus refuses or does not have; None for an error of the program's own."""
    message = str(error) if isinstance(error, PopulusError) else _missing(error)
    return None if message is None else printable(line_of_program(error.__traceback__) + " ".join(message.split()))


def _missing(error: BaseException) -> str | None:
    """Tells of a name that one of the modules does not have."""
    match error:
        case AttributeError(obj=ModuleType() as module, name=str(name)):
            package, wanted = module.__name__, name
        case ModuleNotFoundError(name=str(name)) if "." in name:
            package, _, wanted = name.rpartition(".")
        case ImportError(name=str(name), msg=str(text)) if text.startswith("cannot import name '"):
            package, wanted = name, text.split("'")[1]
        case _:
            return None
    package = package.removeprefix("populus.")
    root = package.partition(".")[0]
    if root not in NAMES:
        return None
    module = sys.modules.get(f"populus.{package}")
    known = [n for n in dir(module) if not n.startswith("_")]
    near = did_you_mean(wanted, known)
    page = f"; {PAGES.get(root, 'docs/run-program.md')} says what is there"
    return f"{package} has no '{wanted}' here{near if 'did you mean' in near else ''}{page}"
