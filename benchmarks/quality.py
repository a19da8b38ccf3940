"""The quality of the tile programs: all rewrites against none, and against the machines' limits. Only the last columns run programs.

python -m benchmarks.quality                  both tables of docs/quality.md
python -m benchmarks.quality bert_12 --no-wall
python -m benchmarks.quality --bounds         lower bounds of the exchanged bytes
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx

import populus
from benchmarks.models import LIGHT, MODELS, NETS, Graph, half, randomised, transformer  # pyright: ignore[reportMissingTypeStubs]
from populus.dialects.poplin import ConvolutionOp, MatMulOp
from populus.dialects.support.element_types import shape_of
from populus.dialects.table import context
from populus.lowering.driver.pipeline import Pipeline
from populus.lowering.onnx.importer import import_onnx
from populus.lowering.poplar.plan.contraction import shape_of_contraction
from populus.runtime.profile import Profile
from populus.training.session import TrainingSession

TARGET, PIPELINES = "bow", ("inference-plain", "inference")
ROUNDS = 5
TABLE = (
    ("ops", "poplar_ops", 1),
    ("compute sets", "compute_sets", 1),
    ("of them run", "supersteps", 1),
    ("exchanged MB", "exchange_bytes", 1e6),
    ("peak KiB / tile", "peak_tile_bytes", 1024),
    ("of the bound", "peak_of_bound", 1),
    ("kilocycles", "cycles", 1e3),
    ("compile s", "compile_seconds", 1),
    ("wall ms on host", "wall", 1e-3),
)


def measure(name: str, pipeline: str, wall: bool) -> dict[str, Any]:
    """Measures a model's program for 1,472 tiles: its summary, and the best wall time of runs on `host`."""
    model = MODELS[name]()
    warm = Graph()
    populus.compile(warm.model("relu", warm.op("Relu", "x"), [4]), target=TARGET)  # exclude imports from the time
    began = time.perf_counter()
    program = populus.compile(model, target=TARGET, pipeline=pipeline)
    seconds = time.perf_counter() - began
    profile = program.profile()
    row: dict[str, Any] = {**profile.summary, "compile_seconds": seconds, "supersteps": _supersteps(profile)}
    if "liveness_bound" in row:
        row["peak_of_bound"] = row["peak_tile_bytes"] / row["liveness_bound"]
    if wall:
        row["wall"] = _wall(model, pipeline)
    return row


def _supersteps(profile: Profile) -> int:
    """Counts the compute sets that run; those of functions count once per call."""
    return sum(step.count for step in profile.steps if step.kind == "execute")


def _wall(model: onnx.ModelProto, pipeline: str) -> float:
    program = populus.compile(model, target="host", pipeline=pipeline, engine="native")
    rng = np.random.default_rng(0)
    inputs = {n: rng.standard_normal(t.get_shape()).astype(np.float32) for n, t in program.signature.inputs.items()}
    program.run(inputs)
    best = float("inf")
    for _ in range(ROUNDS):
        began = time.perf_counter()
        program.run(inputs)
        best = min(best, time.perf_counter() - began)
    return best


# -- against the machines' limits ------------------------------------------------------------------------------------


def matmul() -> Profile:
    """Profiles a product of 1024^3 in 16 bits on a gc200."""
    g = Graph()
    model = half(g.model("matmul", g.op("MatMul", "x", g.weight(1024, 1024)), [1024, 1024]))
    return populus.compile(model, target="gc200").profile()


def resnet50() -> Profile:
    """Profiles ResNet-50 on eight images in 16 bits on a bow."""
    return populus.compile(half(randomised(LIGHT / "light_resnet50.onnx"), batch=8), target="bow").profile()


def bert_training(batch: int = 8) -> Profile:
    """Profiles a training step of the twelve layers of BERT-base: sequences of 128, batches of 8, 16 bits, SGD, on a bow."""
    model = half(transformer(layers=12, batch=batch))
    session = TrainingSession(model, loss="mean_squared_error", optimizer="sgd", target="bow")
    return session.program.profile()


LIMITS: dict[str, tuple[Callable[[], Profile], str]] = {
    "matmul 1024^3 f16, gc200": (matmul, "45 %"),
    "resnet50 batch 8 f16, bow": (resnet50, "20 %"),
    "BERT-base training, sequence 128, f16, bow": (bert_training, "20 %"),
}


# -- lower bounds ----------------------------------------------------------------------------------------------------

TILES, FLOATS = 1472, 620 * 1024 // 4  # of a bow; floats that a tile holds
UNTIL_CALLS = "onnx-infer-shapes,onnx-fold-constants,onnx-to-popart,popart-fuse,popart-to-popops"


