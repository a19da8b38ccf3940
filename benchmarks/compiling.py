# pyright: basic
"""Processor seconds to compile a chain of 500 nodes, alternating convolutions and transformer layers: a figure of docs/performance.md.

python -m benchmarks.compiling [NODES]
"""

from __future__ import annotations

import sys
import time

import populus
from benchmarks.models import mixed
from populus.dialects.poplar import partition
from populus.lowering.poplar.plan import contraction

ROUNDS = 3
TARGETS = ("host", "gc200")


def main() -> None:
    model = mixed(int(sys.argv[1]) if len(sys.argv) > 1 else 500)
    populus.compile(mixed(100), target="gc200")  # exclude imports from the time
    print("| target | nodes | ops | seconds |\n" + "|---" * 4 + "|")
    for target in TARGETS:
        best, ops = float("inf"), 0
        for _ in range(ROUNDS):
            contraction.options.cache_clear()
            partition.linear.cache_clear()
            began = time.process_time()
            program = populus.compile(model, target=target)
            best = min(best, time.process_time() - began)
            ops = sum(1 for _ in program.module("poplar").walk())
        print(f"| {target} | {len(model.graph.node)} | {ops} | {best:.2f} |", flush=True)


if __name__ == "__main__":
    main()
