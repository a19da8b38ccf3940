"""ONNX's node tests as WebAssembly: for how many of them a module in Node has every bit of the native engine.

python -m benchmarks.web_bits [--step N] [--from N]     every N-th case; all without

A case is built with relaxed SIMD and runs on the inputs that its program draws. It is refused where `populus build` refuses it, with the
reason, which is counted by its last words.
"""

# pyright: basic
from __future__ import annotations

import argparse
import sys
from pathlib import Path

import populus
from benchmarks.same_bits import Case, compared, node_tests

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "test"))
from helpers import web

CHUNK = 60
"""Programs that one process of Node runs."""


def judged(made: list[Case]) -> list[tuple[str, str]]:
    """Runs some modules. Returns for each whether its outputs are equal to the native engine's, and its name with what it says."""
    try:
        cames = web.ran([web.Run(case.folder, [case.given]) for case in made])
    except AssertionError as error:  # the whole process ended: each program has one of its own then
        if len(made) == 1:
            return [("Node ended", f"{made[0].name}: {str(error)[:100]}")]
        return [one for case in made for one in judged([case])]
    found = []
    for case, came in zip(made, cames, strict=True):
        run = came if "error" in came else came["runs"][0]
        found.append(case.judged(run.get("outputs"), run.get("error", "")))
    return found


def main() -> int:
    """Prints counts as they grow, and what is not equal. Gives 0 if every program that was built has the native engine's bits."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.web_bits", description=__doc__)
    parser.add_argument("--step", type=int, default=1)
    parser.add_argument("--from", type=int, default=0, dest="first")
    options = parser.parse_args()
    build = lambda program, folder: populus.build(program, folder, cpu="wasm32", relaxed=True)  # noqa: E731
    return compared(node_tests(options.first, options.step), build, judged, CHUNK)


if __name__ == "__main__":
    sys.exit(main())
