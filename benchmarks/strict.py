"""The nets on the engine `strict`, vertex by vertex on isolated copies, beside the engine `numpy`.

    python -m benchmarks.strict                          # the nine nets and twelve layers of BERT, whole, on all tiles of a bow
    python -m benchmarks.strict squeezenet --tiles 64
    python -m benchmarks.strict bert_12 --sample 8       # eight random vertices of each family instead of all

A line for each: its vertices, the largest difference of any output relative to its largest element, and the CPU seconds of `strict`.
Only the order of sums in products may differ, where BLAS chooses it. The status is 1 if a net differs by more than 1e-5, or a vertex
breaks a rule.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence

import numpy as np

import populus
from benchmarks.models import LIGHT, NETS, randomised, transformer
from populus.dialects.poplar import ExecuteOp
from populus.dialects.support.diagnostics import PopulusError
from populus.runtime.session import Session

TOLERANCE = 1e-5  # of an output's largest element
BERT = "bert_12"


def compare(name: str, tiles: int | None = None, sample: int | None = None) -> tuple[int, float, float]:
    """Runs a net with random weights and input on both engines.

    `sample`: vertices of each family that `strict` runs, all by default. Returns the number of vertices that the program
    has (those of functions once), the largest relative difference, and the CPU seconds of `strict`. Raises PopulusError for a vertex
    that breaks a rule.
    """
    if name == BERT:
        model = transformer(layers=12)
    else:
        model = randomised(LIGHT / f"light_{name}.onnx", seed=5, logits=True)
    program = populus.compile(model, target="bow", tiles=tiles)
    module, inputs = program.module("poplar"), program.signature.random(6)
    vertices = sum(f.space.vertices for op in module.walk() if isinstance(op, ExecuteOp) for f in op.families())
    expected = Session(module, "numpy").run(inputs)
    began = time.process_time()
    found = Session(module, "strict", sample=sample).run(inputs)
    seconds = time.process_time() - began
    assert found.keys() == expected.keys(), name
    assert all(np.isfinite(e).all() and e.std() > 0 for e in expected.values()), name
    return vertices, max(float(np.abs(found[n] - e).max() / np.abs(e).max()) for n, e in expected.items()), seconds


def main(arguments: Sequence[str]) -> int:
    """Prints a line for each net. Gives 0 if all are equal."""
    parser = argparse.ArgumentParser(prog="benchmarks.strict")
    parser.add_argument("names", nargs="*", help=f"of nets: {', '.join(NETS)}, {BERT}; all without any")
    parser.add_argument("--tiles", type=int, help="fewer tiles than the machine has")
    parser.add_argument("--sample", type=int, help="random vertices of each family, instead of all")
    args = parser.parse_args(arguments)
    wrong = 0
    for name in args.names or (*NETS, BERT):
        try:
            vertices, difference, seconds = compare(name, args.tiles, args.sample)
            wrong += (bad := difference > TOLERANCE)
            said = f"{vertices:,} vertices, {'DIFFERS' if bad else 'equal'} (largest difference {difference:.1e}), {seconds:.0f} s"
        except PopulusError as error:
            wrong += 1
            said = f"alarm: {error}"
        print(f"{name}: {said}", flush=True)
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
