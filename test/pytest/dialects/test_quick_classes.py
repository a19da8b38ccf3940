"""Dataclasses that are made when they are used are those of `dataclasses`: fields, signatures, comparisons, errors and texts."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import re
import subprocess
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import FrozenInstanceError, InitVar, field
from functools import partial
from typing import Any, ClassVar

import pytest

from populus.dialects.support import quick_classes

ALL = """
import contextlib, dataclasses, inspect, sys
quick = sys.argv[1] == "quick"
import populus
from populus.dialects.support import quick_classes
with quick_classes.quick_classes() if quick else contextlib.nullcontext():
    import populus.lowering.driver.passes, populus.runtime.engine.native.run.program, populus.tools.run
    from populus.runtime.engine import sampled, strict
    for load in populus.lowering.driver.passes.PASSES.values():
        load()
found = {c for module in list(sys.modules.values()) for c in vars(module).values() if isinstance(c, type)}
found = {c for c in found if "__dataclass_params__" in vars(c)}
classes = sorted((c for c in found if c.__module__.partition(".")[0] in ("xdsl", "populus")), key=lambda c: (c.__module__, c.__qualname__))
late = sum(isinstance(value, quick_classes._Later) for cls in classes for value in vars(cls).values())
print(late > 1000 if quick else late == 0)
for cls in classes:
    print(cls, cls.__dataclass_params__, list(cls.__dataclass_fields__.values()), inspect.signature(cls))
    print(cls.__doc__, getattr(cls, "__match_args__", None), sorted(vars(cls)), cls.__hash__ is None)
    print(sorted(getattr(cls, "__abstractmethods__", ())))
    for name in ("__init__", "__eq__", "__hash__", "__repr__"):
        made = getattr(cls, name) if name in vars(cls) else None
        if inspect.isfunction(made) and made.__code__.co_filename == "<string>":
            print(name, made.__qualname__, made.__defaults__, made.__kwdefaults__, made.__annotations__, made.__module__)
