"""States: inputs that stay in a program's memory from run to run, each replaced by an output when a run ends."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from populus.dialects.poplar.memory import StorageOp, VarOp, storage_of
from populus.dialects.poplar.program import GraphOp, StreamInOp, StreamOutOp
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

    `pairs`: input name -> output name. `now`: the memory of each input. `next`: that of each output.
    """

    pairs: Mapping[str, str]
    now: dict[str, Array] = field(default_factory=dict[str, Array])
    next: dict[str, Array] = field(default_factory=dict[str, Array])

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

    def commit(self) -> None:
        """Replaces each state by its next value, or by the front of one that is larger.

        Where one is the memory of another, all are read before any is written.
        """
        moved = [(_front(self.next[output], self.now[name].shape), self.now[name]) for name, output in self.pairs.items()]
        moved = [(source, target) for source, target in moved if not _same(source, target)]
        targets = [target for _, target in moved]
        sources = [s.copy() if any(np.may_share_memory(s, t) for t in targets) else s for s, _ in moved]
        for source, target in zip(sources, targets):
            np.copyto(target, source)


def _front(array: Array, shape: tuple[int, ...]) -> Array:
    """Cuts an array to the first elements along each axis."""
    return array if array.shape == shape else array[tuple(slice(0, n) for n in shape)]


def _same(a: Array, b: Array) -> bool:
    """Tells whether two arrays are the same elements in memory."""
    return a.ctypes.data == b.ctypes.data and a.shape == b.shape and a.strides == b.strides and a.dtype == b.dtype
