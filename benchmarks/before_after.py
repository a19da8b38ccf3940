# pyright: basic
"""This checkout beside the tree of an earlier commit: bits of outputs, sizes of the IR, and times in turn. Tables of docs/quality.md.

    python -m benchmarks.before_after bits [MODEL ..]     13 nets and five training runs, on all engines that both trees have
    python -m benchmarks.before_after sizes [MODEL ..]    ops at each level
    python -m benchmarks.before_after times [MODEL ..] --rounds 20     13 nets and three of them for a GC200, and 8-bit models
    python -m benchmarks.before_after start [MODEL ..] --rounds 5      first results: compiled with an empty and a filled cache, and loaded

`--commit`: the other tree. `times` and `start` are ratios of the least CPU times, one thread each; both trees alternate.
The status of `bits` is 1 if an output has another shape, or one that differs by more than `--tolerance` of its largest element.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from benchmarks import quantized
from benchmarks.models import MODELS, conv_net, mlp, transformer
from benchmarks.speed import HOST
from benchmarks.structure import ROOT, unpacked

COMMIT = "8dc7ec0"
WORKER = Path(__file__).with_name("before_after_worker.py")
MACHINE = ("resnet50", "squeezenet", "bert_layer")  # timed for a GC200 too
ENGINES = ("native", "numpy", "strict", "library")
BLOCK = 5  # consecutive runs of a tree
EIGHT_BITS = [f"{name}.{form}" for name, form in quantized.ROWS]
# What is trained, and how: between them all kinds of optimizers' formulas.
TRAINED: dict[str, tuple[Any, dict[str, Any]]] = {
    "mlp, sgd": (mlp, {"optimizer": "sgd", "hyper": {"lr": 1e-2, "weight_decay": 1e-3}}),
    "mlp, rmsprop": (mlp, {"optimizer": "rmsprop", "hyper": {"momentum": 0.5}}),
    "conv_net, momentum": (conv_net, {"optimizer": "momentum", "clip_norm": 1.0}),
    "conv_net, adam": (conv_net, {"optimizer": "adam"}),
    "bert_layer, adamw": (transformer, {"optimizer": "adamw", "loss": "mean_squared_error"}),
}


class Trees:
    """The two trees, and a folder of models. `python`: runs the worker in one of them, with a cache of its own."""

    def __init__(self, commit: str, old: Path, folder: Path):
        self.folder = folder
        self.roots = {commit: old, "now": ROOT}

    def environment(self, tree: str, cache: str = "") -> dict[str, str]:
        place = self.folder / f"cache {tree} {cache}"
        place.mkdir(exist_ok=True)
        threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "POPULUS_THREADS"), "1")
        return {**os.environ, **threads, "PYTHONPATH": str(self.roots[tree]), "POPULUS_CACHE": str(place)}

    def command(self, *arguments: str | Path) -> list[str]:
        return [sys.executable, "-P", str(WORKER), *map(str, arguments)]

    def printed(self, tree: str, *arguments: str | Path) -> str:
        """Gives what the worker prints. Raises RuntimeError with the last line of its errors."""
        ran = subprocess.run(
            self.command(*arguments), env=self.environment(tree), cwd=self.folder, capture_output=True, text=True, check=False
        )
        if ran.returncode:
            raise RuntimeError(f"{tree}: {(ran.stderr.strip().splitlines() or ['no message'])[-1]}")
        return ran.stdout

    def model(self, name: str) -> Path:
        """Gives a model's file, made when it is first asked for."""
        path = self.folder / f"{name}.onnx"
        if not path.exists():
            if name in EIGHT_BITS:
                net, _, form = name.partition(".")
                quantized.build(net, form, path)
            else:
                onnx.save(MODELS[name](), path)
        return path

    def trainable(self, name: str) -> Path:
        """Gives the file of a model that is trained, and writes the types of what a step takes beside it."""
        make, how = TRAINED[name]
        path = self.folder / f"{name.partition(',')[0]}.train.onnx"
        if not path.exists():
            model = make()
            onnx.save(model, path)
            given, out = ([d.dim_value for d in v[0].type.tensor_type.shape.dim] for v in (model.graph.input, model.graph.output))
            labels = ("floats", out) if "loss" in how else ("classes", given[:1])
            path.with_suffix(".json").write_text(json.dumps((model.graph.input[0].name, (("floats", given), labels))))
        return path


