"""`Stateful`: a program that keeps some of its inputs from run to run, as recurrent state or a cache of keys and values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from xdsl.dialects.builtin import TensorType
from xdsl.ir import Attribute

from populus.dialects.onnx.types import as_tensor
from populus.dialects.support.diagnostics import PopulusError, did_you_mean
from populus.dialects.support.element_types import dtype_of
from populus.dialects.support.guard import Guard
from populus.program import Program, computed
from populus.runtime.engine.states import check_states

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from populus.runtime.session import Session
    from populus.source import Arrays


class Stateful:
    """A program that keeps inputs from run to run. `pairs`: each of them, and the output that replaces it after a run.

        cached = program.stateful({"past_key": "present_key", "past_value": "present_value"})
        logits = cached.run({"input_ids": first})["logits"]
        logits = cached.run({"input_ids": second})["logits"]

    States begin as zeros; an open dimension that no other input has begins at 0. In a program of one size they stay in the
    program's memory. A run that raises leaves them as they were. Threads take turns.
    Raises PopulusError for a name that there is not, and for a pair of unlike types.
    """

    def __init__(self, program: Program, pairs: Mapping[str, str]):
        self.program = program
        self.pairs = dict(pairs)
        self._running = Guard()
        self._session: Session | None = None
        self._held: Arrays = {}
        inputs, outputs = program.stated_types()
        alike = {o: inputs[i] for i, o in self.pairs.items() if i in inputs and o in outputs and _agree(inputs[i], outputs[o])}
        check_states(self.pairs, inputs, {**outputs, **alike})
        self._inputs = inputs
        if program.names or program.level != "poplar":
            return
        from populus.runtime.session import Session

        self._signature = program.signature.without(self.pairs)
        options = program.options
        self._session = Session(
            program.module("poplar"), engine=options.engine, sample=options.sample or 0, threads=options.threads, states=self.pairs
        )

    def run(self, inputs: Mapping[str, Any]) -> Arrays:
        """Runs on the other inputs, with the states that the run before left; gives the other outputs by name.

        Raises PopulusError for inputs that do not match the model, and for a state among them.
        """
        for name in self.pairs:
            if name in inputs:
                raise PopulusError(f"input '{name}' is a state, which the program keeps; set('{name}', array) replaces it")
        with self._running.lock:
            if self._session is not None:
                return computed(self._signature, inputs, self._session.run)
            given = {**inputs, **{name: self._held.get(name, self._first(name, inputs)) for name in self.pairs}}
            results = self.program.run(given)
            self._held = {name: results.pop(output) for name, output in self.pairs.items()}
            return results

    def reset(self) -> None:
        """Makes all states what they were before the first run."""
        with self._running.lock:
            self._held = {}
            for name in self.pairs if self._session is not None else ():
                self._session_of(name).set_state(name, self._first(name, {}))

    def get(self, name: str) -> NDArray[Any]:
        """Gives a copy of a state. Raises PopulusError for another name."""
        self._known(name)
        with self._running.lock:
            if self._session is not None:
                return self._session.state(name)
            return self._held.get(name, self._first(name, {})).copy()

    def set(self, name: str, value: Any) -> None:
        """Replaces a state, for the next run. Raises PopulusError for another name, shape or element type."""
        import numpy as np

        self._known(name)
        type = self._inputs[name]
        array, expected = np.asarray(value), dtype_of(type.element_type)
        shape = [n if n >= 0 else "?" for n in type.get_shape()]
        fits = array.ndim == len(shape) and all(n in ("?", m) for n, m in zip(shape, array.shape))
        if array.dtype != expected or not fits:
            raise PopulusError(f"state '{name}' is {expected} [{', '.join(map(str, shape))}]; given is {array.dtype} {list(array.shape)}")
        with self._running.lock:
            if self._session is not None:
                self._session.set_state(name, array)
            else:
                self._held[name] = array.copy()

    def _session_of(self, name: str) -> Session:
        assert self._session is not None, name
        return self._session

    def _known(self, name: str) -> None:
        if name not in self.pairs:
            raise PopulusError(f"there is no state '{name}'{did_you_mean(name, self.pairs)}; there are {', '.join(self.pairs) or 'none'}")

    def _first(self, name: str, inputs: Mapping[str, Any]) -> NDArray[Any]:
        """Gives the first value of a state. `inputs`: those of a run, which may tell sizes."""
        import numpy as np

        type = self._inputs[name]
        shape = list(type.get_shape())
        for other, dimensions in self.program.names.items():
            for d, dimension in dimensions.items() if other in inputs else ():
                if d < np.ndim(inputs[other]):
                    same = [self.program.names[name].get(i) == dimension for i in range(len(shape))]
                    shape = [np.shape(inputs[other])[d] if alike else n for alike, n in zip(same, shape)]
        return np.zeros([max(n, 0) for n in shape], dtype_of(type.element_type))


def _agree(a: TensorType[Attribute], other: Attribute) -> bool:
    """Tells whether two types may be of one array: what both state is equal."""
    b = as_tensor(other)
    if b is None:
        return True
    if a.element_type != b.element_type or len(a.get_shape()) != len(b.get_shape()):
        return False
    return all(m == n or min(m, n) < 0 for m, n in zip(a.get_shape(), b.get_shape()))
