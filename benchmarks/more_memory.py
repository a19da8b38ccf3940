"""Counts drawn chains of products that the model predicts slower on a mesh with more memory a tile than with less.

python -m benchmarks.more_memory [CHAINS] [SEED] [--grid SIDE] [--chains]

A chain is of two to four products of 16, 64 or 128 rows by constants of 128 to 512 rows and columns, with a Relu each. It is
compiled for cores that hold three to sixteen eighths of its bytes. `--grid`: the side of the grid of cores, which share the bytes, with
rows and columns as many times as large. `--chains` prints each of them.
"""

from __future__ import annotations

import argparse
import itertools
import random
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from onnx import ModelProto, TensorProto, helper, numpy_helper

import populus
from populus.dialects.support.diagnostics import PopulusError

EIGHTHS = (3, 4, 5, 6, 7, 8, 9, 10, 12, 16)  # of the bytes of a chain, for all cores together
SLOWER = (1.0, 1.01, 1.02)  # times the cycles of a smaller memory
MACHINE = """
from populus.dialects.poplar.machine import machine

MACHINE = machine(
    kind="mesh", name="array", tiles={side} * {side}, grid=({side}, {side}), tile_bytes=8 << 20,
    clock_hz=1e9, launch_cycles=0, signal_cycles=1,
    unicast_bytes=128.0, row_bytes=128.0, column_bytes=128.0, multicast_cycles=1, issue_cycles=0, dram_size=8 << 30, dram_tile_bytes=32.0,
    dram_read_bytes=32.0, dram_write_bytes=32.0, dram_stream_bytes=32.0, dram_cycles=1, matrix_macs=1024, formats=("f32",),
    phases={{"f32": 1}}, sub_block=16, unpack_bytes=(1024.0, 1024.0), pack_bytes=1024.0,
)
"""


def chain(rows: int, sizes: list[int]) -> ModelProto:
    """Makes products of `rows` rows by constants, from the first of `sizes` to the last, with a Relu each."""
    weights = [numpy_helper.from_array(np.full(shape, i, "f4"), f"w{i}") for i, shape in enumerate(itertools.pairwise(sizes))]
    nodes = [
        node
        for i in range(len(weights))
        for node in (
            helper.make_node("MatMul", [f"a{i}", f"w{i}"], [f"p{i}"], name=f"p{i}"),
            helper.make_node("Relu", [f"p{i}"], [f"a{i + 1}"]),
        )
    ]
    last = len(weights)
    info = [helper.make_tensor_value_info(f"a{i}", TensorProto.FLOAT, [rows, sizes[i]]) for i in (0, last)]
    graph = helper.make_graph(nodes, "chain", info[:1], info[1:], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def cycles_of(model: ModelProto, machine: Path, bytes: int) -> int | None:
    """Predicts a model's cycles with `bytes` on each core; None if it does not fit."""
    try:
        program = populus.compile(model, target=f"array, tile_bytes={bytes}", load=[machine], cache=False)
    except PopulusError:
        return None
    return int(program.profile().summary["cycles"])


def drawn(seed: int, grid: int) -> tuple[int, list[int]]:
    """Draws the rows and the sizes of a chain. A grid of more cores has larger sizes."""
    draw = random.Random(seed)
    return draw.choice([16, 64, 128]) * grid, [draw.choice([128, 256, 384, 512]) * grid for _ in range(draw.randint(3, 5))]


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.more_memory")
    parser.add_argument("count", nargs="?", type=int, default=40)
    parser.add_argument("seed", nargs="?", type=int, default=0)
    parser.add_argument("--grid", type=int, default=1)
    parser.add_argument("--chains", action="store_true")
    args = parser.parse_args()
    worst: list[float] = []
    with TemporaryDirectory() as folder:
        machine = Path(folder) / "array.py"
        machine.write_text(MACHINE.format(side=args.grid))
        for seed in range(args.seed, args.seed + args.count):
            rows, sizes = drawn(seed, args.grid)
            total = 4 * (sum(a * b for a, b in itertools.pairwise(sizes)) + rows * sum(sizes)) // args.grid**2
            found = [cycles_of(chain(rows, sizes), machine, n * total // 8) for n in EIGHTHS]
            least, ratio = float("inf"), 1.0
            for cycles in (c for c in found if c is not None):
                ratio, least = max(ratio, cycles / least), min(least, cycles)
            worst.append(ratio)
            if args.chains:
                print(f"{seed}: {rows} x {sizes}: {', '.join('-' if c is None else f'{c:,}' for c in found)}: {ratio:.3f}", flush=True)
    for limit in SLOWER:
        print(f"{sum(r > limit for r in worst)} of {len(worst)} chains are more than {limit - 1:.0%} slower with more memory")
    print(f"at most {max(worst):.3f} times the cycles")


if __name__ == "__main__":
    main()
