"""Times programs against onnxruntime, torch, ONNX's reference and the machine's limits, and prints tables.

    python -m benchmarks.speed                        the tables of docs/performance-native.md
    python -m benchmarks.speed resnet50 --target gc200 --rounds 30
    python -m benchmarks.speed --target host --cpu    CPU times of one thread, for a machine with other work
    python -m benchmarks.speed --engine numpy         the first table of docs/performance.md

Each model has its own process, and so its own peak memory. Our runs alternate with onnxruntime's, with pauses for threads to
settle. Ratios are of best times, because other work on the machine only slows rounds down.
"""

# pyright: basic
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
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import populus
from benchmarks.models import MODELS, NETS, Graph
from benchmarks.spread import check_spread
from populus.dialects.poplar.memory import ConstOp, VarOp
from populus.dialects.poplar.program import GraphOp
from populus.dialects.support.element_types import bytes_of
from populus.runtime.liveness import liveness
from populus.runtime.session import Session

HOST = (*NETS, "bert_layer", "bert_12", "gpt_layer", "lstm")
ROWS = (*((name, "host", 16) for name in HOST), *((name, "gc200", 1472) for name in ("resnet50", "squeezenet", "bert_layer")))
THREADS = (1, 2)
REFERENCE = ("squeezenet", "shufflenet", "bert_layer", "lstm")  # models for which ONNX's reference takes seconds, not minutes
BLOCK, PAUSE = 5, 0.02  # consecutive runs, and seconds of the pause after them


def measure(
    path: Path, target: str, tiles: int, rounds: int, engine: Any, cpu: bool, optimise: Any = None, apart: bool = False
) -> dict[str, Any]:
    """Measures one row: compile and first-run seconds, best milliseconds of both by threads, MiB of memory, largest difference.

    `cpu`: milliseconds are CPU times of one thread. `apart`: a child process compiles, and memory is that of this one.
    """
    g = Graph()
    product = g.op("Tanh", g.op("MatMul", "x", g.weight(64, 64)))
    # Exclude imported modules from the model's memory, and LLVM's code: without a cache it is in use.
    kept, os.environ["POPULUS_CACHE"] = os.environ.get("POPULUS_CACHE"), ""
    small = populus.compile(g.model("product", product, [4, 64]), target=target, tiles=4, engine=engine, apart=apart)
    small.run(small.signature.random())
    del os.environ["POPULUS_CACHE"]
    os.environ |= {} if kept is None else {"POPULUS_CACHE": kept}
    base = _peak_mib()
    began = time.perf_counter()
    program = populus.compile(path, target=target, tiles=tiles, engine=engine, optimise=optimise, apart=apart)
    compiled = time.perf_counter()
    rng = np.random.default_rng(0)
    inputs = {name: rng.standard_normal(t.get_shape()).astype(np.float32) for name, t in program.signature.inputs.items()}
    outputs = program.run(inputs)
    first = time.perf_counter()
    peak = _peak_mib() - base
    (graph,) = (op for op in program.module("poplar").body.block.ops if isinstance(op, GraphOp))
    weights = sum(op.array().nbytes for op in graph.walk() if isinstance(op, ConstOp))
    row = {
        "compile_s": compiled - began,
        "first_s": first - began,
        "peak_mib": peak,
        "bound_mib": (weights + live_bytes(graph)) / 2**20,
        "poplar_ops": sum(1 for _ in graph.walk()) - 1,
    }
    for threads in _threads(engine, cpu):
        session = Session(graph, engine, threads=threads)
        rival = _rival(path, threads)
        expected = rival(inputs)
        check_spread(expected, str(path))
        row["difference"] = max(float(np.abs(outputs[n] - e).max() / max(np.abs(e).max(), 1e-30)) for n, e in expected.items())
        row[f"ours_{threads}"], row[f"theirs_{threads}"] = _best(
            (partial(session.run, inputs), partial(rival, inputs)), rounds, time.process_time if cpu else time.perf_counter
        )
    return row


def _threads(engine: str, cpu: bool) -> tuple[int, ...]:
    return THREADS if engine == "native" and not cpu else (1,)


def _rival(path: Path, threads: int) -> Callable[[dict[str, Any]], dict[str, Any]]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    names = [o.name for o in session.get_outputs()]
    return lambda inputs: dict(zip(names, session.run(None, inputs)))


