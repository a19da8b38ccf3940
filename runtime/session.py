"""A program loaded into an engine, ready to run on arrays."""

from __future__ import annotations

from collections.abc import Mapping
from threading import Thread, current_thread
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from xdsl.dialects.builtin import ModuleOp

from populus.dialects.poplar.program import GraphOp
from populus.dialects.support.diagnostics import PopulusError, did_you_mean
from populus.dialects.support.guard import Guard
from populus.runtime.engine.choice import ENGINES, Options
from populus.runtime.engine.program import LoadedProgram, Observer, converted, unwritable
from populus.runtime.engine.states import check_states

if TYPE_CHECKING:
    from populus.runtime.engine.native.run.sharing import Sharing
    from populus.runtime.profile import Profile

Array: TypeAlias = NDArray[Any]


class Session:
    """The one `poplar.graph` of a module, loaded to run any number of times. Threads may share it; their runs are
    serialised.

    - `engine`: `native`, which runs machine code; `numpy`; `strict`, which runs vertex by vertex and checks each; or
      `auto`, which is native, except with a sample and without a compiler, where it is numpy.
    - `sample`: run on the numpy engine, and check this many vertices of each family in each execute by the rules of
      `strict`. None or 0: no checks.
    - `seed`: determines the order of vertices on `strict`, and the sample.
    - `threads`: number of threads of the native engine. The default is POPULUS_THREADS, else the number of CPUs of this
      process. Results do not depend on it.
    - `states`: inputs that the program keeps, each with the output that replaces it after a run, by name. They begin as
      zeros. With `fronts`, the front of an output that is larger may replace one. `run` neither takes nor returns them;
      `state` and `set_state` do.
    - `views`: outputs are views of the program's memory, which the next run overwrites, instead of new arrays (not on
      `strict`). Only one thread may use such a session.

    The engine's modules are imported at construction. Raises PopulusError for an unknown engine or op, and for a pair of
    states of unlike types.
    """

    def __init__(
        self,
        module: ModuleOp | GraphOp,
        engine: str = "auto",
        sample: int | None = None,
        seed: int = 0,
        threads: int | None = None,
        views: bool = False,
        states: Mapping[str, str] = {},
        fronts: bool = False,
    ):
        if engine not in ENGINES:
            raise PopulusError(f"no engine '{engine}'{did_you_mean(engine, ENGINES)}")
        self.graph = graph_of(module)
        options = Options(sample, seed, threads, views, dict(states))
        self._program = ENGINES[engine](self.graph, options)
        outputs = {name: self._fitting(name, states if fronts else {}) for name in self._program.outputs}
        check_states(states, _texts(self._program.inputs), _texts(outputs))
        self._states = dict(states)
        self._inputs = {name: type for name, type in self._program.inputs.items() if name not in states}
        self._held: dict[str, Array] = {}  # of states, if the engine keeps none
        if not self._program.states.pairs:
            self._held = {name: np.zeros(*self._program.inputs[name]) for name in states}
        self._pending: dict[str, Array] = {}  # of those, their next values
        self._running = Guard()
        self._views = views
        self._owner: Thread | None = None  # the thread that reads its views

    @property
    def engine(self) -> str:
        """The name of the engine that runs the program."""
        return self._program.name

    @property
    def loaded(self) -> LoadedProgram:
        """The program on its engine: an engine of one's own has more to tell."""
        return self._program

    @property
    def inputs(self) -> dict[str, tuple[tuple[int, ...], np.dtype[Any]]]:
        """Shape and dtype of each input by name."""
        return self._inputs

    @property
    def outputs(self) -> dict[str, tuple[tuple[int, ...], np.dtype[Any]]]:
        """Shape and dtype of each output by name."""
        return {name: type for name, type in self._program.outputs.items() if name not in self._states.values()}

    @property
    def fallbacks(self) -> dict[str, int]:
        """The number of families, by codelet, that the native engine runs on NumPy's kernel; empty on other engines."""
        return dict(self._program.fallbacks)

    def __repr__(self) -> str:
        inputs, outputs = (", ".join(f"{n}: {t}{list(s)}" for n, (s, t) in side.items()) for side in (self.inputs, self.outputs))
        return f"<Session ({inputs}) -> ({outputs}), engine {self.engine}>"

    def run(self, inputs: Mapping[str, Array], observe: Observer | None = None, commit: bool = True) -> dict[str, Array]:
        """Runs the program and returns the outputs by name, as new arrays unless the session gives views.

        Concurrent calls run one after the other. Inputs are read until `run` returns, and are never written.
        `observe(step, written)` is called after each execute, copy, stream in and host call with [(view, copy of its
        content)]. Without `commit`, states keep their values until `commit` is called; another run begins from them again.
        Raises PopulusError

        - for inputs that are missing, unknown, or of another shape or dtype;
        - for an operand that a step refuses;
        - if an observer runs the session that it observes, or a second thread runs a session of views.
        """
        arrays = {name: self._input(name, inputs) for name in self._known(inputs)}
        if self._running.mine:
            raise PopulusError("the program is in a run that this thread has not finished; run it after that, or load another session")
        with self._running.lock:
            if self._views:
                self._claim()
            results = self._program.run({**arrays, **self._held}, observe, commit)
            for name, held in self._held.items():
                self._pending[name] = results.pop(self._states[name])[(*(slice(0, n) for n in held.shape), ...)]
            if commit:
                self._held.update(self._pending)
            return results

    def commit(self) -> None:
        """Replaces each state by the next value that the last run, without `commit`, has left."""
        with self._running.lock:
            self._program.commit()
            self._held.update(self._pending)

    def memory_of(self, name: str, next: bool = False) -> Array:
        """Gives a read-only view of a state, or of the `next` value that a run without `commit` has left.

        The next run or `commit` makes its elements undefined. Raises PopulusError for another name.
        """
        now = self._state(name)
        if not next:
            return unwritable(now)
        return unwritable(self._pending[name] if name in self._held else self._program.states.next[self._states[name]])

    def rest(self, states: bool = False) -> None:
        """Gives the memory of variables back to the system until the next run, unless a run is under way or it has states.

        `states`: also if it has states, which become zeros.
        """
        if not self._running.mine and self._running.lock.acquire(blocking=False):
            try:
                self._program.rest(states)
                for array in self._held.values() if states else ():
                    array[...] = 0
            finally:
                self._running.lock.release()

    def state(self, name: str) -> Array:
        """Gives a copy of a state. Raises PopulusError for another name."""
        with self._running.lock:
            return self._state(name).astype(self._program.inputs[name][1])

    def set_state(self, name: str, value: Array, front: bool = False) -> None:
        """Replaces a state, for the next run; or with `front`, its first elements along each axis.

        Raises PopulusError for another name, shape or dtype.
        """
        array = np.asarray(value)
        with self._running.lock:  # a run of another thread may end with the state in other memory
            target = self._state(name)
            shape, dtype = self._program.inputs[name]
            if front and array.ndim == len(shape):
                target = target[(*(slice(0, n) for n in array.shape), ...)]  # of a scalar, too, an array
                shape = target.shape
            if array.shape != shape or array.dtype != dtype:
                raise PopulusError(f"state '{name}' is {dtype} {list(shape)}; given is {array.dtype} {list(array.shape)}")
            np.copyto(target, converted(array, target.dtype, name))

    def _fitting(self, output: str, states: Mapping[str, str]) -> tuple[tuple[int, ...], np.dtype[Any]]:
        """Gives the type of an output, or of its front where it replaces one of these states."""
        shape, dtype = self._program.outputs[output]
        state = next((name for name, replacing in states.items() if replacing == output), None)
        if state in self._program.inputs:
            most, _ = self._program.inputs[state]
            shape = tuple(map(min, shape, most)) if len(shape) == len(most) else shape
        return shape, dtype

    def _state(self, name: str) -> Array:
        if name not in self._states:
            known = ", ".join(self._states) or "none"
            raise PopulusError(f"there is no state '{name}'{did_you_mean(name, self._states)}; there are {known}")
        return self._held[name] if name in self._held else self._program.states.now[name]

    def _claim(self) -> None:
        """Raises PopulusError if another thread has views of this memory."""
        self._owner = self._owner or current_thread()
        if self._owner is not current_thread():
            raise PopulusError(
                f"the outputs of this session are views of its memory, which thread '{self._owner.name}' reads; "
                "load a session for each thread"
            )

    def profile(self) -> Profile:
        """Predicts tiles, bytes and cycles of the program by the machine's cost model."""
        from populus.runtime.profile import profile

        return profile(self.graph)

    def sharing(self, threads: int) -> Sharing:
        """Simulates how so many threads would share a run, of the native program as it would be loaded for them.

        No thread is started and nothing runs. Raises PopulusError on an engine other than native.
        """
        if self.engine != "native":
            raise PopulusError(f"the engine {self.engine} runs on one thread; threads share the work of the native engine")
        from populus.runtime.engine.native.run.program import NativeProgram

        return NativeProgram(self.graph, threads=threads).table.sharing(threads)

    def _known(self, inputs: Mapping[str, Array]) -> list[str]:
        for name in inputs:
            if name not in self.inputs:
                raise PopulusError(f"the program has no input '{name}'{did_you_mean(name, self.inputs)}")
        return list(self.inputs)

    def _input(self, name: str, inputs: Mapping[str, Array]) -> Array:
        shape, dtype = self.inputs[name]
        if name not in inputs:
            raise PopulusError(f"input '{name}' is missing; it is {dtype} {list(shape)}")
        array = np.asarray(inputs[name])
        if array.shape != shape or array.dtype != dtype:
            raise PopulusError(f"input '{name}' is {array.dtype} {list(array.shape)}, expected {dtype} {list(shape)}")
        return array


def _texts(streams: Mapping[str, tuple[tuple[int, ...], np.dtype[Any]]]) -> dict[str, str]:
    """Describes the types of streams."""
    return {name: f"{dtype} {list(shape)}" for name, (shape, dtype) in streams.items()}


def graph_of(module: ModuleOp | GraphOp) -> GraphOp:
    if isinstance(module, GraphOp):
        return module
    graphs = [op for op in module.walk() if isinstance(op, GraphOp)]
    if len(graphs) != 1:
        raise PopulusError(f"the module has {len(graphs)} poplar.graph; a session runs exactly one")
    return graphs[0]
