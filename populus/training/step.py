"""The programs of one update: gradients of one or several batches, and the optimizer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from xdsl.passes import ModulePass

from populus.dialects.support.diagnostics import PopulusError, where
from populus.dialects.support.element_types import element_of, tensor
from populus.dialects.support.guard import Guard
from populus.lowering.driver.pipeline import Pipeline
from populus.lowering.onnx.expose_weights import OnnxExposeWeightsPass
from populus.lowering.onnx.training_mode import OnnxTrainingModePass
from populus.lowering.popart.accumulate import PopartAccumulatePass, update_module
from populus.lowering.popart.autodiff import PopartAutodiffPass
from populus.lowering.popart.bucket import PopartBucketPass
from populus.lowering.popart.loss import LOSS, PopartLossPass
from populus.lowering.popart.optimize import PopartOptimizePass
from populus.lowering.popart.pipeline import PopartPipelinePass
from populus.lowering.popart.replicate import PopartReplicatePass
from populus.lowering.popart.shard import PopartShardPass
from populus.lowering.popart.synchronise import PopartSynchronisePass
from populus.lowering.popart.training_names import CLIP_NORM, CLIP_VALUE, accumulated_name, gradient_name, rows_name, updated_name
from populus.lowering.poplar.merge import PoplarMergePass
from populus.program.compile import compiled
from populus.program.options import MachineOptions
from populus.program.program import Program, computed
from populus.program.replicas import Place
from populus.program.stepper import Runner, Schedule, Stepper
from populus.program.watch import watch
from populus.runtime.engine.states import are_kept

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from populus.program.signature import Signature
    from populus.program.source import Arrays, Model
    from populus.runtime.session import Session

FIRST_SCALE = 2.0**15  # initial automatic loss scale: the largest power of two in f16
NO_PLACE = "no single op gives one when run op by op"
GROWS_AFTER = 2000  # good steps. Source: PyTorch GradScaler


@dataclass
class LossScale:
    """The factor of the loss that keeps 16-bit gradients from vanishing. An automatic scale halves when gradients overflow."""

    value: float
    automatic: bool = False
    good: int = 0

    @staticmethod
    def of(given: float | str) -> LossScale:
        """Parses a loss scale. Raises PopulusError unless it is a positive number or `auto`."""
        if given == "auto":
            return LossScale(FIRST_SCALE, True)
        try:
            value = float(given)
        except ValueError:
            value = 0.0
        if not 0 < value < float("inf"):
            raise PopulusError(f"the loss scale is {given}; a positive number or auto is expected")
        return LossScale(value)

    def tell(self, overflow: bool) -> None:
        """Updates the scale after a step."""
        if not self.automatic:
            return
        self.good = 0 if overflow else self.good + 1
        if overflow:
            self.value = max(self.value / 2, 1.0)
        elif self.good == GROWS_AFTER:
            self.value, self.good = min(self.value * 2, FIRST_SCALE), 0


@dataclass(frozen=True)
class Recipe:
    """The properties of a session that decide its programs."""

    loss: str
    optimizer: str
    weights: tuple[str, ...]
    accumulate: int
    clips: Mapping[str, float]
    scaled: bool
    batch_statistics: bool
    sparse: tuple[str, ...]
    recompute: int
    output: str | None
    axis: int
    replicas: int = 1
    shard: str = "none"
    synchronise: bool = False
    stages: int = 1
    micro_batches: int = 1
    cuts: tuple[str, ...] = ()

    @property
    def sums(self) -> dict[str, str]:
        """Names what batches add up to, by the input of the update that takes it."""
        rows = {rows_name(w): accumulated_name(rows_name(w)) for w in self.sparse}
        return {gradient_name(w): accumulated_name(w) for w in self.weights} | rows

    def pipeline(self, stage: int = 0) -> Pipeline:
        """Gives the passes from the model to gradients and, for an update of one batch, to new weights. `stage`: of a pipeline."""
        made = Pipeline.named("training").replace("onnx-expose-weights", OnnxExposeWeightsPass(self.weights))
        made = made.replace("onnx-training-mode", OnnxTrainingModePass("train" if self.batch_statistics else "keep"))
        made = made.replace("popart-loss", PopartLossPass(self.loss, self.output, self.axis))
        made = made.replace(
            "popart-autodiff", PopartAutodiffPass(self.weights, LOSS, loss_scale=self.scaled, sparse=self.sparse, recompute=self.recompute)
        )
        if self.synchronise:
            made = made.insert_before("popart-seed", PopartSynchronisePass(self.replicas, self.stages))
        if self.stages * self.micro_batches > 1:
            made = made.insert_after("popart-autodiff", PopartPipelinePass(self.stages, stage, self.micro_batches, self.cuts))
        if self.recompute != 1:  # recomputed ops wait until their results are needed
            made = made.replace("poplar-merge", PoplarMergePass(independent=False))
        return made.replace("popart-optimize", *([PopartAccumulatePass(self.accumulate)] if self.accumulate > 1 else self.update()))

    def update(self) -> list[ModulePass]:
        """Gives the passes that compute new weights from gradients."""
        optimize = PopartOptimizePass(self.optimizer, CLIP_NORM in self.clips, CLIP_VALUE in self.clips, self.scaled, self.stages)
        if self.replicas == 1:
            return [optimize]
        shard = [] if self.shard == "none" else [PopartShardPass(self.replicas, weights=self.shard == "weights")]
        return [PopartReplicatePass(self.replicas, self.stages), optimize, *shard, PopartBucketPass()]

    def plain(self) -> Recipe:
        """Gives the recipe of one replica with one batch, of the same inputs and results."""
        return replace(self, accumulate=1, replicas=1, synchronise=False, stages=1, micro_batches=1)

    def evaluation(self, names: tuple[str, ...]) -> Pipeline:
        """Gives the passes to the loss in inference mode, with these weights and statistics as inputs."""
        made = self.plain().pipeline()
        made = made.replace("onnx-training-mode", OnnxTrainingModePass("infer")).remove("popart-autodiff")
        made = made.replace("onnx-expose-weights", OnnxExposeWeightsPass(names))
        return made.remove("popart-optimize").remove("popart-seed")


@dataclass(frozen=True)
class Ran:
    """A replica's results of an update: mean loss, new weights and states by name, and the arguments of the last run."""

    loss: float
    results: Arrays
    arguments: Arrays


