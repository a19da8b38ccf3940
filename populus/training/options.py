"""The options of a training session: loss, optimizer, trained tensors, and the machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from numbers import Integral, Real

from populus.dialects.support.diagnostics import PopulusError, did_you_mean
from populus.lowering.popart.loss import LOSS_NAMES
from populus.lowering.popart.training_names import CLIP_NORM, CLIP_VALUE
from populus.program.options import MachineOptions, check_kind

SHARDS = ("none", "states", "weights")

_KINDS: Sequence[tuple[Sequence[str], type, str]] = (
    (("loss", "optimizer", "shard", "output"), str, "a text"),
    (("batch", "accumulate", "seed", "recompute", "axis", "replicas", "stages", "micro_batches"), Integral, "a whole number"),
    (("clip_norm", "clip_value"), Real, "a number"),
    (("hyper",), Mapping, "a dict of numbers by name"),
)


@dataclass(frozen=True, kw_only=True)
class TrainingOptions(MachineOptions):
    """The keywords of `TrainingSession`: loss, optimizer, trained tensors, and the machine.

    `parameters`: names or patterns (`fc.*`) of the initializers to train. Default: all of floats with at least one dimension,
    except statistics of batch normalisations and masks (elements beyond 1e4). `freeze`: exceptions from `parameters`.
    `sparse`: embeddings of which only the rows that a batch looks up, and their optimizer states, change.
    `batch`: samples per run, the size of the inputs' open first dimension. `accumulate`: runs per update.
    `batch_statistics`: normalises by each batch's statistics, updates the running ones, and applies dropout.
    Without it, only nodes that the model marks as training do so.
    `hyper`: hyperparameters of the optimizer by PyTorch's names (`lr`, `weight_decay`, `momentum`, `beta1`, `eps`, ..);
    `session.hyper` may change at any time. `clip_norm`: the largest norm of all gradients together.
    `clip_value`: the largest gradient element. `loss_scale`: a number or `auto`, for 16-bit models. `seed`: of dropout.
    `recompute`: number of parts of the model; all but the last recompute their forward tensors in the backward pass. 0 chooses.
    `replicas`: copies of the model, of which each has an equal part of each batch; default: the ranks of `mpiexec`, or one.
    `shard`: `states` cuts the optimizer's states over replicas, `weights` the weights too; `none` cuts nothing.
    `stages`: parts of the model, each on a replica of its own; then there are `replicas` times `stages` of these in all.
    `micro_batches`: parts of a replica's batch, which pass through the stages one after the other. `cuts`: the nodes that end a stage;
    default: stages of about equal cycles.
    `synchronise_statistics`: batch statistics are those of all replicas.
    `output` and `axis`: the output that the loss reads, and its dimension of classes.
    """

    loss: str = "cross_entropy"
    optimizer: str = "adam"
    batch: int | None = None
    accumulate: int = 1
    parameters: Sequence[str] | None = None
    freeze: Sequence[str] = ()
    sparse: Sequence[str] = ()
    batch_statistics: bool = False
    hyper: Mapping[str, float] | None = None
    clip_norm: float | None = None
    clip_value: float | None = None
    loss_scale: float | str | None = None
    seed: int = 0
    recompute: int = 1
    output: str | None = None
    axis: int | None = None
    replicas: int | None = None
    shard: str = "none"
    synchronise_statistics: bool = False
    stages: int = 1
    micro_batches: int = 1
    cuts: Sequence[str] = ()

    def check_training(self) -> None:
        """Raises PopulusError for an unknown loss and numbers out of range. The machine is checked when its files are loaded."""
        for names, kind, expected in _KINDS:
            for name in names:
                check_kind(self, name, kind, expected)
        for name in ("parameters", "freeze", "sparse", "cuts"):
            if isinstance(given := getattr(self, name), str):
                raise PopulusError(f"{name} = {given!r}; expected a list of names, such as [{given!r}]")
        if self.loss not in LOSS_NAMES:
            raise PopulusError(f"no loss '{self.loss}'{did_you_mean(self.loss, LOSS_NAMES)}")
        if self.recompute < 0:
            raise PopulusError(f"recompute = {self.recompute}; a number of parts, or 0 to choose one, is expected")
        if self.shard not in SHARDS:
            raise PopulusError(f"no shard '{self.shard}'{did_you_mean(self.shard, SHARDS)}; none, states and weights are known")
        if self.shard == "weights" and self.accumulate > 1:
            raise PopulusError("weights are cut over replicas only without accumulated batches; shard='states' cuts the states")
        if self.stages < 1 or self.micro_batches < 1:
            raise PopulusError(f"stages = {self.stages}, micro_batches = {self.micro_batches}; at least 1 is expected of both")
        if self.piped:
            other = {"accumulate": self.accumulate > 1, "shard": self.shard != "none", "sparse": bool(self.sparse)}
            if found := [name for name, given in other.items() if given]:
                raise PopulusError(f"{found[0]} does not go with stages or micro_batches, which accumulate and cut the states themselves")
        if self.accumulate < 1:
            raise PopulusError(f"accumulate = {self.accumulate}; expected at least 1 batch")
        for name, value in self.clips.items():
            if not 0 < value < inf:
                raise PopulusError(f"{name} = {value:g}; a positive number is expected")

    @property
    def piped(self) -> bool:
        """True if a step has stages or micro-batches."""
        return self.stages * self.micro_batches > 1

    @property
    def clips(self) -> dict[str, float]:
        """The bounds of gradients, by the names of the inputs that carry them."""
        return {n: v for n, v in ((CLIP_NORM, self.clip_norm), (CLIP_VALUE, self.clip_value)) if v is not None}