def compared(before: Path, after: Path) -> tuple[str, float]:
    """Describes how two files of arrays differ, and gives the largest difference, relative to an array's largest element."""
    with np.load(before) as old, np.load(after) as new:
        if sorted(old) != sorted(new) or any(old[n].shape != new[n].shape or old[n].dtype != new[n].dtype for n in old):
            return "other outputs", math.inf
        other = {n for n in old if not np.array_equal(old[n].view(np.uint8), new[n].view(np.uint8))}
        if not other:
            return "equal", 0.0
        wide = {n: (old[n].astype(np.float64), new[n].astype(np.float64)) for n in other}
        worst = max(float(np.abs(e - f).max() / max(np.abs(e).max(), 1e-30)) for e, f in wide.values())
        places = sum(int((old[n] != new[n]).sum()) for n in other) / sum(old[n].size for n in old)
        return f"{worst:.0e} ({places:.0%} of the elements)", worst if math.isfinite(worst) else math.inf  # a NaN is no small difference


def bits(trees: Trees, names: list[str], tolerance: float) -> Iterator[str]:
    """Yields a row for each model and training run: how its outputs differ on each engine. Raises SystemExit for too large ones."""
    rows = [(n, "bits", trees.model, "host") for n in HOST if not names or n in names]
    rows += [(n, "trained", trees.trainable, json.dumps(how)) for n, (_, how) in TRAINED.items() if not names or n in names]
    yield f"| outputs | {' | '.join(ENGINES)} |\n|---{'|---' * len(ENGINES)}|"
    failed = False
    for name, task, path_of, how in rows:
        cells: list[str] = []
        for engine in ENGINES:
            if task == "trained" and engine in ("strict", "library"):  # a session has no sample of vertices, and no library
                cells.append("")
                continue
            files = [trees.folder / f"{i}.npz" for i in range(len(trees.roots))]
            try:
                for tree, file in zip(trees.roots, files):
                    trees.printed(tree, task, path_of(name), engine, how, file)
                cell, worst = compared(*files)
            except RuntimeError as error:
                cell, worst = str(error), math.inf
            failed |= worst > tolerance
            cells.append(cell)
        yield f"| {name} | {' | '.join(cells)} |"
    if failed:
        raise SystemExit(1)


def sizes(trees: Trees, names: list[str]) -> Iterator[str]:
    """Yields the ops of each level, before and after."""
    yield "| model | target | popart | popops | poplar |\n|---|---|---|---|---|"
    for name, target in [(n, "host") for n in HOST] + [(n, "gc200") for n in MACHINE]:
        if not names or name in names:
            before, after = (trees.printed(tree, "sizes", trees.model(name), target).split() for tree in trees.roots)
            yield f"| {name} | {target} | {' | '.join(f'{b} → {a}' for b, a in zip(before, after))} |"