def _best(runs: tuple[Callable[[], object], ...], rounds: int, clock: Callable[[], float] = time.perf_counter) -> list[float]:
    """Times the functions in turn; gives the best milliseconds of each."""
    best = [math.inf] * len(runs)
    for _ in range(-(-rounds // BLOCK)):
        for i, run in enumerate(runs):
            time.sleep(PAUSE)
            for _ in range(BLOCK):
                began = clock()
                run()
                best[i] = min(best[i], (clock() - began) * 1e3)
    return best


def measure_reference(path: Path) -> dict[str, Any]:
    """Measures one run of ONNX's reference, and our best of five."""
    import onnx
    from onnx.reference import ReferenceEvaluator

    program = populus.compile(path, tiles=16, engine="native", threads=1)
    inputs = program.signature.random()
    (ours,) = _best((lambda: program.run(inputs),), BLOCK)
    evaluator = ReferenceEvaluator(onnx.load(path))
    began = time.perf_counter()
    evaluator.run(None, inputs)
    return {"ours": ours, "theirs": (time.perf_counter() - began) * 1e3}


def live_bytes(graph: GraphOp) -> int:
    """Sums the bytes of the variables alive at the widest step."""
    alive: Counter[int] = Counter()
    for variable, spans in liveness(graph).spans.items():
        if isinstance(variable, VarOp):
            size = bytes_of(variable.type.shape, variable.type.element)
            for first, last in spans:
                alive.update(dict.fromkeys(range(first, last + 1), size))
    return max(alive.values())


def _peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _measured(folder: str, name: str, *arguments: str) -> dict[str, Any] | str:
    """Measures a row in its own process, after making the model's file if needed; gives an error message on failure."""
    command = [sys.executable, "-m", "benchmarks.speed", "--one", str(Path(folder) / f"{name}.onnx"), name, *arguments]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    return done.stderr.strip().splitlines()[-1] if done.returncode else json.loads(done.stdout.splitlines()[-1])


def inference(rows: list[tuple[str, str, int]], threads: tuple[int, ...], folder: str, how: list[str]) -> Iterator[str]:
    """Yields the table of models compared with onnxruntime, in Markdown, and the geometric means of its ratios. `how`: to measure a row."""
    timed = [f"{what} {n}t" for n in threads for what in ("ours ms", "onnxruntime ms", "**ratio**")]
    columns = ["model", "target", "ops", "compile s", "first run s", *timed, "peak MiB", "weights + live MiB", "largest difference"]
    yield f"| {' | '.join(columns)} |\n" + "|---" * len(columns) + "|"
    ratios: dict[tuple[str, int], list[float]] = {}
    for name, target, tiles in rows:
        r = _measured(folder, name, "--target", target, "--tiles", str(tiles), *how)
        if isinstance(r, str):
            yield f"| {name} | {target} | {r} |"
            continue
        cells = [name, target, str(r["poplar_ops"]), f"{r['compile_s']:.2f}", f"{r['first_s']:.2f}"]
        for n in threads:
            ours, theirs = r[f"ours_{n}"], r[f"theirs_{n}"]
            cells += [f"{ours:.1f}", f"{theirs:.1f}", f"**{ours / theirs:.2f}**"]
            ratios.setdefault((target, n), []).append(ours / theirs)
        yield f"| {' | '.join(cells)} | {r['peak_mib']:.1f} | {r['bound_mib']:.1f} | {r['difference']:.0e} |"
    for (target, n), found in ratios.items():
        mean = math.exp(sum(map(math.log, found)) / len(found))
        yield f"{target}, {n} thread{'s' if n > 1 else ''}: geometric mean {mean:.2f}, largest {max(found):.2f} ({len(found)} rows)"


def reference(folder: str) -> Iterator[str]:
    """Yields the table of models compared with ONNX's reference."""
    yield "| model | onnx.reference ms | ours ms 1t | times |\n|---|---|---|---|"
    for name in REFERENCE:
        r = _measured(folder, name, "--reference")
        if isinstance(r, str):
            yield f"| {name} | {r} |"
        else:
            yield f"| {name} | {r['theirs']:.0f} | {r['ours']:.1f} | {r['theirs'] / r['ours']:.0f} |"


def _elsewhere(code: str) -> Iterator[str]:
    """Yields the lines that a process of one thread prints."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "POPULUS_THREADS": "1"}
    with subprocess.Popen([sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield from (line.rstrip() for line in process.stdout)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", help="names in benchmarks/models.py (all tables)")
    parser.add_argument("--target")
    parser.add_argument("--tiles", type=int)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--engine", default="native", choices=("numpy", "native"))
    parser.add_argument("--cpu", action="store_true", help="CPU times of one thread, the first table only")
    parser.add_argument("--optimise", help="the aim of our plans, as of `populus.compile`")
    parser.add_argument("--apart", action="store_true", help="a child process compiles")
    parser.add_argument("--reference", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--one", metavar="FILE", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        path = Path(args.one)
        if not path.exists():
            # In another process, because building a model takes more memory than running it.
            build = f"import onnx; from benchmarks.models import MODELS; onnx.save(MODELS[{args.models[0]!r}](), {str(path)!r})"
            assert args.models[0] in MODELS, args.models
            subprocess.run([sys.executable, "-c", build], check=True)
            time.sleep(1.1)  # a file that was just written is not kept
        how = args.target, args.tiles, args.rounds, args.engine, args.cpu, args.optimise, args.apart
        found = measure_reference(path) if args.reference else measure(path, *how)
        print(json.dumps(found))
        return 0
    rows = [r for r in ROWS if (not args.models or r[0] in args.models) and args.target in (None, r[1])]
    with tempfile.TemporaryDirectory() as folder:
        how = ["--rounds", str(args.rounds), "--engine", args.engine, *["--cpu"] * args.cpu, *["--apart"] * args.apart]
        how += [] if args.optimise is None else ["--optimise", args.optimise]
        tables: list[Iterator[str]] = [inference(rows, _threads(args.engine, args.cpu), folder, how)]
        if not args.models and args.engine == "native" and not args.cpu:
            tables.append(reference(folder))
            tables.append(_elsewhere(f"from benchmarks.training import rows\nfor row in rows({args.rounds}): print(row, flush=True)"))
            tables.append(_elsewhere(f"from benchmarks.quantized import rows\nfor row in rows({args.rounds}): print(row, flush=True)"))
            tables.append(_elsewhere(f"from benchmarks.halves import rows\nfor row in rows({args.rounds}): print(row, flush=True)"))
            tables.append(_elsewhere("from benchmarks.families import rows\nfor row in rows(): print(row, flush=True)"))
        for lines in tables:
            for line in lines:
                print(line, flush=True)
            print()
    return 0


if __name__ == "__main__":
    sys.exit(main())
