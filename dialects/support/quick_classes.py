"""Dataclasses whose methods are made when they are first used, and without compiling a text for each.

A process that compiles a model imports some 480 dataclasses, of xDSL and of this package. `dataclasses.dataclass` writes and compiles the
text of five methods for each, a quarter of the time to a first result, and fewer than half of the methods are ever called. Inside
`quick_classes` the decorator leaves descriptors instead. The first access makes the method from the code of a class with as many fields,
under the names of its own, or has `dataclasses` make it.
"""

from __future__ import annotations

import abc
import dataclasses
import inspect
import sys
import threading
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import MISSING, Field, FrozenInstanceError
from functools import cache, cached_property
from importlib import import_module
from types import CellType, CodeType, FunctionType, SimpleNamespace
from typing import Any, ClassVar, cast, get_origin
from weakref import WeakKeyDictionary

PACKAGES = ("xdsl", "populus")  # whose classes are made so
OPTIONS = {"init": True, "repr": True, "eq": True, "frozen": False, "unsafe_hash": False, "match_args": True, "kw_only": False}
PSEUDO = ("ClassVar", "InitVar", "KW_ONLY")  # words of annotations that state no field, or no plain one
STATED = ("__dataclass_fields__", "__dataclass_params__", *["__replace__"] * (sys.version_info >= (3, 13)), "__match_args__")

_dataclass: Any = dataclasses.dataclass
_lock = threading.RLock()
_inside: list[None] = []  # an element for each block that is entered
_recipes: WeakKeyDictionary[type, _Recipe] = WeakKeyDictionary()


@contextmanager
def quick_classes() -> Generator[None, None, None]:
    """Makes dataclasses and ops of modules that are imported inside quick ones. Modules of other packages have those of `dataclasses`."""
    with _lock:
        _inside.append(None)
        if dataclasses.dataclass is _dataclass:
            dataclasses.dataclass = dataclass
    try:
        with import_module("populus.dialects.support.late_ops").late_ops():
            yield
    finally:
        with _lock:
            _inside.pop()
            if not _inside and cast("Any", dataclasses.dataclass) is dataclass:
                dataclasses.dataclass = _dataclass


def dataclass(cls: type | None = None, /, **options: Any) -> Any:
    """Makes a class a dataclass, as `dataclasses.dataclass` does."""

    def decorated(cls: type) -> type:
        quick = cls.__module__.partition(".")[0] in PACKAGES and options.keys() <= OPTIONS.keys()
        return _quick(cls, OPTIONS | options) if quick else _dataclass(cls, **options)

    return decorated if cls is None else decorated(cls)


def _quick(cls: Any, options: Mapping[str, bool]) -> type:
    own = cls.__dict__
    explicit_hash = own.get("__hash__") is not None or ("__hash__" in own and "__eq__" not in own)
    wanted = {"__init__": "init", "__repr__": "repr", "__eq__": "eq", "__match_args__": "match_args"}
    names = [*STATED[:-1], *(name for name, option in wanted.items() if options[option] and name not in own)]
    if (options["unsafe_hash"] or (options["eq"] and options["frozen"])) and not explicit_hash:
        names.append("__hash__")
    elif options["eq"] and not explicit_hash:
        cls.__hash__ = None
    if not cls.__doc__:
        names.append("__doc__")
    annotations = inspect.get_annotations(cls)
    values = {name: value for name in annotations if (value := getattr(cls, name, MISSING)) is not MISSING}
    for name, value in _fields(values):
        if value.default is MISSING:
            delattr(cls, name)
        else:
            setattr(cls, name, value.default)
    recipe = _recipes[cls] = _Recipe(cls, options, annotations, values)
    if options["frozen"]:
        _freeze(cls, recipe)
    for name in names:
        setattr(cls, name, _Later(recipe, name))
    return abc.update_abstractmethods(cls)


def _fields(values: Mapping[str, Any]) -> list[tuple[str, Field[Any]]]:
    return [(name, value) for name, value in values.items() if isinstance(value, Field)]


def _freeze(cls: Any, recipe: _Recipe) -> None:
    def __setattr__(self: object, name: str, value: object) -> None:
        if type(self) is cls or name in recipe.names:
            raise FrozenInstanceError(f"cannot assign to field {name!r}")
        super(cls, self).__setattr__(name, value)

    def __delattr__(self: object, name: str) -> None:
        if type(self) is cls or name in recipe.names:
            raise FrozenInstanceError(f"cannot delete field {name!r}")
        super(cls, self).__delattr__(name)

    for method in (__setattr__, __delattr__):
        method.__qualname__ = f"{cls.__qualname__}.{method.__name__}"
        setattr(cls, method.__name__, method)