class _InMemory:
    """A program that keeps inputs, each with the output that replaces it, in its memory."""

    def __init__(self, program: Program, session: Session, pairs: Mapping[str, str]):
        self.program, self.session, self.pairs = program, session, pairs
        self.signature: Signature = program.signature.without(pairs)

    def run(self, inputs: Mapping[str, Any], /) -> Arrays:
        """Computes the outputs, and does not commit what it keeps. The views among them are of its memory."""
        if (watching := watch()) is not None:
            watching.count(self.program)
        results = computed(self.signature, inputs, lambda arrays: self.session.run(arrays, commit=False))
        return results | {output: self.session.memory_of(name, next=True) for name, output in self.pairs.items()}

    def memory(self) -> Arrays:
        """Gives views of what is kept, as the last run took it."""
        return {name: self.session.memory_of(name) for name in self.pairs}


class Programs:
    """The programs `step` (gradients, and new weights for an update of one batch), `update` (new weights) and `forward` (inference losses).

    `dims`: sizes of open dimensions, including the batch of a replica. `place`: where replicas run.
    """

    def __init__(self, model: Model, recipe: Recipe, weights: Arrays, options: MachineOptions, dims: Mapping[str, int], place: Place):
        self.recipe, self.place = recipe, place
        self._model, self._options, self._dims = model, options, dims
        self._forward: Program | None = None
        self._making = Guard()
        stages = sorted({k % recipe.stages for k in place.here})
        programs = {stage: compiled(model, options.compiling(recipe.pipeline(stage), dims)) for stage in stages}
        self.step = programs[stages[0]]
        self.whole = self.step
        if recipe.stages * recipe.micro_batches > 1:  # whose inputs and results are those of all stages and of a micro-batch
            self.whole = compiled(model, replace(options.compiling(recipe.plain().pipeline(), dims), level="popart"))
        self.update = self.step if recipe.accumulate == 1 else self._updating(weights)
        self._steps = [programs[k % recipe.stages] for k in place.here]
        self._steps = [p if p not in self._steps[:i] else p.replica() for i, p in enumerate(self._steps)]
        self._updates = self._steps if recipe.accumulate == 1 else [self.update, *(self.update.replica() for _ in place.here[1:])]
        self._kept: _InMemory | None = None
        self._stepper = self._stepping(self._steps)

    def _stepping(self, runs: Sequence[Runner]) -> Stepper:
        """Gives the steps of these programs: an update is of `accumulate` runs."""
        recipe, several = self.recipe, self.recipe.accumulate > 1
        changes = {name: updated_name(name) for name in self.statistics}
        made = Schedule(parts=recipe.accumulate, changes=changes, draws=recipe.micro_batches)
        if several:
            made = replace(made, sums=recipe.sums, means=(LOSS,))
        return Stepper(made, self.place, runs, self._updates if several else (), self.whole.signature.inputs)

    def keep(self, pairs: Mapping[str, str]) -> Session | None:
        """Keeps inputs, each with the output that replaces it, in the memory of the step's program, and gives the engine that has them.

        `run` then neither takes nor copies them, and `commit` replaces them. Gives None if the step is not one program, or if a run
        could change an input before `commit`.
        """
        from populus.runtime.session import Session, graph_of

        program, options = self.step, self.step.options
        inputs, outputs = program.signature.inputs, program.signature.outputs
        fits = all(i in inputs and o in outputs and inputs[i] == outputs[o] for i, o in pairs.items())
        single = self.place.count == self.recipe.accumulate == self.recipe.micro_batches == 1
        if not (single and fits and program.level == "poplar") or not are_kept(graph_of(program.module("poplar")), pairs):
            return None
        module, sample = program.module("poplar"), options.sample or 0
        session = Session(module, engine=options.engine, sample=sample, threads=options.threads, states=pairs)
        self._kept = _InMemory(program, session, pairs)
        self._stepper = self._stepping([self._kept])
        return session

    def commit(self) -> None:
        """Replaces what the program keeps by what the last run computed."""
        if self._kept is not None:
            self._kept.session.commit()

    @property
    def forward(self) -> Program:
        """The program of losses in inference mode, compiled on first use."""
        with self._making.lock:
            if self._forward is None:
                pipeline = self.recipe.evaluation((*self.recipe.weights, *self.statistics))
                self._forward = compiled(self._model, self._options.compiling(pipeline, self._dims))
            return self._forward

    def owners(self) -> dict[str, int]:
        """Gives the stage of each weight, statistic and state; nothing if there is one stage. All ranks call it together."""
        import numpy as np

        if self.recipe.stages == 1:
            return {}
        start, stages, outputs = self.place.here.start, self.recipe.stages, list(self.whole.signature.outputs)

        def mine(k: int) -> Arrays:
            made = self._steps[k - start].signature.outputs
            return {"stages": np.array([k % stages if name in made else -1 for name in outputs])}

        found = np.max([each["stages"] for each in self.place.everywhere(self.place.run(mine))], axis=0)
        prefix = updated_name("")
        return {name.removeprefix(prefix): int(stage) for name, stage in zip(outputs, found) if stage >= 0}

    @property
    def statistics(self) -> list[str]:
        """The names of the running statistics that a step updates."""
        prefix, trained = updated_name(""), set(self.recipe.weights)
        return [n for o in self.whole.signature.outputs if o.startswith(prefix) and (n := o.removeprefix(prefix)) not in trained]

    def _updating(self, weights: Arrays) -> Program:
        together = (LOSS, *map(updated_name, self.statistics)) if self.recipe.replicas > 1 else ()
        outputs = self.step.signature.outputs
        taken = {name: outputs[sum] for name, sum in self.recipe.sums.items()} | {name: outputs[name] for name in together}
        module = update_module({name: tensor(a.shape, element_of(a.dtype)) for name, a in weights.items()}, taken)
        pipeline = Pipeline.named("training").from_level("popart").replace("popart-optimize", *self.recipe.update())
        for name in ("popart-seed", "popart-loss", "popart-autodiff"):
            pipeline = pipeline.remove(name)
        return compiled(module, self._options.compiling(pipeline, None))

    def run(self, inputs: Mapping[str, Any], batch: int, held: Sequence[Arrays], scalars: Arrays, seed: tuple[int, int]) -> list[Ran]:
        """Runs one update on inputs and labels, of which each replica has an equal part of each batch; gives those of the replicas here.

        `batch`: that of all replicas. `held`: weights and states of the replicas here.
        Raises PopulusError for values that do not match the types of the programs.
        """
        import numpy as np

        n, stages, here = self.recipe.accumulate, self.recipe.stages, self.place.here
        count = self.place.count // stages
        alone = n * self.place.count == 1
        for name, array in () if alone else inputs.items():
            if np.shape(array)[:1] != (n * batch,):
                times = f"{n} times " if n > 1 else ""
                raise PopulusError(f"'{name}' is {list(np.shape(array))}; an update is of {times}{batch} samples")

        def dealt(array: Any, part: int, k: int) -> NDArray[Any]:
            whole = np.asarray(array)
            return whole.reshape(n, count, batch // count, *whole.shape[1:])[part, k // stages]

        def feed(_: int, part: int) -> list[Mapping[str, Any]]:
            return [inputs if alone else {name: dealt(a, part, k) for name, a in inputs.items()} for k in here]

        def words(number: int, k: int) -> list[int]:
            return [*seed, number] if count == 1 else [*seed, k // stages, number]

        *_, last = self._stepper.run(feed, held, words, lambda _: scalars)
        losses = [float(results[LOSS]) for results in last.results]
        if n > 1 and self.place.count == 1:
            losses = [means[LOSS] for means in last.means]  # in the host's precision
        memory = {} if self._kept is None else self._kept.memory()
        return [Ran(loss, results, {**given, **memory}) for loss, results, given in zip(losses, last.results, last.arguments)]

    def first_place(self, ran: Sequence[Ran]) -> str:
        """Names the first op of the step that gives a NaN, or else an infinity, on the first replica that has one, by running op by op."""
        start = self.place.here.start
        return next(filter(None, self.place.run(lambda k: self._first_place(k - start, ran[k - start].arguments))), NO_PLACE)

    def _first_place(self, i: int, arguments: Arrays) -> str | None:
        import numpy as np
        from xdsl.ir import Operation

        from populus.runtime.interpreter import run_function

        first: dict[str, str] = {}

        def observe(op: Operation, results: list[NDArray[Any]]) -> None:
            for kind, test in (("NaN", np.isnan), ("an infinity", np.isinf)):
                if kind not in first and any(r.dtype.kind == "f" and test(r).any() for r in results) and op.operands:
                    first[kind] = f"{op.name} of {where(op)} is the first to give {kind}"

        with np.errstate(all="ignore"):
            run_function(self._steps[i].module("popart"), arguments, observe)
        return first.get("NaN") or first.get("an infinity")
