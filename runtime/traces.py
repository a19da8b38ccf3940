"""Traces: the values that a level computes at each place, which is the ONNX name of a node or value.

A node becomes several ops, which all keep its name. Values that only these ops read are intermediate, and may differ
from level to level. Values that ops of other places read are the node's results, whichever of its ops produces them.
An op that runs several times, in a loop or in a function, has a result for each time.
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
from populus.dialects.poplar.outside import OutsideOp
from populus.dialects.poplar.overlap import disjoint
from populus.dialects.poplar.program import (
    GraphOp,
    IfOp,
    RepeatOp,
    StreamInOp,
    StreamOutOp,
    SwitchOp,
    WhileOp,
)
from populus.dialects.poplar.view import View
from populus.dialects.support.diagnostics import parts_of
from populus.runtime.engine.program import Written
from populus.runtime.views import view_array

Array: TypeAlias = NDArray[Any]
Key: TypeAlias = tuple[str, int]
"""A place, and the number of earlier runs of its op."""
Trace: TypeAlias = dict[Key, list[Array]]
"""The results of each place that ops of other places read, in the order of their production."""

MAX_PERMUTED = 4  # dimensions of an array that is compared in all permutations
TIMES = 32  # runs of an op whose results are recorded


def places(op: Operation) -> list[str]:
    """Gives the ONNX names of the nodes that an op was made of; its result is the result of the last."""
    parts = parts_of(op.location) if isinstance(op.location, FusedLoc) else [op.location]
    return [part.desc.data for part in parts if isinstance(part, NameLoc)]


def place(op: Operation) -> str | None:
    """Gives the ONNX name of the node whose result an op computes, or None: an op of a text's line may have taken in named ones."""
    last = parts_of(op.location)[-1] if isinstance(op.location, FusedLoc) else op.location
    return last.desc.data if isinstance(last, NameLoc) else None


class TensorTrace:
    """The trace of a module of whole tensors; its interpreter calls `observe`."""

    def __init__(self) -> None:
        self.results: Trace = {}
        self._times: Counter[Operation] = Counter()
        self._read: dict[Operation, list[int]] = {}

    def observe(self, op: Operation, results: Sequence[Array]) -> None:
        """Records those results of an op that ops of other places read."""
        if (at := place(op)) is None or self._times[op] >= TIMES:
            return
        if op not in self._read:
            self._read[op] = [i for i, r in enumerate(op.results) if any(_apart(op, use.operation) for use in r.uses)]
        if read := self._read[op]:
            key = at, self._times[op]
            self.results[key] = [*self.results.pop(key, []), *(results[i] for i in read)]
        self._times[op] += 1


def _apart(op: Operation, reader: Operation) -> bool:
    """Tells if neither op was made of the other's node."""
    return place(op) not in places(reader) and place(reader) not in places(op)


@dataclass
class _Write:
    """A write to a variable.

    `key`: the place and run that wrote it. `known`: the written content was observed. `in_place`: the step also read
    the view.
    """

    view: View
    key: Key | None
    known: bool
    in_place: bool


class _Memory:
    """The current content of a variable, as far as it was observed, and the last write of each view."""

    def __init__(self, storage: StorageOp, like: Array):
        self.content = np.zeros(int(np.prod(storage.type.shape)), like.dtype)
        self.known = np.zeros(self.content.size, np.bool_)
        self.writes: list[_Write] = []
        self.made_by: dict[SSAValue, str] = {}  # the place that last updated a value in place

    def write(self, write: _Write, array: Array) -> None:
        if write.known:
            view_array(self.content, write.view)[...] = array
        view_array(self.known, write.view)[...] = write.known
        self.writes = [w for w in self.writes if w.view != write.view]
        self.writes.append(write)

    def last(self, view: View) -> _Write | None:
        """Gives the last write that overlaps a view, or None."""
        return next((w for w in reversed(self.writes) if not disjoint(w.view, view)), None)

    def read(self, view: View) -> Array | None:
        """Copies the content of a view; None if part of it is unknown."""
        return view_array(self.content, view).copy() if view_array(self.known, view).all() else None


