"""`TrainingSession`: an ONNX model with its weights and optimizer states, updated step by step.

session = TrainingSession("net.onnx", optimizer="adam", batch=32)
loss = session.step({"x": x}, labels)
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import fields
from importlib.metadata import version
from math import inf
from typing import TYPE_CHECKING, Any, SupportsFloat

from xdsl.dialects.builtin import ModuleOp

from populus.dialects.support.diagnostics import PopulusError, did_you_mean
from populus.dialects.support.element_types import dtype_of, element_of, tensor
from populus.dialects.support.guard import Guard
from populus.dialects.support.output_files import replacing
from populus.lowering.popart.loss import IDENTITY, LABELS, LOSSES_EACH
from populus.lowering.popart.optimize import optimizer_of
from populus.lowering.popart.training_names import LOSS_SCALE, OVERFLOW, scalar_name, state_name, updated_name
from populus.program.models import as_model
from populus.program.options import Keywords, check_value
from populus.program.replicas import Place
from populus.program.shares import Kept, Shares
from populus.runtime.ranks import digest_of, world
from populus.training import checkpoint as checkpoints
from populus.training.checkpoint import Checkpoint
from populus.training.options import TrainingOptions
from populus.training.parameters import Trainable
from populus.training.samples import Samples, batches, samples
from populus.training.step import LossScale, Programs, Recipe

if TYPE_CHECKING:
    from onnx import ModelProto

    from populus.program.source import Arrays


# Bounds of hyperparameters; the others are at least 0.
BOUNDS = {"beta1": (0.0, 1.0), "beta2": (0.0, 1.0), "rho": (0.0, 1.0)}


class NotFinite(PopulusError):
    """A loss or a weight became NaN or infinite. The session keeps the weights from before that step."""


def _place(options: TrainingOptions) -> Place:
    """Places the replicas of all stages. Raises PopulusError if stages do not divide the ranks that no number of replicas is stated for."""
    ranks = world().size
    if options.replicas is not None:
        return Place.of(options.replicas * options.stages)
    if ranks > 1 and ranks % options.stages:
        raise PopulusError(f"{ranks} ranks are not a multiple of {options.stages} stages; state the number of replicas")
    return Place.of(max(ranks, options.stages))


class TrainingSession:
    """A model with its loss and optimizer as one program of a step. Weights and states stay in the session between steps.

    `TrainingSession("net.onnx", loss=.., optimizer=.., lr=..)`: the keywords are the fields of
    `populus.training.options.TrainingOptions`, which documents them.

    One thread takes steps, because results depend on their order. A `step` or `restore` that overlaps with another thread's is
    refused and changes nothing. `evaluate`, `checkpoint` and `export` may run meanwhile; they see the session between two steps.
    Raises PopulusError.
    """

    @Keywords(TrainingOptions).after_two
    def __init__(self, model: str | os.PathLike[str] | ModelProto, options: TrainingOptions):
        options.check_training()
        if callable(getattr(model, "named_parameters", None)):
            raise PopulusError("training needs an ONNX model, found a torch module; write one with torch.onnx.export(.., 'net.onnx')")
        given = as_model(model)
        if isinstance(given, ModuleOp):
            raise PopulusError("training needs an ONNX model; weights of a module cannot be exported")
        self.model, self.options, model = given, options, given
        self.loss, self.optimizer, self.seed, self.clips = options.loss, options.optimizer, options.seed, options.clips
        self._optimizer = optimizer_of(options.optimizer)
        self.hyper = self._hyper(options.hyper or {})
        self.scale = None if options.loss_scale is None else LossScale.of(options.loss_scale)
        found = Trainable.read(model, options)
        self.place = _place(options)
        self.copies = self.place.count // options.stages  # of the whole model
        self.batch, self.accumulate = self._batch(found), options.accumulate
        self._check_ranks(found)
        self._axis = 1 if options.axis is None else options.axis
        recipe = self._recipe(found)
        weights = {n: found.weights[n] for n in recipe.weights}
        dims = found.bound(self.batch // self.copies // options.micro_batches)
        self._programs = Programs(model, recipe, weights, options, dims, self.place)
        self.program = self._programs.step
        self.steps: int = 0
        self.skipped = 0
        self._changes = 0  # number of steps and restores
        self._moving = Guard()  # held by the thread that takes a step
        self._settled = Guard()  # guards the values that a step changes
        self.losses: list[float] = []
        self.validations: list[dict[str, Any]] = []
        signature = self._programs.whole.signature
        parts = {name: t.get_shape() for name, t in {**signature.inputs, **self._programs.update.signature.inputs}.items()}
        all = {name: found.weights[name] for name in (*recipe.weights, *self._programs.statistics)}
        self._trained = recipe.weights
        owners, states = self._programs.owners(), self._zeros(all)
        kept = self._programs.keep({**{name: updated_name(name) for name in all}, **{name: name for name in states}})

        def held(arrays: Arrays) -> Shares | Kept:
            return Shares(self.place, arrays, parts, owners, options.stages) if kept is None else Kept(kept, arrays, self._settled)

        self._weights: Shares | Kept = held(all)
        self._states: Shares | Kept = held(states)
        self.inputs = {n: t for n, t in signature.inputs.items() if n in found.inputs}
        self.labels = None if options.loss == IDENTITY else signature.inputs[LABELS]
        self._output = options.output or next(iter(signature.outputs))
        self._check_batch()

    def _recipe(self, found: Trainable) -> Recipe:
        """Gives the pass options of a step. Raises PopulusError for tensors that are not there or cannot be trained as asked."""
        options = self.options
        names = found.chosen(options.parameters, options.freeze)
        rows = tuple(found.fitting(options.sparse))
        if strange := [n for n in rows if n not in names]:
            raise PopulusError(f"'{strange[0]}' is not trained, so it has no sparse gradient")
        return Recipe(
            loss=options.loss,
            optimizer=options.optimizer,
            weights=names,
            accumulate=options.accumulate,
            clips=options.clips,
            scaled=self.scale is not None,
            batch_statistics=options.batch_statistics,
            sparse=rows,
            recompute=options.recompute,
            output=options.output,
            axis=self._axis,
            replicas=self.copies,
            shard=options.shard,
            synchronise=options.synchronise_statistics and self.copies > 1,
            stages=options.stages,
            micro_batches=options.micro_batches,
            cuts=tuple(options.cuts),
        )

    def _batch(self, found: Trainable) -> int:
        """Gives the batch of all replicas together. Raises PopulusError if it cannot be dealt to them in equal parts."""
        parts, given = self.options.micro_batches, self.options.batch
        count = self.copies * parts
        if given is None:
            return found.batch if found.open and found.batch % count == 0 else found.batch * count
        if given % count:
            micro = f" of {parts} micro-batches" if parts > 1 else ""
            raise PopulusError(f"batch = {given}; {self.copies} replicas{micro} have equal parts of a multiple of {count}")
        return given

    def _check_ranks(self, found: Trainable) -> None:
        """Raises PopulusError on all ranks if one has another version, model or options."""
        if self.place.world.size == 1:
            return
        self.place.check_same("another version of Populus", version("populus-tiles"))
        self.place.check_same("another model", digest_of(found.weights) + repr((found.inputs, found.batch, found.open, found.given)))
        for field in fields(self.options):
            self.place.check_same(f"another option {field.name}", repr(getattr(self.options, field.name)))

    def _check_batch(self) -> None:
        """Raises PopulusError for an input or labels of another batch size."""
        batch = self.batch // self.copies // self.options.micro_batches
        labelled = {} if self.labels is None else {LABELS: self.labels}
        for name, type in {**self.inputs, **labelled}.items():
            if type.get_shape()[:1] != (batch,):
                each = "" if batch == self.batch else " of a replica" if self.options.micro_batches == 1 else " of a micro-batch"
                raise PopulusError(
                    f"'{name}' is {type}, whose first dimension is not the batch of {batch}{each}; export it with an open one"
                )

    def _hyper(self, given: Mapping[str, float]) -> dict[str, float]:
        if strange := [name for name in given if name not in self._optimizer.hyper]:
            raise PopulusError(f"{self.optimizer} has no hyperparameter '{strange[0]}'{did_you_mean(strange[0], self._optimizer.hyper)}")
        for name, value in given.items():
            check_value(name, value, SupportsFloat, "a number")
            low, high = BOUNDS.get(name, (0.0, inf))
            if not (low <= value < high):
                expected = f"at least {low:g}" + (f" and less than {high:g}" if high < inf else " and finite")
                raise PopulusError(f"{name} = {value:g}; {expected} is expected")
        return {**self._optimizer.hyper, **given}

    def _zeros(self, weights: Arrays) -> Arrays:
        import numpy as np

        state: Arrays = {}
        for name in self._trained:
            weight = weights[name]
            types = self._optimizer.op.state_types(tensor(weight.shape, element_of(weight.dtype)))
            for s, t in zip(self._optimizer.op.STATE, types):
                state[state_name(name, s)] = np.zeros(t.get_shape(), dtype_of(t.element_type))
        return state

    @property
    def weights(self) -> Arrays:
        """The weights and running statistics by name. If they are cut over ranks, all ranks ask for them together."""
        return self._weights.whole()

    @weights.setter
    def weights(self, arrays: Arrays) -> None:
        self._weights.set(arrays)

    @property
    def state(self) -> Arrays:
        """The optimizer's states by name. If they are cut over ranks, all ranks ask for them together."""
        return self._states.whole()

    @property
    def samples_per_step(self) -> int:
        """The number of samples per update."""
        return self.batch * self.accumulate

    @property
    def loss_scale(self) -> float:
        """The present scale of the gradients."""
        return 1.0 if self.scale is None else self.scale.value

    @property
    def classes(self) -> int | None:
        """The number of classes; None if labels are numbers."""
        if self.loss != "cross_entropy":
            return None
        shape = self._programs.whole.signature.outputs[self._output].get_shape()
        return shape[self._axis]

    def step(self, inputs: Mapping[str, Any], labels: Any = None) -> float:
        """Updates the weights with `samples_per_step` samples; gives the loss before the update.

        `labels`: class numbers or target values; none if the model computes the loss.
        If gradients overflow at an automatic loss scale, the weights stay and the scale falls.
        Raises PopulusError for values of wrong shapes or types, and NotFinite, naming the first op with a NaN or an infinity.
        """
        begun = self._changes
        with self._moving.lock:
            self._check_alone(begun)
            return self._step(inputs, labels)

    def _check_alone(self, begun: int) -> None:
        """Raises PopulusError if another thread changed the session while this one waited."""
        if self._changes != begun:
            raise PopulusError(f"another thread took step {self.steps} at the same time; only one thread may train a session")

    def _step(self, inputs: Mapping[str, Any], labels: Any) -> float:
        import numpy as np

        scalars = self._scalars()
        with np.errstate(all="ignore"):
            given = {**inputs} if self.labels is None else {**inputs, LABELS: labels}
            held = [{**self._weights.of(i), **self._states.of(i)} for i in range(len(self.place.here))]
            ran = self._programs.run(given, self.batch, held, scalars, (self.seed, self.steps))
        prefix = updated_name("")
        loss, new = ran[0].loss, [{n.removeprefix(prefix): a for n, a in r.results.items() if n.startswith(prefix)} for r in ran]
        overflow = float(ran[0].results.get(OVERFLOW, 0)) > 0
        scale, finite = self.scale, self._finite(new)
        if not (np.isfinite(loss) and finite) or (overflow and not (scale and scale.automatic)):
            what = f"the loss is {loss:g}" if not np.isfinite(loss) else "gradients overflow" if overflow else "a new weight is not finite"
            raise NotFinite(f"step {self.steps + 1}: {what}: {self._programs.first_place(ran)}; lower lr, or clip gradients")
        with self._settled.lock:
            if scale is not None:
                scale.tell(overflow)
                self.skipped += overflow
            self._programs.commit()
            self._weights = self._weights.taken(new)
            self._states = self._states.taken([r.results for r in ran])
            self.steps += 1
            self.losses.append(loss)
            self._changes += 1
        return loss

    def _finite(self, new: Sequence[Arrays]) -> bool:
        """Tells whether all new weights are finite, on all ranks: parts that another rank has may not be."""
        import numpy as np

        with np.errstate(all="ignore"):  # a finite sum is of finite numbers, and takes one pass without an array of flags
            mine = all(bool(np.isfinite(w.sum()) or np.isfinite(w).all()) for each in new for w in each.values())
        if (self.options.shard != "weights" and self.options.stages == 1) or self.place.world.size == 1:
            return mine
        return bool(self.place.world.shared(np.array([mine])).all())

    def _scalars(self) -> Arrays:
        import numpy as np

        dtype = dtype_of(self._programs.update.signature.inputs[scalar_name("rate")].element_type)
        scale = {} if self.scale is None else {LOSS_SCALE: self.scale.value}
        values = {**self._optimizer.scalars(self.hyper), **self.clips, **scale}
        return {scalar_name(s): np.array(v, dtype) for s, v in values.items()}

    def evaluate(self, data: Samples) -> dict[str, float]:
        """Computes the mean loss over samples, and the accuracy if labels are classes. Ranks share the batches."""
        import numpy as np

        weights, world = self.weights, self.place.world
        batch = self.batch // self.copies // self.options.micro_batches
        parts = np.zeros((-(-len(data) // batch), 3))  # of each batch: the sum of losses, their number, and right answers
        for i, (rows, count) in enumerate(batches(len(data), batch)):
            if i % world.size != world.rank:
                continue
            inputs, labels = data.batch(rows)
            given = inputs if labels is None else {**inputs, LABELS: labels}
            results = self._programs.forward.run({**given, **weights})
            losses = results[LOSSES_EACH]
            if losses.shape[:1] == (batch,):
                losses = losses[:count]
            elif count < batch:  # one loss for the whole batch: the padding samples cannot be subtracted
                break
            right = np.sum((np.argmax(results[self._output], self._axis) == labels)[:count]) if self.loss == "cross_entropy" else 0
            parts[i] = losses.astype(np.float64).sum(), losses.size, right
        if world.size > 1:
            parts = world.shared(parts).sum(0)  # each batch was of one rank
        total, elements, right = (sum(parts[:, n].tolist()) for n in range(3))
        scores = {"loss": total / max(elements, 1)}
        if self.loss == "cross_entropy":
            scores["accuracy"] = right / max(elements, 1)
        return scores

    def samples(self, data: Mapping[str, Any], labels: str | None = None, place: str = "data") -> Samples:
        """Checks `data` and converts it to the types of a step. Raises PopulusError."""
        return samples(data, self.inputs, self.labels, self.classes, labels, place)

    def checkpoint(self, settings: Mapping[str, Any] | None = None) -> Checkpoint:
        """Gives the complete state: a session restored from it continues with the same bits."""
        import numpy as np

        with self._settled.lock:
            return Checkpoint(
                self.steps,
                {**self._tensors(), "losses": np.array(self.losses, np.float64)},
                self._about(settings),
                list(self.validations),
                self._progress(),
            )

    def _about(self, settings: Mapping[str, Any] | None) -> dict[str, Any]:
        """Gives the settings that a resumed run must have."""
        mine = {"loss": self.loss, "optimizer": self.optimizer, "batch": self.batch, "accumulate": self.accumulate}
        return {**mine, **(settings or {})}

    def _progress(self) -> dict[str, Any]:
        """Gives the values other than tensors that change from step to step."""
        return {} if self.scale is None else {"scale": [self.scale.value, self.scale.good], "skipped": self.skipped}

    def _tensors(self) -> Arrays:
        return {**{f"weight:{n}": a for n, a in self.weights.items()}, **{f"state:{n}": a for n, a in self.state.items()}}

    def restore(self, checkpoint: Checkpoint, settings: Mapping[str, Any] | None = None) -> None:
        """Restores a checkpoint. Raises PopulusError, naming the difference, for another model or other settings."""
        begun = self._changes
        with self._moving.lock, self._settled.lock:
            self._check_alone(begun)
            self._restore(checkpoint, settings)
            self._changes += 1

    def _restore(self, checkpoint: Checkpoint, settings: Mapping[str, Any] | None) -> None:
        found = {name: a for name, a in checkpoint.tensors.items() if name != "losses"}
        about = self._about(settings)
        if other := [n for n, v in about.items() if checkpoint.settings.get(n, v) != v]:
            n = other[0]
            raise PopulusError(f"the checkpoint of step {checkpoint.step} was made with {n} {checkpoint.settings[n]}, now it is {about[n]}")
        if problems := checkpoints.differing(found, self._tensors()):
            shown = ", ".join(problems[:3]) + (f" and {len(problems) - 3} more" if len(problems) > 3 else "")
            raise PopulusError(f"the checkpoint of step {checkpoint.step} is of another model: {shown}")
        self._weights.set({name: found[f"weight:{name}"] for name in self._weights.names})
        self._states.set({name: found[f"state:{name}"] for name in self._states.names})
        self.steps, self.losses = checkpoint.step, checkpoint.tensors["losses"].tolist()
        self.validations = list(checkpoint.validations)
        if self.scale is not None and "scale" in checkpoint.progress:
            (self.scale.value, self.scale.good), self.skipped = checkpoint.progress["scale"], checkpoint.progress["skipped"]

    def export(self, path: str | os.PathLike[str]) -> None:
        """Writes the model with its trained weights to a file, on rank 0. Raises PopulusError if the file cannot be written."""
        import onnx
        from onnx import numpy_helper

        made = onnx.ModelProto()
        if isinstance(self.model, onnx.ModelProto):
            made.CopyFrom(self.model)
        else:
            made = onnx.load(os.fspath(self.model))  # pyright: ignore[reportUnknownMemberType]
        weights = self.weights
        if not self.place.first:
            return
        for initializer in made.graph.initializer:
            if initializer.name in weights:
                initializer.CopyFrom(numpy_helper.from_array(weights[initializer.name], initializer.name))
        with replacing(path) as partial:
            partial.write_bytes(made.SerializeToString())
