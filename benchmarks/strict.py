"""The nets on the engine `strict`, vertex by vertex on isolated copies, beside the engine `numpy`.

    python -m benchmarks.strict                          # the nine nets and twelve layers of BERT, whole, on all tiles of a bow
    python -m benchmarks.strict squeezenet --tiles 64
    python -m benchmarks.strict bert_12 --sample 8       # eight random vertices of each family instead of all

A line for each: its vertices, the largest difference of any output relative to its largest element, and seconds.
Only the order of sums in products may differ, where BLAS chooses it. The status is 1 if a net differs by more than 1e-5, or a vertex
breaks a rule.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

import numpy as np

import populus
from benchmarks.judging import judged
from benchmarks.models import LIGHT, NETS, randomised, transformer
from benchmarks.spread import check_spread
from populus.dialects.poplar import ExecuteOp
from populus.runtime.session import Session

TOLERANCE = 1e-5  # of an output's largest element
BERT = "bert_12"


def compare(name: str, tiles: int | None = None, sample: int | None = None) -> tuple[int, float]:
    """Runs a net with random weights and input on both engines.

    `sample`: vertices of each family that `strict` runs, all by default. Returns the number of vertices that the program
    has (those of functions once), and the largest relative difference. Raises PopulusError for a vertex that breaks a rule.
    """
    if name == BERT:
        model = transformer(layers=12)
    else:
        model = randomised(LIGHT / f"light_{name}.onnx", seed=5, logits=True)
    program = populus.compile(model, target="bow", tiles=tiles)
    module, inputs = program.module("poplar"), program.signature.random(6)
    vertices = sum(f.space.vertices for op in module.walk() if isinstance(op, ExecuteOp) for f in op.families())
    expected = Session(module, "numpy").run(inputs)
    found = Session(module, "strict", sample=sample).run(inputs)
    assert found.keys() == expected.keys(), name
    assert all(np.isfinite(e).all() and e.std() > 0 for e in expected.values()), name
    check_spread(expected, name)
    return vertices, max(float(np.abs(found[n] - e).max() / np.abs(e).max()) for n, e in expected.items())


def main(arguments: Sequence[str]) -> int:
    """Prints a line for each net. Gives 0 if all are equal."""
    parser = argparse.ArgumentParser(prog="benchmarks.strict")
    parser.add_argument("names", nargs="*", metavar="NET", choices=[[], *NETS, BERT], help="nets; all without any")
    parser.add_argument("--tiles", type=int, help="fewer tiles than the machine has")
    parser.add_argument("--sample", type=int, help="random vertices of each family, instead of all")
    args = parser.parse_args(arguments)

    def judge(name: str) -> tuple[bool, str]:
        vertices, difference = compare(name, args.tiles, args.sample)
        equal = difference <= TOLERANCE
        return equal, f"{vertices:,} vertices, {'equal' if equal else 'DIFFERS'} (largest difference {difference:.1e})"

    return judged(args.names or (*NETS, BERT), judge)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
