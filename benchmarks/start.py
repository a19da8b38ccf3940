"""Time of a process from its start to its first result, over onnxruntime's: compiled afresh, kept, built, and as a program in C.

python -m benchmarks.start             resnet50, the best of 5 of each, interleaved
python -m benchmarks.start squeezenet --rounds 20 --runs 100     to the 100th result
python -m benchmarks.start --python DIR/bin/python    of an environment with the wheel: a checkout's finder takes 12 ms of each start
python -m benchmarks.start squeezenet a.onnx --nth 1 10 100      to these results, with nothing kept and with the program kept; one thread

`wall` is the whole process; `cpu` its user and system seconds, of all threads, which a busy machine changes less.
"""

# pyright: basic
from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import onnx
import onnxruntime

import populus
from benchmarks.models import MODELS
from benchmarks.shipped import drawn

COMPILED = """
import sys
import numpy as np
import populus
program = populus.compile(sys.argv[1], target="host", cache=False)
inputs = {n: np.zeros(t.get_shape(), np.float32) for n, t in program.signature.inputs.items()}
for _ in range(int(sys.argv[-1])):
    program.run(inputs)
"""
APART = """
import sys
import numpy as np
import populus
shape = tuple(map(int, sys.argv[3].split(",")))
program = populus.compile(sys.argv[1], target="host", cache=False, apart=True)
inputs = {sys.argv[2]: np.zeros(shape, np.float32)}
for _ in range(int(sys.argv[-1])):
    program.run(inputs)
"""
KEPT = """
import sys
import numpy as np
import populus
shape = tuple(map(int, sys.argv[3].split(",")))
program, inputs = populus.compile(sys.argv[1], target="host"), {sys.argv[2]: np.zeros(shape, np.float32)}
for _ in range(int(sys.argv[-1])):
    program.run(inputs)
"""
BUILT = """
import sys
import numpy as np
import populus
program = populus.load_program(sys.argv[1])
inputs = {n: np.zeros(*t) for n, t in program.inputs.items()}
for _ in range(int(sys.argv[-1])):
    program.run(inputs)
"""
PEER = """
import sys
import numpy as np
import onnxruntime
peer = onnxruntime.InferenceSession(sys.argv[1])
inputs = {i.name: np.zeros(i.shape, np.float32) for i in peer.get_inputs()}
for _ in range(int(sys.argv[-1])):
    peer.run(None, inputs)
"""

NTH = {
    "ours": """
import sys
import numpy as np
import populus
program, inputs = populus.compile(sys.argv[1], threads=1), dict(np.load(sys.argv[2]))
for _ in range(int(sys.argv[-1])):
    program.run(inputs)
""",
    "theirs": """
import sys
import numpy as np
import onnxruntime
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = 1
peer, inputs = onnxruntime.InferenceSession(sys.argv[1], options), dict(np.load(sys.argv[2]))
for _ in range(int(sys.argv[-1])):
    peer.run(None, inputs)
""",
}


