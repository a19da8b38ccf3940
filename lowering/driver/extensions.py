"""Extensions: a user's Python file (`--load my_op.py`) or installed package that adds ops, dialects, passes
and patterns.

No other code is ever loaded.
"""

from __future__ import annotations

import importlib
import inspect
import linecache
import os
import sys
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import cast

from xdsl.context import Context
from xdsl.ir import Attribute, Dialect, Operation
from xdsl.passes import ModulePass
from xdsl.pattern_rewriter import RewritePattern

from populus.dialects.popart.base import PopartOp
from populus.dialects.popart.definition import RESERVED_DOMAINS, Definition, definition_of
from populus.dialects.poplar.codelets import register as register_codelet
from populus.dialects.poplar.target import Target, is_ours
from populus.dialects.poplar.target import register as register_target
from populus.dialects.poplar.tile_program import TileCode
from populus.dialects.support import registries
from populus.dialects.support.diagnostics import PopulusError, no_file, option
from populus.dialects.support.errors import checked
from populus.dialects.support.guard import Guard, once
from populus.dialects.support.registries import registry
from populus.dialects.support.user_op_errors import LOADED
from populus.dialects.table import DIALECTS, SHARED_DIALECTS
from populus.lowering.driver import sources
from populus.lowering.popart.rewriting import Pattern
from populus.lowering.popart.rewriting import register as register_patterns

GROUP = "populus.ops"  # entry-point group: each entry names a module of ops


@dataclass
class Extension:
    """The definitions of one file. `path`: the file; `module`: the Python module made from it."""

    path: str
    module: ModuleType
    dialects: list[Dialect] = field(default_factory=list[Dialect])
    ops: list[type[Operation]] = field(default_factory=list[type[Operation]])
    attributes: list[type[Attribute]] = field(default_factory=list[type[Attribute]])
    passes: dict[str, Callable[[], type[ModulePass]]] = field(default_factory=dict[str, Callable[[], type[ModulePass]]])
    codelets: list[TileCode] = field(default_factory=list[TileCode])
    targets: list[Target] = field(default_factory=list[Target])
    patterns: list[type[RewritePattern]] = field(default_factory=list[type[RewritePattern]])
    engines: list[str] = field(default_factory=list[str])

    def definitions(self) -> list[Definition]:
        """Returns the definitions of the file's popart ops."""
        return [definition_of(op) for op in self.ops if issubclass(op, PopartOp)]

    def register(self, ctx: Context) -> None:
        """Registers the file's dialects, ops, attributes and patterns in a context.

        Raises PopulusError, naming both files, if another file has an op of the same name or ONNX identity.
        """
        for dialect in self.dialects:
            if dialect.name not in ctx.registered_dialect_names:
                ctx.load_dialect(dialect)
        known_ops, known_attributes = list(ctx.loaded_ops), {*ctx.loaded_attrs, *ctx.loaded_types}
        for op in self.ops:
            if op not in known_ops:
                self._refuse_taken(op, known_ops)
                ctx.load_op(op)
        for attribute in self.attributes:
            if attribute not in known_attributes:
                ctx.load_attr_or_type(attribute)
        register_patterns(ctx, self.patterns)

    def _refuse_taken(self, op: type[Operation], known: Iterable[type[Operation]]) -> None:
        for other in known:
            if other.name == op.name:
                raise PopulusError(f"{self.path}: {op.name} is defined twice, by {_origin(other)} too; give one of them another name")
            if (shared := _shared(op, other)) and not _overrides(op):
                raise PopulusError(
                    f"{self.path}: {op.name} is ONNX's {shared}, which {other.name} of {_origin(other)} is too; change `ONNX` of one"
                )


def read(path: str | os.PathLike[str]) -> Extension:
    """Runs a Python file and collects the dialects, ops, attributes and passes that it defines.

    A file that changed since its last run is run again. Its ops are known only to contexts in which the
    caller registers the extension; `load` makes them known everywhere.

    Raises PopulusError with file and line if the file fails, and with the file if it defines nothing. An op
    that lacks a part is an error, and so is a reserved domain without `OVERRIDES = True`, or a name or ONNX
    identity that another op has. These errors name the class.
    """
    with _LOADING.lock:
        return _collected(os.fspath(path), _run(Path(path)))


