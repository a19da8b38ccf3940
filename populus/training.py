"""Training an ONNX model: a session of single steps, and `train`, which runs it over data with checkpoints.

session = populus.train("net.onnx", {"x": x, "labels": labels}, loss="cross_entropy", optimizer="adam", lr=1e-3, batch=32, epochs=5)
session.export("trained.onnx")
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from time import perf_counter
from typing import TYPE_CHECKING, Any

from populus import checkpoint as checkpoints
from populus.api import Program, compile
from populus.checkpoint import Checkpoint
from populus.dialects.diagnostics import PopulusError, did_you_mean, where
from populus.dialects.element_types import dtype_of, element_of, tensor
from populus.lowering.files import in_file, replacing
from populus.lowering.onnx_expose_weights import OnnxExposeWeightsPass
from populus.lowering.pipeline import Pipeline
from populus.lowering.popart_autodiff import PopartAutodiffPass
from populus.lowering.popart_loss import LABELS, LOSS, LOSSES, LOSSES_EACH, PopartLossPass
from populus.lowering.popart_optimize import CLIP, PopartOptimizePass, optimizer_of, scalar_name, state_name, updated_name
from populus.parameters import Trainable
from populus.samples import Samples, batches, samples

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from onnx import ModelProto

    from populus.api import Arrays


class NotFinite(PopulusError):
    """A loss or a weight became NaN or infinite; the session's weights are those before that step."""


