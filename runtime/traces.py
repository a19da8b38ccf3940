"""What a level computed at each place: the values that ops of other places read of it, by the ONNX name of the place.

A node becomes several ops, which all keep its name; what only they read is their own matter, and may differ from
level to level. What others read of it is the node's result, whatever op of it makes that. Ops that run several times,
in loops and in functions that are called again, have a result for each time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from xdsl.dialects.builtin import FusedLoc, NameLoc
from xdsl.ir import Operation, SSAValue

from populus.dialects.poplar.compute import CopyOp, ExecuteOp, FamilyOp
from populus.dialects.poplar.memory import StorageOp, ViewOp, storage_of, view_of
from populus.dialects.poplar.overlap import disjoint
from populus.dialects.poplar.program import GraphOp, HostCallOp, IfOp, RepeatOp, StreamInOp, StreamOutOp, SwitchOp, WhileOp
from populus.dialects.poplar.view import View
from populus.dialects.support.diagnostics import parts_of
from populus.runtime.engine.program import Written
from populus.runtime.engine.views import view_array

Array: TypeAlias = NDArray[Any]
Key: TypeAlias = tuple[str, int]
"""A place, and the how manyth time it is, from 0."""
Trace: TypeAlias = dict[Key, list[Array]]
"""What others read of each place, in the order in which it was made."""

MOST_TURNED = 4  # dimensions
TIMES = 32  # of which an op's results are kept


def places(op: Operation) -> list[str]:
    """The ONNX names of what an op was made of; its result is that of the last."""
    parts = parts_of(op.location) if isinstance(op.location, FusedLoc) else [op.location]
    return [part.desc.data for part in parts if isinstance(part, NameLoc)]


def place(op: Operation) -> str | None:
    """The ONNX name whose result an op's is."""
    return next(reversed(places(op)), None)


class TensorTrace:
    """What a module of whole tensors computes; `observe` is for its interpreter."""

    def __init__(self) -> None:
        self.found: Trace = {}
        self._times: Counter[Operation] = Counter()
        self._read: dict[Operation, list[int]] = {}

    def observe(self, op: Operation, results: Sequence[Array]) -> None:
        """Notes an op's results, those that ops of other places read."""
        if (at := place(op)) is None or self._times[op] >= TIMES:
            return
        if op not in self._read:
            self._read[op] = [i for i, r in enumerate(op.results) if any(_apart(op, use.operation) for use in r.uses)]
        if read := self._read[op]:
            key = at, self._times[op]
            self.found[key] = [*self.found.pop(key, []), *(results[i] for i in read)]
        self._times[op] += 1


def _apart(op: Operation, reader: Operation) -> bool:
    """Whether neither op is part of what the other's result is made of."""
    return place(op) not in places(reader) and place(reader) not in places(op)


@dataclass
class _Write:
    """What a step left in a variable: where, for which place; whether it was seen, and was worked on in place."""

    view: View
    key: Key | None
    known: bool
    in_place: bool


class _Memory:
    """The content of a variable as the steps have left it, as far as it is known, and who wrote what last."""

    def __init__(self, storage: StorageOp, like: Array):
        self.content = np.zeros(int(np.prod(storage.type.shape)), like.dtype)
        self.known = np.zeros(self.content.size, np.bool_)
        self.writes: list[_Write] = []
        self.made_by: dict[SSAValue, str] = {}  # the place that has worked on a value in place

    def write(self, write: _Write, array: Array) -> None:
        if write.known:
            view_array(self.content, write.view)[...] = array
        view_array(self.known, write.view)[...] = write.known
        self.writes = [w for w in self.writes if w.view != write.view]
        self.writes.append(write)

    def last(self, view: View) -> _Write | None:
        """The last write that touched a view."""
        return next((w for w in reversed(self.writes) if not disjoint(w.view, view)), None)

    def read(self, view: View) -> Array | None:
        """A copy of what a view shows; None where part of it is not known."""
        return view_array(self.content, view).copy() if view_array(self.known, view).all() else None


