"""Compares drawn points of explorations with fresh compiles for the same machines, which share nothing with each other.

python -m benchmarks.explored_points [POINTS] [SEED]
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import onnx

import populus
from benchmarks.models import transformer
from populus.write.nets import net

VARY = {"tiles": "736:1472:368", "tile_bytes": "512K,576K,624K,704K,768K", "exchange_bytes": "4,8", "vector_bytes": "8,16"}
COSTS = {"cycles": "cycles", "memory": "peak_tile_bytes", "exchange": "exchange_bytes", "sync_cycles": "sync_cycles"}


def models(folder: Path) -> Iterator[tuple[str, Path]]:
    """Yields ResNet-50 for one image, and BERT-base for 128 tokens."""
    yield "resnet50", net("resnet50")
    bert = folder / "bert.onnx"
    onnx.save(transformer(layers=12), bert)
    yield "bert", bert


def main(arguments: list[str]) -> int:
    """Prints for each model how many of the drawn points are equal, and each that is not; status 1 if there is one."""
    count, seed = (int(arguments[i]) if len(arguments) > i else default for i, default in enumerate((50, 0)))
    draw, wrong = random.Random(seed), 0
    with TemporaryDirectory() as folder:
        for name, path in models(Path(folder)):
            found = populus.explore(path, vary=VARY, minimise=("cycles", "memory"))
            drawn = draw.sample([p for p in found.points if "measures" in p], count // 2)
            for point in drawn:
                machine = found.machine(point["point"])
                fresh = populus.compile(path, target=machine, cache=False).profile().summary
                have = {cost: point["measures"][cost] for cost in COSTS}
                want = {cost: fresh[of] for cost, of in COSTS.items()}
                if have != want:
                    wrong += 1
                    print(f"{name}, point {point['point']}: {have}, and {want} of a fresh compile")
            print(f"{name}: {len(drawn)} of {len(found.points)} points compared, {wrong} differ so far")
    return min(wrong, 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