class TrainingSession:
    """A model with its loss and optimizer as one program of a step; weights and states stay here between steps.

    `parameters`: names or patterns (`fc.*`) of the initializers to train; without it all of floats with a dimension, but for the
    statistics of batch normalisations and masks (elements beyond 1e4). `batch`: samples of a step, the size of the inputs' open
    first dimension. `hyper`: the optimizer's hyperparameters by PyTorch's names (`lr`, `weight_decay`, `momentum`, `beta1`, `eps`, ..);
    `session.hyper` may be changed at any time. `clip_norm`: the largest norm of all gradients together. The rest is as in `compile`.
    Raises PopulusError.
    """

    def __init__(
        self,
        model: str | os.PathLike[str] | ModelProto,
        *,
        loss: str = "cross_entropy",
        optimizer: str = "adam",
        batch: int | None = None,
        parameters: Sequence[str] | None = None,
        hyper: Mapping[str, float] | None = None,
        clip_norm: float | None = None,
        output: str | None = None,
        axis: int | None = None,
        target: str = "host",
        tiles: int | None = None,
        dims: Mapping[str, int] | None = None,
        engine: str = "numpy",
        level: str = "poplar",
        load: Sequence[str | os.PathLike[str]] = (),
    ):
        if loss not in LOSSES:
            raise PopulusError(f"no loss '{loss}'{did_you_mean(loss, LOSSES)}")
        self.model = model
        self.loss, self.optimizer = loss, optimizer
        self._optimizer = optimizer_of(optimizer)
        self.hyper = self._hyper(hyper or {})
        self.clip_norm = clip_norm
        found = Trainable.read(model, dims or {}, load)
        self.batch = found.batch if batch is None else batch
        names = found.chosen(parameters)
        bound = found.bound(self.batch)
        self._axis = 1 if axis is None else axis
        pipeline = Pipeline.named("training").replace("onnx-expose-weights", OnnxExposeWeightsPass(names))
        pipeline = pipeline.replace("popart-loss", PopartLossPass(loss, output, self._axis))
        whole = pipeline.replace("popart-autodiff", PopartAutodiffPass(names, LOSS))
        whole = whole.replace("popart-optimize", PopartOptimizePass(optimizer, clip_norm is not None))

        def compiled(pipeline: Pipeline) -> Program:
            return compile(model, target=target, tiles=tiles, dims=bound, pipeline=pipeline, engine=engine, level=level, load=load)

        self.program = compiled(whole)
        self._forward: Callable[[], Program] = lambda: compiled(pipeline.remove("popart-autodiff").remove("popart-optimize"))
        self._evaluation: Program | None = None
        self.steps = 0
        self.losses: list[float] = []
        self.validations: list[dict[str, Any]] = []
        self.weights: Arrays = {name: found.weights[name] for name in names}
        self.state = self._zeros()
        self.inputs = {n: t for n, t in self.program.signature.inputs.items() if n in found.inputs}
        self.labels = self.program.signature.inputs[LABELS]
        self._output = output or next(iter(self.program.signature.outputs))
        for name, type in (*self.inputs.items(), (LABELS, self.labels)):
            if type.get_shape()[:1] != (self.batch,):
                raise PopulusError(
                    f"'{name}' is {type}, whose first dimension is not the batch of {self.batch}; export it with an open one"
                )

    def _hyper(self, given: Mapping[str, float]) -> dict[str, float]:
        if strange := [name for name in given if name not in self._optimizer.hyper]:
            raise PopulusError(f"{self.optimizer} has no hyperparameter '{strange[0]}'{did_you_mean(strange[0], self._optimizer.hyper)}")
        return {**self._optimizer.hyper, **given}

    def _zeros(self) -> Arrays:
        import numpy as np

        state: Arrays = {}
        for name, weight in self.weights.items():
            types = self._optimizer.op.state_types(tensor(weight.shape, element_of(weight.dtype)))
            for s, t in zip(self._optimizer.op.STATE, types):
                state[state_name(name, s)] = np.zeros(t.get_shape(), dtype_of(t.element_type))
        return state

    @property
    def classes(self) -> int | None:
        """The number of classes; None where labels are numbers."""
        if self.loss != "cross_entropy":
            return None
        shape = self.program.signature.outputs[self._output].get_shape()
        return shape[self._axis]

    def step(self, inputs: Mapping[str, Any], labels: Any) -> float:
        """One update with a batch; the loss before it.

        Raises PopulusError for what is not of the step's types, and NotFinite, naming the first op that made a NaN or an infinity.
        """
        import numpy as np

        arrays = self._arguments(inputs, labels)
        with np.errstate(all="ignore"):
            results = self.program.run(arrays)
        loss = float(results[LOSS])
        new = {name: results[updated_name(name)] for name in self.weights}
        if not (np.isfinite(loss) and all(np.isfinite(w).all() for w in new.values())):
            raise NotFinite(f"step {self.steps + 1}: {self._first_place(arrays, loss)}")
        self.weights = new
        self.state = {name: results[name] for name in self.state}
        self.steps += 1
        self.losses.append(loss)
        return loss

    def _arguments(self, inputs: Mapping[str, Any], labels: Any) -> dict[str, Any]:
        import numpy as np

        dtype = next((a.dtype for a in self.state.values()), None) or next(iter(self.weights.values())).dtype
        scalars = {scalar_name(s): np.array(v, dtype) for s, v in self._optimizer.scalars(self.hyper).items()}
        if self.clip_norm is not None:
            scalars[scalar_name(CLIP)] = np.array(self.clip_norm, dtype)
        return {**inputs, LABELS: labels, **self.weights, **self.state, **scalars}

    def _first_place(self, arrays: Mapping[str, Any], loss: float) -> str:
        """Which op of the step first gave a NaN, or else an infinity, by running it op by op."""
        import numpy as np
        from xdsl.ir import Operation

        from populus.runtime.interpreter import run_function

        first: dict[str, str] = {}

        def observe(op: Operation, results: list[NDArray[Any]]) -> None:
            for kind, test in (("NaN", np.isnan), ("an infinity", np.isinf)):
                if kind not in first and any(r.dtype.kind == "f" and test(r).any() for r in results) and op.operands:
                    first[kind] = f"{op.name} of {where(op)} is the first to give {kind}"

        with np.errstate(all="ignore"):
            run_function(self.program.module("popart"), arrays, observe)
        place = first.get("NaN") or first.get("an infinity") or "no op of it gives one when run by itself"
        what = "a new weight is not finite" if np.isfinite(loss) else f"the loss is {loss:g}"
        return f"{what}: {place}; lower lr, or clip gradients"

    def evaluate(self, data: Samples) -> dict[str, float]:
        """The mean loss over samples, and the accuracy where labels are classes."""
        import numpy as np

        if self._evaluation is None:
            self._evaluation = self._forward()
        total, right, elements = 0.0, 0, 0
        for rows, count in batches(len(data), self.batch):
            inputs, labels = data.batch(rows)
            results = self._evaluation.run({**inputs, LABELS: labels, **self.weights})
            losses = results[LOSSES_EACH][:count]
            total += float(losses.astype(np.float64).sum())
            elements += losses.size
            if self.loss == "cross_entropy":
                right += int(np.sum((np.argmax(results[self._output], self._axis) == labels)[:count]))
        scores = {"loss": total / max(elements, 1)}
        if self.loss == "cross_entropy":
            scores["accuracy"] = right / max(elements, 1)
        return scores

    def samples(self, data: Mapping[str, Any], labels: str | None = None, place: str = "data") -> Samples:
        """`data` checked and converted to what a step takes. Raises PopulusError."""
        return samples(data, self.inputs, self.labels, self.classes, labels, place)

    def checkpoint(self, settings: Mapping[str, Any] | None = None) -> Checkpoint:
        """Everything that another session needs to go on from here, to the bit."""
        import numpy as np

        about = {"loss": self.loss, "optimizer": self.optimizer, "batch": self.batch, **(settings or {})}
        return Checkpoint(self.steps, {**self._tensors(), "losses": np.array(self.losses, np.float64)}, about, self.validations)

    def _tensors(self) -> Arrays:
        return {**{f"weight:{n}": a for n, a in self.weights.items()}, **{f"state:{n}": a for n, a in self.state.items()}}

    def restore(self, checkpoint: Checkpoint, settings: Mapping[str, Any] | None = None) -> None:
        """Goes on from a checkpoint. Raises PopulusError, naming what differs, if it is of another model or other settings."""
        found = {name: a for name, a in checkpoint.tensors.items() if name != "losses"}
        about = {"loss": self.loss, "optimizer": self.optimizer, "batch": self.batch, **(settings or {})}
        if other := [n for n, v in about.items() if checkpoint.settings.get(n, v) != v]:
            n = other[0]
            raise PopulusError(f"the checkpoint of step {checkpoint.step} was made with {n} {checkpoint.settings[n]}, now it is {about[n]}")
        if problems := checkpoints.differing(found, self._tensors()):
            shown = ", ".join(problems[:3]) + (f" and {len(problems) - 3} more" if len(problems) > 3 else "")
            raise PopulusError(f"the checkpoint of step {checkpoint.step} is of another model: {shown}")
        self.weights = {name: found[f"weight:{name}"] for name in self.weights}
        self.state = {name: found[f"state:{name}"] for name in self.state}
        self.steps, self.losses = checkpoint.step, checkpoint.tensors["losses"].tolist()
        self.validations = list(checkpoint.validations)

    def export(self, path: str | os.PathLike[str]) -> None:
        """Writes the model with its trained weights. Raises PopulusError if the file cannot be written."""
        import onnx
        from onnx import numpy_helper

        made = onnx.ModelProto()
        if isinstance(self.model, onnx.ModelProto):
            made.CopyFrom(self.model)
        else:
            made = onnx.load(os.fspath(self.model))  # pyright: ignore[reportUnknownMemberType]
        for initializer in made.graph.initializer:
            if initializer.name in self.weights:
                initializer.CopyFrom(numpy_helper.from_array(self.weights[initializer.name], initializer.name))
        with replacing(path) as partial:
            partial.write_bytes(made.SerializeToString())


