"""Many threads at one program and at the compiler: `python test/fuzz/threads.py --runs 60 --processes 5`.

Each of 16 threads runs each model of `concurrent_runs.models` so often on each engine, on inputs that differ from run to run; results
are compared to the bit with those of one thread. Then new processes compile for the first time in 16 threads at once.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import populus
from helpers.concurrent_runs import THREADS, inputs_of, models, same, together

ENGINES = ("numpy", "native", "strict")

FIRST = """
import sys
sys.path.append(sys.argv[1])
from helpers.concurrent_runs import inputs_of, models, same, together
import populus
nets = list(models().values())
def made(i):
    program = populus.compile(nets[i % len(nets)], engine=("numpy", "native", "strict")[i % 3], tiles=4)
    given = inputs_of(program, i)
    return given, program.run(given)
found = together(made)
wrong = 0
for i, (given, outputs) in enumerate(found):
    expected = populus.compile(nets[i % len(nets)], engine=("numpy", "native", "strict")[i % 3], tiles=4).run(given)
    wrong += not same(outputs, expected)
sys.exit(f"{wrong} of {len(found)} are wrong" if wrong else 0)
"""


def wrong_runs(name: str, engine: str, runs: int) -> int:
    """How many of 16 times `runs` runs give other bits than one thread gets."""
    program = populus.compile(models()[name], engine=engine, target="gc200", tiles=4)
    inputs = [inputs_of(program, seed) for seed in range(THREADS)]
    expected = [program.run(given) for given in inputs]

    def work(i: int) -> int:
        chosen = [(i + k) % THREADS for k in range(runs)]
        return sum(not same(program.run(inputs[j]), expected[j]) for j in chosen)

    return sum(together(work))


def main() -> int:
    """0 if all is right."""
    options = argparse.ArgumentParser(prog="python test/fuzz/threads.py")
    options.add_argument("--runs", type=int, default=60, help="of each thread, model and engine")
    options.add_argument("--processes", type=int, default=5, help="how many compile for the first time in 16 threads")
    given = options.parse_args()
    bad = 0
    for engine in ENGINES:
        for name in models():
            begun = time.monotonic()
            wrong = wrong_runs(name, engine, given.runs)
            bad += wrong
            print(f"{engine:8}{name:10}{wrong:6} of {THREADS * given.runs} runs are wrong, {time.monotonic() - begun:.1f} s", flush=True)
    for i in range(given.processes):
        folder = str(Path(__file__).resolve().parents[1])
        done = subprocess.run([sys.executable, "-c", FIRST, folder], capture_output=True, text=True, timeout=600, check=False)
        bad += done.returncode != 0
        print(f"process {i}: {done.stderr.strip().splitlines()[-1] if done.returncode else 'right'}", flush=True)
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