@once
def installed() -> tuple[Extension, ...]:
    """Returns the extensions of installed packages, found by the entry-point group `populus.ops`.

    Raises PopulusError naming the entry point that fails.
    """
    extensions: list[Extension] = []
    for entry in entry_points(group=GROUP):
        try:
            module = entry.load()
        except Exception as error:
            raise PopulusError(f"entry point '{entry.name}' of {GROUP}: {type(error).__name__}: {' '.join(str(error).split())}") from error
        if not isinstance(module, ModuleType):
            raise PopulusError(f"entry point '{entry.name}' of {GROUP} is {module!r}; the name of a module is expected")
        extensions.append(_collected(module.__name__, module))
    return tuple(extensions)


_LOADED = registry(dict[str, None]())  # resolved paths of loaded files, in order
_LOADING = Guard()  # one thread at a time runs a file and registers its definitions


def load(path: str | os.PathLike[str]) -> Extension:
    """Reads a file as `read` does, and makes its ops known to every later compilation of this process, and to
    ONNX.

    Raises PopulusError as `read` does, and for an ONNX identity that another loaded file has.
    """
    checked(path, (str, os.PathLike), "path", "the path of a Python file", PopulusError)
    with _LOADING.lock:
        extension = read(path)
        name = str(Path(path).resolve())
        ctx = Context()
        for other in known():
            if str(Path(other.path).resolve()) != name:
                other.register(ctx)
        extension.register(ctx)
        from populus.lowering.onnx.op_schema import register

        for definition in extension.definitions():
            register(definition)
        _LOADED[name] = None
        return extension


def digest(extension: Extension) -> str:
    """Hashes the extension's own file or module, and the modules that it imports."""
    return sources.digest_of(extension.module)


def forget(path: str | os.PathLike[str]) -> None:
    """Undoes `load`. A path that was never loaded is ignored."""
    _LOADED.pop(str(Path(path).resolve()), None)


@contextmanager
def restored() -> Generator[None, None, None]:
    """Forgets, after a block, the files that it has loaded: their ops, codelets, machines and ONNX schemas."""
    try:
        with registries.restored():
            yield
    finally:
        if (schemas := sys.modules.get("populus.lowering.onnx.op_schema")) is not None:
            schemas.restore()


def known() -> tuple[Extension, ...]:
    """Returns the extensions that need no `--load`: of installed packages, and of loaded files in their present
    state.
    """
    return (*installed(), *map(read, list(_LOADED)))


def _collected(name: str, module: ModuleType) -> Extension:
    extension = Extension(name, module)
    for value in vars(module).values():
        if isinstance(value, Dialect) and value.name not in {*DIALECTS, *SHARED_DIALECTS}:
            extension.dialects.append(value)
        elif isinstance(value, Target) and not is_ours(value):
            extension.targets.append(value)
            register_target(value, name)
        elif isinstance(value, TileCode):
            extension.codelets.append(value)
            register_codelet(value)
        elif isinstance(value, type) and value.__module__ == module.__name__:
            _collect(extension, value)
    e = extension
    if not any((e.dialects, e.ops, e.attributes, e.passes, e.codelets, e.patterns, e.targets, e.engines)):
        raise PopulusError(
            f"{name}: defines no op, dialect, attribute, pass or pattern; an op is a class with @irdl_op_definition and a name"
        )
    for i, op in enumerate(extension.ops):
        for other in extension.ops[:i]:
            if other.name == op.name or _shared(op, other):
                clash = op.name if other.name == op.name else f"ONNX's {_shared(op, other)}"
                raise PopulusError(
                    f"{name}: class {op.__name__} and class {other.__name__} are both {clash}; give one another name or version"
                )
    return extension


