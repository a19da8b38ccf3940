"""train a model on arrays from a file, with checkpoints, and write the trained model."""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from rich.console import Console

from populus.dialects.poplar.target import PARTIALS
from populus.dialects.support.diagnostics import PopulusError
from populus.dialects.support.errors import printable
from populus.dialects.support.output_files import check_places, replacing
from populus.lowering.popart.loss import LOSS_NAMES
from populus.lowering.popart.optimize import OPTIMIZERS, optimizer_of
from populus.program.options import CHOICES
from populus.runtime.ranks import world
from populus.tools.arrays import read_arrays
from populus.tools.command import UsageError, amount, dims_of, known_to, whole
from populus.tools.output import Terminal
from populus.tools.run import ENGINE
from populus.training.curves import svg
from populus.training.epochs import Progress, train
from populus.training.session import TrainingSession
from populus.write.nets import model_path

SCHEDULES: dict[str, Callable[[float], float]] = {  # factor of the learning rate, by the share of all steps done
    "constant": lambda done: 1.0,
    "cosine": lambda done: (1 + math.cos(math.pi * done)) / 2,
    "linear": lambda done: 1 - done,
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `populus train`."""
    add = parser.add_argument
    add("model", type=model_path, metavar="MODEL.onnx", help="the model, with its initial weights")
    add("--data", required=True, metavar="FILE.npz", help="arrays by the names of the inputs, and one called labels")
    add("--validate", metavar="FILE.npz", help="evaluate on these samples after each epoch")
    add("--labels", metavar="NAME", help="the name of the labels' array (labels)")
    add("--loss", default="cross_entropy", choices=LOSS_NAMES, metavar="LOSS", help=f"{', '.join(LOSS_NAMES)} (cross_entropy)")
    add("--output", metavar="NAME", help="the output that the loss reads")
    add("--axis", type=int, metavar="N", help="the dimension of the classes (1)")
    add("--optimizer", type=known_to(optimizer_of), default="adam", metavar="OPT", help=f"{', '.join(OPTIMIZERS)} (adam)")
    add("--lr", type=amount, metavar="X", help="the learning rate (PyTorch's default)")
    add("--schedule", default="constant", choices=SCHEDULES, help="constant (default), or cosine or linear down to a rate of 0")
    add("--hyper", action="append", default=[], metavar="NAME=X", help="another hyperparameter, such as weight_decay=0.01")
    add("--clip-norm", type=amount, metavar="X", help="scale gradients so that their norm is at most X")
    add("--clip-value", type=amount, metavar="X", help="keep each element of a gradient between -X and X")
    add("--loss-scale", metavar="X", help="scale the loss by X against vanishing gradients of 16 bits, or auto")
    add("--accumulate", type=whole(1), default=1, metavar="N", help="sum the gradients of N batches for each update (1)")
    add("--batch", type=whole(1), metavar="N", help="samples per step (32, or the model's batch)")
    add("--epochs", type=whole(1), default=1, metavar="N", help="number of epochs (1)")
    add("--seed", type=whole(0), default=0, metavar="N", help="seed of the sample order (0)")
    add("--parameter", action="append", default=[], metavar="PATTERN", help="train only initializers that match, such as 'fc.*'")
    add("--freeze", action="append", default=[], metavar="PATTERN", help="do not train initializers that match")
    add("--sparse", action="append", default=[], metavar="PATTERN", help="update only the rows of this embedding that a batch looks up")
    add("--recompute", type=whole(0), default=1, metavar="N", help="save memory: recompute all but the last of N parts; 0 chooses N")
    add("--batch-statistics", action="store_true", help="normalise by the statistics of each batch, and apply dropout")
    add("--replicas", type=whole(1), metavar="N", help="deal each batch to N replicas (the ranks of mpiexec, or 1)")
    add("--shard", nargs="?", const="states", default="none", metavar="WHAT", help="cut the optimizer's states over replicas, or weights")
    add("--stages", type=whole(1), default=1, metavar="S", help="cut the model into S stages, each on a replica of its own (1)")
    add("--micro-batches", type=whole(1), default=1, metavar="M", help="parts of a replica's batch, which pass through the stages (1)")
    add("--cut", action="append", default=[], metavar="NODE", help="end a stage after this node, instead of where cycles are balanced")
    add("--synchronise-statistics", action="store_true", help="batch statistics are those of all replicas")
    add("--checkpoint", metavar="DIR", help="resume from the newest checkpoint of this folder, and write one after each epoch")
    add("--every", type=whole(1), metavar="N", help="also write a checkpoint every N steps")
    add("--export", metavar="FILE.onnx", help="write the trained model to this file")
    add("--history", metavar="FILE.csv", help="write the loss of each step to this file")
    add("--plot", metavar="FILE.svg", help="draw the losses as SVG, after each epoch")
    add("--target", default="host", metavar="T", help="the machine: host (default), gc2, gc200, bow, n150, p150")
    add("--tiles", type=whole(1), metavar="N", help="number of tiles to use (all)")
    add("--engine", default="auto", choices=CHOICES, help=ENGINE)
    add("--threads", type=whole(1), metavar="N", help="number of threads of the native engine (all CPUs)")
    add("--optimise", metavar="AIM", help="cycles, memory, or balanced (default): what plans of products and convolutions spare")
    add("--partials", choices=PARTIALS, help="sum products of 16-bit floats in f32 (default), or faster and less exactly in f16")
    add("--dim", action="append", default=[], metavar="NAME=N", help="size of a symbolic dimension; open first dimensions are the batch")
    add("--load", action="append", default=[], metavar="FILE.py", help="load ops from a Python file")


def execute(args: argparse.Namespace) -> int:
    """Runs the command."""
    first = world().rank == 0
    if args.every is not None and (args.checkpoint is None or args.every < 1):
        raise PopulusError(f"--every {args.every} needs --checkpoint and a number of at least 1")
    *_, plot = None, *check_places([args.export, args.history, args.plot])
    if not str(args.model).endswith(".onnx"):
        raise PopulusError(f"{args.model}: training needs an .onnx model")
    console = Terminal(highlight=False, soft_wrap=True, quiet=not first)
    _say_unkept(console, args)
    data = read_arrays([args.data], [])
    held = None if args.validate is None else read_arrays([args.validate], [])
    lines = _Lines(console)

    def draw(session: TrainingSession) -> None:
        if not first:
            return
        with replacing(args.plot) as partial:
            partial.write_text(svg(session.losses, session.validations, f"{args.model}, {args.optimizer}"), encoding="utf-8")

    session = train(
        args.model,
        data,
        loss=args.loss,
        optimizer=args.optimizer,
        lr=args.lr,
        batch=args.batch,
        epochs=args.epochs,
        validate=held,
        checkpoint=args.checkpoint,
        every=args.every,
        seed=args.seed,
        schedule=SCHEDULES[args.schedule],
        labels=args.labels,
        places=(args.data, args.validate or ""),
        report=lines.report,
        warn=lambda line: print(printable(f"populus: {line}"), file=sys.stderr),
        hyper=_hyper(args.hyper),
        each_epoch=draw if args.plot is not None and plot.is_file else None,  # a pipe gets one picture
        clip_norm=args.clip_norm,
        clip_value=args.clip_value,
        loss_scale=args.loss_scale,
        accumulate=args.accumulate,
        freeze=args.freeze,
        sparse=args.sparse,
        recompute=args.recompute,
        batch_statistics=args.batch_statistics,
        replicas=args.replicas,
        shard=args.shard,
        stages=args.stages,
        micro_batches=args.micro_batches,
        cuts=args.cut,
        synchronise_statistics=args.synchronise_statistics,
        parameters=args.parameter or None,
        output=args.output,
        axis=args.axis,
        **_machine(args),
    )
    if first:
        _sum_up(session, args, lines)
    if args.plot is not None:
        draw(session)
        console.print(f"wrote {args.plot}", style="dim", markup=False)
    if args.export is not None:
        session.export(args.export)
        console.print(f"wrote {args.export}", style="dim", markup=False)
    return 0


UNKEPT = "weights are not kept; --export FILE.onnx or --checkpoint DIR keeps them"


def _say_unkept(console: Console, args: argparse.Namespace) -> None:
    """Prints a note if nothing that the training makes of the weights is written."""
    if args.export is None and args.checkpoint is None:
        console.print(UNKEPT, style="dim", markup=False)


def divergence(losses: Sequence[float], rate: float | None) -> Iterator[str]:
    """Gives a line if the last loss is no number, or above ten times the first: training made the model worse."""
    if len(losses) > 1 and not losses[-1] <= 10 * max(losses[0], 1e-6):
        smaller = "a smaller --lr" if rate is None else f"an --lr below {rate:g}"
        yield f"populus: the loss went from {losses[0]:.4g} to {losses[-1]:.4g}: training diverges; {smaller} may help, or --clip-norm"


def _machine(args: argparse.Namespace) -> dict[str, Any]:
    """Gives the keywords of the machine and the engine."""
    names = ("target", "tiles", "engine", "threads", "load", "partials", "optimise")
    return {name: getattr(args, name) for name in names} | {"dims": dims_of(args.dim)}


def _sum_up(session: TrainingSession, args: argparse.Namespace, lines: _Lines) -> None:
    """Prints what no line of an epoch says, and writes the losses."""
    if not lines.reported:
        lines.console.print(f"nothing to do: {args.checkpoint} has {session.steps} steps already; use more --epochs to continue")
    if session.skipped:
        lines.console.print(f"{session.skipped} steps were skipped, whose gradients overflowed; the loss scale is {session.loss_scale:g}")
    for line in divergence(session.losses, args.lr):
        print(line, file=sys.stderr)
    _say_unkept(lines.console, args)
    if args.history is not None:
        _write_history(session, args.history)


class _Lines:
    """Prints a line for each epoch and, on a terminal, one that changes with each step."""

    def __init__(self, console: Console):
        self.console = console
        self.reported = False

    def report(self, p: Progress) -> None:
        self.reported = True
        text = f"epoch {p.epoch}/{p.epochs}  loss {p.mean_loss:.4f}  {p.samples_per_second:,.0f} samples/s"
        if p.step == p.steps:
            scores = "".join(f"  {n} {v:.2%}" if n == "accuracy" else f"  {n} {v:.4f}" for n, v in (p.scores or {}).items())
            self.console.print(text + (f"  validation:{scores}" if scores else ""))
        elif self.console.is_terminal:
            self.console.print(f"{text}  step {p.step}/{p.steps}", end="\r", style="dim")


def _hyper(texts: list[str]) -> dict[str, float]:
    values: dict[str, float] = {}
    for text in texts:
        name, _, number = text.partition("=")
        try:
            values[name] = float(number)
        except ValueError as error:
            raise UsageError(f"--hyper {text}: expected NAME=X with a number X, such as --hyper weight_decay=0.01") from error
    return values


def _write_history(session: TrainingSession, path: str) -> None:
    with replacing(path) as partial:
        partial.write_text("step,loss\n" + "".join(f"{i},{loss!r}\n" for i, loss in enumerate(session.losses, 1)))
