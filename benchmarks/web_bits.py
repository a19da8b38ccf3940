"""ONNX's node tests as WebAssembly: for how many of them a module in Node has every bit of the native engine.

python -m benchmarks.web_bits [--step N] [--from N]     every N-th case; all without

A case is built with relaxed SIMD and runs on the inputs that its program draws. It is refused where `populus build` refuses it, with the
reason, which is counted by its last words. Inputs that the native engine refuses, as an index outside of its table, the module refuses too.
"""

# pyright: basic
from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from onnx.backend.test.loader import load_model_tests

import populus
from populus.dialects.support.diagnostics import PopulusError

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "test"))
from helpers import web
from helpers.built_nets import compiled

CHUNK = 60
"""Programs that one process of Node runs."""


Case = tuple[web.Run, dict | None, str]
"""What is built and on what it runs; the native engine's outputs, None where it refuses the inputs; and a name."""


def judged(made: list[Case]) -> list[tuple[str, str]]:
    """Runs some modules. Returns for each whether its outputs are equal to the native engine's, and its name with what it says."""
    try:
        cames = web.ran([run for run, _, _ in made])
    except AssertionError as error:  # the whole process ended: each program has one of its own then
        if len(made) == 1:
            return [("Node ended", f"{made[0][2]}: {str(error)[:100]}")]
        return [one for case in made for one in judged([case])]
    found = []
    for came, (_, expected, name) in zip(cames, made, strict=True):
        said = came.get("error") or came["runs"][0].get("error")
        if expected is None:
            found.append(("refuse the inputs alike" if said else "differ", name))
        elif said:
            found.append(("error", f"{name}: {said[:120]}"))
        else:
            same = all(came["runs"][0]["outputs"][n] == array.tobytes() for n, array in expected.items())
            found.append(("equal" if same else "differ", name))
    return found


def main() -> int:
    """Prints counts as they grow, and what is not equal. Gives 0 if every program that was built has the native engine's bits."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.web_bits", description=__doc__)
    parser.add_argument("--step", type=int, default=1)
    parser.add_argument("--from", type=int, default=0, dest="first")
    options = parser.parse_args()
    cases = load_model_tests(kind="node")[options.first :: options.step]
    count, reasons, wrong, begun = Counter[str](), Counter[str](), [], time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix="populus-web-bits-"))
    made: list[Case] = []
    try:
        for number, case in enumerate(cases, 1):
            try:
                program = compiled(case.model)
                populus.build(program, folder / case.name, cpu="wasm32", relaxed=True)
            except PopulusError as error:
                count["refused"] += 1
                reasons[" ".join(str(error).split()[-6:])] += 1
            else:
                given = program.signature.random()
                try:
                    expected = program.run(given)
                except PopulusError:
                    expected = None
                made.append((web.Run(folder / case.name, [given]), expected, case.name))
            if len(made) == CHUNK or (made and number == len(cases)):
                for kind, what in judged(made):
                    count[kind] += 1
                    if kind not in ("equal", "refuse the inputs alike"):
                        wrong.append(f"{kind}: {what}")
                for one in folder.iterdir():
                    shutil.rmtree(one)
                made = []
                counts = ", ".join(f"{n} {kind}" for kind, n in count.most_common())
                print(f"{number} cases: {counts}, {time.monotonic() - begun:.0f} s", flush=True)
    finally:
        shutil.rmtree(folder)
    print(*(f"{n} refused: .. {why}" for why, n in reasons.most_common(12)), *wrong, sep="\n")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
