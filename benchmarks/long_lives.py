"""make soak: one process compiles and runs many programs, all different, and its memory, mappings, threads and open files stay level.

    python -m benchmarks.long_lives          # 10,000 random graphs on the native engine
    python -m benchmarks.long_lives 500 numpy

A line after each twentieth part. The status is 1 if the second half opens files, starts threads, or adds more than 2.4 % of memory for
each 1,000 programs.
"""

# pyright: basic
from __future__ import annotations

import gc
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import populus
from populus.dialects.support.diagnostics import PopulusError
from populus.runtime.engine.native.codegen.jit import library

sys.path.insert(0, str(Path(__file__).parents[1] / "test"))


def state() -> tuple[float, int, int, int]:
    """Gives the MB of this process, its mappings, its open files and its threads."""
    gc.collect()
    mb = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6
    return mb, len(Path("/proc/self/maps").read_text().splitlines()), len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))


def main(words: Sequence[str]) -> int:
    """Prints the lines. Returns 0 if the process stays level."""
    from fuzz.graphs import graph, inputs

    count = int(words[0]) if words else 10_000
    engine: Any = words[1] if len(words) > 1 else "native"
    seen: list[tuple[float, int, int, int]] = []
    with tempfile.TemporaryDirectory() as folder:
        os.environ["POPULUS_CACHE"] = folder
        for seed in range(count):
            model = graph(seed)
            try:
                program = populus.compile(model, tiles=4, engine=engine)
                program.run(inputs(model, seed))
            except PopulusError as error:
                print(f"seed {seed}: {error}")
            if (seed + 1) % max(count // 20, 1) == 0:
                seen.append(state())
                mb, mappings, files, threads = seen[-1]
                kernels = library().compiled if engine == "native" else 0
                counts = f"{mb:.0f} MB, {mappings} mappings, {files} files, {threads} threads, {kernels} kernels compiled"
                print(f"{seed + 1} programs: {counts}", flush=True)
    (first, _, *opened), (last, _, *left) = seen[len(seen) // 2], seen[-1]
    level = last - first <= 0.024 * first * count / 2 / 1000 and all(after <= before for after, before in zip(left, opened, strict=True))
    print("level" if level else "not level")
    return int(not level)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