def _collect(extension: Extension, value: type) -> None:
    named, abstract = isinstance(vars(value).get("name"), str), inspect.isabstract(value)
    if isinstance(engine := vars(value).get("ENGINE"), str):
        from populus.runtime.engine import choice
        from populus.runtime.engine.program import LoadedProgram

        if abstract or not issubclass(value, LoadedProgram):
            missing = ", ".join(sorted(getattr(value, "__abstractmethods__", ()))) or "the base class Engine"
            raise PopulusError(f"{extension.path}: class {value.__name__}: engine '{engine}' lacks {missing}")
        choice.register(value, engine, extension.path)
        extension.engines.append(engine)
        return
    if issubclass(value, PopartOp) and (named or not abstract):
        try:
            definition = definition_of(value)
        except PopulusError as error:
            raise PopulusError(f"{extension.path}: {error}") from None
        if definition.identity is not None and definition.identity[0] in RESERVED_DOMAINS and not _overrides(value):
            domain = definition.identity[0] or "ai.onnx"
            raise PopulusError(
                f"{extension.path}: class {value.__name__} ({value.name}): the domain '{domain}' is not yours; take one of your own, "
                f"or state OVERRIDES = True to replace its {definition.identity[1]}"
            )
        extension.ops.append(value)
    elif issubclass(value, RewritePattern) and not abstract:
        if Pattern in value.__mro__ and not getattr(value, "ROOTS", ()):
            raise PopulusError(
                f"{extension.path}: class {value.__name__}: a pattern states the op classes that it visits, such as ROOTS = (popart.NegOp,)"
            )
        extension.patterns.append(value)
    elif not named or abstract:
        return
    elif issubclass(value, Operation):
        extension.ops.append(value)
    elif issubclass(value, Attribute):
        extension.attributes.append(value)
    elif issubclass(value, ModulePass):
        extension.passes[value.name] = lambda: value


def _overrides(op: type[Operation]) -> bool:
    return bool(getattr(op, "OVERRIDES", False))


def _shared(a: type[Operation], b: type[Operation]) -> str:
    """Names an ONNX identity that two ops share, such as `LeakyRelu-1 of com.acme`; "" if they share none."""
    if not (issubclass(a, PopartOp) and issubclass(b, PopartOp)) or not (getattr(a, "ONNX", None) and getattr(b, "ONNX", None)):
        return ""
    one, two = definition_of(a).identity, definition_of(b).identity
    if one is None or two is None or one[:2] != two[:2] or not (both := set(one[2]) & set(two[2])):
        return ""
    return f"{one[1]}-{min(both)} of {one[0] or 'ai.onnx'}"


def _origin(op: type[Operation]) -> str:
    module = sys.modules.get(op.__module__)
    return cast("str | None", getattr(module, "__file__", None)) or op.__module__


def _module_name(path: Path) -> str:
    return f"{LOADED}{path.resolve().with_suffix('').as_posix().strip('/').replace('/', '_').replace('.', '_')}"


def _run(path: Path) -> ModuleType:
    """Runs a Python file once for each content of it and of the modules that it imports; returns the module."""
    if not path.is_file():
        raise PopulusError(f"{no_file(path)}; {option('--load', 'load')} takes a Python file")
    name = _module_name(path)
    before = sys.modules.get(name)
    if before is not None:
        if sources.is_current(before):
            return before
        sources.forget_imported(before)
    sources.watch()
    linecache.checkcache()
    importlib.invalidate_caches()
    spec = spec_from_file_location(name, path, loader=sources.Loader(name, str(path)))
    if spec is None or spec.loader is None:
        raise PopulusError(f"{path}: not a Python file (.py)")
    module = module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look up their module while the class is built
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:  # a user's file must not end our process
        sources.failed(path)
        del sys.modules[name]
        if before is not None:
            sys.modules[name] = before
        frames = [f for f in inspect.getinnerframes(error.__traceback__) if f.filename == str(path)] if error.__traceback__ else []
        line = error.lineno if isinstance(error, SyntaxError) and error.lineno else frames[-1].lineno if frames else 0
        raise PopulusError(f"{path}:{line}: {type(error).__name__}: {' '.join(str(error).split())}") from error
    return module
