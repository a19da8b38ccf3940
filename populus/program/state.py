"""`Stateful`: a program that keeps some of its inputs from run to run, as recurrent state or a cache of keys and values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias
from weakref import WeakKeyDictionary

from xdsl.dialects.builtin import DYNAMIC_INDEX, TensorType
from xdsl.ir import Attribute

from populus.dialects.onnx.types import as_tensor
from populus.dialects.support.diagnostics import PopulusError, did_you_mean
from populus.dialects.support.element_types import dtype_of
from populus.dialects.support.guard import Guard
from populus.program.padding import UnequalSizesError
from populus.program.signature import Signature, computed
from populus.runtime.built.given import Inputs, by_name
from populus.runtime.engine.states import check_states

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from xdsl.dialects.builtin import ModuleOp

    from populus.program.options import CompileOptions
    from populus.program.source import Arrays
    from populus.runtime.session import Session

Shapes: TypeAlias = dict[str, tuple[int, ...]]


class Keeping(Protocol):
    """A program as a `Stateful` needs it."""

    options: CompileOptions

    @property
    def level(self) -> str:
        """The level that runs."""
        ...

    @property
    def signature(self) -> Signature:
        """The names and types of inputs and outputs."""
        ...

    @property
    def several(self) -> Mapping[str, Mapping[int, str]]:
        """The dimensions of each input that have several sizes, by position."""
        ...

    def most(self, name: str) -> tuple[int | None, ...]:
        """Gives the greatest size of an input along each axis, None where it is open."""
        ...

    def stated_types(self) -> tuple[dict[str, TensorType[Attribute]], dict[str, Attribute]]:
        """Gives the types of inputs and outputs by name; open dimensions are -1."""
        ...

    def program_for(self, inputs: Mapping[str, Any], room: Mapping[str, int] = ...) -> Keeping:
        """Gives the program that `run` uses for these inputs."""
        ...

    def sized_for(self, inputs: Mapping[str, Any]) -> Keeping:
        """Gives the program for exactly the sizes of these inputs."""
        ...

    def module(self, level: str) -> ModuleOp:
        """Gives the module at a level."""
        ...

    def run(self, inputs: Mapping[str, Any]) -> Arrays:
        """Runs the program."""
        ...


class Stateful:
    """A program that keeps inputs from run to run. `pairs`: each of them, and the output that replaces it after a run.

        cached = program.stateful({"past_key": "present_key", "past_value": "present_value"})
        logits = cached.run({"input_ids": first})["logits"]
        logits = cached.run({"input_ids": second})["logits"]

    States begin as zeros; a dimension of several sizes that no other input has begins at 0. They stay in the program's memory
    from run to run, and move when another size needs another program. A run that raises leaves them as they were.
    Threads take turns. Raises PopulusError for a name that there is not, and for a pair of unlike types.
    """

    def __init__(self, program: Keeping, pairs: Mapping[str, str]):
        self.program = program
        self.pairs = dict(pairs)
        self._running = Guard()
        inputs, outputs = program.stated_types()
        alike = {o: inputs[i] for i, o in self.pairs.items() if i in inputs and o in outputs and _agree(inputs[i], outputs[o])}
        check_states(self.pairs, inputs, {**outputs, **alike})
        self._types = inputs
        self._names = program.several
        self._most = {name: program.most(name) for name in self.pairs}
        self._held: Arrays = {}  # states that are not in a program's memory
        self._shapes: Shapes = {}  # of states that are in the memory of `_session`
        self._growth: dict[str, int] = {}  # of dimensions, in the last run
        self._session: Session | None = None
        self._sessions: WeakKeyDictionary[Keeping, Session] = WeakKeyDictionary()  # of programs that the open program keeps
        self._latest: Session | None = None  # the only one whose memory is in use

    def run(self, inputs: Inputs) -> Arrays:
        """Runs on the other inputs, with the states that the run before left; gives the other outputs by name.

        Raises PopulusError for inputs that do not match the model, for a state among them, and for a state that would exceed its bound.
        """
        inputs = by_name(inputs, [name for name in self._types if name not in self.pairs], PopulusError)
        for name in self.pairs:
            if name in inputs:
                raise PopulusError(f"input '{name}' is a state, which the program keeps; set('{name}', array) replaces it")
        with self._running.lock:
            states = {name: self._stand_in(name, inputs) for name in self.pairs}
            program = self.program
            try:
                outgrown: dict[str, int] = {}
                for _ in range(2):  # the second time, if a state grows faster than in the last run
                    program = self.program.program_for({**inputs, **states}, self._room(states, outgrown))
                    after = self._after(program, inputs, states)
                    if not self._fits_memory(program, after):
                        break
                    outgrown = self._outgrown(program, after)
                    if not outgrown:
                        return self._run_in_memory(program, inputs, states, after)
            except UnequalSizesError:
                program = self.program.sized_for({**inputs, **states})
            return self._run_outside(program, inputs, states)

    __call__ = run

    def reset(self) -> None:
        """Makes all states what they were before the first run."""
        with self._running.lock:
            self._held, self._shapes, self._growth, self._session = {}, {}, {}, None

    def get(self, name: str) -> NDArray[Any]:
        """Gives a copy of a state. Raises PopulusError for another name."""
        self._known(name)
        with self._running.lock:
            if self._session is not None:
                return self._front(self._session, name)
            return self._held.get(name, self._stand_in(name, {})).copy()

    def set(self, name: str, value: Any) -> None:
        """Replaces a state, for the next run. Raises PopulusError for another name, shape or element type."""
        import numpy as np

        self._known(name)
        type = self._types[name]
        array, expected = np.asarray(value), dtype_of(type.element_type)
        shape = [n if n >= 0 else "?" for n in type.get_shape()]
        fits = array.ndim == len(shape) and all(n in ("?", m) for n, m in zip(shape, array.shape))
        if array.dtype != expected or not fits:
            raise PopulusError(f"state '{name}' is {expected} [{', '.join(map(str, shape))}]; given is {array.dtype} {list(array.shape)}")
        with self._running.lock:
            self._leave()
            self._held[name] = array.copy()

    # -- states in the memory of a program

    def _run_in_memory(self, program: Keeping, inputs: Mapping[str, Any], states: Arrays, after: Shapes) -> Arrays:
        """Runs a program whose memory has the states, or gets them. `after`: their shapes when it ends."""
        if self._sessions.get(program) is not self._latest or self._latest is None:
            self._leave()
            if self._latest is not None:
                self._latest.rest(states=True)
            self._latest = self._loaded(program)
        session = self._latest
        if session is not self._session:
            for name in self.pairs:
                session.set_state(name, self._held.get(name, states[name]), front=True)
        results = computed(program.signature.without(self.pairs), inputs, session.run, states)
        self._session, self._held = session, {}
        self._move(after, states)
        return results

    def _run_outside(self, program: Keeping, inputs: Mapping[str, Any], states: Arrays) -> Arrays:
        """Runs a program on states that are arrays."""
        self._leave()
        held = {name: self._held.get(name, states[name]) for name in self.pairs}
        results = program.run({**inputs, **held})
        after = {name: results[output].shape for name, output in self.pairs.items()}
        self._check(after)
        self._held = {name: results.pop(output) for name, output in self.pairs.items()}
        self._move(after, states)
        self._shapes = {}
        return results

    def _move(self, after: Shapes, states: Arrays) -> None:
        """Records the shapes of states after a run, and how far each dimension of several sizes grew."""
        self._shapes = after
        for name, dimensions in self._names.items():
            for d, dimension in dimensions.items() if name in after else ():
                self._growth[dimension] = after[name][d] - states[name].shape[d]

    def _room(self, states: Arrays, outgrown: Mapping[str, int]) -> dict[str, int]:
        """Gives the sizes that growing dimensions of states need: those that are known, or as large a step as the last one was."""
        room = {
            dimension: states[name].shape[d] + self._growth[dimension]
            for name in self.pairs
            for d, dimension in self._names.get(name, {}).items()
            if self._growth.get(dimension, 0) > 0
        }
        return {**room, **outgrown}

    def _after(self, program: Keeping, inputs: Mapping[str, Any], states: Arrays) -> Shapes:
        """Gives the shapes of states after a run. Raises PopulusError for inputs that do not match the model, and as `_check` does."""
        padding = program.signature.padding
        if padding is None:
            return {name: array.shape for name, array in states.items()}
        at = padding.sizes({**program.signature.without(self.pairs).checked(inputs), **states})
        after = {name: padding.shape(output, at) for name, output in self.pairs.items()}
        self._check(after)
        return after

    def _check(self, after: Shapes) -> None:
        """Raises PopulusError for shapes that states cannot have: of another size than the model states, or above a bound of the user's."""
        for name, shape in after.items():
            stated, most = self._types[name].get_shape(), self._most[name]
            if len(shape) != len(stated) or any(m not in (n, DYNAMIC_INDEX) for n, m in zip(shape, stated)):
                raise PopulusError(f"state '{name}' would be {list(shape)}, and it is {[m if m >= 0 else '?' for m in stated]}")
            for d, dimension in self._names.get(name, {}).items():
                if (bound := most[d]) is not None and shape[d] > bound:
                    raise PopulusError(
                        f"state '{name}' would have {shape[d]} elements along '{dimension}', which is bounded by {bound}; "
                        "reset it, or compile with a larger bound"
                    )

    def _outgrown(self, program: Keeping, after: Shapes) -> dict[str, int]:
        """Gives the dimensions whose bound in a program the states exceed after a run, with the sizes that they need."""
        padding = program.signature.padding
        if padding is None:
            return {}
        return {self._names[name][d]: shape[d] for name, shape in after.items() for d in padding.outgrown(name, shape)}

    def _fits_memory(self, program: Keeping, after: Shapes) -> bool:
        """Tells whether the memory of states can hold their next values.

        It can if these are as large, or if the program has a bound for each axis that grows: a program of more rows may hold those.
        """
        if program.level != "poplar":
            return False
        padding, inputs, outputs = program.signature.padding, program.signature.inputs, program.signature.outputs
        pairs = [(inputs[i].get_shape(), outputs[o].get_shape()) for i, o in self.pairs.items()]
        if padding is None:
            return all(now == next for now, next in pairs)
        if any(len(now) != len(next) or any(m < n for n, m in zip(now, next)) for now, next in pairs):
            return False
        return all(padding.inputs[name][d] is not None for name, shape in after.items() for d in padding.outgrown(name, shape))

    def _loaded(self, program: Keeping) -> Session:
        """Loads a program with memory for the states."""
        from populus.runtime.session import Session

        if program not in self._sessions:
            options = program.options
            self._sessions[program] = Session(
                program.module("poplar"),
                engine=options.engine,
                sample=options.sample or 0,
                threads=options.threads,
                states=self.pairs,
                fronts=program.signature.padding is not None,
            )
        return self._sessions[program]

    def _leave(self) -> None:
        """Takes the states out of a program's memory."""
        if self._session is not None:
            self._held = {name: self._front(self._session, name) for name in self.pairs}
            self._session, self._shapes = None, {}

    def _front(self, session: Session, name: str) -> NDArray[Any]:
        return session.state(name)[(*(slice(0, n) for n in self._shapes[name]), ...)].copy()

    def _known(self, name: str) -> None:
        if name not in self.pairs:
            raise PopulusError(f"there is no state '{name}'{did_you_mean(name, self.pairs)}; there are {', '.join(self.pairs) or 'none'}")

    def _stand_in(self, name: str, inputs: Mapping[str, Any]) -> NDArray[Any]:
        """Gives zeros of the shape that a state has, or begins with. `inputs`: those of a run, which may tell sizes."""
        import numpy as np

        type = self._types[name]
        zero = np.zeros((), dtype_of(type.element_type))
        if name in self._held or name in self._shapes:
            return np.broadcast_to(zero, self._held[name].shape if name in self._held else self._shapes[name])
        shape = list(type.get_shape())
        names = self._names
        for other, dimensions in names.items():
            for d, dimension in dimensions.items() if other in inputs else ():
                if d < np.ndim(inputs[other]):
                    same = [names.get(name, {}).get(i) == dimension for i in range(len(shape))]
                    shape = [np.shape(inputs[other])[d] if alike else n for alike, n in zip(same, shape)]
        return np.broadcast_to(zero, [max(n, 0) for n in shape])


def _agree(a: TensorType[Attribute], other: Attribute) -> bool:
    """Tells whether two types may be of one array: what both state is equal."""
    b = as_tensor(other)
    if b is None:
        return True
    if a.element_type != b.element_type or len(a.get_shape()) != len(b.get_shape()):
        return False
    return all(m == n or min(m, n) < 0 for m, n in zip(a.get_shape(), b.get_shape()))
