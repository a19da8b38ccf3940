"""`compile` as users call it: what is ready is loaded before the compiler is imported."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from inspect import Signature, signature  # which dataclasses have imported
from time import time_ns
from typing import TYPE_CHECKING, Any, cast

from populus.dialects.support.errors import checked
from populus.dialects.support.garbage import end_quickly, import_for_good, no_garbage_collection
from populus.program import ready

if TYPE_CHECKING:
    from populus.dialects.support.child import Tell
    from populus.program.apart import Handed
    from populus.program.program import Program
    from populus.program.source import Model


def _front(model: Model, **options: Any) -> Program:
    """Compiles a model, or loads what an earlier `compile` of its file kept.

    The program of an `.onnx` file is kept after its first run, unless `cache` is False; at once if `cache` is set. Other processes load it
    without importing the compiler, as long as the files, the options, this package and the CPU are the same. This process runs the same
    form, so all have the same bits. With `apart`, a child process compiles.
    """
    apart = checked(options.pop("apart", False), bool, "apart", "True or False")
    place = ready.Place.of(model, options)
    full = partial(compiled, model, options)
    found: object = None if place is None else place.find(full)
    if place is not None and found is None and os.path.exists(place.disk.path(place.open_name)):
        from populus.program import ready_open

        found = ready_open.find(place, full, _kept_as)
    if found is not None:
        end_quickly()
        return cast("Program", found)
    begun = time_ns()
    if apart:
        from populus.program.apart import compiled_apart

        handed = compiled_apart(model, options, place, full, partial(_handed, model, options, place, begun))
        if handed is not None:
            end_quickly()
            return cast("Program", handed)
    program = full()
    if place is None:
        return program
    import_for_good("populus.program.building")
    from populus.program.building import kept

    return cast("Program", kept(program, place, begun) or program)


def _handed(model: Model, options: dict[str, Any], place: ready.Place | None, begun: int, file: int, tell: Tell) -> Handed | str:
    program = compiled(model, options | ({"progress": tell} if options.get("progress") is not None else {}))
    from populus.dialects.support.quick_classes import quick_classes

    with no_garbage_collection(), quick_classes():
        from populus.program.handed import handed

        return handed(program, place, begun, file)


def _kept_as(program: Program, place: ready.Place, lines: Sequence[str]) -> ready.ReadyProgram | None:
    from populus.program.building import kept_as

    return kept_as(program, place, lines)


class _Described:
    # Calls `_front`. Its signature and its documentation are those of the compiler, which only `help` and notebooks import.

    def __init__(self) -> None:
        self.__name__ = self.__qualname__ = "compile"
        self.__module__ = "populus"

    def __call__(self, model: Model, **options: Any) -> Program:
        return _front(model, **options)

    def __get__(self, instance: object, owner: type | None = None) -> object:
        """Binds it as functions are bound; `inspect` takes what binds for a function, and so does `help`."""
        return self if instance is None else partial(self, cast("Any", instance))

    @property
    def __signature__(self) -> Signature:
        from populus.program import compile as api

        return signature(api.compile)

    @property
    def __doc__(self) -> str | None:  # pyright: ignore[reportIncompatibleVariableOverride]
        from populus.program import compile as api

        return api.compile.__doc__


compile = _Described()


def compiled(model: Model, options: dict[str, Any]) -> Program:
    """Imports the compiler and compiles."""
    import_for_good("populus.program.compile")
    from populus.dialects.support.quick_classes import quick_classes
    from populus.program import compile as api

    with quick_classes():  # passes and engines import what they need
        return api.compile(model, **options)