def times(trees: Trees, names: list[str], rounds: int) -> Iterator[str]:
    """Yields the ratio of each model's least CPU times, and their geometric means."""
    rows = (
        [("f32, host", n, "host") for n in HOST]
        + [("f32, gc200", n, "gc200") for n in MACHINE]
        + [("8 bits", n, "host") for n in EIGHT_BITS]
    )
    yield "| model | target | before ms | now ms | **ratio** |\n|---|---|---|---|---|"
    ratios: dict[str, list[float]] = {}
    for kind, name, target in rows:
        if names and name not in names:
            continue
        workers = [
            subprocess.Popen(
                trees.command("times", trees.model(name), target),
                env=trees.environment(tree), cwd=trees.folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            )
            for tree in trees.roots
        ]  # fmt: skip
        best = [math.inf] * len(workers)
        for worker in workers:
            assert worker.stdout is not None
            assert worker.stdout.readline() == "ready\n", name
        for round in range(-(-rounds // BLOCK)):
            for i in range(len(workers)) if round % 2 else reversed(range(len(workers))):
                stdin, stdout = workers[i].stdin, workers[i].stdout
                assert stdin is not None
                assert stdout is not None
                print(BLOCK, file=stdin, flush=True)
                best[i] = min(best[i], float(stdout.readline()))
        for worker in workers:
            worker.communicate()
        before, now = best
        ratios.setdefault(kind, []).append(now / before)
        yield f"| {name} | {target} | {before:.2f} | {now:.2f} | **{now / before:.2f}** |"
    yield from means(ratios)


def start(trees: Trees, names: list[str], rounds: int) -> Iterator[str]:
    """Yields the ratios of CPU seconds of processes that give a first result."""
    kinds = "compiled, empty cache", "compiled, filled cache", "library loaded"
    yield f"| model | {' | '.join(f'{kind}, before s | now s | **ratio**' for kind in kinds)} |\n|---{'|---' * 3 * len(kinds)}|"
    ratios: dict[str, list[float]] = {}
    for name in HOST:
        if names and name not in names:
            continue
        path = trees.model(name)
        for tree in trees.roots:
            trees.printed(tree, "built", path, trees.folder / f"built {tree} {name}")
        best = {(kind, tree): math.inf for kind in kinds for tree in trees.roots}
        for round in range(rounds):
            for kind, tree in best if round % 2 else reversed(best):
                task = ("load", trees.folder / f"built {tree} {name}") if kind == kinds[2] else ("first", path)
                cache = f"{name} {round}" if kind == kinds[0] else ""
                best[kind, tree] = min(best[kind, tree], cpu_seconds(trees.command(*task), trees.environment(tree, cache), trees.folder))
        cells: list[str] = []
        for kind in kinds:
            before, now = (best[kind, tree] for tree in trees.roots)
            ratios.setdefault(kind, []).append(now / before)
            cells.append(f"{before:.2f} | {now:.2f} | **{now / before:.2f}**")
        yield f"| {name} | {' | '.join(cells)} |"
    yield from means(ratios)


def means(ratios: dict[str, list[float]]) -> Iterator[str]:
    """Yields the geometric mean and the largest of each kind's ratios."""
    for kind, found in ratios.items():
        yield f"{kind}: geometric mean {math.exp(sum(map(math.log, found)) / len(found)):.2f}, largest {max(found):.2f} ({len(found)} rows)"


def cpu_seconds(command: list[str], environment: dict[str, str], folder: Path) -> float:
    """Runs a process, and gives the CPU time that it took. Raises RuntimeError if it fails."""
    process = subprocess.Popen(command, env=environment, cwd=folder, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"status {process.returncode}: {' '.join(command)}")
    return usage.ru_utime + usage.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("bits", "sizes", "times", "start"))
    parser.add_argument("names", nargs="*", metavar="MODEL", help="models, or training runs such as 'mlp, sgd' (all)")
    parser.add_argument("--commit", default=COMMIT, help=f"the other tree (default: {COMMIT})")
    parser.add_argument("--rounds", type=int, help="runs of each model (20), or processes (5)")
    parser.add_argument("--tolerance", type=float, default=1e-5, help="of an output's largest element (default: 1e-5)")
    options = parser.parse_args()
    known = {*HOST, *EIGHT_BITS, *TRAINED}
    if unknown := [n for n in options.names if n not in known]:
        parser.error(f"no model {unknown[0]!r}; there are {', '.join(sorted(known))}")
    with unpacked(options.commit) as old, tempfile.TemporaryDirectory() as folder:
        trees = Trees(options.commit, old, Path(folder))
        lines = {
            "bits": lambda: bits(trees, options.names, options.tolerance),
            "sizes": lambda: sizes(trees, options.names),
            "times": lambda: times(trees, options.names, options.rounds or 20),
            "start": lambda: start(trees, options.names, options.rounds or 5),
        }[options.what]()
        for line in lines:
            print(line, flush=True)


if __name__ == "__main__":
    main()