@dataclass(frozen=True)
class Progress:
    """What `train` reports after a step: where it is, the loss, and after the last step of an epoch the validation's scores."""

    epoch: int
    epochs: int
    step: int
    steps: int
    loss: float
    mean_loss: float
    samples_per_second: float
    scores: Mapping[str, float] | None = None


def train(
    model: str | os.PathLike[str] | ModelProto,
    data: Mapping[str, Any],
    *,
    loss: str = "cross_entropy",
    optimizer: str = "adam",
    lr: float | None = None,
    batch: int | None = None,
    epochs: int = 1,
    validate: Mapping[str, Any] | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    every: int | None = None,
    seed: int = 0,
    schedule: Callable[[float], float] | None = None,
    labels: str | None = None,
    report: Callable[[Progress], None] | None = None,
    warn: Callable[[str], None] | None = None,
    hyper: Mapping[str, float] | None = None,
    **options: Any,
) -> TrainingSession:
    """A session trained over `data`: arrays by input names, and labels.

    Each epoch goes through the samples in an order that depends on `seed` and its number alone, in batches; what does not fill
    one is left out. `schedule(done)`: the factor of the learning
    rate, by the share of all steps that is done. `checkpoint`: a folder to go on from, if there is
    something in it, and to write to at the end of each epoch and after each `every` steps; resumed training is to the bit what it
    had been without interruption. `report` is told of each step, `warn` of damaged checkpoints that are passed over. `options` are those of
    `TrainingSession`. Raises PopulusError, and NotFinite where training diverges.
    """
    given = {**(hyper or {}), **({} if lr is None else {"lr": lr})}
    session = TrainingSession(model, loss=loss, optimizer=optimizer, batch=batch, hyper=given, **options)
    known = session.samples(data, labels)
    held = None if validate is None else session.samples(validate, labels, "validation data")
    per_epoch = len(known) // session.batch
    if not per_epoch:
        raise PopulusError(f"there are {len(known)} samples, fewer than a batch of {session.batch}")
    if epochs < 1:
        raise PopulusError(f"epochs = {epochs}; at least 1 is expected")
    settings = {"samples": len(known), "seed": seed}
    if checkpoint is not None:
        newest, skipped = checkpoints.read_newest(checkpoint)
        for line in skipped:
            (warn or _ignore)(f"{line}; going on from the one before")
        if newest is not None:
            with in_file(checkpoint):
                session.restore(newest, settings)
    _Run(session, known, held, per_epoch, epochs, seed, schedule, report, checkpoint, every, settings, session.hyper["lr"]).go()
    return session


