"""Models in 16-bit floats beside onnxruntime: a table of docs/performance-small-types.md.

    python -m benchmarks.halves                       all rows
    python -m benchmarks.halves squeezenet --rounds 60

Each row has its own process. The runs take turns, one thread each; ratios are of best CPU times. onnxruntime runs with its default
options: all graph optimisations, so casts of constants are folded before the first run.
"""

# pyright: basic
from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx

import populus
from benchmarks.models import LIGHT, half, randomised, transformer
from benchmarks.quantized import best_of, mean_of, measured_alone, rival_of, times_of
from benchmarks.spread import check_spread
from populus.runtime.session import Session

HEAD = "| f16 model | compile s | ours ms 1t | onnxruntime ms 1t | **ratio** 1t | largest difference |\n|---|---|---|---|---|---|"
MODELS: dict[str, Callable[[], onnx.ModelProto]] = {
    "resnet50": lambda: half(randomised(LIGHT / "light_resnet50.onnx", logits=True)),
    "squeezenet": lambda: half(randomised(LIGHT / "light_squeezenet.onnx", logits=True)),
    "bert_layer": lambda: half(transformer()),
}


def measure(path: Path, rounds: int) -> dict[str, Any]:
    """Measures one row, with the difference relative to the largest element."""
    began = time.perf_counter()
    program = populus.compile(path, target="host", tiles=16)
    compiled = time.perf_counter() - began
    rng = np.random.default_rng(0)
    inputs = {n: rng.standard_normal(t.get_shape()).astype(np.float16) for n, t in program.signature.inputs.items()}
    session = Session(program.module("poplar"), "native", threads=1)
    assert not session.fallbacks, session.fallbacks
    rival, found = rival_of(path, True), session.run(inputs)
    wide = {n: e.astype(np.float32) for n, e in rival(inputs).items()}
    check_spread(wide, str(path))
    apart = max(float(np.abs(found[n].astype(np.float32) - e).max() / max(np.abs(e).max(), 1e-30)) for n, e in wide.items())
    ours, theirs = best_of((partial(session.run, inputs), partial(rival, inputs)), rounds)
    return {"compile": compiled, "ours": ours, "theirs": theirs, "difference": apart}


def rows(rounds: int, names: Iterable[str] = ()) -> Iterator[str]:
    """Yields the table, and the geometric mean of its ratios."""
    yield HEAD
    ratios: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        for name in [n for n in MODELS if n in (list(names) or MODELS)]:
            r = measured_alone("halves", name, "--rounds", str(rounds), "--one", str(Path(folder, f"{name}.onnx")))
            if isinstance(r, str):
                yield f"| {name} | {r} |"
                continue
            ratios.append(r["ours"] / r["theirs"])
            yield f"| {name} | {times_of(r)} | {r['difference']:.0e} |"
    yield mean_of("f16", ratios)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", help="names of models (all)")
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--one", metavar="FILE", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one is None:
        for line in rows(args.rounds, args.models):
            print(line, flush=True)
        return 0
    path = Path(args.one)
    if not path.exists():
        onnx.save(MODELS[args.models[0]](), path)
    print(json.dumps(measure(path, args.rounds)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