class _Later:
    # What stands in a class for an attribute until it is asked for. It takes its own place then, so classes are never without either.

    __slots__ = ("name", "recipe")

    def __init__(self, recipe: _Recipe, name: str):
        self.recipe, self.name = recipe, name

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        value = self.recipe.value(self.name)
        for base in (owner or type(instance)).__mro__:
            if base.__dict__.get(self.name) is self:
                setattr(base, self.name, value)
        bind = getattr(cast("Any", type(value)), "__get__", None)
        return value if bind is None else bind(value, instance, owner)


class _Recipe:
    # What the decorator was given: the class with its options, annotations and default values.

    def __init__(self, cls: Any, options: Mapping[str, bool], annotations: Mapping[str, Any], values: Mapping[str, Any]):
        self.cls, self.options, self.annotations, self.values = cls, options, annotations, values
        self.made: dict[str, Any] = {}

    def value(self, name: str) -> Any:
        with _lock:
            if name not in self.made:
                self.made |= dict(self._make(name))
            return self.made[name]

    def _make(self, name: str) -> Iterator[tuple[str, Any]]:
        if name in STATED:
            bases: dict[str, Any] = {}
            for base in self.cls.__mro__[-1:0:-1]:
                bases |= getattr(base, STATED[0], {})
            twin = self._twin(bases, {"__annotations__": self.annotations, **self.values}, kw_only=self.options["kw_only"], match_args=True)
            for option in OPTIONS.keys() & set(dir(twin.__dataclass_params__)):
                setattr(twin.__dataclass_params__, option, self.options[option])
            yield from ((stated, twin.__dict__[stated]) for stated in STATED)
        elif name == "__doc__":
            yield name, self.cls.__name__ + str(inspect.signature(self.cls)).replace(" -> None", "")
        else:
            yield name, self._plain(name) or self._by_dataclasses(name)

    def _twin(self, fields: Mapping[str, Any], attributes: Mapping[str, Any], **options: bool) -> Any:
        """Makes a class of the same name with these inherited fields, by `dataclasses`."""
        frozen = SimpleNamespace(frozen=options.get("frozen", False))
        base = type("Base", (), {STATED[0]: fields, STATED[1]: frozen})
        names = {"__module__": self.cls.__module__, "__qualname__": self.cls.__qualname__, "__doc__": "Twin."}
        twin = type(self.cls.__name__, (base,), {**names, **attributes})
        return _dataclass(twin, **{"init": False, "repr": False, "eq": False, "match_args": False, **options})

    def _by_dataclasses(self, name: str) -> Any:
        """Lets `dataclasses` make a method of a twin that has but that one."""
        option = {"__hash__": "unsafe_hash"}.get(name, name.strip("_"))
        started = {"__post_init__": None} if hasattr(self.cls, "__post_init__") else {}
        frozen = self.options["frozen"] and name == "__init__"
        return self._twin(getattr(self.cls, STATED[0]), started, **{option: True, "frozen": frozen}).__dict__[name]

    @cached_property
    def names(self) -> frozenset[str]:
        """The names of the fields."""
        return frozenset(field.name for field in dataclasses.fields(self.cls))

    @cached_property
    def fields(self) -> dict[str, Field[Any]] | None:
        """The fields, with inherited ones; None if an annotation may be of another kind."""
        found, stated = dict[str, Field[Any]](), dict(_fields(self.values))
        for base in self.cls.__mro__[-1:0:-1]:
            owner = next((c for c in base.__mro__ if STATED[0] in c.__dict__), None)
            inherited = {} if owner is None else _recipes[owner].fields if owner in _recipes else _stated(owner)
            if inherited is None:
                return None
            found |= inherited
        for name, type in self.annotations.items():
            if _is_class_variable(type, self.cls):
                continue
            if any(word in str(type) for word in PSEUDO):
                return None
            field = stated.get(name) or dataclasses.field(default=self.values.get(name, MISSING))
            field.name, field.type = name, type
            if field.kw_only is MISSING:
                field.kw_only = self.options["kw_only"]
            found[name] = field
        return found

    def _plain(self, name: str) -> FunctionType | None:
        """Makes a method from the code of others with as many fields; None if the class is none of the plain ones."""
        if self.fields is None or "self" in self.fields or name == "__repr__":
            return None
        fields = list(self.fields.values())
        if name == "__init__":
            return self._initialiser(fields)
        if name == "__eq__":
            compared = [field.name for field in fields if field.compare]
        else:
            compared = [field.name for field in fields if (field.compare if field.hash is None else field.hash)]
        return self._function(name, _code(name, "v" * len(compared), False, False), compared)

    def _initialiser(self, fields: list[Field[Any]]) -> FunctionType | None:
        fields = [field for field in fields if field.init or field.default_factory is not MISSING]
        places = [field for field in fields if field.init and not field.kw_only]
        fields = [*places, *(field for field in fields if field.init and field.kw_only), *(field for field in fields if not field.init)]
        given = [field for field in fields if field.default is not MISSING or field.default_factory is not MISSING]
        defaults = {field.name: _marker if field.default is MISSING else field.default for field in given}
        optional = [field.name in defaults for field in places]
        if optional != sorted(optional) or any(_is_mutable(value) for value in defaults.values()):
            return None  # `dataclasses` raises an error
        code = _code("__init__", "".join(map(_kind, fields)), self.options["frozen"], hasattr(self.cls, "__post_init__"))
        cells: dict[str, Any] = {f"f{i}": field.default_factory for i, field in enumerate(fields)}
        made = self._function("__init__", code, [field.name for field in fields], cells | {"assign": object.__setattr__, "marker": _marker})
        made.__defaults__ = tuple(defaults[field.name] for field in places if field.name in defaults) or None
        made.__kwdefaults__ = {field.name: defaults[field.name] for field in given if field.init and field.kw_only} or None
        made.__annotations__ = {**{field.name: field.type for field in fields if field.init}, "return": None}
        return made

    def _function(self, name: str, code: CodeType, fields: list[str], cells: Mapping[str, Any] | None = None) -> FunctionType:
        """Gives the code of a method the names of the fields of this class."""
        renamed = {f"{letter}{i}": field for i, field in enumerate(fields) for letter in "an"}

        def own(names: tuple[Any, ...]) -> tuple[Any, ...]:
            return tuple(renamed.get(n, n) if isinstance(n, str) else n for n in names)

        code = code.replace(co_varnames=own(code.co_varnames), co_names=own(code.co_names), co_consts=own(code.co_consts))
        closure = tuple(CellType(cells[free]) for free in code.co_freevars) if cells else ()
        module = sys.modules.get(self.cls.__module__)
        function = FunctionType(code, {} if module is None else module.__dict__, name, None, closure)
        function.__qualname__ = f"{self.cls.__qualname__}.{name}"
        return function


