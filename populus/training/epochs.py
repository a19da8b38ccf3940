"""`train`: trains a session on data, epoch by epoch, with checkpoints.

session = populus.train("net.onnx", {"x": x, "labels": labels}, loss="cross_entropy", optimizer="adam", lr=1e-3, batch=32, epochs=5)
session.export("trained.onnx")
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from numbers import Integral
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

from populus.dialects.support.diagnostics import PopulusError
from populus.dialects.support.guard import Guard
from populus.lowering.driver.files import in_file
from populus.program.options import check_value
from populus.runtime.ranks import digest_of
from populus.training import checkpoint as checkpoints
from populus.training.samples import Samples
from populus.training.session import TrainingSession

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from onnx import ModelProto


@dataclass(frozen=True)
class Progress:
    """The report of `train` after a step: position, loss, and at the end of an epoch the validation scores."""

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
    places: tuple[str, str] = ("data", "validation data"),
    report: Callable[[Progress], None] | None = None,
    each_epoch: Callable[[TrainingSession], None] | None = None,
    warn: Callable[[str], None] | None = None,
    hyper: Mapping[str, float] | None = None,
    **options: Any,
) -> TrainingSession:
    """Trains a model on `data` (arrays by input name, and labels) and gives the session.

    Each epoch visits the samples in an order that depends only on `seed` and the epoch's number. An incomplete last batch is
    left out. `batch` counts samples. `schedule(done)` gives the factor of the learning rate for the share of all steps done, in [0, 1).
    `checkpoint`: a folder. Training resumes from its newest checkpoint, and writes one after each epoch and every `every` steps.
    Resumed training gives the same bits as uninterrupted training. `places`: names of the data in errors.
    `report` is called after each step, `each_epoch` after each epoch, and `warn` for each damaged checkpoint that is skipped.
    With `replicas=N` (an option of `TrainingSession`) each batch is dealt to N replicas, so they visit the samples that one would.
    Under `mpiexec` all ranks call this with the same arguments; rank 0 calls `report` and `warn`, and writes the checkpoints.
    `options` are those of `TrainingSession`. Several threads may train at the same time, each with its own checkpoint folder.
    Raises PopulusError, and NotFinite if training diverges.
    """
    for name, value in (("epochs", epochs), ("every", every)):
        if value is not None:
            check_value(name, value, Integral, "a whole number")
            if value < 1:
                raise PopulusError(f"{name} = {value}; at least 1 is expected")
    if schedule is not None and not callable(schedule):
        raise PopulusError(f"schedule = {schedule!r}; expected a function of the share of steps done, from 0 to 1")
    if checkpoint is not None:
        check_value("checkpoint", checkpoint, (str, os.PathLike), "a folder")
    given = hyper if lr is None else {**hyper, "lr": lr} if isinstance(hyper, Mapping) else {"lr": lr}
    session = TrainingSession(model, loss=loss, optimizer=optimizer, batch=batch, hyper=given, seed=seed, **options)
    known = session.samples(data, labels, places[0])
    held = None if validate is None else session.samples(validate, labels, places[1])
    per_epoch = len(known) // session.samples_per_step
    if not per_epoch:
        what = f"a batch of {session.batch}" if session.accumulate == 1 else f"{session.accumulate} batches of {session.batch}"
        raise PopulusError(f"there are {len(known)} samples, fewer than {what}")
    place = session.place
    if place.world.size > 1:
        answers = {} if known.labels is None else {"labels": known.labels}
        place.check_same("other data", digest_of({**known.inputs, **answers}))
        place.check_same("other settings of training", repr((epochs, every, seed, checkpoint is None, validate is None)))
    settings = {"samples": len(known), "seed": seed}
    rate = session.hyper["lr"]
    run = _Run(session, known, held, per_epoch, epochs, seed, schedule, report, each_epoch, checkpoint, every, settings, rate)
    with _alone_in(checkpoint):
        if checkpoint is not None:
            newest, skipped = checkpoints.read_newest(checkpoint)
            place.check_same("another newest checkpoint", str(newest and newest.step))
            for line in skipped if place.first else ():
                (warn or _ignore)(f"{line}; going on from the one before")
            if newest is not None:
                with in_file(checkpoint):
                    session.restore(newest, settings)
        run.go()
    return session


_FOLDERS: set[Path] = set()  # that training in this process writes to
_CHOOSING = Guard()


@contextmanager
def _alone_in(folder: str | os.PathLike[str] | None) -> Generator[None, None, None]:
    """Raises PopulusError if another thread writes its checkpoints to this folder: each would resume from the other's."""
    if folder is None:
        yield
        return
    place = Path(os.path.realpath(folder))  # a loop of links is found when the folder is made
    with _CHOOSING.lock:
        if place in _FOLDERS:
            raise PopulusError(f"{os.fspath(folder)}: another thread trains into this folder; give each training a folder of its own")
        _FOLDERS.add(place)
    try:
        yield
    finally:
        _FOLDERS.discard(place)


def _ignore(line: str) -> None:
    """Ignores warnings when the caller does not ask for them."""


@dataclass
class _Run:
    """One call of `train`, starting at the session's current step."""

    session: TrainingSession
    data: Samples
    held: Samples | None
    per_epoch: int
    epochs: int
    seed: int
    schedule: Callable[[float], float] | None
    report: Callable[[Progress], None] | None
    each_epoch: Callable[[TrainingSession], None] | None
    folder: str | os.PathLike[str] | None
    every: int | None
    settings: Mapping[str, Any]
    lr: float
    seconds: float = 0  # of this epoch's steps that this call has done
    done: int = 0
    total: float = 0  # sum of this epoch's losses

    def go(self) -> None:
        session = self.session
        while session.steps < self.per_epoch * self.epochs:
            epoch = session.steps // self.per_epoch
            self.seconds = self.done = 0
            self.total = sum(session.losses[epoch * self.per_epoch :])
            for rows in self._rest_of(epoch):
                self._step(epoch, rows)

    def _rest_of(self, epoch: int) -> Iterable[NDArray[Any]]:
        """Yields the remaining batches of an epoch."""
        import numpy as np

        order = np.random.default_rng([self.seed, epoch]).permutation(len(self.data))
        batch = self.session.samples_per_step
        for i in range(self.session.steps % self.per_epoch, self.per_epoch):
            yield order[i * batch : (i + 1) * batch]

    def _step(self, epoch: int, rows: NDArray[Any]) -> None:
        session = self.session
        if self.schedule is not None:
            session.hyper["lr"] = self.lr * float(self.schedule(session.steps / (self.per_epoch * self.epochs)))
        start = perf_counter()
        loss = session.step(*self.data.batch(rows))
        self.seconds += perf_counter() - start
        self.done += session.samples_per_step
        self.total += loss
        last = session.steps % self.per_epoch == 0
        progress = Progress(
            epoch + 1,
            self.epochs,
            session.steps - epoch * self.per_epoch,
            self.per_epoch,
            loss,
            self.total / (session.steps - epoch * self.per_epoch),
            self.done / self.seconds,
        )
        if last and self.held is not None:
            scores = session.evaluate(self.held)
            session.validations.append({"step": session.steps, **scores})
            progress = replace(progress, scores=scores)
        if self.folder is not None and (last or (self.every is not None and session.steps % self.every == 0)):
            found = session.checkpoint(self.settings)
            if session.place.first:
                checkpoints.write(self.folder, found)
        if self.report is not None and session.place.first:
            self.report(progress)
        if last and self.each_epoch is not None:
            self.each_epoch(session)
