# pyright: basic
"""One tree's part of `benchmarks.before_after`: it names only what both trees have, and takes the package from PYTHONPATH.

python -P before_after_worker.py TASK FILE ARGUMENT ..
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

import populus

STEPS = 3


def program_of(path: str, target: str, engine: str = "native") -> Any:
    """Compiles a model for 16 tiles of a host, or all tiles of a machine."""
    how: dict[str, Any] = {"engine": engine, **({"sample": 4} if engine == "strict" else {"threads": 1} if engine == "native" else {})}
    return populus.compile(path, target=target, tiles=16 if target == "host" else None, cache=False, **how)


def inputs_of(types: Any) -> dict[str, Any]:
    """Draws the same inputs in each tree."""
    rng = np.random.default_rng(1)
    return {n: rng.standard_normal(tuple(t.get_shape())).astype(np.float32) for n, t in sorted(types.items())}


def bits(path: str, engine: str, target: str, file: str) -> None:
    """Writes the outputs of a model on an engine, or as a library."""
    program = program_of(path, target, "native" if engine == "library" else engine)
    inputs = inputs_of(program.signature.inputs)
    if engine == "library":
        populus.build(program, Path(file).with_suffix(""), name="net")
        program = populus.load_program(Path(file).with_suffix(""), threads=1)
    outputs: dict[str, Any] = program.run(inputs)
    np.savez(file, **outputs)


def trained(path: str, engine: str, options: str, file: str) -> None:
    """Writes losses and weights of some steps of training."""
    session = populus.TrainingSession(path, **{"engine": engine, **json.loads(options)})
    rng, (name, types) = np.random.default_rng(1), json.loads(Path(path).with_suffix(".json").read_text())
    losses: list[float] = []
    for _ in range(STEPS):
        given, labels = (
            rng.integers(0, 10, shape, np.int32) if kind == "classes" else rng.standard_normal(shape).astype(np.float32)
            for kind, shape in types
        )
        losses.append(session.step({name: given}, labels))
    arrays: dict[str, Any] = {"losses": np.array(losses), **session.weights}
    np.savez(file, **arrays)


def times(path: str, target: str) -> None:
    """Runs a model as often as each line of the input says, and prints the least CPU milliseconds of a run."""
    program = program_of(path, target)
    inputs = inputs_of(program.signature.inputs)
    program.run(inputs)
    print("ready", flush=True)
    for line in sys.stdin:
        best = float("inf")
        for _ in range(int(line)):
            began = time.thread_time()
            program.run(inputs)
            best = min(best, time.thread_time() - began)
        print(best * 1e3, flush=True)


def sizes(path: str, target: str) -> None:
    """Prints the number of ops at each level below the model."""
    program = program_of(path, target)
    print(*(sum(1 for _ in program.module(level).walk()) for level in ("popart", "popops", "poplar")))


def first(path: str) -> None:
    """Compiles and runs once."""
    program = program_of(path, "host")
    program.run(inputs_of(program.signature.inputs))


def built(path: str, folder: str) -> None:
    """Makes a library."""
    populus.build(program_of(path, "host"), folder, name="net")


def load(folder: str) -> None:
    """Runs a library once."""
    program = populus.load_program(folder, threads=1)
    program.run({n: np.zeros(shape, dtype) for n, (shape, dtype) in program.inputs.items()})


if __name__ == "__main__":
    assert Path(populus.__file__).is_relative_to(os.environ["PYTHONPATH"]), populus.__file__
    tasks = {task.__name__: task for task in (bits, trained, times, sizes, first, built, load)}
    tasks[sys.argv[1]](*sys.argv[2:])