class TileTrace:
    """The trace of a tile program: the content of variables as their readers see them, through views.

    The views of a reader belong to its own place. The value below them is the result of the place that produced it.
    If a step has updated the value in place, it is the result of that step.
    """

    def __init__(self, graph: GraphOp):
        self._read: dict[Key, dict[SSAValue, Array]] = {}
        self._written: dict[Key, dict[SSAValue, Array]] = {}
        self._unseen: set[Key] = set()  # whose result was overwritten within the step that produced it
        self._memory: dict[StorageOp, _Memory] = {}
        self._times: Counter[Operation] = Counter()
        # A variable with the name of a loop or branch holds a carried value of an unknown iteration.
        control = (op for op in graph.walk() if isinstance(op, IfOp | RepeatOp | SwitchOp | WhileOp))
        self._left_out = {name for op in control for name in places(op)}

    @property
    def results(self) -> Trace:
        """The results of each place that other places read; if none does, its written values in all permutations of
        dimensions.
        """
        seen = {key: values for key, values in self._written.items() if key not in self._unseen}
        written = {key: [p for v in values.values() for p in _permutations(v)] for key, values in seen.items()}
        read = {key: list(values.values()) for key, values in self._read.items() if values}
        return {key: values for key, values in {**written, **read}.items() if key[0] not in self._left_out}

    def observe(self, step: Operation, written: Written) -> None:
        """Records the reads and writes of a step; `written`: the views that it wrote, with their content afterwards."""
        remaining = iter(written)
        makers = _makers(step) if written else [step]
        made: list[tuple[Operation, Written]] = [(m, [next(remaining) for _ in _writes(m)] if written else []) for m in makers]
        later = [value for _, pairs in made for value, _ in pairs]
        for maker, pairs in made:
            later = later[len(pairs) :]
            reads = list(_reads(maker))
            worked_on = {v for v in reads if any(v is w for w, _ in pairs) and not self._is_own(maker, v)}
            for value in reads:
                self.read(maker, value)
            for value, array in pairs:
                seen = not any(_overlap(value, other) for other in later)  # else a later family of the step overwrote it
                self.write(maker, value, array, seen, value in worked_on)
            self._times[maker] += 1

    def read(self, reader: Operation, value: SSAValue) -> None:
        """Records the results of another place that an op reads."""
        memory = self._memory.get(storage_of(value))
        write = None if memory is None else memory.last(view_of(value))
        if memory is None or write is None or write.key is None or self._is_own(reader, value):
            return
        own = [] if isinstance(reader, StreamOutOp) else places(reader)  # a stream out may have the name of its producer
        for at, seen in _results(memory, _below_own_views(own[-1] if own else None, value), write):
            contents = self._read.setdefault((at, write.key[1]), {})
            if at not in own and seen not in contents and (content := memory.read(view_of(seen))) is not None:
                contents[seen] = content

    def write(self, maker: Operation, value: SSAValue, array: Array, known: bool, in_place: bool) -> None:
        """Records a write of an op."""
        at, times, storage = place(maker), self._times[maker], storage_of(value)
        key = None if at is None or times >= TIMES else (at, times)
        memory = self._memory.setdefault(storage, _Memory(storage, array))
        memory.write(_Write(view_of(value), key, known, in_place), array)
        memory.made_by = {v: by for v, by in memory.made_by.items() if _place_of(v) != at}
        worked_on = [_below_own_views(at, value)] if in_place else []
        if at is not None:
            memory.made_by.update(dict.fromkeys(worked_on, at))
        if key is not None and not known:
            self._unseen.add(key)
        elif key is not None:
            contents = ((v, memory.read(view_of(v))) for v in (value, *worked_on, *_shown(storage.result, at)))
            self._written[key] = {v: content for v, content in contents if content is not None}

    def _is_own(self, op: Operation, value: SSAValue) -> bool:
        """Tells if the value that an op reads was last written by an op of the same place."""
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
        case OutsideOp():
            yield from maker.views[maker.inputs.value.data :]
        case _:
            pass


def _reads(maker: Operation) -> Iterator[SSAValue]:
    match maker:
        case FamilyOp():
            yield from (value for field, value in maker.connections() if field.kind != "out")
        case CopyOp() | StreamOutOp():
            yield maker.src
        case OutsideOp():
            yield from maker.views[: maker.inputs.value.data]
        case _:
            pass


def _place_of(value: SSAValue) -> str | None:
    return place(value.owner) if isinstance(value.owner, Operation) else None


def _below_own_views(at: str | None, value: SSAValue) -> SSAValue:
    """Gives the value below the views that belong to a place."""
    while isinstance(value.owner, ViewOp) and at is not None and _place_of(value) == at:
        value = value.owner.x
    return value


def _results(memory: _Memory, value: SSAValue, write: _Write) -> list[tuple[str, SSAValue]]:
    """Lists the results that a reader of a value sees, as (place, value): its own, and those below its views.

    The list ends at the last write. It is empty if that write updated the variable in place, through a view that the
    reader does not use: then the values below no longer exist.
    """
    results: list[tuple[str, SSAValue]] = []
    writer = None if write.key is None else write.key[0]
    while True:
        at = memory.made_by.get(value) or _place_of(value)
        if at is not None and all(at != before for before, _ in results):
            results.append((at, value))
        if at == writer or not isinstance(value.owner, ViewOp):
            return [] if write.in_place and at != writer else results
        value = value.owner.x


def _shown(value: SSAValue, at: str | None) -> Iterator[SSAValue]:
    """Gives those of a value and its views that belong to a place."""
    waiting = [value]
    for v in waiting:
        if _place_of(v) == at:
            yield v
        waiting += [use.operation.y for use in v.uses if isinstance(use.operation, ViewOp)]


def _permutations(array: Array) -> Iterator[Array]:
    """Gives an array, and the permutations of its dimensions of more than one element."""
    squeezed = array.squeeze()
    yield array
    if squeezed.ndim <= MAX_PERMUTED:
        yield from (squeezed.transpose(order) for order in permutations(range(squeezed.ndim)))


def _overlap(a: SSAValue, b: SSAValue) -> bool:
    """Tells if two views may share memory."""
    return storage_of(a) is storage_of(b) and not disjoint(view_of(a), view_of(b))
