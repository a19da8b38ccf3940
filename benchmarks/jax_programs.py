"""Programs of JAX by tile programs and by XLA on one thread: the table of docs/stablehlo-measured.md.

    XLA_FLAGS=--xla_cpu_multi_thread_eigen=false taskset -c 1 python -m benchmarks.jax_programs [NAME ..] [--rounds 30]

The programs are those of `test/helpers/jax_programs.py`. Runs of both take turns, and the shortest CPU time of each counts: what else the
machine does lengthens none of them. XLA's time to compile is that of its first call less that of a later one.
"""

# pyright: basic
from __future__ import annotations

import argparse
import math
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import populus

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "test"))
from helpers.jax_programs import PROGRAMS, draw, exported


def recurrent(c: Any, x: Any, w: Any) -> Any:
    def step(c: Any, row: Any) -> Any:
        c = jnp.tanh(c @ w + row)
        return c, c

    return jax.lax.scan(step, c, x)


LARGE = {
    "product": (jnp.matmul, (draw(512, 512), draw(512, 512))),
    "convolution": (
        lambda x, w: jax.lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")),
        (draw(4, 28, 28, 64), draw(3, 3, 64, 64)),
    ),
    "attention": (jax.nn.dot_product_attention, (draw(1, 256, 8, 64),) * 3),
    "scan": (
        recurrent,
        (draw(16, 128), draw(64, 16, 128), draw(128, 128, scale=0.1)),
    ),
}  # fmt: skip
"""Programs whose time is that of their work, not of their start."""
LEAST = 0.002  # seconds of a round; short programs run several times in it


def timed(run: Any, times: int) -> float:
    """Gives the CPU seconds of one run."""
    begun = time.process_time()
    for _ in range(times):
        run()
    return (time.process_time() - begun) / times


def apart(found: list[Any], wanted: list[Any]) -> float:
    """Gives the largest difference, as a share of the largest element of its result."""
    shares = [0.0]
    for a, b in zip(found, wanted, strict=True):
        b = np.asarray(b, np.float64)
        size = np.abs(b).max(initial=0)
        shares.append(float(np.abs(a - b).max(initial=0) / size) if size else float(np.abs(a).max(initial=0)))
    return max(shares)


def measured(name: str, rounds: int, folder: Path) -> dict[str, Any]:
    """Measures one program."""
    function, arguments = PROGRAMS[name]() if name in PROGRAMS else LARGE[name]
    written = exported(function, arguments)
    file = folder / "model.mlir"
    file.write_bytes(written.mlir_module_serialized)
    begun = time.process_time()
    program = populus.compile(file, engine="native", threads=1, cache=False)
    arrays = dict(zip(program.signature.inputs, map(np.asarray, jax.tree.leaves(arguments)), strict=True))
    found = list(program.run(arrays).values())
    compiled = time.process_time() - begun
    leaves, tree = jax.tree.flatten(arguments)
    placed = jax.tree.unflatten(tree, [jax.device_put(a) for a in leaves])
    jitted = jax.jit(function)
    lowered = jitted.lower(*placed)
    begun = time.process_time()
    lowered.compile()
    theirs = time.process_time() - begun
    wanted = jax.tree.leaves(jax.block_until_ready(jitted(*placed)))
    runs = (lambda: program.run(arrays), lambda: jax.block_until_ready(jitted(*placed)))
    times = [max(1, math.ceil(LEAST / max(timed(run, 3), 1e-7))) for run in runs]
    best = [math.inf, math.inf]
    for _ in range(rounds):
        for i, run in enumerate(runs):
            best[i] = min(best[i], timed(run, times[i]))
    return {
        "ops": str(written.mlir_module()).count("stablehlo."),
        "apart": apart(found, wanted),
        "compile": (compiled, theirs),
        "run": (best[0] * 1e3, best[1] * 1e3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--rounds", type=int, default=30)
    given = parser.parse_args()
    os.environ["POPULUS_CACHE"] = ""  # LLVM compiles, as XLA does
    print("| program | ops | differs by | compile s, XLA's | run ms | XLA's | ratio |\n|---|---|---|---|---|---|---|")
    ratios: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        for name in given.names or [*PROGRAMS, *LARGE]:
            row = measured(name, given.rounds, Path(folder))
            ours, theirs = row["run"]
            ratios.append(ours / theirs)
            compiled = ", ".join(f"{s:.2f}" for s in row["compile"])
            print(f"| {name} | {row['ops']} | {row['apart']:.0e} | {compiled} | {ours:.3f} | {theirs:.3f} | {ratios[-1]:.2f} |", flush=True)
    for part, rows in (("programs", ratios[: -len(LARGE)]), ("large ones", ratios[-len(LARGE) :])) if not given.names else ():
        mean = math.exp(sum(map(math.log, rows)) / len(rows))
        print(f"{part}: mean ratio {mean:.2f} (geometric), {sum(r <= 1 for r in rows)} of {len(rows)} at most 1")


if __name__ == "__main__":
    main()
