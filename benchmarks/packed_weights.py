"""Products by weights of 4 bits, `com.microsoft.MatMulNBits`, in turn with onnxruntime's: a table of best CPU times of one thread.

python -m benchmarks.packed_weights
"""

from __future__ import annotations

import argparse
import importlib
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from onnx import ModelProto, helper, numpy_helper

import populus

SIZES = ((1, 4096, 4096), (1, 4096, 11008), (8, 4096, 4096), (128, 4096, 4096))
BITS, BLOCK = 4, 32


def model_of(rows: int, inner: int, columns: int, level: int) -> tuple[ModelProto, int]:
    """Makes a model of one product, and gives the bytes of its weights and scales."""
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 256, (columns, inner // BLOCK, BLOCK * BITS // 8), np.uint8)
    scales = rng.uniform(0.01, 0.02, codes.shape[:2]).astype(np.float32)
    settings: dict[str, Any] = {"K": inner, "N": columns, "bits": BITS, "block_size": BLOCK, "accuracy_level": level}
    node = helper.make_node("MatMulNBits", ["x", "codes", "scales"], ["y"], domain="com.microsoft", **settings)
    ends = [helper.make_tensor_value_info(name, 1, [rows, n]) for name, n in (("x", inner), ("y", columns))]
    weights = [numpy_helper.from_array(codes, "codes"), numpy_helper.from_array(scales, "scales")]
    graph = helper.make_graph([node], "product", ends[:1], ends[1:], weights)
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=10), codes.nbytes + scales.nbytes


def row(rows: int, inner: int, columns: int, rounds: int) -> str:
    """Measures one product, and gives its line of the table."""
    onnxruntime: Any = importlib.import_module("onnxruntime")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    x = np.random.default_rng(1).standard_normal((rows, inner)).astype(np.float32)
    model, size = model_of(rows, inner, columns, 0)
    program = populus.compile(model, target="host", engine="native", threads=1)
    theirs = [onnxruntime.InferenceSession(model_of(rows, inner, columns, n)[0].SerializeToString(), options) for n in (0, 4)]

    def of(session: Any) -> Callable[[], Any]:
        return lambda: np.asarray(session.run(None, {"x": x})[0])

    runs: list[Callable[[], Any]] = [lambda: program.run({"x": x})["y"], *map(of, theirs)]
    results: list[Any] = [run() for run in runs]
    best = [float("inf")] * len(runs)
    for _ in range(rounds):
        for i, run in enumerate(runs):
            begin = time.process_time()
            run()
            best[i] = min(best[i], time.process_time() - begin)
    far = np.abs(results[0] - results[1]).max() / np.abs(results[1]).max()
    times = " | ".join(f"{1e3 * t:.2f}" for t in best)
    rates = f"{size / best[0] / 1e9:.2f} | {size / best[1] / 1e9:.2f}"
    return f"| {rows} by {inner:,} by {columns:,} | {times} | {rates} | **{best[0] / best[1]:.2f}** | {best[0] / best[2]:.2f} | {far:.0e} |"


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    rounds = parser.parse_args().rounds
    print("| product | ours ms | onnxruntime ms | level 4 ms | GB/s | its GB/s | **ratio** | to level 4 | largest difference |")
    print("|---|---|---|---|---|---|---|---|---|")
    for rows, inner, columns in SIZES:
        print(row(rows, inner, columns, rounds if rows < 32 else max(rounds // 4, 3)), flush=True)


if __name__ == "__main__":
    main()
