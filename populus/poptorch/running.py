"""`Running`: the programs of a traced module, what the machine holds for them, and the steps of a call."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from populus.lowering.popart.training_names import gradient_name
from populus.popart.reserved import GRADIENT
from populus.popart.updates import Update, update_pipeline
from populus.poptorch.absent import Error
from populus.poptorch.enums import ReductionType
from populus.poptorch.exceptions import raised, spread
from populus.poptorch.results import UPDATED
from populus.program.compile import compile
from populus.program.replicas import Replicas
from populus.program.stepper import Ran, Stepper
from populus.torch_backend.export import PREFIX, Exported
from populus.torch_backend.step import Machine, Step, rows

if TYPE_CHECKING:
    from populus.popart.optimizers import Optimizer
    from populus.poptorch.options import Options
    from populus.program.program import Program
    from populus.program.source import Arrays


class Running:
    """A module's programs on the replicas of a machine. `shown`: weights whose gradients of single runs are looked at."""

    def __init__(self, found: Exported, step: Step, options: Options, machine: Machine, shown: Sequence[str]):
        self.exported, self.step, self.machine = found, step, machine
        self._options, self._shown = options, [n for n in shown if n in step.wrt]
        self.copies, self.parts = options.replication_factor, options.Training.gradient_accumulation
        self.replicas = Replicas(step.program, self.copies)
        self.update: Update | None = None
        self._updates: Sequence[Program] = ()
        self.steps = 0
        """The updates that were made."""
        self.take()

    def take(self, names: Sequence[str] | None = None) -> None:
        """Takes the values of the module's parameters and buffers: all that are variables, or these."""
        tensors = self.exported.tensors
        taken = {n: np.array(tensors[n].detach().numpy()) for n in (self.step.variables if names is None else names)}
        if names is None:
            self.held: Arrays = {}  # weights, and the buffers of the first replica
            self._own: list[Arrays] = [{} for _ in self.replicas.place.here]  # buffers of each replica of this process
        self.held |= taken
        self._own = [{n: a for n, a in own.items() if n not in taken} for own in self._own]

    def give(self) -> None:
        """Gives the module's parameters and buffers the values that they have on the machine."""
        with torch.no_grad():
            for name, array in self.held.items():
                self.exported.tensors[name].copy_(torch.from_numpy(np.array(array)))

    def train(self, optimizer: Optimizer, weights: Sequence[str]) -> None:
        """Compiles the update of these weights, in which the gradients of all replicas meet; its states begin anew."""
        machine = self.machine
        mean = self._options.Training.accumulation_and_replication_reduction_type == ReductionType.Mean

        def made(module: Any) -> Program:
            return compile(module, pipeline=update_pipeline(), target=machine.target, tiles=machine.tiles, engine=machine.engine)

        self.update = Update(optimizer, {n: self.held[n] for n in weights}, made, self.copies, self.parts * self.copies if mean else 1)
        self._updates = Replicas(self.update.program, self.copies).programs
        self.steps = 0

    def run(self, inputs: Sequence[Any], seed: int, drawn: int, optimizer: Optimizer | None) -> Iterator[list[Arrays]]:
        """Takes the steps of a call. After each run it gives, of every replica, outputs and anchors by name.

        `drawn`: how many times random numbers were drawn before. Raises PopulusError for inputs that cannot be cut into micro batches,
        and for an op that raised a floating point exception if the options ask for it.
        """
        step, update, copies, parts = self.step, self.update, self.copies, self.parts
        iterations, here, taken = self._options.device_iterations, self.replicas.place.here, self.steps
        batches = rows(inputs, iterations * parts * copies)
        losses = {} if optimizer is None else {loss: optimizer.getLossScalingVal() for loss in step.differentiated}

        def feed(iteration: int, part: int) -> list[Arrays]:
            first = (iteration * parts + part) * copies
            return [step.feed(batches[first + k], losses) for k in here]

        def words(number: int, k: int) -> list[int]:
            return [seed, drawn + number * copies + k + 1]

        def scalars(iteration: int) -> Arrays:
            if update is None or optimizer is None:
                return {}
            # PyTorch's first velocity is the gradient itself.
            return update.scalars(optimizer, {"dampening": 0.0} if taken + iteration == 0 else {})

        fetched = dict.fromkeys([*step.outputs, *self.exported.changed.values(), *map(gradient_name, self._shown)])
        changes = {**step.schedule.changes, **({} if update is None else update.changes)}
        schedule = replace(step.schedule, iterations=iterations, changes=changes, fetched=fetched)
        stepper = Stepper(schedule, self.replicas.place, self.replicas.programs, self._updates)
        held = [{**step.held({**self.held, **own}), **({} if update is None else update.state)} for own in self._own]
        for ran in stepper.run(feed, held, words, scalars):
            if self._options.Precision.floating_point_exceptions:
                for k in here:
                    self._check(batches[(ran.iteration * parts + ran.part) * copies + k], ran.results[k])
            self._keep(ran)
            yield self._named(ran)

    def _keep(self, ran: Ran) -> None:
        """Takes the weights, buffers and states that a run left."""
        changed, first = self.exported.changed, ran.held[0]
        self._own = [{n: held[n] for n in changed} for held in ran.held]
        self.held.update({n: ran.results[0][o] for n, o in changed.items()})
        if self.update is not None and ran.part == self.parts - 1:
            self.held.update({n: first[n] for n in self.update.weights})
            self.update.state = {n: first[n] for n in self.update.state}
            self.steps += 1

    def _named(self, ran: Ran) -> list[Arrays]:
        """Gives what each replica's run gave: outputs, gradients and new weights, by the names of anchors."""
        new = {UPDATED + n.removeprefix(PREFIX): self.held[n] for n in self.step.wrt}
        gradients = {GRADIENT + n.removeprefix(PREFIX): gradient_name(n) for n in self._shown}
        return [{**{n: of[n] for n in self.step.outputs}, **{a: of[g] for a, g in gradients.items()}, **new} for of in ran.results]

    def _check(self, given: Sequence[Any], found: Arrays) -> None:
        """Raises PopulusError for an op of this micro batch that raised a floating point exception."""
        outputs = {n: found[n] for n in self.step.outputs}
        gradients = {n: found[gradient_name(n)] for n in self.step.wrt}
        known = {**dict(zip(self.step.inputs, given)), **self.held}
        if said := raised(self.step.model, known, outputs) or spread({**known, **outputs}, gradients):
            raise Error(f"floating point exception: {said}")

    @property
    def cycles(self) -> int:
        """The cycles of a call on each replica, as the cost model predicts them."""
        iterations = self._options.device_iterations
        programs = [self.step.program] * (iterations * self.parts) + ([] if self.update is None else [self.update.program] * iterations)
        return sum(int(p.profile().summary["cycles"]) for p in programs)