def once(words: Sequence[str], cache: str) -> tuple[float, float]:
    """Measures the wall and CPU seconds of a process."""
    environment = {**os.environ, "POPULUS_CACHE": cache}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # like an installed package, which has its bytecode
    began = time.perf_counter()
    process = subprocess.Popen(words, env=environment, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    assert status == 0, (words, status)
    process.returncode = 0
    return time.perf_counter() - began, used.ru_utime + used.ru_stime


def prepared(path: Path, folder: Path, interpreter: str, runs: int) -> dict[str, Callable[[int], tuple[list[str], str]]]:
    """Gives the ways to a first result: from the number of the round, the command and its cache."""
    program = populus.compile(path, target="host", engine="native")
    ((name, type),) = program.signature.inputs.items()
    shape = ",".join(map(str, type.get_shape()))
    warm, python = str(folder / "warm"), [interpreter, "-P", "-c"]  # -P: not the checkout that is the current folder
    ways: dict[str, Callable[[int], tuple[list[str], str]]] = {
        "onnxruntime": lambda i: ([*python, PEER, str(path), str(runs)], warm),
        "compiled, empty cache of objects": lambda i: ([*python, COMPILED, str(path), str(runs)], str(folder / str(i))),
        "compiled, filled cache of objects": lambda i: ([*python, COMPILED, str(path), str(runs)], warm),
        "compiled apart, filled cache of objects": lambda i: ([*python, APART, str(path), name, shape, str(runs)], warm),
    }
    if shutil.which("cc") is not None:
        populus.build(program, folder / "built")
        subprocess.run(["make", "-s", "-C", folder / "built"], check=True)
        ways["`compile`, kept now"] = lambda i: ([*python, KEPT, str(path), name, shape, str(runs)], str(folder / f"kept {i}"))
        ways["`compile`, kept before"] = lambda i: ([*python, KEPT, str(path), name, shape, str(runs)], warm)
        ways["`load_program`"] = lambda i: ([*python, BUILT, str(folder / "built"), str(runs)], warm)
        if runs == 1:
            ways["`populus build`, in C"] = lambda i: ([str(folder / "built" / "example")], warm)
    time.sleep(1.1)  # a file that was just written is not kept
    for _ in range(2):  # fills the caches, and writes bytecode
        for way in ways.values():
            once(*way(-1))
    return ways


def nth(model: str, counts: Sequence[int], rounds: int, interpreter: str) -> None:
    """Prints a row: the CPU seconds of a process to these results over onnxruntime's, cold and warm."""
    with tempfile.TemporaryDirectory() as folder:
        path, inputs = Path(folder) / "model.onnx", Path(folder) / "inputs.npz"
        onnx.save(MODELS[model]() if model in MODELS else onnx.load(model), path)
        np.savez(inputs, **drawn(onnxruntime.InferenceSession(path), Path(model)))
        time.sleep(1.1)  # a file that was just written is not kept
        warm = str(Path(folder) / "warm")

        def seconds(which: str, count: int, cache: str) -> float:
            return once([interpreter, "-P", "-c", NTH[which], str(path), str(inputs), str(count)], cache)[1]

        seconds("ours", 1, warm)
        cells: list[str] = []
        for count in counts:
            ways = [("theirs", warm), ("ours", f"{folder}/{count} %d"), ("ours", warm)]
            times = [[seconds(which, count, cache.replace("%d", str(i))) for which, cache in ways] for i in range(rounds)]
            peer, cold, kept = map(min, zip(*times))
            cells.append(f"{cold / peer:.2f} / **{kept / peer:.2f}**")
        print(f"| {Path(model).stem} | {' | '.join(cells)} |", flush=True)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Seconds to the first result of a model, in a new process.")
    parser.add_argument("models", nargs="*", default=["resnet50"], help="names of benchmarks.models; with --nth also files")
    parser.add_argument("--nth", type=int, nargs="+", help="the numbers of results")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--runs", type=int, default=1, help="the number of the result that is waited for")
    parser.add_argument("--python", default=sys.executable, help="the interpreter of the processes, with this package and onnxruntime")
    options = parser.parse_args(arguments)
    if options.nth:
        print(f"| model | {' | '.join(map(str, options.nth))} |\n|{'---|' * (len(options.nth) + 1)}")
        for model in options.models:
            nth(model, options.nth, options.rounds, options.python)
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        (model,) = options.models
        onnx.save(MODELS[model](), path)
        ways = prepared(path, Path(folder), options.python, options.runs)
        found: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
        for i in range(options.rounds):
            for name, way in ways.items():
                found[name].append(once(*way(i)))
        best = {name: (min(w for w, _ in times), min(c for _, c in times)) for name, times in found.items()}
        peer = best["onnxruntime"]
        print(f"| {model} | wall | of onnxruntime's | cpu | of onnxruntime's |\n|---|---|---|---|---|")
        for name, (wall, cpu) in best.items():
            print(f"| {name} | {wall:.2f} s | {wall / peer[0]:.2f} | {cpu:.2f} s | {cpu / peer[1]:.2f} |")


if __name__ == "__main__":
    main()