"""


def test_all_dataclasses_of_the_package_and_of_xdsl_are_as_those_of_dataclasses():
    commands = [[sys.executable, "-c", ALL, way] for way in ("quick", "plain")]
    texts = [subprocess.run(command, capture_output=True, text=True, check=True).stdout for command in commands]
    quick, plain = (re.sub("0x[0-9a-f]+", "0x", text).splitlines() for text in texts)
    assert len(plain) > 1500 and plain[0] == "True"
    assert quick == plain


def plain_and_quick(make: Callable[[Any], Any]) -> list[Any]:
    """Makes classes with `dataclasses.dataclass`, and with the quick one as if a module of the package had them."""

    def quick(cls: type | None = None, /, **options: bool) -> Any:
        def decorated(cls: type) -> type:
            own, cls.__module__ = cls.__module__, "populus"
            made = quick_classes.dataclass(cls, **options)
            cls.__module__ = own
            return made

        return decorated if cls is None else decorated(cls)

    return [make(dataclasses.dataclass), make(quick)]


def said(act: Callable[[], object]) -> str:
    """Gives what an action returns, or the error that it raises."""
    try:
        return repr(act())
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def point(dataclass: Any) -> Any:
    @dataclass(frozen=True)
    class Point:
        x: int
        y: int = 2
        kept: list[int] = field(default_factory=list, compare=False)
        name: ClassVar[str] = "point"

        def __post_init__(self) -> None:
            object.__setattr__(self, "also", self.x)

    return Point


def nested(dataclass: Any) -> Any:
    @dataclass
    class Base:
        a: int
        b: int = field(default=3, kw_only=True)
        given: InitVar[int] = 0

        def __post_init__(self, given: int) -> None:
            self.a += given

    @dataclass(kw_only=True)
    class Derived(Base):
        c: list[int] = field(init=False, default_factory=list, repr=False)
        d: int
        e: list[int] = field(default_factory=list, hash=False)

    return Derived


def inherited(dataclass: Any) -> Any:
    @dataclass(frozen=True)
    class Base(ABC):
        a: float

        @abstractmethod
        def __hash__(self) -> int: ...

    class Between(Base):
        b: int = 9

    @dataclass(frozen=True)
    class Derived(Between):
        self_: int = 1
        a: float = 0.5

    return Derived


def with_self(dataclass: Any) -> Any:
    @dataclass(unsafe_hash=True)
    class Held:
        self: int
        assign: int = 1
        marker: list[int] = field(default_factory=list)

    return Held


CASES = {
    point: [(1,), (1, 3), (), (1, 2, [3], 4), {"x": 1, "kept": [7]}, {"z": 1}],
    nested: [(1,), {"a": 1, "d": 2}, {"a": 1, "d": 2, "given": 5, "b": 4, "e": [1]}, {"a": 1, "d": 2, "c": []}],
    inherited: [(), (2.5,), (2.5, 3), (float("nan"),), {"b": 1}],
    with_self: [(1,), (1, 2), {"assign": 3}],
}


def built(cls: Any, given: Any) -> Any:
    return cls(**given) if isinstance(given, dict) else cls(*given)


ACTS: list[Callable[[Any, Any], object]] = [
    built,
    lambda cls, given: built(cls, given) == built(cls, given),
    lambda cls, given: (value := built(cls, given)) == value,
    lambda cls, given: built(cls, given) == 3,
    lambda cls, given: built(cls, given) != built(cls, given),
    lambda cls, given: hash(built(cls, given)) == hash(built(cls, given)),
    lambda cls, given: setattr(built(cls, given), "x", 3),
    lambda cls, given: setattr(built(cls, given), "a", 3),
    lambda cls, given: delattr(built(cls, given), "a"),
    lambda cls, given: vars(built(cls, given)),
    lambda cls, given: dataclasses.asdict(built(cls, given)),
    lambda cls, given: dataclasses.replace(built(cls, given), a=4),
    lambda cls, given: getattr(copy, "replace", lambda *_, **__: 0)(built(cls, given), a=4),
    lambda cls, given: copy.deepcopy(built(cls, given)),
]


@pytest.mark.parametrize("make", CASES, ids=lambda make: make.__name__)
def test_a_class_made_quickly_does_what_dataclasses_make(make):
    def answers(cls: Any) -> list[str]:
        found = [said(partial(act, cls, given)) for given in CASES[make] for act in ACTS]
        stated = [cls.__match_args__, cls.__doc__, inspect.signature(cls), cls.__dataclass_params__, cls.__mro__[1].__hash__ is None]
        return [*found, *map(str, stated), repr(dataclasses.fields(cls))]

    plain, quick = map(answers, plain_and_quick(make))
    assert quick == plain
    assert any("Error" in answer for answer in plain)


MISTAKES = [
    ("default", {"x": 1}, {"x": "int", "y": "int"}),
    ("mutable", {"x": []}, {"x": "list"}),
]


@pytest.mark.parametrize(("name", "values", "annotations"), MISTAKES, ids=[name for name, *_ in MISTAKES])
def test_a_mistake_in_a_class_is_told_when_it_is_used(name, values, annotations):
    def told(dataclass: Any) -> object:
        return dataclass(type("C", (), {"__annotations__": annotations, **values}))()

    def make(dataclass: Any) -> str:
        return said(partial(told, dataclass))

    plain, quick = plain_and_quick(make)
    assert quick == plain and "Error" in plain


def test_modules_of_others_have_the_dataclasses_of_python():
    with quick_classes.quick_classes():

        @dataclasses.dataclass
        class Ours:
            x: int

        assert dataclasses.dataclass is quick_classes.dataclass
        with quick_classes.quick_classes():
            pass
        assert dataclasses.dataclass is quick_classes.dataclass
    assert "__init__" in vars(Ours) and not isinstance(vars(Ours)["__init__"], quick_classes._Later)
    assert dataclasses.dataclass is not quick_classes.dataclass


def test_threads_that_first_use_a_class_at_once_each_get_its_method():
    for _ in range(50):
        _, cls = plain_and_quick(point)
        barrier, found = threading.Barrier(4), list[Any]()

        def use(cls=cls, barrier=barrier, found=found):
            barrier.wait()
            found.append((cls(1), cls(1) == cls(1, 2), hash(cls(1)) == hash(cls(1))))

        threads = [threading.Thread(target=use) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert found == [(cls(1), True, True)] * 4


def test_instances_that_no_initialiser_made_compare_and_hash():
    _, cls = plain_and_quick(point)
    made = object.__new__(cls)
    vars(made).update(x=1, y=2, kept=[])
    again = object.__new__(cls)
    vars(again).update(x=1, y=2, kept=[5])
    assert made == again and hash(made) == hash(again)
    with pytest.raises(FrozenInstanceError):
        made.x = 3
