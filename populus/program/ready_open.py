"""Models with open dimensions whose programs are ready: that of each bucket of sizes is found, or compiled once and kept.

key of the model, its options, this package and the CPU -> <key>.open: what a run needs to know to find the program of its sizes
key and the sizes of a bucket -> <key of the bucket>.ready, .code, .bin
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import numpy as np

from populus.dialects.support.errors import ProgramError
from populus.dialects.support.guard import Guard
from populus.program.buckets import bucket
from populus.program.ready import Place, ReadyProgram, check_unchanged, is_plain, unchanged
from populus.runtime.built.given import Inputs, by_name
from populus.runtime.built.open_sizes import SEEN, Shapes

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from populus.program.open_program import Key, OpenProgram
    from populus.program.program import Program

    Keep: TypeAlias = Callable[[Program, Place, Sequence[str]], ReadyProgram | None]

MOST = 32  # programs of a model that stay loaded, as of one whose programs are not kept


class ReadyOpenProgram:
    """A model with open dimensions whose programs run from their frozen forms. All but `run` reads and compiles the model first.

    `rule`: what `rule_of` says of the model. `lines`: its files, as it was read. `keep`: freezes a program and keeps it.
    `read`: reads the model, where `full` is not it.
    """

    def __init__(
        self,
        place: Place,
        rule: Mapping[str, Any],
        lines: Sequence[str],
        read: Callable[[], Program],
        keep: Keep,
        full: OpenProgram | None = None,
    ):
        self._place, self._rule, self._lines, self._read, self._keep, self._full = place, rule, lines, read, keep, full
        self._programs: OrderedDict[Key, ReadyProgram] = OrderedDict()  # by last use
        self._seen: dict[Shapes, Key] = {}
        self._unkept: set[Key] = set()  # of programs that cannot be frozen
        self._ran: Key | None = None
        self._noted = full is None  # a file says how to find its programs
        self._making = Guard()

    def run(self, inputs: Inputs) -> dict[str, NDArray[Any]]:
        """Runs the program, as `OpenProgram.run` does. A mistake is left to the compiled model, which words it."""
        if is_plain():
            with suppress(ProgramError):
                if (program := self._program(by_name(inputs, self._rule["names"]))) is not None:
                    return program.run_frozen(inputs)
        return self._compiled().run(inputs)

    __call__ = run

    def _program(self, inputs: Mapping[str, Any]) -> ReadyProgram | None:
        """Gives the program for these inputs, found or compiled; None for one that cannot be kept."""
        shapes = tuple([np.shape(inputs[name]) if name in inputs else () for name in self._rule["names"]])
        key = self._seen.get(shapes)
        if key is None or key not in self._programs:
            if (key := self._found(shapes, inputs)) is None:
                return None
            if len(self._seen) >= SEEN:
                self._seen.clear()
            self._seen[shapes] = key
        if key != self._ran:
            with self._making.lock:
                if self._ran in self._programs:
                    self._programs[self._ran].rest()  # programs of other sizes would each keep the memory of their variables
                self._ran = key
                self._programs.move_to_end(key)
        return self._programs[key]

    def _found(self, shapes: Shapes, inputs: Mapping[str, Any]) -> Key | None:
        """Finds or compiles the program for inputs of these shapes. Returns its key; None if it cannot be kept."""
        with self._making.lock:
            for key in self._keys(shapes):
                if key in self._unkept:
                    return None
                if key in self._programs:
                    return key
                if (found := self._place.at(key).find(partial(self._sized, key))) is not None:
                    return self._add(key, found)
            key, program = self._compiled().key_and_program(inputs)
            kept = self._keep(program, self._place.at(key), self._lines)
            if kept is None:
                self._unkept.add(key)
                return None
            return self._add(key, kept)

    def _sized(self, key: Key) -> Program:
        return self._compiled().keyed(key)

    def _add(self, key: Key, program: ReadyProgram) -> Key:
        if not self._noted:
            self._place.disk.write(self._place.open_name, "\n".join([json.dumps(self._rule), *self._lines]).encode())
            self._noted = True
        self._programs[key] = program
        while len(self._programs) > MOST:
            self._programs.popitem(last=False)
        return key

    def _keys(self, shapes: Shapes) -> list[Key]:
        """Gives the keys that the program for these shapes may have: that of the bucket, and that of exactly these sizes."""
        rule, at = self._rule, dict[str, int]()
        every: Iterable[Sequence[tuple[int, str]]] = rule["names"].values()
        for shape, named in zip(shapes, every):
            for d, name in named:
                if d >= len(shape) or at.setdefault(name, shape[d]) != shape[d]:
                    raise ProgramError(f"dimension '{name}' has no size, or two")
        exact = tuple(sorted(at.items()))
        return [exact] if rule["exact"] else [tuple(sorted((name, bucket(at[name], rule["buckets"])) for name in rule["free"])), exact]

    def _compiled(self) -> OpenProgram:
        """Reads the model. Raises PopulusError if its files have changed since the first of its programs was found."""
        with self._making.lock:
            if self._full is None:
                full = self._read()
                check_unchanged(self._lines)
                self._full = cast("OpenProgram", full)
            return self._full

    def __getattr__(self, name: str) -> Any:
        full = self._compiled()
        if self._ran is not None:
            full.ran = self._ran
        return getattr(full, name)

    @property
    def __class__(self) -> type[OpenProgram]:  # pyright: ignore[reportIncompatibleMethodOverride], as isinstance asks for it
        from populus.program.open_program import OpenProgram

        return OpenProgram

    def __repr__(self) -> str:
        return f"<ReadyOpenProgram of {', '.join(self._rule['names'])}, {len(self._programs)} programs>"


def rule_of(program: OpenProgram) -> dict[str, Any]:
    """Describes what tells the program of some inputs: names of open dimensions by input and position, those that others do not tell."""
    names = {name: list(named.items()) for name, named in program.names.items()}
    every = list(dict.fromkeys(d for named in names.values() for _, d in named))
    options = program.options
    return {"names": names, "free": program.free(every), "buckets": list(options.buckets), "exact": options.exact}


def find(place: Place, read: Callable[[], Program], keep: Keep) -> ReadyOpenProgram | None:
    """Loads what is known of a model with open dimensions, if a program of it is ready. `read`: reads the model."""
    content = place.disk.read(place.open_name)
    if content is None:
        return None
    rule, *lines = content.decode().splitlines()
    return ReadyOpenProgram(place, json.loads(rule), lines, read, keep) if _are(lines) else None


def _are(lines: Sequence[str]) -> bool:
    try:
        return unchanged(lines)
    except OSError:
        return False
