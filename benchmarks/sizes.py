# pyright: basic
"""Size and compile time of programs by the number of tiles: the second table of docs/performance.md.

python -m benchmarks.sizes
"""

from __future__ import annotations

import time

import onnx

import populus
from benchmarks.models import LIGHT, NETS, transformer
from populus.dialects.poplar import partition
from populus.dialects.table import context
from populus.lowering.driver.pipeline import Pipeline
from populus.lowering.onnx.importer import import_onnx
from populus.lowering.poplar.plan import contraction

TILES = (16, 1472, 5888)
ROUNDS = 4


def row(name: str, model: onnx.ModelProto) -> str:
    """Measures nodes after folding, ops of the tile level, and best seconds of compiling with an empty plan cache.

    Tiles have 256 MiB, because on 16 tiles of the usual 624 KiB most nets would need memory outside.
    """
    passes = Pipeline.named("inference")
    module, ctx = import_onnx(model), context()
    for step in passes.passes[:2]:
        step.apply(ctx, module)
    nodes = sum(op.name.startswith("onnx.") for op in module.walk())
    ops: dict[int, int] = {}
    seconds = dict.fromkeys(TILES, float("inf"))
    for _ in range(ROUNDS):
        for tiles in TILES:
            contraction.options.cache_clear()
            partition.linear.cache_clear()
            began = time.perf_counter()
            program = populus.compile(model, target="gc200, tile_bytes=268435456", tiles=tiles, pipeline=passes)
            seconds[tiles] = min(seconds[tiles], time.perf_counter() - began)
            graph = program.module("poplar").body.block.first_op
            assert graph is not None
            ops[tiles] = sum(1 for _ in graph.walk()) - 1
    few, _, many = TILES
    cells = [name, str(nodes), ", ".join(map(str, ops.values())), f"{ops[many] / nodes:.1f}", f"{ops[many] / ops[few]:.2f}"]
    cells += [f"{seconds[few]:.2f}", f"{seconds[many]:.2f}", f"{seconds[many] / seconds[few]:.2f}"]
    return f"| {' | '.join(cells)} |"


def main() -> None:
    models = {**{net: onnx.load(LIGHT / f"light_{net}.onnx") for net in NETS}, "bert_layer": transformer()}
    print("| model | nodes | ops | for each node | 5,888 / 16 | seconds at 16 | at 5,888 | ratio |\n" + "|---" * 8 + "|")
    populus.compile(models["squeezenet"], target="gc200")  # exclude imports from the time
    for name, model in models.items():
        print(row(name, model), flush=True)


if __name__ == "__main__":
    main()
