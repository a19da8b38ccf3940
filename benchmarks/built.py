"""Models as libraries: equal bits, bytes of the files, and the peak memory of a process that loads one and runs it, over what it needs.

python -m benchmarks.built [MODEL ..]     by default all models of the table of speeds

The peak is what a process with NumPy grows by from its start to its first result, less the caller's inputs and outputs.
Needed are the weights and the variables alive at the widest step.
"""

# pyright: basic
from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

import populus
from benchmarks.models import MODELS, Graph
from benchmarks.speed import HOST, live_bytes
from populus.dialects.poplar.memory import ConstOp
from populus.runtime.session import graph_of

RUN = """
import json, sys
import numpy as np
import populus
populus.load_program(sys.argv[2], threads=1).run({"x": np.zeros((4, 64), np.float32)})  # excludes what is imported on first use
def peak():
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM"))
base = peak()
program = populus.load_program(sys.argv[1], threads=1)
inputs = {n: np.zeros(*t) for n, t in program.inputs.items()}
outputs = program.run(inputs)
arrays = sum(a.nbytes for a in (*inputs.values(), *outputs.values()))
print(json.dumps((peak() - base) / 1024 - arrays / 2**20))
"""


def row(name: str, folder: Path, small: Path) -> str:
    """Builds and measures a model; gives its row."""
    program = populus.compile(MODELS[name](), target="host", engine="native", threads=1)
    try:
        made = populus.build(program, folder / name, name=name)
    except populus.ProgramError as error:
        return f"| {name} | {error} |"
    inputs = program.signature.random(1)
    expected, found = program.run(inputs), populus.load_program(folder / name, threads=1).run(inputs)
    equal = all(np.array_equal(e.view(np.uint8), found[n].view(np.uint8)) for n, e in expected.items())
    graph = graph_of(program.module("poplar"))
    needed = (sum(op.array().nbytes for op in graph.walk() if isinstance(op, ConstOp)) + live_bytes(graph)) / 2**20
    done = subprocess.run([sys.executable, "-c", RUN, str(folder / name), str(small)], capture_output=True, text=True, check=True)
    peak = json.loads(done.stdout)
    assert made.weights is not None
    sizes = f"{made.library.stat().st_size >> 10} | {made.weights.stat().st_size / 2**20:.1f}"
    return f"| {name} | {'yes' if equal else 'NO'} | {sizes} | {peak:.1f} | {needed:.1f} | {peak / needed:.2f} |"


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Bits, bytes and peak memory of models as libraries.")
    parser.add_argument("models", nargs="*", default=list(HOST))
    options = parser.parse_args(arguments)
    print("| model | equal bits | library KB | weights MiB | peak MiB | needed MiB | ratio |\n|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        g = Graph()
        product = g.model("product", g.op("Tanh", g.op("MatMul", "x", g.weight(64, 64))), [4, 64])
        small = Path(folder, "small")
        populus.build(populus.compile(product, target="host", engine="native"), small)
        for name in options.models:
            print(row(name, Path(folder), small), flush=True)


if __name__ == "__main__":
    main()
