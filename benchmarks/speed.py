"""Times programs against onnxruntime, in one interleaved run with one thread each, and prints a table.

    python -m benchmarks.speed                        the table of docs/performance.md
    python -m benchmarks.speed resnet50 --target gc200 --rounds 30
    python -m benchmarks.speed --engine native        the table of docs/performance-native.md

Each row is measured in a process of its own, so that its peak memory is its own. Ratios are of best times: the machine's
other work slows single rounds, never speeds them up.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

import populus
from benchmarks.models import MODELS, Graph
from populus.dialects.element_types import size_in_bytes
from populus.dialects.poplar.memory import ConstOp, VarOp
from populus.dialects.poplar.program import GraphOp
from populus.runtime.liveness import liveness

ROWS = (
    ("resnet50", "host", 16),
    ("resnet50", "gc200", 1472),
    ("squeezenet", "host", 16),
    ("squeezenet", "gc200", 1472),
    ("shufflenet", "host", 16),
    ("densenet121", "host", 16),
    ("inception_v1", "host", 16),
    ("inception_v2", "host", 16),
    ("bvlc_alexnet", "host", 16),
    ("zfnet512", "host", 16),
    ("vgg19", "host", 16),
    ("bert_layer", "host", 16),
    ("bert_layer", "gc200", 1472),
    ("gpt_layer", "host", 16),
)


def measure(path: Path, target: str, tiles: int, rounds: int, engine: str) -> dict[str, Any]:
    """One row: compile and first-run seconds, best milliseconds of both, memory in MiB, the largest difference of results."""
    g = Graph()
    small = populus.compile(g.model("relu", g.op("Relu", "x"), [4]), target=target, tiles=4, engine=engine)
    small.run({"x": np.zeros(4, np.float32)})  # modules that are imported are not memory that a model takes
    base = _peak_mib()
    began = time.perf_counter()
    program = populus.compile(path, target=target, tiles=tiles, engine=engine)
    compiled = time.perf_counter()
    rng = np.random.default_rng(0)
    inputs = {name: rng.standard_normal(t.get_shape()).astype(np.float32) for name, t in program.signature.inputs.items()}
    outputs = program.run(inputs)
    first = time.perf_counter()
    peak = _peak_mib() - base

    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    rival = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    expected = dict(zip((o.name for o in rival.get_outputs()), rival.run(None, inputs)))
    worst = max(float(np.abs(outputs[n] - e).max() / max(np.abs(e).max(), 1e-30)) for n, e in expected.items())
    ours, theirs = [], []
    for _ in range(rounds):
        t = time.perf_counter()
        program.run(inputs)
        ours.append(time.perf_counter() - t)
        t = time.perf_counter()
        rival.run(None, inputs)
        theirs.append(time.perf_counter() - t)
    (graph,) = (op for op in program.module("poplar").body.block.ops if isinstance(op, GraphOp))
    weights = sum(op.array().nbytes for op in graph.walk() if isinstance(op, ConstOp))
    return {
        "compile_s": compiled - began,
        "first_s": first - began,
        "ours_ms": min(ours) * 1e3,
        "theirs_ms": min(theirs) * 1e3,
        "peak_mib": peak,
        "bound_mib": (weights + live_bytes(graph)) / 2**20,
        "difference": worst,
        "poplar_ops": sum(1 for _ in graph.walk()) - 1,
    }


def live_bytes(graph: GraphOp) -> int:
    """Bytes of the variables alive at once, at the widest step."""
    alive: Counter[int] = Counter()
    for variable, (first, last) in liveness(graph).span.items():
        if isinstance(variable, VarOp):
            size = math.prod(variable.type.shape) * size_in_bytes(variable.type.element)
            alive.update(dict.fromkeys(range(first, last + 1), size))
    return max(alive.values())


def _peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def table(rows: list[tuple[str, str, int]], rounds: int, engine: str) -> str:
    """The table in Markdown."""
    columns = "model", "target", "tiles", "engine", "ops", "compile s", "first run s", "ours ms", "onnxruntime ms", "**ratio**"
    columns = *columns, "peak MiB", "weights + live MiB", "largest difference"
    lines = [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    environment = {**os.environ, **{f"{lib}_NUM_THREADS": "1" for lib in ("OPENBLAS", "OMP", "MKL")}}
    with tempfile.TemporaryDirectory() as folder:
        for name, target, tiles in rows:
            path = Path(folder) / f"{name}.onnx"
            command = [sys.executable, "-m", "benchmarks.speed", "--one", str(path), name, "--target", target]
            command += ["--tiles", str(tiles), "--rounds", str(rounds), "--engine", engine]
            done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
            if done.returncode:
                lines.append(f"| {name} | {target} | {tiles} | {engine} | {done.stderr.strip().splitlines()[-1]} |")
                continue
            r = json.loads(done.stdout.splitlines()[-1])
            lines.append(
                f"| {name} | {target} | {tiles} | {engine} | {r['poplar_ops']} | {r['compile_s']:.2f} "
                f"| {r['first_s']:.2f} | {r['ours_ms']:.1f} | {r['theirs_ms']:.1f} | **{r['ours_ms'] / r['theirs_ms']:.2f}** "
                f"| {r['peak_mib']:.0f} | {r['bound_mib']:.0f} | {r['difference']:.0e} |"
            )
            print(lines[-1], file=sys.stderr, flush=True)
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", help="names in benchmarks/models.py; all rows without")
    parser.add_argument("--target")
    parser.add_argument("--tiles", type=int)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--engine", default="numpy", choices=("numpy", "native"))
    parser.add_argument("--one", metavar="FILE", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        path = Path(args.one)
        if not path.exists():
            # In a process of its own: building a model takes more memory than running it.
            build = f"import onnx; from benchmarks.models import MODELS; onnx.save(MODELS[{args.models[0]!r}](), {str(path)!r})"
            assert args.models[0] in MODELS, args.models
            subprocess.run([sys.executable, "-c", build], check=True)
        print(json.dumps(measure(path, args.target, args.tiles, args.rounds, args.engine)))
        return 0
    rows = [r for r in ROWS if (not args.models or r[0] in args.models) and args.target in (None, r[1])]
    print(table(rows, args.rounds, args.engine))
    return 0


if __name__ == "__main__":
    sys.exit(main())
