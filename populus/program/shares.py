"""`Shares`: tensors that steps change, whole or cut over replicas."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from populus.dialects.support.diagnostics import PopulusError
from populus.runtime.gcl import Group, communicator

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from populus.dialects.support.guard import Guard
    from populus.program.replicas import Place
    from populus.program.source import Arrays
    from populus.runtime.session import Session


class Shares:
    """The weights, or the states, of the replicas of this process. `parts`: the shapes of a replica's part, of tensors that are cut.

    A tensor that is not cut is the same on all replicas, and held once. One that is cut is flat, with zeros after its end; each of the
    replicas has an equal part, so a process holds as many parts as it has replicas. `owners`: of a pipeline of `stages`, the stage
    whose replicas alone have a tensor, which is whole there.
    """

    def __init__(self, place: Place, arrays: Arrays, parts: Mapping[str, Sequence[int]], owners: Mapping[str, int], stages: int = 1):
        self._place, self._stages = place, stages
        self._owners = {name: owners[name] for name in arrays if name in owners}
        self._types = {name: (arrays[name].shape, arrays[name].dtype) for name in self._owners}
        self._shapes = {name: arrays[name].shape for name in arrays if tuple(parts.get(name, arrays[name].shape)) != arrays[name].shape}
        self._same: Arrays = {}
        self._cut: list[Arrays] = []
        self.names = list(arrays)
        self.set(arrays)

    def __len__(self) -> int:
        return len(self.names)

    @property
    def bytes(self) -> int:
        """The bytes that a replica here holds."""
        return sum(a.nbytes for a in (*self._same.values(), *self._cut[0].values()))

    def of(self, i: int) -> Arrays:
        """Gives what replica i of those here holds."""
        return {**self._same, **self._cut[i]}

    def taken(self, results: Sequence[Arrays]) -> Shares:
        """Gives the new tensors, from each replica's results."""
        made = object.__new__(Shares)
        made._place, made._shapes, made.names = self._place, self._shapes, self.names
        made._stages, made._owners, made._types = self._stages, self._owners, self._types
        made._same = {name: results[0][name] for name in self._same}
        made._cut = [{name: each[name] for name in own} for own, each in zip(self._cut, results)]
        return made

    def set(self, arrays: Arrays) -> None:
        """Replaces all tensors by these, which are whole."""
        apart = {*self._shapes, *self._owners}
        self._same = arrays if not apart else {name: arrays[name] for name in self.names if name not in apart}
        self._cut = [
            {name: self._part(arrays[name], k) for name in self._shapes}
            | {name: arrays[name] for name, stage in self._owners.items() if stage == k % self._stages}
            for k in self._place.here
        ]

    def whole(self) -> Arrays:
        """Gives all tensors whole. All ranks call it together, if a tensor is cut."""
        import numpy as np

        if not self._shapes and not self._owners:
            return self._same
        all, start = Group(1, self._place.count), self._place.here.start

        def gathered(k: int) -> Arrays:
            parts, way, found = self._cut[k - start], communicator(), dict[str, Any]()
            for name in self._shapes:
                found[name] = self._joined(name, way.gather(all, parts[name], f"the parts of '{name}'"))
            for name, (shape, dtype) in self._types.items():
                own = parts[name] if name in parts else np.zeros(shape, dtype)
                found[name] = way.gather(all, own, f"'{name}' of its stage")[self._owners[name]]
            return found

        found = {**self._same, **self._place.run(gathered)[0]}
        return {name: found[name] for name in self.names}

    def _part(self, array: NDArray[Any], k: int) -> NDArray[Any]:
        import numpy as np

        share = -(-array.size // self._place.count)
        part = array.reshape(-1)[k * share : (k + 1) * share]
        return np.concatenate([part, np.zeros(share - part.size, part.dtype)])

    def _joined(self, name: str, parts: Sequence[NDArray[Any]]) -> NDArray[Any]:
        import numpy as np

        shape = self._shapes[name]
        return np.concatenate(parts)[: math.prod(shape)].reshape(shape)


class Kept:
    """The weights, or the states, of the one replica there is, in the memory of its program. `settled` guards it while it changes."""

    def __init__(self, session: Session, arrays: Arrays, settled: Guard):
        self._session, self._settled = session, settled
        self._read: Arrays | None = None
        self.names = list(arrays)
        self.set(arrays)

    def of(self, i: int) -> Arrays:
        """Gives what a run takes: nothing, as the program has it. Takes over what was changed in the arrays that `whole` gave."""
        if self._read is not None:
            self.set(self._read)
        return {}

    def taken(self, results: Sequence[Arrays]) -> Kept:
        """Gives the new tensors, which `Programs.commit` has put in place."""
        self._read = None
        return self

    def set(self, arrays: Arrays) -> None:
        """Replaces all tensors by these."""
        if missing := [name for name in self.names if name not in arrays]:
            raise PopulusError(f"there is no array of '{missing[0]}'")
        with self._settled.lock:
            self._read = None
            for name in self.names:
                self._session.set_state(name, arrays[name])

    def whole(self) -> Arrays:
        """Gives copies of all tensors, which no later step changes. The next step takes changes in them, as it does those of `Shares`."""
        with self._settled.lock:
            if self._read is None:
                self._read = {name: self._session.memory_of(name).copy() for name in self.names}
            return self._read
