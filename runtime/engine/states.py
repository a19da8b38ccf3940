"""States: inputs that stay in a program's memory from run to run, each replaced by an output when a run ends."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from xdsl.ir import Operation, SSAValue

from populus.dialects.poplar.compute import CopyOp, FamilyOp
from populus.dialects.poplar.memory import StorageOp, VarOp, ViewOp, storage_of, view_of
from populus.dialects.poplar.outside import OutsideOp
from populus.dialects.poplar.program import CallOp, GraphOp, StreamInOp, StreamOutOp
from populus.dialects.poplar.types import TensorType
from populus.dialects.support.diagnostics import PopulusError

Array: TypeAlias = NDArray[Any]


def check_states(states: Mapping[str, str], inputs: Mapping[str, Any], outputs: Mapping[str, Any]) -> None:
    """Checks pairs of an input and the output that replaces it, by name.

    `inputs` and `outputs`: the type of each by name, which compares. Raises PopulusError for a name that there is not,
    for an output of two inputs, and for a pair of unlike types.
    """
    by: dict[str, str] = {}
    for name, output in states.items():
        for known, wanted, kind in ((inputs, name, "input"), (outputs, output, "output")):
            if wanted not in known:
                raise PopulusError(f"state '{name}': there is no {kind} '{wanted}'; there are {', '.join(known) or 'none'}")
        if output in by:
            raise PopulusError(f"states '{by[output]}' and '{name}' both become output '{output}'; each has one of its own")
        by[output] = name
        if inputs[name] != outputs[output]:
            raise PopulusError(f"state '{name}' is {inputs[name]}, and output '{output}' is {outputs[output]}; a state keeps its type")


@dataclass
class States:
    """The memory of a program's states, and where their next values are.

    `pairs`: input name -> output name. `now`: the memory of each input. `next`: that of each output. `trading`: inputs whose
    memory and that of their next values trade places when a run ends, so that nothing is copied.
    """

    pairs: Mapping[str, str]
    now: dict[str, Array] = field(default_factory=dict[str, Array])
    next: dict[str, Array] = field(default_factory=dict[str, Array])
    trading: frozenset[str] = frozenset()

    def variables(self, graph: GraphOp) -> tuple[set[VarOp], set[VarOp]]:
        """Gives the variables of states, which keep their memory from run to run, and those of next values, until the end."""
        kept: set[StorageOp] = {storage_of(op.dst) for op in graph.walk() if isinstance(op, StreamInOp) and self.holds(op)}
        read: set[StorageOp] = {storage_of(op.src) for op in graph.walk() if isinstance(op, StreamOutOp) and self.replaces(op)}
        return {v for v in kept if isinstance(v, VarOp)}, {v for v in read if isinstance(v, VarOp)}

    def holds(self, op: StreamInOp) -> bool:
        """Tells whether a stream is of a state."""
        return op.stream.data in self.pairs

    def replaces(self, op: StreamOutOp) -> bool:
        """Tells whether a stream is of a next value."""
        return op.stream.data in self.pairs.values()

    def tradable(self, graph: GraphOp) -> dict[str, tuple[VarOp, VarOp]]:
        """Finds the states that may trade memory with their next values: both are whole variables of one size, of no other state."""
        streams = [op for op in graph.walk() if isinstance(op, StreamInOp | StreamOutOp)]
        into = {op.stream.data: op.dst for op in streams if isinstance(op, StreamInOp) and self.holds(op)}
        out = {op.stream.data: op.src for op in streams if isinstance(op, StreamOutOp) and self.replaces(op)}
        uses = [storage_of(v) for v in (*into.values(), *out.values())]
        found: dict[str, tuple[VarOp, VarOp]] = {}
        for name, output in self.pairs.items():
            a, b = into[name], out[output]
            now, next, seen = storage_of(a), storage_of(b), (view_of(a), view_of(b))
            alike = seen[0].shape == seen[1].shape and all(view.is_whole for view in seen)
            if not (isinstance(now, VarOp) and isinstance(next, VarOp) and alike and now.type.element == next.type.element):
                continue
            if uses.count(now) == uses.count(next) == 1:
                found[name] = now, next
        return found

    def commit(self) -> None:
        """Replaces each state by its next value, or by the front of one that is larger.

        Where one is the memory of another, all are read before any is written.
        """
        if not self.pairs:
            return
        kept = {name: output for name, output in self.pairs.items() if name not in self.trading}
        moved = [(front(self.next[output], self.now[name].shape), self.now[name]) for name, output in kept.items()]
        moved = [(source, target) for source, target in moved if not _same(source, target)]
        targets = [target for _, target in moved]
        sources = [s.copy() if any(np.may_share_memory(s, t) for t in targets) else s for s, _ in moved]
        for source, target in zip(sources, targets):
            np.copyto(target, source)
        for name in self.trading:
            output = self.pairs[name]
            self.now[name], self.next[output] = self.next[output], self.now[name]

    def go_home(self) -> None:
        """Exchanges the contents, and the places again, of states that trade memory."""
        for name in self.trading:
            now, next = self.now[name], self.next[self.pairs[name]]
            content = now.copy()
            np.copyto(now, next)
            np.copyto(next, content)
            self.now[name], self.next[self.pairs[name]] = next, now


def are_kept(graph: GraphOp, pairs: Mapping[str, str]) -> bool:
    """Tells whether a run leaves the states as they were until `commit`: no step writes the memory of one but its own stream."""
    states = {op for op in graph.walk() if isinstance(op, StreamInOp) and op.stream.data in pairs}
    memory = [storage_of(op.dst) for op in states]
    if len(set(memory)) < len(memory):
        return False
    return not any(storage_of(v) in memory for op in graph.walk() if op not in states for v in _written(op))


def touched(op: Operation) -> set[StorageOp]:
    """Collects the variables, constants and parameters that an op and the ops inside it touch."""
    inner = [o for o in op.walk() if not isinstance(o, ViewOp)]
    return {storage_of(v) for o in inner for v in o.operands if isinstance(v.type, TensorType)}


def _written(op: Operation) -> list[SSAValue]:
    """Lists the views that an op writes itself."""
    match op:
        case FamilyOp():
            return [value for _, value in op.written()]
        case CopyOp() | StreamInOp():
            return [op.dst]
        case OutsideOp():
            return list(op.views[op.inputs.value.data :])
        case CallOp():
            return [value for parameter, value in op.bindings() if parameter.written]
        case _:
            return []


def front(array: Array, shape: tuple[int, ...]) -> Array:
    """Cuts an array to the first elements along each axis."""
    return array if array.shape == shape else array[tuple(slice(0, n) for n in shape)]


def _same(a: Array, b: Array) -> bool:
    """Tells whether two arrays are the same elements in memory."""
    return a.ctypes.data == b.ctypes.data and a.shape == b.shape and a.strides == b.strides and a.dtype == b.dtype