class TileTrace:
    """What a tile program computes: variables as their readers see them, through the views that lie between.

    A reader's own views are its own matter. The value that they look at is the result of the place that made it; of
    one that a step has worked on in place, the result of that step.
    """

    def __init__(self, graph: GraphOp):
        self._read: dict[Key, dict[SSAValue, Array]] = {}
        self._written: dict[Key, dict[SSAValue, Array]] = {}
        self._unseen: set[Key] = set()  # of which a step has made something and gone on with it
        self._memory: dict[StorageOp, _Memory] = {}
        self._times: Counter[Operation] = Counter()
        # A variable that bears the name of a loop or branch holds what that carries, at some time.
        control = (op for op in graph.walk() if isinstance(op, IfOp | RepeatOp | SwitchOp | WhileOp))
        self._left_out = {name for op in control for name in places(op)}

    @property
    def found(self) -> Trace:
        """What others read of each place; of one that nobody reads as it is, what it has written, its dimensions in any
        order.
        """
        seen = {key: values for key, values in self._written.items() if key not in self._unseen}
        written = {key: [turned for v in values.values() for turned in _turned(v)] for key, values in seen.items()}
        read = {key: list(values.values()) for key, values in self._read.items() if values}
        return {key: values for key, values in {**written, **read}.items() if key[0] not in self._left_out}

    def observe(self, step: Operation, written: Written) -> None:
        """Notes what a step has read and written; `written`: views with their content after it."""
        left = iter(written)
        makers = _makers(step) if written else [step]
        made: list[tuple[Operation, Written]] = [(maker, [next(left) for _ in _writes(maker)] if written else []) for maker in makers]
        later = [value for _, pairs in made for value, _ in pairs]
        for maker, pairs in made:
            later = later[len(pairs) :]
            reads = list(_reads(maker))
            worked_on = {v for v in reads if any(v is w for w, _ in pairs) and not self._is_own(maker, v)}
            for value in reads:
                self.read(maker, value)
            for value, array in pairs:
                seen = not any(_meet(value, other) for other in later)  # else a family of the step went on in its memory
                self.write(maker, value, array, seen, value in worked_on)
            self._times[maker] += 1

    def read(self, reader: Operation, value: SSAValue) -> None:
        """Notes what an op reads of another place."""
        memory = self._memory.get(storage_of(value))
        write = None if memory is None else memory.last(view_of(value))
        if memory is None or write is None or write.key is None or self._is_own(reader, value):
            return
        own = [] if isinstance(reader, StreamOutOp) else places(reader)  # who reads an output may have the name of the node that makes it
        for at, seen in _results(memory, _beyond(own[-1] if own else None, value), write):
            found = self._read.setdefault((at, write.key[1]), {})
            if at not in own and seen not in found and (content := memory.read(view_of(seen))) is not None:
                found[seen] = content

    def write(self, maker: Operation, value: SSAValue, array: Array, known: bool, in_place: bool) -> None:
        """Notes what an op wrote."""
        at, times, storage = place(maker), self._times[maker], storage_of(value)
        key = None if at is None or times >= TIMES else (at, times)
        memory = self._memory.setdefault(storage, _Memory(storage, array))
        memory.write(_Write(view_of(value), key, known, in_place), array)
        memory.made_by = {v: by for v, by in memory.made_by.items() if _place_of(v) != at}
        worked_on = [_beyond(at, value)] if in_place else []
        if at is not None:
            memory.made_by.update(dict.fromkeys(worked_on, at))
        if key is not None and not known:
            self._unseen.add(key)
        elif key is not None:
            contents = ((v, memory.read(view_of(v))) for v in (value, *worked_on, *_shown(storage.result, at)))
            self._written[key] = {v: content for v, content in contents if content is not None}

    def _is_own(self, op: Operation, value: SSAValue) -> bool:
        """Whether what an op reads was last written by an op of the same place."""
        memory = self._memory.get(storage_of(value))
        write = None if memory is None else memory.last(view_of(value))
        own = not isinstance(op, StreamOutOp)
        return own and write is not None and write.key is not None and write.key[0] == place(op)


def _makers(step: Operation) -> list[Operation]:
    return list(step.families()) if isinstance(step, ExecuteOp) else [step]


def _writes(maker: Operation) -> Iterator[SSAValue]:
    match maker:
        case FamilyOp():
            yield from (value for _, value in maker.written())
        case CopyOp() | StreamInOp():
            yield maker.dst
        case HostCallOp():
            yield from maker.views[maker.inputs.value.data :]
        case _:
            pass


def _reads(maker: Operation) -> Iterator[SSAValue]:
    match maker:
        case FamilyOp():
            yield from (value for field, value in maker.connections() if field.kind != "out")
        case CopyOp() | StreamOutOp():
            yield maker.src
        case HostCallOp():
            yield from maker.views[: maker.inputs.value.data]
        case _:
            pass


def _place_of(value: SSAValue) -> str | None:
    return place(value.owner) if isinstance(value.owner, Operation) else None


def _beyond(at: str | None, value: SSAValue) -> SSAValue:
    """What an op of a place looks at through its own views."""
    while isinstance(value.owner, ViewOp) and at is not None and _place_of(value) == at:
        value = value.owner.x
    return value


def _results(memory: _Memory, value: SSAValue, write: _Write) -> list[tuple[str, SSAValue]]:
    """The results that a reader of a value looks at: its own, and those that it is a view of, down to what was written
    last.

    None where that was done in place, through a view that the reader does not look through: what lies below is no more.
    """
    found: list[tuple[str, SSAValue]] = []
    writer = None if write.key is None else write.key[0]
    while True:
        at = memory.made_by.get(value) or _place_of(value)
        if at is not None and all(at != before for before, _ in found):
            found.append((at, value))
        if at == writer or not isinstance(value.owner, ViewOp):
            return [] if write.in_place and at != writer else found
        value = value.owner.x


def _shown(value: SSAValue, at: str | None) -> Iterator[SSAValue]:
    """Those of a value and its views that are of a place."""
    waiting = [value]
    for v in waiting:
        if _place_of(v) == at:
            yield v
        waiting += [use.operation.y for use in v.uses if isinstance(use.operation, ViewOp)]


def _turned(array: Array) -> Iterator[Array]:
    """An array with its dimensions in any order."""
    squeezed = array.squeeze()
    yield array
    if squeezed.ndim <= MOST_TURNED:
        yield from (squeezed.transpose(order) for order in permutations(range(squeezed.ndim)))


def _meet(a: SSAValue, b: SSAValue) -> bool:
    """Whether two views may have memory in common."""
    return storage_of(a) is storage_of(b) and not disjoint(view_of(a), view_of(b))
