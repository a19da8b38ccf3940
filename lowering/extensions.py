"""A user's Python file brings in ops, dialects and passes of its own (`--load my_op.py`). It is the only code that is ever loaded."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

from xdsl.context import Context
from xdsl.ir import Attribute, Dialect, Operation
from xdsl.passes import ModulePass

from populus.dialects.diagnostics import PopulusError
from populus.dialects.table import DIALECTS, SHARED_DIALECTS


@dataclass
class Extension:
    """What a file defined."""

    path: str
    dialects: list[Dialect] = field(default_factory=list[Dialect])
    ops: list[type[Operation]] = field(default_factory=list[type[Operation]])
    attributes: list[type[Attribute]] = field(default_factory=list[type[Attribute]])
    passes: dict[str, Callable[[], type[ModulePass]]] = field(default_factory=dict[str, Callable[[], type[ModulePass]]])

    def register(self, ctx: Context) -> None:
        """Makes the context know the file's dialects, ops and attributes."""
        for dialect in self.dialects:
            if dialect.name not in ctx.registered_dialect_names:
                ctx.load_dialect(dialect)
        known_ops, known_attributes = set(ctx.loaded_ops), {*ctx.loaded_attrs, *ctx.loaded_types}
        for op in self.ops:
            if op not in known_ops:
                ctx.load_op(op)
        for attribute in self.attributes:
            if attribute not in known_attributes:
                ctx.load_attr_or_type(attribute)


def load(path: str | os.PathLike[str]) -> Extension:
    """Runs a Python file and collects the dialects, ops, attributes and passes that it defines.

    Raises PopulusError with file and line if the file fails, if it defines nothing, or if it defines a name that is already taken.
    """
    name = os.fspath(path)
    extension = Extension(name)
    for value in vars(_run(Path(path))).values():
        if isinstance(value, Dialect) and value.name not in {*DIALECTS, *SHARED_DIALECTS}:
            extension.dialects.append(value)
        elif isinstance(value, type) and value.__module__ == _module_name(Path(path)) and not inspect.isabstract(value):
            _collect(extension, value)
    if not (extension.dialects or extension.ops or extension.attributes or extension.passes):
        raise PopulusError(f"{name}: defines no op, dialect, attribute or pass; an op is a class with @irdl_op_definition and a name")
    return extension


def _collect(extension: Extension, value: type) -> None:
    if not isinstance(vars(value).get("name"), str):
        return
    if issubclass(value, Operation):
        extension.ops.append(value)
    elif issubclass(value, Attribute):
        extension.attributes.append(value)
    elif issubclass(value, ModulePass):
        extension.passes[value.name] = lambda: value


def _module_name(path: Path) -> str:
    return f"populus_loaded_{path.resolve().with_suffix('').as_posix().strip('/').replace('/', '_').replace('.', '_')}"


def _run(path: Path) -> ModuleType:
    """The module of a Python file, run once in a process."""
    if not path.is_file():
        raise PopulusError(f"{path}: no such file; --load takes a Python file")
    name = _module_name(path)
    if name in sys.modules:
        return sys.modules[name]
    spec = spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise PopulusError(f"{path}: not a Python file (.py)")
    module = module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up while the class is made
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        frames = [f for f in inspect.getinnerframes(error.__traceback__) if f.filename == str(path)] if error.__traceback__ else []
        line = error.lineno if isinstance(error, SyntaxError) and error.lineno else frames[-1].lineno if frames else 0
        raise PopulusError(f"{path}:{line}: {type(error).__name__}: {' '.join(str(error).split())}") from error
    return module
