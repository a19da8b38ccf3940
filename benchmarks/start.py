"""CPU seconds of a process that imports, compiles, loads and runs a model once: with an empty object cache, then with a filled one.

python -m benchmarks.start             resnet50, the best of 5 of each
python -m benchmarks.start squeezenet --rounds 20
"""

# pyright: basic
from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import onnx

from benchmarks.models import MODELS

ONCE = """
import os, sys
import numpy as np
import populus
program = populus.compile(sys.argv[1], target="host")
compiled = os.times()
program.run({n: np.zeros(t.get_shape(), np.float32) for n, t in program.signature.inputs.items()})
print(*(t.user + t.system for t in (compiled, os.times())))
"""


def once(path: Path, cache: str) -> tuple[float, float]:
    """Measures CPU seconds until the model is compiled, and until it has run, in a new process."""
    environment = {**os.environ, "POPULUS_CACHE": cache}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # like an installed package, which has its bytecode
    done = subprocess.run([sys.executable, "-c", ONCE, str(path)], env=environment, capture_output=True, text=True, check=True)
    compiled, ended = map(float, done.stdout.split())
    return compiled, ended


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="CPU seconds of the first run of a model, in a new process.")
    parser.add_argument("model", nargs="?", default="resnet50", choices=list(MODELS))
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        onnx.save(MODELS[options.model](), path)
        warm = str(Path(folder) / "warm")
        once(path, warm)  # fills the cache, and writes bytecode
        print("| object cache | imports and passes | whole process |\n|---|---|---|")
        for name, caches in (("empty", [str(Path(folder) / str(i)) for i in range(options.rounds)]), ("filled", [warm] * options.rounds)):
            compiled, ended = min((once(path, cache) for cache in caches), key=lambda seconds: seconds[1])
            print(f"| {name} | {compiled:.2f} | {ended:.2f} |")


if __name__ == "__main__":
    main()
