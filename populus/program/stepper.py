"""`Stepper`: the one loop of every front. A step is some runs of a program, and updates that take what the runs add up to."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from populus.dialects.support.element_types import dtype_of
from populus.lowering.popart.training_names import SEED

if TYPE_CHECKING:
    from populus.program.replicas import Place
    from populus.program.signature import Signature
    from populus.program.source import Arrays


class Runner(Protocol):
    """A program of one replica, with memory of its own."""

    @property
    def signature(self) -> Signature:
        """The names and types of inputs and outputs."""
        ...

    def run(self, inputs: Mapping[str, Any], /) -> Arrays:
        """Computes the outputs by name."""
        ...


@dataclass(frozen=True)
class Schedule:
    """The schedule of a step: `iterations` times `parts` runs on each replica, and an update, if there is one, after every `parts` runs.

    - `changes`: inputs that a front holds, each with the output that replaces it: of a run for the next run, of an update for the next
      iteration.
    - `sums`: inputs of the update, each with the output of a run that it takes. If the runs have an input of that name too, it is an
      accumulator: -0.0 in the first run of an iteration, so that adding to it changes no bit, and then what the run before gave.
    - `means`: scalar outputs of a run, which the update takes as means over the parts.
    - `draws`: the number of seeds of a run, one for each micro-batch inside of it.
    - `fetched`: names of outputs; every process gets these of all replicas, instead of all results of its own.
    """

    iterations: int = 1
    parts: int = 1
    changes: Mapping[str, str] = field(default_factory=dict[str, str])
    sums: Mapping[str, str] = field(default_factory=dict[str, str])
    means: tuple[str, ...] = ()
    draws: int = 1
    fetched: Collection[str] | None = None


@dataclass(frozen=True)
class Ran:
    """A run of all replicas, and the update after it. Each list has an entry for each replica of this process.

    `results`: outputs of the run and of the update; of all replicas if some are fetched. `held`: what is held from now on.
    `means`: those over the parts so far. `arguments`: what the run took.
    """

    iteration: int
    part: int
    results: list[Arrays]
    held: list[Arrays]
    means: list[dict[str, float]]
    arguments: list[Arrays]


class Stepper:
    """Takes steps. `runs`, `updates`: programs of the replicas of this process; no updates for a step that has none.

    `known`: names of inputs that a feed may have though a replica's program does not take them, as other stages of a pipeline do.
    """

    def __init__(
        self, schedule: Schedule, place: Place, runs: Sequence[Runner], updates: Sequence[Runner] = (), known: Collection[str] = frozenset()
    ):
        self.schedule, self.place = schedule, place
        self._runs, self._updates, self._known = runs, updates, known

    def run(
        self,
        feed: Callable[[int, int], Sequence[Mapping[str, Any]]],
        held: Sequence[Arrays],
        seed: Callable[[int, int], Sequence[int]],
        scalars: Callable[[int], Arrays] = lambda _: {},
    ) -> Iterator[Ran]:
        """Takes a step, and gives each run of it. It changes nothing that was given: a front that stops in between holds what it held.

        `feed(iteration, part)`: inputs of each replica of this process. `seed(number, replica)`: words from which the random numbers of a
        run follow, the runs of a step counted from 0. `scalars(iteration)`: inputs that are the same on all replicas.
        Raises PopulusError for values that do not match the programs.
        """
        step, here = self.schedule, self.place.here
        states = [dict(each) for each in held]
        for iteration in range(step.iterations):
            same = scalars(iteration)
            sums = [self._begun(program) for program in self._runs]
            losses: list[dict[str, list[float]]] = [{name: [] for name in step.means} for _ in here]
            for part in range(step.parts):
                feeds, number = feed(iteration, part), iteration * step.parts + part
                given: list[Arrays] = []
                for i, (k, program) in enumerate(zip(here, self._runs)):
                    kept = _taken(program, {**states[i], **sums[i], **same})
                    given.append(self._seeded(program, {**self._fed(program, feeds[i]), **kept}, seed(number, k)))
                results = self._all(self._runs, given)
                for i, found in enumerate(results):
                    states[i] |= {name: found[o] for name, o in step.changes.items() if o in found}
                    sums[i] = {name: found[name] for name in sums[i]}
                    for name, values in losses[i].items():
                        values.append(float(found[name]))
                means = [{name: sum(values) / len(values) for name, values in each.items()} for each in losses]
                if self._updates and part == step.parts - 1:
                    results = self._updated(results, states, means, same)
                if step.fetched is not None:  # in an order that all processes have
                    results = self.place.everywhere([{n: found[n] for n in sorted(step.fetched)} for found in results])
                yield Ran(iteration, part, results, [dict(each) for each in states], means, given)

    def _updated(self, results: list[Arrays], states: list[Arrays], means: list[dict[str, float]], same: Arrays) -> list[Arrays]:
        """Runs the update, and gives its results beside those of the last run."""
        import numpy as np

        whole: list[Arrays] = []
        for found, each in zip(results, means, strict=True):
            whole.append({**found, **{name: np.asarray(value, found[name].dtype) for name, value in each.items()}})
        given: list[Arrays] = []
        for update, held, found in zip(self._updates, states, whole):
            sums = {name: found[of] for name, of in self.schedule.sums.items()}
            given.append(_taken(update, {**held, **found, **sums, **same}))
        new = self._all(self._updates, given)
        for held, found in zip(states, new):
            held |= {name: found[o] for name, o in self.schedule.changes.items() if o in found}
        return [{**found, **more} for found, more in zip(whole, new)]

    def _all(self, programs: Sequence[Runner], given: Sequence[Arrays]) -> list[Arrays]:
        start = self.place.here.start
        return self.place.run(lambda k: programs[k - start].run(given[k - start]))

    def _begun(self, program: Runner) -> Arrays:
        """Gives the accumulators at the begin of an iteration."""
        import numpy as np

        inputs = program.signature.inputs
        types = {name: inputs[name] for name in self.schedule.sums.values() if name in inputs}
        return {name: np.full(type.get_shape(), -0.0, dtype_of(type.element_type)) for name, type in types.items()}

    def _fed(self, program: Runner, feed: Mapping[str, Any]) -> Arrays:
        """Gives a feed without what other programs take: the program refuses a name that none knows."""
        inputs = program.signature.inputs
        return {name: array for name, array in feed.items() if name in inputs or name not in self._known}

    def _seeded(self, program: Runner, given: Arrays, words: Sequence[int]) -> Arrays:
        """Adds the random numbers' seeds, if the program draws any."""
        import numpy as np

        if SEED not in program.signature.inputs:
            return given
        return {**given, SEED: np.random.SeedSequence(list(words)).generate_state(2 * self.schedule.draws, np.uint32)}


def _taken(program: Runner, arrays: Arrays) -> Arrays:
    """Gives the arrays that a program takes."""
    inputs = program.signature.inputs
    return {name: array for name, array in arrays.items() if name in inputs}