def _stated(cls: Any) -> dict[str, Field[Any]] | None:
    found = {field.name: field for field in dataclasses.fields(cls)}
    return found if len(found) == len(cls.__dataclass_fields__) else None


def _is_class_variable(type: Any, cls: type) -> bool:
    if isinstance(type, str):
        module = sys.modules.get(cls.__module__)
        return type.startswith("ClassVar[") and getattr(module, "ClassVar", None) is ClassVar
    return get_origin(type) is ClassVar


def _is_mutable(value: object) -> bool:
    return value.__class__.__hash__ is None


class _Marker:
    def __repr__(self) -> str:
        return "<factory>"


_marker = _Marker()  # the default of a field that a function makes


def _kind(field: Field[Any]) -> str:
    """Gives a letter: `v` for a value that is given, `f` if a function makes it else, both as capitals if by its name, `m` if always."""
    letter = "m" if not field.init else "v" if field.default_factory is MISSING else "f"
    return letter.upper() if field.init and field.kw_only else letter


@cache
def _code(name: str, kinds: str, frozen: bool, started: bool) -> CodeType:
    """Compiles a method for fields of these kinds, `n0` and so on, that are given as `a0` and so on."""
    numbers = range(len(kinds))
    if name == "__init__":
        head = [f"a{i}" for i in numbers if kinds[i] in "vf"]
        words = [f"a{i}" for i in numbers if kinds[i] in "VF"]
        body = list[str]()
        for i, kind in enumerate(kinds):
            value = {"v": f"a{i}", "f": f"f{i}() if a{i} is marker else a{i}", "m": f"f{i}()"}[kind.lower()]
            body.append(f"assign(self, 'n{i}', {value})" if frozen else f"self.n{i} = {value}")
        lines = [*body, *["self.__post_init__()"] * started] or ["pass"]
        parameters = ["self", *head, *["*"] * bool(words), *words]
    elif name == "__eq__":
        mine, others = ("".join(f"{side}.n{i}, " for i in numbers) for side in ("self", "other"))
        equal = f"({mine}) == ({others})"
        if sys.version_info >= (3, 13):  # its tuples took one object for equal to itself
            equal = " and ".join(f"self.n{i} == other.n{i}" for i in numbers) or "True"
            equal = f"self is other or ({equal})"
        lines, parameters = [f"return ({equal}) if other.__class__ is self.__class__ else NotImplemented"], ["self", "other"]
    else:
        lines, parameters = [f"return hash(({''.join(f'self.n{i}, ' for i in numbers)}))"], ["self"]
    cells = ["assign", "marker", *(f"f{i}" for i in numbers if kinds[i] not in "vV")]
    text = f"def make({', '.join(cells)}):\n def {name}({', '.join(parameters)}):\n  " + "\n  ".join(lines)
    (make,) = (c for c in compile(text, "<string>", "exec").co_consts if isinstance(c, CodeType))
    (code,) = (c for c in make.co_consts if isinstance(c, CodeType))
    return code
