"""Ops whose definitions are made when they are first asked for.

A process that compiles a model imports some 200 classes of ops. `irdl_op_definition` reads each, makes its accessors, and parses its
assembly format: a tenth of the time to a first result, for ops of which most never occur. Inside `late_ops` the decorator leaves
descriptors instead. The first access to one of a class has xDSL make all of that class; a format waits until the op is read or written.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from copy import copy
from functools import cache
from typing import Any, Generic, cast

from xdsl import irdl
from xdsl.ir import Operation
from xdsl.irdl import IRDLOperation, OpDef, operations

PACKAGES = ("xdsl", "populus")  # whose ops are made so
METHODS = ("get_irdl_definition", "traits", "verify_")  # that xDSL adds to each op
FORMATTED = ("parse", "print")  # and to one with an assembly format

_lock = threading.RLock()
_inside: list[None] = []  # an element for each block that is entered


@contextmanager
def late_ops() -> Generator[None, None, None]:
    """Makes ops of modules that are imported inside late ones."""
    with _lock:
        _inside.append(None)
        if irdl.irdl_op_definition is operations.irdl_op_definition:
            irdl.irdl_op_definition = irdl_op_definition
    try:
        yield
    finally:
        with _lock:
            _inside.pop()
            if not _inside and irdl.irdl_op_definition is irdl_op_definition:
                irdl.irdl_op_definition = operations.irdl_op_definition


def irdl_op_definition(cls: Any) -> Any:
    """Makes a class an op, as xDSL's `irdl_op_definition` does."""
    if cls.__module__.partition(".")[0] not in PACKAGES or Generic in cls.__mro__ or IRDLOperation not in cls.__mro__:
        eager: Any = operations.irdl_op_definition
        return eager(cls)
    recipe, fields = _Recipe(cls), set(_fields(cls))
    for base in cls.__mro__[1:]:
        if base not in Operation.__mro__:
            fields.update(_inherited(base))
    for name in (*METHODS, *fields):
        type.__setattr__(cls, name, _Later(cls, name, recipe.attributes))
    if cls.assembly_format is not None:
        for name in FORMATTED:
            type.__setattr__(cls, name, _Later(cls, name, recipe.formatted))
    return cls


def _fields(cls: type) -> tuple[str, ...]:
    field: type = operations._OpDefField  # pyright: ignore[reportPrivateUsage]
    return tuple(name for name, value in vars(cls).items() if isinstance(value, field))


_inherited = cache(_fields)


class _Later:
    # What stands in a class for an attribute until it is asked for. It takes its own place then, so classes are never without either.

    __slots__ = ("cls", "make", "name")

    def __init__(self, cls: type, name: str, make: Callable[[], Mapping[str, Any]]):
        self.cls, self.name, self.make = cls, name, make

    def _replace(self) -> None:
        made = self.make()  # not inside the lock, as it may import
        with _lock:
            for name, value in made.items():
                if isinstance(later := vars(self.cls).get(name), _Later) and later.make == self.make:
                    type.__setattr__(self.cls, name, value)

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        self._replace()
        return getattr(owner if instance is None else instance, self.name)

    def __set__(self, instance: object, value: object) -> None:
        self._replace()
        setattr(instance, self.name, value)

    def __delete__(self, instance: object) -> None:
        self._replace()
        delattr(instance, self.name)


class _Recipe:
    # A class as the decorator was given it.

    def __init__(self, cls: Any):
        self.cls, self.verify = cls, getattr(cls, "verify_", None)
        self.namespace: dict[str, Any] = {**vars(cls), "print": cls.print, "parse": cls.parse}
        self.made: list[OpDef] = []

    def definition(self) -> OpDef:
        """Lets xDSL make the definition."""
        if not self.made:
            for base in self.cls.__mro__[1:]:  # xDSL tells by their accessors that they are ops
                if METHODS[0] in vars(base):
                    base.get_irdl_definition()
            made = OpDef.from_pyrdl(cast("Any", _Stated(self.cls, self.namespace)))
            with _lock:
                self.made.append(made)
        return self.made[0]

    def attributes(self) -> Mapping[str, Any]:
        """Makes all but what reads and writes the op."""
        definition = self.definition()
        unformatted = copy(definition)
        unformatted.assembly_format = None
        made = operations.get_accessors_from_op_def(unformatted, self.verify)
        own: dict[str, Any] = self.cls.own_accessors(made, definition) if hasattr(self.cls, "own_accessors") else {}  # of `QuickOps`
        return {**made, **own, "get_irdl_definition": classmethod(lambda cls: definition)}

    def formatted(self) -> Mapping[str, Any]:
        """Makes what reads and writes the op in its format."""
        made = operations.get_accessors_from_op_def(self.definition(), self.verify)
        return {name: made[name] for name in FORMATTED}


class _Stated:
    # What xDSL reads of a class, as it was.

    def __init__(self, cls: Any, namespace: Mapping[str, Any]):
        names = ("name", "assembly_format", "custom_directives", "__bases__", "__name__")
        self.__dict__ |= {**namespace, **{name: getattr(cls, name) for name in names}}
        self.__dict__ |= {"__annotations__": inspect.get_annotations(cls), "__above__": cls.__mro__[1:]}

    def mro(self) -> list[Any]:
        return [self, *vars(self)["__above__"]]
