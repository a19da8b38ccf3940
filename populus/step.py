"""The programs of one update: gradients of one or several batches, and the optimizer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from populus.api import compiled
from populus.dialects.support.diagnostics import PopulusError, where
from populus.dialects.support.element_types import element_of, tensor
from populus.dialects.support.guard import Guard
from populus.lowering.driver.pipeline import Pipeline
from populus.lowering.onnx.expose_weights import OnnxExposeWeightsPass
from populus.lowering.onnx.training_mode import OnnxTrainingModePass
from populus.lowering.popart.accumulate import PopartAccumulatePass, update_module
from populus.lowering.popart.autodiff import PopartAutodiffPass
from populus.lowering.popart.loss import LOSS, PopartLossPass
from populus.lowering.popart.optimize import PopartOptimizePass
from populus.lowering.popart.training_names import CLIP_NORM, CLIP_VALUE, SEED, accumulated_name, gradient_name, updated_name
from populus.lowering.poplar.merge import PoplarMergePass
from populus.options import MachineOptions
from populus.program import Program

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from populus.source import Arrays, Model

FIRST_SCALE = 2.0**15  # initial automatic loss scale: the largest power of two in f16
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

    def pipeline(self) -> Pipeline:
        """Gives the passes from the model to gradients and, for an update of one batch, to new weights."""
        made = Pipeline.named("training").replace("onnx-expose-weights", OnnxExposeWeightsPass(self.weights))
        made = made.replace("onnx-training-mode", OnnxTrainingModePass("train" if self.batch_statistics else "keep"))
        made = made.replace("popart-loss", PopartLossPass(self.loss, self.output, self.axis))
        made = made.replace(
            "popart-autodiff", PopartAutodiffPass(self.weights, LOSS, loss_scale=self.scaled, sparse=self.sparse, recompute=self.recompute)
        )
        if self.recompute != 1:  # recomputed ops wait until their results are needed
            made = made.replace("poplar-merge", PoplarMergePass(independent=False))
        return made.replace("popart-optimize", PopartAccumulatePass(self.accumulate) if self.accumulate > 1 else self.update())

    def update(self) -> PopartOptimizePass:
        """Gives the pass that computes new weights from gradients."""
        return PopartOptimizePass(self.optimizer, CLIP_NORM in self.clips, CLIP_VALUE in self.clips, self.scaled)

    def evaluation(self, names: tuple[str, ...]) -> Pipeline:
        """Gives the passes to the loss in inference mode, with these weights and statistics as inputs."""
        made = self.pipeline().replace("onnx-training-mode", OnnxTrainingModePass("infer")).remove("popart-autodiff")
        made = made.replace("onnx-expose-weights", OnnxExposeWeightsPass(names))
        return made.remove("popart-accumulate" if self.accumulate > 1 else "popart-optimize").remove("popart-seed")


@dataclass(frozen=True)
class Ran:
    """The results of an update: mean loss, new weights and states by name, and the arguments of the last run."""

    loss: float
    results: Arrays
    arguments: Arrays


class Programs:
    """The programs `step` (gradients, and new weights for an update of one batch), `update` (new weights) and `forward` (inference losses).

    `dims`: sizes of open dimensions, including the batch.
    """

    def __init__(self, model: Model, recipe: Recipe, weights: Arrays, options: MachineOptions, dims: Mapping[str, int]):
        self.recipe = recipe
        self._model, self._options, self._dims = model, options, dims
        self._forward: Program | None = None
        self._making = Guard()
        self.step = compiled(model, options.compiling(recipe.pipeline(), dims))
        self.update = self.step if recipe.accumulate == 1 else self._updating(weights)

    @property
    def forward(self) -> Program:
        """The program of losses in inference mode, compiled on first use."""
        with self._making.lock:
            if self._forward is None:
                pipeline = self.recipe.evaluation((*self.recipe.weights, *self.statistics))
                self._forward = compiled(self._model, self._options.compiling(pipeline, self._dims))
            return self._forward

    @property
    def statistics(self) -> list[str]:
        """The names of the running statistics that a step updates."""
        prefix, trained = updated_name(""), set(self.recipe.weights)
        return [n for o in self.step.signature.outputs if o.startswith(prefix) and (n := o.removeprefix(prefix)) not in trained]

    def _updating(self, weights: Arrays) -> Program:
        module = update_module({name: tensor(a.shape, element_of(a.dtype)) for name, a in weights.items()})
        pipeline = Pipeline.named("training").from_level("popart").replace("popart-optimize", self.recipe.update())
        for name in ("popart-seed", "popart-loss", "popart-autodiff"):
            pipeline = pipeline.remove(name)
        return compiled(module, self._options.compiling(pipeline, None))

    def run(self, inputs: Mapping[str, Any], batch: int, weights: Arrays, state: Arrays, scalars: Arrays, seed: tuple[int, int]) -> Ran:
        """Runs one update on inputs and labels. Raises PopulusError for values that do not match the types of the programs."""
        import numpy as np

        n = self.recipe.accumulate
        if n == 1:
            given = self._seeded({**inputs, **weights, **state, **scalars}, seed, 0)
            results = self.step.run(given)
            return Ran(float(results[LOSS]), results, given)
        for name, array in inputs.items():
            if np.shape(array)[:1] != (n * batch,):
                raise PopulusError(f"'{name}' is {list(np.shape(array))}; an update is of {n} times {batch} samples")
        wanted = self.step.signature.inputs
        moved = dict(weights)
        sums = {k: np.zeros(t.get_shape(), weights[w].dtype if t.element_type == element_of(weights[w].dtype) else np.float32)
                for w in self.recipe.weights if (t := wanted[(k := accumulated_name(w))])}  # fmt: skip
        losses: list[float] = []
        given: Arrays = {}
        for i in range(n):
            rows = slice(i * batch, (i + 1) * batch)
            parts = {name: np.asarray(a)[rows] for name, a in inputs.items()}
            given = {**parts, **moved, **sums, **{s: a for s, a in scalars.items() if s in wanted}}
            given = self._seeded(given, seed, i)
            results = self.step.run(given)
            losses.append(float(results[LOSS]))
            sums = {name: results[name] for name in sums}
            moved.update({w: results[updated_name(w)] for w in moved if updated_name(w) in results})  # running statistics
        trained = {w: weights[w] for w in self.recipe.weights}
        gradients = {gradient_name(w): sums[accumulated_name(w)] for w in trained}
        results = self.update.run({**trained, **gradients, **state, **scalars})
        results.update({updated_name(w): a for w, a in moved.items() if w not in trained})
        return Ran(sum(losses) / n, results, given)

    def _seeded(self, given: Arrays, seed: tuple[int, int], run: int) -> Arrays:
        """Adds the seed words of the random numbers, if the program has any."""
        import numpy as np

        if SEED not in self.step.signature.inputs:
            return given
        words = np.random.SeedSequence([*seed, run]).generate_state(2, np.uint32)
        return {**given, SEED: words}

    def first_place(self, arguments: Arrays) -> str:
        """Names the first op of the step that gives a NaN, or else an infinity, by running op by op."""
        import numpy as np
        from xdsl.ir import Operation

        from populus.runtime.interpreter import run_function

        first: dict[str, str] = {}

        def observe(op: Operation, results: list[NDArray[Any]]) -> None:
            for kind, test in (("NaN", np.isnan), ("an infinity", np.isinf)):
                if kind not in first and any(r.dtype.kind == "f" and test(r).any() for r in results) and op.operands:
                    first[kind] = f"{op.name} of {where(op)} is the first to give {kind}"

        with np.errstate(all="ignore"):
            run_function(self.step.module("popart"), arguments, observe)
        return first.get("NaN") or first.get("an infinity") or "no single op gives one when run op by op"