def _ignore(line: str) -> None:
    """For a caller who does not ask for warnings."""


@dataclass
class _Run:
    """One call of `train`, from where the session stands."""

    session: TrainingSession
    data: Samples
    held: Samples | None
    per_epoch: int
    epochs: int
    seed: int
    schedule: Callable[[float], float] | None
    report: Callable[[Progress], None] | None
    folder: str | os.PathLike[str] | None
    every: int | None
    settings: Mapping[str, Any]
    lr: float
    seconds: float = 0  # of the steps of this epoch, as far as they were done here
    done: int = 0

    def go(self) -> None:
        session = self.session
        while session.steps < self.per_epoch * self.epochs:
            epoch = session.steps // self.per_epoch
            self.seconds = self.done = 0
            for rows in self._rest_of(epoch):
                self._step(epoch, rows)

    def _rest_of(self, epoch: int) -> Iterable[NDArray[Any]]:
        """The batches of an epoch that are still to be done."""
        import numpy as np

        order = np.random.default_rng([self.seed, epoch]).permutation(len(self.data))
        batch = self.session.batch
        for i in range(self.session.steps % self.per_epoch, self.per_epoch):
            yield order[i * batch : (i + 1) * batch]

    def _step(self, epoch: int, rows: NDArray[Any]) -> None:
        session = self.session
        if self.schedule is not None:
            session.hyper["lr"] = self.lr * float(self.schedule(session.steps / (self.per_epoch * self.epochs)))
        start = perf_counter()
        loss = session.step(*self.data.batch(rows))
        self.seconds += perf_counter() - start
        self.done += session.batch
        last = session.steps % self.per_epoch == 0
        mean = session.losses[epoch * self.per_epoch :]
        progress = Progress(
            epoch + 1,
            self.epochs,
            session.steps - epoch * self.per_epoch,
            self.per_epoch,
            loss,
            sum(mean) / len(mean),
            self.done / self.seconds,
        )
        if last and self.held is not None:
            scores = session.evaluate(self.held)
            session.validations.append({"step": session.steps, **scores})
            progress = replace(progress, scores=scores)
        if self.folder is not None and (last or (self.every is not None and session.steps % self.every == 0)):
            checkpoints.write(self.folder, session.checkpoint(self.settings))
        if self.report is not None:
            self.report(progress)