def bounds(name: str) -> tuple[float, float]:
    """Computes the least MB that products exchange if all tiles share them evenly: with weights on one tile each, and with copies that
    fill all memory.

    A tile with x, w and y elements does at most sqrt(t x w y) multiply-adds of a kernel of t taps (Loomis and Whitney, 1949), and the
    elements that it owns need not move.
    """
    module = import_onnx(MODELS[name]())
    Pipeline.from_text(UNTIL_CALLS).run(context(), module)
    work: list[tuple[float, int, int]] = []  # multiply-adds of a tile over sqrt(t); elements of x and y; of w
    for op in module.walk():
        if isinstance(op, ConvolutionOp | MatMulOp):
            shape = shape_of_contraction(op)
            x, w, y = (math.prod(shape_of(v.type)) for v in (*op.operands, *op.results))
            work.append((shape.macs / TILES / math.sqrt(math.prod(shape.kernel)), x + y, w))
    once = sum(max(0.0, TILES * 3 * v ** (2 / 3) - xy - w) for v, xy, w in work)
    total = sum(v ** (2 / 3) for v, _, _ in work)  # the copies of a product's weights take this share of it
    copies = sum(max(0.0, TILES * 2 * v / math.sqrt(FLOATS * v ** (2 / 3) / total) - xy) for v, xy, _ in work)
    return 4e-6 * once, 4e-6 * copies


# -- tables ----------------------------------------------------------------------------------------------------------


def row_of(name: str, wall: bool) -> str:
    """Measures a model without rewrites and with all of them, each in its own process; gives a row."""
    rows = [_child(name, pipeline, wall) for pipeline in PIPELINES]
    cells: list[str] = []
    for _, key, unit in TABLE:
        before, after = (r.get(key) for r in rows)
        if before is None or after is None:
            cells.append("")
        elif key == "peak_of_bound":
            cells.append(f"{after:.2f}")
        else:
            cells.append(f"{_short(before / unit)} → {_short(after / unit)} ({before / max(after, 1e-9):.1f}x)")
    return f"| {name} | {' | '.join(cells)} |"


def _short(value: float) -> str:
    return f"{value:.2f}" if value < 10 and value != int(value) else f"{value:,.0f}"


def _child(name: str, pipeline: str, wall: bool) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.quality", "--measure", name, pipeline, *([] if wall else ["--no-wall"])]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        print(done.stderr.strip().splitlines()[-1], file=sys.stderr)
        return {}
    return json.loads(done.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.quality")
    parser.add_argument("names", nargs="*", help="of models; all without any")
    parser.add_argument("--no-wall", action="store_true", help="nothing is run")
    parser.add_argument("--measure", nargs=2, metavar=("MODEL", "PIPELINE"), help=argparse.SUPPRESS)
    parser.add_argument("--bounds", action="store_true", help="lower bounds of the exchanged MB")
    args = parser.parse_args()
    if args.measure:
        print(json.dumps(measure(*args.measure, wall=not args.no_wall), default=float))
        return
    names = args.names or [*NETS, "bert_layer", "bert_12", "gpt_12"]
    if args.bounds:
        for name in names:
            print(f"| {name} | {' | '.join(f'{mb:,.0f}' for mb in bounds(name))} |", flush=True)
        return
    print(f"| model | {' | '.join(title for title, _, _ in TABLE)} |\n" + "|---" * (len(TABLE) + 1) + "|")
    for name in names:
        print(row_of(name, not args.no_wall), flush=True)
    if not args.names:
        print(f"\n| {' | '.join(COLUMNS)} |\n" + "|---" * len(COLUMNS) + "|")
        for title, (build, aim) in LIMITS.items():
            print(limit(title, aim, build().summary), flush=True)


COLUMNS = ("program", "of the matrix peak", "from .. to", "aim", "kilocycles", "compute", "exchange", "sync", "peak KiB / tile", "fits")


def limit(title: str, aim: str, s: dict[str, Any]) -> str:
    """Formats a row against a limit. `from .. to`: exchange and sync take twice as long, or no time."""
    moving = s["exchange_cycles"] + s["sync_cycles"]
    least, most = (s["utilisation"] * s["cycles"] / (s["cycles"] + d) for d in (moving, -moving))
    parts = [f"{s[k] / s['cycles']:.0%}" for k in ("compute_cycles", "exchange_cycles", "sync_cycles")]
    cells = [title, f"{s['utilisation']:.1%}", f"{least:.0%} .. {most:.0%}", aim, f"{s['cycles'] / 1e3:,.0f}", *parts]
    return f"| {' | '.join(cells)} | {s['peak_tile_bytes'] / 1024:.0f} | {'yes' if s['fits'] else 'no'} |"


if __name__ == "__main__":
    main()
